"""The most that a cache and the copies it makes while it grows hold at once.

DynamicLayer appends with `torch.cat`: the old keys live until the new ones are there, then the
same for the values. DynamicSlidingWindowLayer builds both before it lets go of either, and a full
StaticSlidingWindowLayer rolls both; a convolution's state is shifted through a copy one column
longer (transformers 5.24.0, cache_utils.py). What the model computes around it is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvsize.engines.transformers.tensors import CacheTensor

LayerTensors = tuple[CacheTensor, ...]


def step_peak(before: Sequence[LayerTensors], after: Sequence[LayerTensors]) -> int:
    """Bytes at the worst moment of one forward pass that takes the cache from one to the other.

    Both list the same layers; they are updated in order.
    """
    held = sum(tensor.storage_bytes for layer in before for tensor in layer)
    peak = held
    for old, new in zip(before, after, strict=True):
        layer_peak, change = layer_step(old, new)
        peak = max(peak, held + layer_peak)
        held += change
    return peak


def layer_step(old: LayerTensors, new: LayerTensors) -> tuple[int, int]:
    """What one layer's update adds at its worst moment, and what it adds for good.

    A layer's tensors may be given in parts, one after another, as its class updates them.
    """
    peak = change = together = 0
    for was, now in zip(old, new, strict=True):
        match now.growth:
            case "append":
                peak = max(peak, change + now.storage_bytes)
                change += now.storage_bytes - was.storage_bytes
            case "window":
                together += now.storage_bytes
                change += now.storage_bytes - was.storage_bytes
            case "roll":
                together += now.storage_bytes
            case "shift":
                columns = now.shape[-1]
                peak = max(peak, change + now.storage_bytes // columns * (columns + 1))
            case _:
                pass
    return max(peak, together), change
