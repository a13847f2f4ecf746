"""SGLang: token pools with a spare page, a second pool for sliding layers, slots for states.

Sources are named in cells.py, pools.py, mamba.py and deepseek_v4.py (SGLang 0.5.23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.engines._layers import kind_of, parallel_notes, served_layers, uncounted_note
from kvsize.engines._result import Answer, Pool, Stored, assemble, filled, stored
from kvsize.engines._settings import version_of, with_context
from kvsize.engines.sglang import capacity, cells, compressed, mamba, pools
from kvsize.engines.sglang.cells import DTYPES, NAME
from kvsize.engines.sglang.options import OPTIONS
from kvsize.engines.sglang.plan import LayerCost, Plan, plan_of
from kvsize.parallel import spread
from kvsize.units import ceil_div, pad

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Fit, Size

__all__ = ["KV_DTYPES", "NAME", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "fit", "size"]

TITLE = "SGLang: token pools with pages, a ratio pool for sliding layers, state slots"
VERSIONS = ("0.5.23",)
KV_DTYPES = tuple(DTYPES)
NOT_MODELLED = (
    "Context parallelism (attn_cp and DCP), HiCache, HiSparse and unified memory pools.",
    "DFLASH and DSpark drafts, whose cells come from the draft's own config.",
    "DeepSeek-V4.1's layouts, and DeepSeek-V4's unified, trtllm and request-capped pools.",
    "The FP8 default of sparse attention on SM100 and newer: give kv_dtype fp8_e4m3 there.",
    "Post-capture sizing (SGLANG_ENABLE_POST_CAPTURE_KV_SIZING).",
    "The multimodal reservation of 100 MiB, which kv_memory must leave out.",
)


def size(model: Model, request: Request) -> Size:
    """The pools that `sequences` sequences of `context` tokens need, per rank.

    `total_bytes` is what the sequences fill, `allocated_bytes` counts the spare page and state
    slot too. Raises UsageError for a dtype SGLang lacks, EngineRefuses for what it refuses.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    version = version_of(NAME, VERSIONS, request.engine_version)
    counts = spread(request.sequences, plan.attn_dp)
    per_rank = tuple(count for count in counts for _ in range(plan.attn_tp))
    if compressed.applies(model):
        layers = compressed.stored(model, plan, request, per_rank)
        split = plan.stages
    else:
        layers, split = _layers(model, plan, request, per_rank)
    answer = Answer(
        engine=NAME,
        version=version,
        cache="token pools",
        kv_dtype=plan.dtype,
        details={"page_size": plan.page_size, **capacity.cell_details(plan)},
        notes=_notes(model, plan),
    )
    return assemble(answer, request, layers, split)


def _layers(
    model: Model, plan: Plan, request: Request, per_rank: tuple[int, ...]
) -> tuple[list[Stored], tuple[range, ...]]:
    layers = [
        _stored(layer, cost, plan, request, per_rank)
        for layer, cost in zip(served_layers(model), plan.layers, strict=True)
    ]
    split = list(plan.stages)
    shared = plan.workspace_bytes + capacity.draft_bytes(plan)
    if shared:
        rows = [_pool(plan, request, count)[0] for count in per_rank]
        layers.append(
            Stored(
                kind="draft layers" if plan.draft_layers else "dequantized row",
                used=tuple(tokens * shared for tokens in rows),
                allocated=tuple(
                    cells.pool_rows(tokens, plan.page_size) * shared for tokens in rows
                ),
            )
        )
        split[-1] = range(split[-1].start, len(layers))
    return layers, tuple(split)


def _pool(plan: Plan, request: Request, sequences: int) -> tuple[int, int]:
    """Tokens of the full and of the sliding pool for `sequences` on one DP rank."""
    full = sequences * pad(request.context, plan.page_size)
    if not plan.hybrid:
        return full, 0
    rule = capacity.sliding_rule(plan)
    found = pools.hybrid_split(full, capacity.hybrid_cells(plan), rule)
    return found.full_tokens or 0, found.swa_tokens or 0


def _stored(
    layer: Layer, cost: LayerCost, plan: Plan, request: Request, per_rank: tuple[int, ...]
) -> Stored:
    used, allocated = [], []
    for sequences in per_rank:
        tokens = _pool(plan, request, sequences)[1 if cost.sliding else 0]
        rows = cells.pool_rows(tokens, plan.page_size)
        index = cells.index_rows(tokens, plan.page_size) * cost.index_bytes
        state, state_pool = _states(cost, plan, sequences)
        used.append(tokens * (cost.token_bytes + cost.index_bytes) + state)
        allocated.append(rows * cost.token_bytes + index + state_pool)
    return stored(layer, plan.dtype, used, allocated)


def _states(cost: LayerCost, plan: Plan, sequences: int) -> tuple[int, int]:
    """What the states of `sequences` running requests take, and what their pool allocates."""
    if cost.state is None:
        return 0, 0
    slots = capacity.explicit_slots(plan) or sequences * capacity.slots_per_request(plan)
    pool = mamba.pool_bytes(
        [cost.state],
        slots,
        requests=sequences,
        draft_tokens=plan.draft_tokens,
        topk=plan.values.whole("speculative_eagle_topk"),
    )
    drafts = pool - (slots + 1) * cost.state.bytes
    return slots * cost.state.bytes + drafts, pool


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """What `kv_memory` bytes per rank hold, as SGLang's start-up resolves it.

    `kv_memory` is the pools' budget; with `mem_fraction_static` and `pre_model_load_memory` it is
    the memory free after loading, from which the engine computes its budget. Raises
    EngineRefuses where the engine would not start.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    rest = capacity.rest_memory(plan, kv_memory)
    if compressed.applies(model):
        found = compressed.capacity(model, plan, request, rest)
    else:
        found = capacity.capacity(plan, request.context, rest)
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="token pools",
        kv_dtype=plan.dtype,
        details=found.details,
        notes=_notes(model, plan),
    )
    pool = Pool(
        blocks=found.tokens // plan.page_size,
        block_bytes=int(found.cell_bytes * plan.page_size),
        block_tokens=plan.page_size,
        needed=ceil_div(request.context, plan.page_size),
        short="SGLang starts, and cuts longer requests",
        name="pages",
    )
    return filled(answer, request, kv_memory, pool)


def _notes(model: Model, plan: Plan) -> tuple[str | None, ...]:
    sliding = any(layer.sliding for layer in plan.layers)
    windows = any(
        kind_of(layer) in {"sliding attention", "chunked attention"}
        for layer in served_layers(model)
    )
    return (
        *parallel_notes(model, plan.attn_tp, "enable_dp_attention splits the requests instead"),
        f"The sliding pool is {capacity.swa_ratio(plan)} of the full one (swa_full_tokens_ratio)."
        if sliding
        else None,
        "SGLang keeps every token of this model's sliding layers: it has no second pool for it."
        if windows and not sliding
        else None,
        uncounted_note(model),
    )
