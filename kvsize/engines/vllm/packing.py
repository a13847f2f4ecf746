"""Groups of mixed page sizes, packed side by side in one block (block-outermost layouts).

Layers are put into buckets of one type. A bucket that mixes page sizes in equal numbers is a
repeating pattern and stays whole; single-size buckets are split so that every group covers
about as many repeats. Rules of _get_packed_kv_cache_groups in
vllm/v1/core/kv_cache_planning.py (0.33.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines.vllm.specs import MambaSpec, SlidingWindowSpec
from kvsize.units import ceil_div, pad

if TYPE_CHECKING:
    from kvsize.engines.vllm.grouping import CacheLayer


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers of one type, by the sizes of their pages."""

    layers: tuple[CacheLayer, ...]

    @property
    def counts(self) -> Counter[int]:
        return Counter(layer.spec.page_bytes for layer in self.layers)

    @property
    def balanced(self) -> bool:
        """Whether every page size occurs equally often: one repeating pattern."""
        return len(set(self.counts.values())) == 1

    @property
    def repeats(self) -> int:
        return max(self.counts.values())

    def split(self, count: int) -> list[list[CacheLayer]]:
        """`count` groups, the pattern's repeats dealt out in turn."""
        if count == 1:
            return [list(self.layers)]
        by_size: dict[int, list[CacheLayer]] = {}
        for layer in self.layers:
            by_size.setdefault(layer.spec.page_bytes, []).append(layer)
        repeats = list(zip(*by_size.values(), strict=False))
        return [
            [layer for repeat in repeats[start::count] for layer in repeat]
            for start in range(count)
        ]

    def widest_bytes(self, count: int) -> int:
        """Page bytes of the largest of `count` groups."""
        return sum(ceil_div(number, count) * page for page, number in self.counts.items())


def packed_groups(layers: Sequence[CacheLayer]) -> list[list[CacheLayer]]:
    """The groups of `layers`, whose pages differ in size, for a block-outermost layout."""
    buckets = _buckets(layers)
    repeats = _repeats_per_group(buckets)
    anchor_bytes = max(
        bucket.widest_bytes(
            len(bucket.layers) if _splits_freely(bucket, repeats) else _parts(bucket, repeats)
        )
        for bucket in buckets
    )
    groups: list[list[CacheLayer]] = []
    for bucket in buckets:
        count = _parts(bucket, repeats)
        if anchor_bytes and _splits_freely(bucket, repeats):
            per_block = max(anchor_bytes // bucket.layers[0].spec.page_bytes, 1)
            count = max(count, ceil_div(len(bucket.layers), per_block))
        groups += bucket.split(count)
    return groups


def _buckets(layers: Sequence[CacheLayer]) -> list[_Bucket]:
    by_type: dict[object, list[CacheLayer]] = {}
    for layer in layers:
        spec = layer.spec
        by_type.setdefault((spec.family, spec.block_size, spec.dcp_sharded), []).append(layer)
    return [_Bucket(tuple(own)) for own in by_type.values()]


def _repeats_per_group(buckets: Sequence[_Bucket]) -> int | None:
    """Pattern repeats that each group covers; None where no bucket mixes page sizes."""
    balanced = [bucket for bucket in buckets if bucket.balanced]
    floor = max((b.repeats for b in balanced if len(b.counts) > 1), default=0)
    if not floor:
        return None
    repeats = [bucket.repeats for bucket in balanced]
    # The least total padding wins, and of equals the larger number.
    return min(
        range(floor, max(repeats) + 1),
        key=lambda size: (sum(pad(count, size) - count for count in repeats), -size),
    )


def _parts(bucket: _Bucket, repeats: int | None) -> int:
    return ceil_div(bucket.repeats, repeats) if bucket.balanced and repeats is not None else 1


def _splits_freely(bucket: _Bucket, repeats: int | None) -> bool:
    """Whether a bucket may go down to one layer per group rather than widen the block."""
    spec = bucket.layers[0].spec
    return isinstance(spec, MambaSpec) or (repeats is None and isinstance(spec, SlidingWindowSpec))
