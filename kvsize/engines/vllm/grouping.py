"""KV cache groups: which layers share a block table, and how their pages become one size.

vLLM keeps one pool of equal blocks for all layers. A group is a set of layers that use the
same block ids; groups overlay each other, so a block costs what the largest group needs.
Decision order of get_kv_cache_groups in vllm/v1/core/kv_cache_planning.py (0.33.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from kvsize.engines.vllm.packing import packed_groups
from kvsize.engines.vllm.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    Demand,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)
from kvsize.errors import EngineRefuses
from kvsize.units import ceil_div, pad


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """One cache entry: a layer's (or an indexer's) spec, its owner and pipeline stage."""

    name: str
    spec: Spec
    stage: int = 0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table."""

    layers: tuple[CacheLayer, ...]

    @property
    def spec(self) -> Spec:
        """The first layer's spec, which stands for the group."""
        return self.layers[0].spec

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks that one request of the longest length holds in this group."""
        return max(layer.spec.blocks_needed(demand) for layer in self.layers)


def group_layers(
    layers: Sequence[CacheLayer],
    *,
    hybrid_manager: bool,
    block_outermost: bool,
    balance: Fraction | None,
) -> tuple[Group, ...]:
    """The groups of all layers of the model.

    `hybrid_manager` False makes windowed layers full ones; `block_outermost` packs pages of
    different sizes side by side; `balance`: buckets whose sizes differ by less than this
    factor are padded to the larger one (None before vLLM 0.12). Raises EngineRefuses where
    vLLM finds no common page size.
    """
    if not hybrid_manager:
        layers = _promoted_by_sharding(layers)
    if not layers:
        return ()
    if _uniform(layers):
        return (Group(tuple(layers)),)
    if block_outermost and len({layer.spec.page_bytes for layer in layers}) > 1:
        return tuple(Group(tuple(group)) for group in packed_groups(layers))
    unified = _one_page_size(layers)
    if unified is None:
        return _all_full(layers)
    return tuple(Group(tuple(group)) for group in _equal_groups(unified, balance))


def block_bytes(groups: Sequence[Group], *, stage: int, block_outermost: bool) -> int:
    """Bytes of one block on a pipeline stage: what the largest group has there."""
    own = [[layer.spec for layer in group.layers if layer.stage == stage] for group in groups]
    if not any(own):
        return 0
    if block_outermost:
        alignment = lcm(*(spec.stride_alignment for specs in own for spec in specs))
        return pad(max(sum(spec.page_bytes for spec in specs) for specs in own), alignment)
    return max(sum(pad(spec.page_bytes, spec.stride_alignment) for spec in specs) for specs in own)


def _uniform(layers: Sequence[CacheLayer]) -> bool:
    """Whether all layers fit one group: equal specs, or one family of one block size."""
    specs = [layer.spec for layer in layers]
    if len({spec.merge_key() for spec in specs}) == 1:
        return len({getattr(spec, "sliding_window", None) for spec in specs} - {None}) <= 1
    return is_uniform_type(specs)


def is_uniform_type(specs: Sequence[Spec]) -> bool:
    """Whether layers need equally many token slots, whatever their pages' sizes."""
    kinds = {(spec.family, spec.block_size, spec.dcp_sharded) for spec in specs}
    return len(kinds) == 1


def _one_page_size(layers: Sequence[CacheLayer]) -> list[CacheLayer] | None:
    """All layers with pages of the largest size, or None where one cannot be made so.

    A state's page is padded; an attention page that divides the largest holds more tokens;
    one that does not is padded, except a latent one, which kernels read row by row.
    """
    largest = max(layer.spec.page_bytes for layer in layers)
    unified = []
    for layer in layers:
        spec = layer.spec
        if spec.page_bytes == largest:
            new = spec
        elif isinstance(spec, MambaSpec):
            new = spec.padded(largest)
        elif largest % spec.page_bytes == 0 and spec.padded_bytes is None:
            new = spec.resized(spec.block_size * (largest // spec.page_bytes))
        elif isinstance(spec, AttentionSpec) and not isinstance(spec, MLAAttentionSpec):
            new = spec.padded(largest)
        else:
            return None
        unified.append(replace(layer, spec=new))
    return unified


def _equal_groups(layers: Sequence[CacheLayer], balance: Fraction | None) -> list[list[CacheLayer]]:
    """Groups of equally many layers, the layers of one bucket dealt out in turn."""
    buckets: dict[object, list[CacheLayer]] = {}
    for layer in layers:
        buckets.setdefault(layer.spec.merge_key(), []).append(layer)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = min(sizes)
    if balance is not None and max(sizes) < size * balance:
        size = max(sizes)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), size)
        groups += [bucket[start::count] for start in range(count)]
    return groups


