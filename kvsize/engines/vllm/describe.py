"""What to say beside the figures: details in vLLM's words, groups, notes in whole sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvsize.engines.vllm.grouping import Group
from kvsize.engines.vllm.needs import attention_of
from kvsize.engines.vllm.plan import Plan
from kvsize.engines.vllm.settings import Settings
from kvsize.engines.vllm.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    Demand,
    MambaSpec,
    SlidingWindowSpec,
    Spec,
)
from kvsize.engines.vllm.versions import LATEST
from kvsize.layers import CrossAttention, FullAttention
from kvsize.results import LayerGroup


def details(plan: Plan, demand: Demand, stage_block_bytes: Sequence[int]) -> dict[str, object]:
    """The engine's own figures behind a result, by vLLM's names."""
    settings = plan.settings
    return {
        "max_model_len": demand.max_model_len,
        "dtype": settings.dtype,
        "kv_cache_dtype": settings.kv_dtype,
        "block_size": plan.block_size,
        "bytes_per_block": tuple(stage_block_bytes),
        "blocks_per_request": tuple(group.blocks_needed(demand) for group in plan.groups),
        "groups": tuple(_group_details(group) for group in plan.groups),
        "attention_backends": plan.backends,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_in_flight_tokens": settings.max_in_flight_tokens,
        "enable_prefix_caching": settings.prefix_caching,
        "hybrid_kv_cache_manager": settings.hybrid_manager,
    }


def _group_details(group: Group) -> dict[str, object]:
    specs = [layer.spec for layer in group.layers]
    one_kind = len(set(specs)) == 1
    found: dict[str, object] = {
        "type": type(group.spec).__name__ if one_kind else "UniformTypeKVCacheSpecs",
        "n_layers": len(specs),
        "block_size": group.spec.block_size,
        "page_size_bytes": (
            group.spec.page_bytes if one_kind else sum(spec.page_bytes for spec in specs)
        ),
    }
    if one_kind and isinstance(group.spec, AttentionSpec):
        found |= {"num_kv_heads": group.spec.num_kv_heads, "head_size": group.spec.head_size}
        window = getattr(group.spec, "sliding_window", None)
        found |= {} if window is None else {"sliding_window": window}
    return found


def layer_groups(plan: Plan, demand: Demand, sequences: int) -> tuple[LayerGroup, ...]:
    """The entries by kind: how many, the pages of each, and their bytes on all ranks."""
    ranks = plan.settings.tensor_parallel_size
    kinds: dict[str, list[tuple[Spec, int]]] = {}
    for group in plan.groups:
        blocks = group.blocks_needed(demand)
        for layer in group.layers:
            kinds.setdefault(_kind(layer.spec), []).append((layer.spec, blocks))
    return tuple(
        LayerGroup(
            kind=kind,
            layers=len(found),
            tensors=tuple(dict.fromkeys(_pages(spec, blocks) for spec, blocks in found)),
            total_bytes=sequences * ranks * sum(spec.page_bytes * blocks for spec, blocks in found),
        )
        for kind, found in kinds.items()
    )


KINDS = {
    "FullAttentionSpec": "full attention",
    "SlidingWindowSpec": "sliding window",
    "ChunkedLocalAttentionSpec": "chunked attention",
    "MLAAttentionSpec": "latent (MLA)",
    "SlidingWindowMLASpec": "latent (MLA)",
    "CrossAttentionSpec": "cross-attention",
    "MambaSpec": "recurrent state",
}


def _kind(spec: Spec) -> str:
    name = KINDS[type(spec).__name__]
    role = getattr(spec, "role", "")
    window = getattr(spec, "sliding_window", None)
    extra = " of index keys" if role == "index" else f" of {window:,}" if window else ""
    return name + extra


def _pages(spec: Spec, blocks: int) -> str:
    pages = f"{blocks} pages of {spec.page_bytes:,} B"
    if isinstance(spec, AttentionSpec):
        pages += f" ({spec.block_size} tokens, {spec.packing})"
    return pages


def notes(plan: Plan, demand: Demand) -> tuple[str, ...]:
    """What a reader must know to compare the figures, in whole sentences."""
    return tuple(_notes(plan, demand))


def _notes(plan: Plan, demand: Demand) -> Iterator[str]:
    settings = plan.settings
    yield from _replication(settings)
    windows = [
        group.spec
        for group in plan.groups
        if isinstance(group.spec, SlidingWindowSpec | ChunkedLocalAttentionSpec)
    ]
    if windows and demand.in_flight_tokens:
        yield (
            "Windowed layers keep their window and the tokens in flight "
            f"({demand.in_flight_tokens:,} here), so the figure depends on the gpu and on "
            "max_num_batched_tokens."
        )
    if any(isinstance(group.spec, MambaSpec) for group in plan.groups) and settings.hybrid:
        yield (
            f"The block size is {plan.block_size:,} tokens, so that a page of attention is no "
            "smaller than a page of recurrent states; every request takes whole blocks of both."
        )
    yield from _padding(plan.groups)
    if settings.kv_dtype != "auto" and plan.groups:
        yield f"The cache is stored as {settings.kv_dtype}; scales per tensor take no cache memory."
    if settings.auto_fit:
        yield f"The longest sequence that fits is {demand.max_model_len:,} tokens."
    if settings.rules.version != LATEST:
        yield (
            f"Rules of vLLM {settings.rules.version} decide blocks and the logged figures; "
            f"attention backends are those of {LATEST}."
        )


def _replication(settings: Settings) -> Iterator[str]:
    """Where more ranks save nothing."""
    ranks = settings.tensor_parallel_size
    if ranks == 1:
        return
    if settings.latent:
        yield (
            f"The latent is the same on all {ranks} tensor-parallel ranks, so more of them save "
            "no cache; data-parallel attention or decode_context_parallel_size does."
        )
        return
    plain = (
        a
        for a in map(attention_of, settings.model.layers)
        if isinstance(a, FullAttention | CrossAttention)
    )
    heads = max((layer.num_key_value_heads for layer in plain), default=ranks)
    if ranks > heads:
        yield (
            f"tensor_parallel_size {ranks} over {heads} KV heads saves nothing over {heads}: "
            f"each head is kept on {ranks // heads} ranks."
        )


def _padding(groups: Sequence[Group]) -> Iterator[str]:
    """Places in a block that no layer uses."""
    if not groups:
        return
    largest = max(len(group.layers) for group in groups)
    uniform = len({group.spec.page_bytes for group in groups}) == 1
    missing = sum(largest - len(group.layers) for group in groups)
    if uniform and missing:
        places = largest * len(groups)
        yield (
            f"{missing} of {places} layer places in the groups' blocks are padding, which the pool "
            "pays for."
        )
