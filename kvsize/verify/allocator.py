"""What torch's CUDA allocator adds to a cache: whole blocks, segments, and what it cannot split.

Pure arithmetic by torch 2.13's c10/core/AllocatorConfig.h (the sizes) and
c10/cuda/CUDACachingAllocator.cpp (round_size, should_split, get_allocation_size); `devices.py`
measures the same figures on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.versions import CachedLayer
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
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
# kSmallBuffer, large_segment_size (kLargeBuffer until 2.12), kMinLargeAlloc: how segments are
# asked of the driver; kRoundLarge is 2 MiB as well.
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
LEAST_LARGE_BYTES = 10 * MIB
ROUND_LARGE_BYTES = 2 * MIB
# Settings after which blocks are no longer what the arithmetic here says.
OTHER_ROUNDING = ("roundup_power2_divisions", "max_split_size_mb", "cudaMallocAsync")


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
    return pad(size_bytes, ROUND_LARGE_BYTES)


def unsplit_bytes(backend: str, settings: str) -> int | None:
    """The most that a large block keeps beyond its tensor, by PYTORCH_CUDA_ALLOC_CONF.

    1 MiB by default, less than a block with expandable segments; None where a setting changes the
    rounding itself.
    """
    settings = settings.replace(" ", "")
    if backend != "native" or any(name in settings for name in OTHER_ROUNDING):
        return None
    return 0 if "expandable_segments:true" in settings.lower() else SMALL_BYTES


def allocated(sizes_bytes: Iterable[int], unsplit: int = SMALL_BYTES) -> Allocated:
    """What `memory_allocated` counts for storages of these sizes."""
    blocks = [block_bytes(size_bytes) for size_bytes in sizes_bytes]
    large = sum(1 for block in blocks if block > SMALL_BYTES)
    return Allocated(sum(blocks), sum(blocks) + large * unsplit)


def bookkeeping_tensors(layer: CachedLayer, form: Form) -> int:
    """Scalars of 8 bytes that the layer's class keeps on the device, one block each.

    DynamicSlidingWindowLayer moves its window there (from 5.0), StaticLayer its length (from 5.5),
    and the layers of an index the index's length (transformers 5.24.0, cache_utils.py).
    """
    attention = layer.attention if isinstance(layer, HybridLayer) else layer
    if isinstance(attention, CompressedAttention):
        return 1  # its classes are kinds of DynamicSlidingWindowLayer
    if not isinstance(attention, FullAttention | LatentAttention):
        return 0
    if form.cache == "static":
        extras = [extra for extra in attention.extras if not extra.positions]
        return (1 + len(extras)) * (form.rules.number >= (5, 5))
    if form.rules.number < (5, 0):
        return 0
    if isinstance(attention, LatentAttention):
        return int(attention.sliding_window is not None)
    return int(isinstance(attention, SlidingAttention | ChunkedAttention))
