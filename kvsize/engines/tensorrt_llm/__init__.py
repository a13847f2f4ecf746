"""TensorRT-LLM (PyTorch backend): pools of blocks, one per window, and slots for states.

Sources are named in blocks.py and windows.py; the V1 KV cache manager is modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.engines._layers import attentions, parallel_notes
from kvsize.engines._result import Answer, Pool, Stored, assemble, filled, stored
from kvsize.engines._settings import version_of, with_context
from kvsize.engines.tensorrt_llm.blocks import (
    ELEMENTS,
    NAME,
    Memory,
    StateRequest,
    blocks_per_sequence,
    estimate_token_bytes,
    hybrid,
    max_tokens,
)
from kvsize.engines.tensorrt_llm.plan import OPTIONS, Plan, plan_of
from kvsize.engines.tensorrt_llm.windows import blocks_per_window, fitted_windows
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import FullAttention
from kvsize.parallel import spread

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.engines.tensorrt_llm.plan import LayerCost
    from kvsize.model import Model
    from kvsize.results import Fit, Size

__all__ = ["KV_DTYPES", "NAME", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "fit", "size"]

TITLE = "TensorRT-LLM: blocks of 32 tokens, a pool per attention window, state slots"
VERSIONS = ("1.3",)
KV_DTYPES = ("auto", *ELEMENTS)
NOT_MODELLED = (
    "KV cache manager V2 (quotas and pool ratios), which Gemma 4 needs.",
    "DeepSeek-V4's cache, and the index cache of MiniMax-M3.",
    "A separate draft model's manager, which takes a share of the budget by its bytes per token.",
    "The reserves for multimodal encoders and for the FP8 context-MLA workspace.",
    "Beam search, and the offload tiers in host memory and on disk.",
)


def size(model: Model, request: Request) -> Size:
    """The blocks and states that `sequences` sequences of `context` tokens hold, per rank.

    Raises UsageError for a dtype the engine lacks or a model that is not modelled here.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    groups = plan.tensor_ranks if plan.attention_dp else 1
    per_rank = spread(request.sequences, groups)
    if groups == 1:
        per_rank *= plan.tensor_ranks
    layers = [_stored(layer, plan, request, model, per_rank) for layer in plan.layers]
    per_token = sum(layer.token_bytes for layer in plan.fullest)
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="paged blocks",
        kv_dtype=plan.dtype,
        details={
            "tokens_per_block": plan.tokens_per_block,
            "bytes_per_token": per_token,
            "block_bytes": per_token * plan.tokens_per_block,
        },
        notes=_notes(model, plan),
    )
    return assemble(answer, request, layers, plan.stages)


def _stored(
    layer: LayerCost, plan: Plan, request: Request, model: Model, per_rank: tuple[int, ...]
) -> Stored:
    tokens = (model.encoder_tokens or 0) if layer.cross else request.context
    blocks = blocks_per_sequence(tokens, plan.tokens_per_block, layer.window)
    per_sequence = blocks * plan.tokens_per_block * layer.token_bytes + layer.state_bytes
    return stored(layer.layer, plan.dtype, [count * per_sequence for count in per_rank])


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """The blocks that fit per rank; the pipeline stage with the dearest tokens decides.

    Without `free_gpu_memory_fraction`, `kv_memory` is the pools' budget; with it, the memory
    available after the profiling run. Raises EngineRefuses where not one block fits.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    memory = _memory(plan, kv_memory)
    layers = plan.fullest
    token_bytes = sum(layer.token_bytes for layer in layers if not layer.cross)
    if not token_bytes:
        msg = f"{NAME}: {model.name} keeps no keys and values, so there are no blocks to count."
        raise EngineRefuses(msg, "use a model with attention layers.")
    blocks, details = _pools(model, plan, request, memory)
    if blocks <= 0:
        msg = f"{NAME}: not one block fits, and the engine does not start without."
        raise EngineRefuses(msg, "give more memory, or a smaller max_batch_size for states.")
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="paged blocks",
        kv_dtype=plan.dtype,
        details=details,
        notes=_notes(model, plan),
    )
    pool = Pool(
        blocks=blocks,
        block_bytes=token_bytes * plan.tokens_per_block,
        block_tokens=plan.tokens_per_block,
        needed=blocks_per_sequence(request.context, plan.tokens_per_block),
        short="the engine cuts max_seq_len to what fits",
    )
    return filled(answer, request, kv_memory, pool)


def _pools(
    model: Model, plan: Plan, request: Request, memory: Memory
) -> tuple[int, dict[str, object]]:
    """Blocks of the largest window's pool, by the manager the model gets."""
    layers = plan.fullest
    windows = plan.windows(layers, request.context)
    if any(layer.state_bytes for layer in layers):
        return _hybrid(plan, layers, memory, request)
    if len(windows) > 1:
        return _windows(plan, layers, memory, windows)
    return _single(model, plan, layers, memory)


