"""Pictures of the cache: memory against context, stacked by kind of layer, and for mixed lengths.

`lines`, `kinds` and `lengths` make the data, `writers` name the formats that draw it. Every figure
drawn is one that `kvsize.size` gives; nothing here computes a byte.
"""
