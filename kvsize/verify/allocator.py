"""What torch's CUDA allocator adds to a cache: whole blocks, segments, and copies while it grows.

Pure arithmetic, by the constants of c10/cuda/CUDACachingAllocator (torch 2.13, unchanged for many
releases); `devices.py` measures the same figures on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.versions import CachedLayer
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    SlidingAttention,
)
from kvsize.units import MIB, pad

# kMinBlockSize: every block is a multiple of it.
BLOCK_BYTES = 512
# kSmallSize: larger requests come from the pool of large blocks, whose rest is split off only
# when it is larger than this.
SMALL_BYTES = MIB
# kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge: how segments are asked of the driver.
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
LEAST_LARGE_BYTES = 10 * MIB


@dataclass(frozen=True, slots=True)
class Allocated:
    """`torch.cuda.memory_allocated` for some tensors: exact, or between two figures.

    A large block that is reused whole keeps up to 1 MiB more than was asked for.
    """

    least: int
    most: int

    def holds(self, measured_bytes: int) -> bool:
        """Whether a measured figure is one the allocator can give."""
        return self.least <= measured_bytes <= self.most


def block_bytes(size_bytes: int) -> int:
    """The block for one tensor: a multiple of 512 bytes, and none for an empty tensor."""
    return pad(size_bytes, BLOCK_BYTES)


def segment_bytes(size_bytes: int) -> int:
    """What is asked of the driver when no free block fits a tensor of `size_bytes`."""
    size_bytes = block_bytes(size_bytes)
    if size_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES if size_bytes else 0
    if size_bytes < LEAST_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return pad(size_bytes, SMALL_SEGMENT_BYTES)


def allocated(sizes_bytes: Iterable[int]) -> Allocated:
    """What `memory_allocated` counts for storages of these sizes."""
    blocks = [block_bytes(size_bytes) for size_bytes in sizes_bytes]
    large = sum(1 for block in blocks if block > SMALL_BYTES)
    return Allocated(sum(blocks), sum(blocks) + large * SMALL_BYTES)


def bookkeeping_tensors(layer: CachedLayer, form: Form) -> int:
    """Scalars of 8 bytes that the layer's class keeps on the device, one block each.

    DynamicSlidingWindowLayer moves its window there, StaticLayer its length, and the layers of an
    index the index's length (transformers 5.24.0, cache_utils.py).
    """
    attention = layer.attention if isinstance(layer, HybridLayer) else layer
    if not isinstance(attention, FullAttention | LatentAttention):
        return 0
    if form.cache == "static":
        extras = [extra for extra in attention.extras if not extra.positions]
        return 1 + len(extras)
    if isinstance(attention, LatentAttention):
        return int(attention.sliding_window is not None)
    return int(isinstance(attention, SlidingAttention | ChunkedAttention))


def layers_that_fit(layer_bytes: Sequence[int], transient_bytes: int, free_bytes: int) -> int:
    """How many of the first layers fit, with room for `transient_bytes` of copies."""
    left = free_bytes - transient_bytes
    count = 0
    for size_bytes in layer_bytes:
        if size_bytes > left:
            break
        left -= size_bytes
        count += 1
    return count
