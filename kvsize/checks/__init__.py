"""A file of assertions about models' caches, held against the figures; `kvsize check` runs it.

keys (what a file may say) → lines (where it says it) → reader (checks) → runner (outcomes) →
formats (text). No byte is computed here: sizes are `kvsize.report`'s, and what fits is
`kvsize.capacity`'s.
"""
