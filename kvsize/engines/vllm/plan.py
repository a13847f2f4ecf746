"""From settings to groups: layers on their stages, backends, block size, entries, groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvsize.engines.vllm import architectures, blocks, deepseek_v4, drafts, stages
from kvsize.engines.vllm.backend_table import Backend, Need
from kvsize.engines.vllm.backends import Kernel, kernel
from kvsize.engines.vllm.blocks import Blocks, TokenBytes
from kvsize.engines.vllm.entries import Entries
from kvsize.engines.vllm.grouping import CacheLayer, Group, group_layers
from kvsize.engines.vllm.needs import (
    Part,
    attention_of,
    backend_of,
    head_sizes,
    kv_heads,
    need_of,
    packing,
    skip_layers,
)
from kvsize.engines.vllm.settings import Settings, attention_free
from kvsize.engines.vllm.specs import SlidingWindowSpec
from kvsize.engines.vllm.states import StateOptions, States, states
from kvsize.errors import EngineRefuses
from kvsize.layers import FullAttention

Served = list[tuple[Backend, Need]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cache of one vLLM engine before any memory is known."""

    settings: Settings
    entries: tuple[CacheLayer, ...] = ()
    groups: tuple[Group, ...] = ()
    block_size: int = blocks.DEFAULT_BLOCK
    backends: tuple[str, ...] = ()
    block_outermost: bool = False


def make(settings: Settings) -> Plan:
    """The plan for `settings`; EngineRefuses where vLLM would not start with them."""
    check_ranks(settings)
    if not architectures.causal(settings.model):
        return Plan(settings=settings)
    parts = [Part(settings, stages.place(settings)), *drafts.parts(settings)]
    own = _states(settings)
    served = _served(parts)
    sizes = _blocks(settings, served, own)
    entries = tuple(
        entry
        for part in parts
        for layer in part.placed
        for entry in Entries(part.settings, sizes, own).of(layer)
    )
    outermost = _block_outermost(settings)
    groups = group_layers(
        entries,
        hybrid_manager=settings.hybrid_manager,
        block_outermost=outermost,
        balance=settings.rules.balance,
    )
    _check_windows(settings, groups)
    return Plan(
        settings=settings,
        entries=entries,
        groups=groups,
        block_size=sizes.block_size,
        backends=tuple(dict.fromkeys(backend.name for backend, _ in served)),
        block_outermost=outermost,
    )


def check_ranks(settings: Settings) -> None:
    """Query heads must split over the ranks, and context parallelism fit what they leave.

    ModelConfig.verify_with_parallel_config. Raises EngineRefuses.
    """
    heads = settings.config.optional_count("num_attention_heads")
    ranks, dcp = settings.tensor_parallel_size, settings.decode_context_parallel_size
    if heads is not None and heads % ranks:
        msg = f"vllm: {heads} attention heads must be divisible by tensor_parallel_size {ranks}."
        legal = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise EngineRefuses(msg, f"use one of {legal}.")
    plain = [a for a in map(attention_of, settings.model.layers) if isinstance(a, FullAttention)]
    if dcp == 1 or settings.latent or not plain:
        return
    total = max(layer.num_key_value_heads for layer in plain)
    queries = plain[0].num_attention_heads // total
    if ranks <= total or dcp > ranks // total or queries % dcp:
        msg = (
            f"vllm: decode_context_parallel_size {dcp} does not go with {total} KV heads on "
            f"{ranks} ranks."
        )
        hint = (
            "it may be at most tensor_parallel_size / KV heads, and divide the heads per KV head."
        )
        raise EngineRefuses(msg, hint)


def _check_windows(settings: Settings, groups: Sequence[Group]) -> None:
    """Windows are not shared out among context-parallel ranks."""
    windowed = any(isinstance(group.spec, SlidingWindowSpec) for group in groups)
    if settings.decode_context_parallel_size > 1 and windowed:
        msg = "vllm: decode_context_parallel_size does not support sliding windows."
        raise EngineRefuses(msg, "set decode_context_parallel_size to 1.")


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


def _served(parts: Sequence[Part]) -> Served:
    """Every attention backend, in layer order, with the first need it serves."""
    found: dict[Backend, Need] = {}
    seen: set[Need] = set()
    for part in parts:
        for layer in part.placed:
            need = need_of(part.settings, layer)
            if need is not None and need not in seen:
                seen.add(need)
                found.setdefault(backend_of(part.settings, need), need)
    return list(found.items())


def _kernels(settings: Settings, served: Served) -> list[Kernel]:
    """Kernels as the platform sees them: at the model's own (largest) head size."""
    attentions = [a for a in map(attention_of, settings.model.layers) if a is not None]
    largest = max((head_sizes(settings, a)[0] for a in attentions), default=0)
    kernels = []
    for backend, need in served:
        kernels.append(kernel(backend, replace(need, head_size=largest), settings.gpu))
        if need.sparse:
            kernels.append(Kernel((64,), multiples=False))  # the indexer's keys
    if any(a.extras for a in attentions if isinstance(a, FullAttention)):
        kernels.append(Kernel((128,), multiples=False))  # MiniMax-M3's sparse blocks
    return kernels


def _blocks(settings: Settings, served: Served, own: States | None) -> Blocks:
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
    if settings.hybrid and own is not None and own.state_bytes:
        token = _token_bytes(settings, served, hybrid=True)
        size = blocks.aligned(before, kernels, token, own, settings.rules.latent_alignment)
        padded = size * token.common
    result = Blocks(
        block_size=size, mamba_block_size=_mamba_block(settings, size), mamba_padded_bytes=padded
    )
    if skip_layers(settings):
        token = _token_bytes(settings, served, hybrid=False)
        result = blocks.with_skipped_layers(result, kernels, token)
    return blocks.check(result, before, kernels)


def _mamba_block(settings: Settings, block_size: int) -> int:
    stated = settings.options["mamba_block_size"]
    if isinstance(stated, int):
        return stated
    return block_size if settings.prefix_caching else settings.max_model_len


def _token_bytes(settings: Settings, served: Served, *, hybrid: bool) -> TokenBytes:
    """Bytes of a token in one attention layer, by the model's overall sizes.

    Only the first backend is asked how it packs, except for TurboQuant beside states.
    """
    attentions = [a for a in map(attention_of, settings.model.layers) if a is not None]
    heads = max(kv_heads(settings, a) for a in attentions)
    size = max(head_sizes(settings, a)[0] for a in attentions)
    packed, plain = packing(settings, settings.kv_dtype), packing(settings, "auto")
    turboquant = bool(packed.key_bits) and hybrid
    packs = turboquant or packed.name.startswith(served[0][0].packs or ("?",))
    if settings.latent:
        cached, skipped = max(packed.bits // 8, 1) * size, plain.bits // 8 * size
    else:
        unpacked = 2 * size * (plain.bits // 8 if not packed.quantized else 1)
        cached = heads * (packed.bytes_of(size, size) if packs else unpacked)
        skipped = heads * plain.bytes_of(size, size)
    return TokenBytes(
        cached=cached,
        skipped=skipped,
        latent=settings.latent,
        turboquant=turboquant and bool(skip_layers(settings)),
    )


def _block_outermost(settings: Settings) -> bool:
    """Whether blocks hold all layers side by side (DeepSeek-V4, or by VLLM_KV_CACHE_LAYOUT)."""
    stated = settings.options["VLLM_KV_CACHE_LAYOUT"]
    if stated is not None:
        return str(stated).startswith("B")
    return settings.config.model_type == "deepseek_v4"