def _all_full(layers: Sequence[CacheLayer]) -> tuple[Group, ...]:
    """One group of full layers, for a latent model beside a plain sliding draft."""
    specs = [layer.spec for layer in layers]
    plain = [s for s in specs if isinstance(s, SlidingWindowSpec)]
    odd = any(isinstance(s, SlidingWindowMLASpec | ChunkedLocalAttentionSpec) for s in specs)
    if plain and not odd:
        promoted = _promoted(layers)
        if is_uniform_type([layer.spec for layer in promoted]):
            return (Group(tuple(promoted)),)
    msg = "vllm: the layers' page sizes have no common multiple, and latent pages cannot be padded."
    raise EngineRefuses(msg, "use another block_size or kv dtype, or leave the draft model out.")


def _promoted_by_sharding(layers: Sequence[CacheLayer]) -> list[CacheLayer]:
    """Windowed layers as full ones, apart for caches that DCP shards and replicates."""
    replicated = [_replicated(layer.spec) for layer in layers]
    promoted: dict[str, CacheLayer] = {}
    for kind in (False, True):
        own = [layer for layer, is_kind in zip(layers, replicated, strict=True) if is_kind == kind]
        if own:
            promoted.update({layer.name: layer for layer in _promoted(own)})
    return [promoted[layer.name] for layer in layers]


def _replicated(spec: Spec) -> bool:
    return isinstance(spec, AttentionSpec) and not spec.dcp_sharded


def _promoted(layers: Sequence[CacheLayer]) -> list[CacheLayer]:
    """Windowed layers beside full ones as full ones; EngineRefuses where kinds still differ."""
    if _uniform(layers):
        return list(layers)
    full = [layer.spec for layer in layers if isinstance(layer.spec, FullAttentionSpec)]
    sizes = {spec.block_size for spec in full}
    common = next(iter(sizes)) if len(sizes) == 1 else None
    promoted = [
        replace(layer, spec=_as_full(layer.spec, common)) if full else layer for layer in layers
    ]
    if not _uniform(promoted):
        msg = "vllm: disable_hybrid_kv_cache_manager cannot make these layers one kind."
        hint = "leave the hybrid KV cache manager on: the model mixes attention with other states."
        raise EngineRefuses(msg, hint)
    return promoted


def _as_full(spec: Spec, block_size: int | None) -> Spec:
    """A windowed spec as a full one of `block_size` tokens; others as they are."""
    if not isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
        return spec
    wanted = block_size or spec.block_size
    padded = spec.padded_bytes
    if padded is not None:
        padded = max(padded, spec.natural_bytes * wanted // spec.block_size)
    latent = isinstance(spec, SlidingWindowMLASpec)
    return (MLAAttentionSpec if latent else FullAttentionSpec)(
        block_size=wanted,
        padded_bytes=padded,
        dcp_sharded=spec.dcp_sharded,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        head_size_v=spec.head_size_v,
        cell_bytes=spec.cell_bytes,
        packing=spec.packing,
        tokens_per_state=spec.tokens_per_state,
        alignment=spec.alignment,
        row_bytes=spec.row_bytes,
        kernel_block=spec.kernel_block,
        sliding_window=spec.sliding_window if isinstance(spec, SlidingWindowSpec) else None,
        attention_chunk_size=(
            spec.attention_chunk_size if isinstance(spec, ChunkedLocalAttentionSpec) else None
        ),
    )