def _memory(plan: Plan, kv_memory: int) -> Memory:
    fraction = plan.values.number_or_none("free_gpu_memory_fraction")
    if fraction is not None and not 0 < fraction < 1:
        msg = f"{NAME}: free_gpu_memory_fraction is {fraction}, and must lie between 0 and 1."
        raise EngineRefuses(msg, "give a share of the free memory, such as 0.9.")
    free = plan.values.whole_or_none("free_memory") or kv_memory
    return Memory(
        available_bytes=kv_memory,
        free_bytes=free,
        free_gpu_memory_fraction=1.0 if fraction is None else fraction,
    )


def _budget(plan: Plan, memory: Memory) -> int:
    limit = plan.values.whole("max_gpu_total_bytes")
    return min(memory.budget_bytes, limit) if limit else memory.budget_bytes


def _single(
    model: Model, plan: Plan, layers: tuple[LayerCost, ...], memory: Memory
) -> tuple[int, dict[str, object]]:
    token_bytes = sum(layer.token_bytes for layer in layers if not layer.cross)
    if any(layer.cross for layer in layers):
        cross_share = plan.values.number("cross_kv_cache_fraction")
        memory = Memory(
            available_bytes=memory.available_bytes,
            free_bytes=memory.free_bytes,
            free_gpu_memory_fraction=memory.free_gpu_memory_fraction * (1 - cross_share),
        )
    estimate = _estimate(model, plan, layers, token_bytes)
    limit = plan.values.whole("max_gpu_total_bytes")
    limits = [plan.values.whole_or_none("max_tokens"), limit // estimate if limit else None]
    stated = [count for count in limits if count is not None]
    tokens = max_tokens(memory, estimate, token_bytes, max_tokens=min(stated, default=None))
    details: dict[str, object] = {
        "max_tokens": tokens,
        "bytes_per_token": token_bytes,
        "estimate_bytes_per_token": estimate,
    }
    return tokens // plan.tokens_per_block, details


def _estimate(model: Model, plan: Plan, layers: tuple[LayerCost, ...], token_bytes: int) -> int:
    """The profile's estimate, which floors heads over ranks; equal to the bytes where they divide.

    It reads one head count for all layers, so kvsize uses it where the layers are alike.
    """
    kinds = set(attentions(model))
    kind = next(iter(kinds), None)
    if len(kinds) != 1 or not isinstance(kind, FullAttention) or plan.attention_dp:
        return token_bytes
    heads, head_dim = kind.num_key_value_heads, kind.head_dim
    attending = sum(1 for layer in layers if layer.token_bytes)
    return estimate_token_bytes(attending, heads, head_dim, plan.dtype, plan.tensor_ranks)


def _windows(
    plan: Plan, layers: tuple[LayerCost, ...], memory: Memory, windows: dict[int, list[int]]
) -> tuple[int, dict[str, object]]:
    costs = [layer.token_bytes for layer in layers]
    budget = _budget(plan, memory)
    fitted = fitted_windows(windows, costs, budget, plan.values.whole_or_none("max_tokens"))
    pools = blocks_per_window(fitted, costs, budget, plan.tokens_per_block, _shares(plan))
    return pools[max(pools)], {"blocks_per_window": pools, "max_attention_window": sorted(pools)}


def _shares(plan: Plan) -> list[float] | None:
    text = plan.values.text("window_size_shares")
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        msg = f"{NAME}: window_size_shares cannot be '{text}'."
        raise UsageError(msg, "give shares separated by commas, such as 0.4,0.6.") from None


def _hybrid(
    plan: Plan, layers: tuple[LayerCost, ...], memory: Memory, request: Request
) -> tuple[int, dict[str, object]]:
    reuse = plan.values.flag("enable_block_reuse")
    state = sum(layer.state_bytes for layer in layers)
    found = hybrid(
        _budget(plan, memory),
        sum(layer.token_bytes for layer in layers),
        state,
        StateRequest(
            max_batch_size=plan.values.whole("max_batch_size"),
            pipeline_parallel_size=request.pipeline_parallel_size,
            tokens_per_block=plan.tokens_per_block,
            snapshot_interval=plan.values.whole("mamba_state_cache_interval") if reuse else 0,
            max_tokens=plan.values.whole_or_none("max_tokens"),
            max_draft_len=plan.values.whole("max_draft_len"),
            block_reuse=reuse,
        ),
    )
    details: dict[str, object] = {
        "max_tokens": found.max_tokens,
        "state_slots": found.state_slots,
        "state_bytes": state,
    }
    return found.kv_blocks, details


def _notes(model: Model, plan: Plan) -> tuple[str | None, ...]:
    ranks = 1 if plan.attention_dp else plan.tensor_ranks
    sliding = len({layer.window for layer in plan.layers if layer.token_bytes}) > 1
    return (
        *parallel_notes(model, ranks, "enable_attention_dp gives each rank its own requests"),
        "The engine shares memory equally between windows: each pool has its own blocks."
        if sliding
        else None,
    )
