"""From settings to groups: layers on their stages, backends, block size, entries, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvsize.engines.vllm import architectures, blocks, deepseek_v4, drafts, stages
from kvsize.engines.vllm.backends import Backend, Kernel, Need, kernel
from kvsize.engines.vllm.blocks import Blocks, TokenBytes
from kvsize.engines.vllm.grouping import CacheLayer, Group, group_layers
from kvsize.engines.vllm.layers import (
    Entries,
    Placed,
    attention_of,
    backend_of,
    head_sizes,
    kv_heads,
    need_of,
    packing,
    skip_layers,
)
from kvsize.engines.vllm.settings import Settings, attention_free
from kvsize.engines.vllm.states import StateOptions, States, states
from kvsize.errors import EngineRefuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cache of one vLLM engine before any memory is known."""

    settings: Settings
    entries: tuple[CacheLayer, ...]
    groups: tuple[Group, ...]
    block_size: int
    backends: tuple[str, ...]
    block_outermost: bool


def make(settings: Settings) -> Plan:
    """The plan for `settings`; EngineRefuses where vLLM would not start with them."""
    _check_ranks(settings)
    if not architectures.causal(settings.model):
        return _no_cache(settings)
    placed = stages.place(settings)
    own = _states(settings)
    served = _served(settings, placed)
    sizes = _blocks(settings, served, own)
    entries = [entry for layer in placed for entry in Entries(settings, sizes, own).of(layer)]
    entries += drafts.entries(settings, sizes, own)
    outermost = _block_outermost(settings)
    groups = group_layers(
        entries,
        hybrid_manager=settings.hybrid_manager,
        block_outermost=outermost,
        balance=settings.rules.balance,
    )
    return Plan(
        settings=settings,
        entries=tuple(entries),
        groups=groups,
        block_size=sizes.block_size,
        backends=tuple(dict.fromkeys(backend.name for backend, _ in served)),
        block_outermost=outermost,
    )


def _no_cache(settings: Settings) -> Plan:
    return Plan(
        settings=settings, entries=(), groups=(), block_size=16, backends=(), block_outermost=False
    )


def _check_ranks(settings: Settings) -> None:
    """Query heads split over the ranks; context parallelism within what heads leave."""
    heads = settings.config.optional_count("num_attention_heads")
    ranks, dcp = settings.tensor_parallel_size, settings.decode_context_parallel_size
    if heads is not None and heads % ranks:
        msg = f"vllm: {heads} attention heads must be divisible by tensor_parallel_size {ranks}."
        legal = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise EngineRefuses(msg, f"use one of {legal}.")
    if dcp == 1 or settings.latent:
        return
    plain = [
        attention
        for attention in map(attention_of, settings.model.layers)
        if attention is not None and not isinstance(attention, drafts.LatentAttention)
    ]
    if not plain:
        return
    total = max(layer.num_key_value_heads for layer in plain)
    queries = plain[0].num_attention_heads // total
    if ranks <= total or dcp > ranks // total or queries % dcp:
        msg = (
            f"vllm: decode_context_parallel_size {dcp} does not go with {total} KV heads on "
            f"{ranks} ranks."
        )
        hint = "it may be at most tensor_parallel_size / KV heads, and divide the heads per KV head."
        raise EngineRefuses(msg, hint)


def _states(settings: Settings) -> States | None:
    speculation = settings.speculation
    return states(
        settings.config,
        StateOptions(
            dtype=settings.dtype,
            tensor_parallel_size=settings.tensor_parallel_size,
            speculative_tokens=0 if speculation is None else speculation.num_speculative_tokens,
            mamba_cache_dtype=str(settings.options["mamba_cache_dtype"]),
            mamba_ssm_cache_dtype=str(settings.options["mamba_ssm_cache_dtype"]),
            gpu=settings.gpu,
            aligned=settings.prefix_caching and settings.rules.checkpoints,
        ),
    )


def _served(settings: Settings, placed: Sequence[Placed]) -> list[tuple[Backend, Need]]:
    """Every attention backend of the model with the first layer's need it serves."""
    found: dict[Backend, Need] = {}
    seen: set[Need] = set()
    for layer in placed:
        need = need_of(settings, layer)
        if need is not None and need not in seen:
            seen.add(need)
            found.setdefault(backend_of(settings, need), need)
    return list(found.items())


def _kernels(settings: Settings, served: Sequence[tuple[Backend, Need]]) -> list[Kernel]:
    """Kernels as the platform sees them: at the model's own (largest) head size."""
    attentions = [a for a in map(attention_of, settings.model.layers) if a is not None]
    largest = max((head_sizes(settings, a)[0] for a in attentions), default=0)
    kernels = []
    for backend, need in served:
        at_largest = drafts.replace(need, head_size=largest)
        kernels.append(kernel(backend, at_largest, settings.gpu))
        if need.sparse:
            kernels.append(Kernel((64,), multiples=False))  # the indexer's keys
    if any(a.extras for a in attentions if isinstance(a, drafts.FullAttention)):
        kernels.append(Kernel((128,), multiples=False))  # MiniMax-M3's sparse blocks
    return kernels


def _blocks(
    settings: Settings, served: Sequence[tuple[Backend, Need]], own: States | None
) -> Blocks:
    """The block size and the pages it pads."""
    if settings.config.model_type == "deepseek_v4":
        chosen = settings.block_size or deepseek_v4.BLOCK_SIZE
        return Blocks(block_size=chosen, mamba_block_size=chosen)
    kernels = _kernels(settings, served)
    modern = settings.rules.backend_block_size
    before = settings.block_size or blocks.default_block(kernels, backend_block_size=modern)
    if attention_free(settings.model) or not kernels:
        return Blocks(block_size=before, mamba_block_size=_mamba_block(settings, before))
    size, padded = before, None
    token = _token_bytes(settings)
    if settings.hybrid and own is not None:
        latent = settings.rules.latent_alignment
        size = blocks.aligned(before, kernels, token, own, latent)
        padded = size * token.common
    result = Blocks(
        block_size=size, mamba_block_size=_mamba_block(settings, size), mamba_padded_bytes=padded
    )
    if skip_layers(settings):
        result = blocks.with_skipped_layers(result, kernels, token)
    return blocks.check(result, before, kernels)


def _mamba_block(settings: Settings, block_size: int) -> int:
    return block_size if settings.prefix_caching else settings.max_model_len


def _token_bytes(settings: Settings) -> TokenBytes:
    """Bytes of a token in one attention layer, by the model's overall sizes."""
    attentions = [a for a in map(attention_of, settings.model.layers) if a is not None]
    heads = max(kv_heads(settings, a) for a in attentions)
    size = max(head_sizes(settings, a)[0] for a in attentions)
    packed, plain = packing(settings, settings.kv_dtype), packing(settings, "auto")
    if settings.latent:
        cached, skipped = packed.bits * size // 8, plain.bits * size // 8
    else:
        cached, skipped = (heads * p.bytes_of(size, size) for p in (packed, plain))
    return TokenBytes(
        cached=cached,
        skipped=skipped,
        latent=settings.latent,
        turboquant=bool(packed.key_bits) and bool(skip_layers(settings)),
    )


def _block_outermost(settings: Settings) -> bool:
    """Whether blocks hold all layers side by side (DeepSeek-V4, or by VLLM_KV_CACHE_LAYOUT)."""
    stated = settings.options["VLLM_KV_CACHE_LAYOUT"]
    if stated is not None:
        return str(stated).startswith("B")
    return settings.config.model_type == "deepseek_v4"
