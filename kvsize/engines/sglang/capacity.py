"""What fits on a rank: the plan's cells and states put through SGLang's start-up arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines.sglang import cells, mamba, pools
from kvsize.engines.sglang.cells import NAME
from kvsize.errors import UsageError
from kvsize.units import GIB

if TYPE_CHECKING:
    from kvsize.engines.sglang.plan import LayerCost, Plan


@dataclass(frozen=True, slots=True)
class Capacity:
    """Tokens of the pool that the engine logs, what one costs, and the figures behind them."""

    tokens: int
    cell_bytes: float
    details: dict[str, object]


def rest_memory(plan: Plan, kv_memory: int) -> float:
    """GiB for the pools: `kv_memory`, or what the static fraction leaves of it."""
    fraction = plan.values.number_or_none("mem_fraction_static")
    before = plan.values.whole_or_none("pre_model_load_memory")
    if fraction is None and before is None:
        return kv_memory / GIB
    if fraction is None or before is None:
        msg = f"{NAME}: mem_fraction_static and pre_model_load_memory go together."
        raise UsageError(msg, "give both, or neither and the pools' budget as kv_memory.")
    return pools.rest_memory_gib(kv_memory / GIB, before / GIB, fraction)


def swa_ratio(plan: Plan) -> float:
    """--swa-full-tokens-ratio: as given, else 0.8."""
    return plan.values.number_or_none("swa_full_tokens_ratio") or pools.SWA_FULL_TOKENS_RATIO


def sliding_rule(plan: Plan) -> pools.SlidingRule:
    """How the plan's sliding pool follows its full one."""
    return pools.SlidingRule(
        page_size=plan.page_size, ratio=swa_ratio(plan), window=plan.window or 0
    )


def per_dp_rank(plan: Plan, name: str) -> int | None:
    """An option that counts over all DP ranks, divided among them."""
    stated = plan.values.whole_or_none(name)
    return None if stated is None else max(1, stated // plan.attn_dp)


def explicit_slots(plan: Plan) -> int | None:
    """max_mamba_cache_size of one DP rank, where it was given."""
    return per_dp_rank(plan, "max_mamba_cache_size")


def slots_per_request(plan: Plan) -> int:
    """State slots one running request may take."""
    return mamba.slots_per_request(
        radix_cache=not plan.values.flag("disable_radix_cache"),
        strategy=plan.values.text("mamba_scheduler_strategy") or "no_buffer",
        overlap=not plan.values.flag("disable_overlap_schedule"),
    )


def attending(layers: tuple[LayerCost, ...]) -> list[LayerCost]:
    """The layers with keys and values."""
    return [layer for layer in layers if layer.token_bytes]


def plain_cell(plan: Plan) -> int:
    """Bytes per token of the one pool, with the shared FP8 row and the draft."""
    layers = attending(plan.fullest)
    rows = sum(layer.token_bytes for layer in layers) + plan.workspace_bytes
    return rows + sum(layer.index_bytes for layer in layers) + draft_bytes(plan)


def draft_bytes(plan: Plan) -> int:
    """The draft's share of a cell: the target's layers on average; its indexers of its own."""
    layers = attending(plan.fullest)
    if not plan.draft_layers or not layers:
        return 0
    rows = sum(layer.token_bytes for layer in layers) + plan.workspace_bytes
    index = sum(layer.index_bytes for layer in layers)
    if not any(layer.latent for layer in layers):
        rows, index = rows + index, 0
    widest = max(layer.index_bytes for layer in layers) if index else 0
    share = cells.with_draft(rows, plan.draft_layers, len(layers)) - rows
    return share + widest * plan.draft_layers


def hybrid_cells(plan: Plan) -> pools.HybridCells:
    """The cells of the full and the sliding pool; a draft has full layers."""
    layers = attending(plan.fullest)
    full = [layer.token_bytes for layer in layers if not layer.sliding]
    swa = [layer.token_bytes for layer in layers if layer.sliding]
    return pools.HybridCells(
        full_bytes=sum(full),
        swa_bytes=sum(swa),
        draft_full_bytes=(full or swa)[0] * plan.draft_layers,
    )


def cell_details(plan: Plan) -> dict[str, object]:
    """The cell in the engine's word, for a Size's details."""
    if not attending(plan.fullest):
        return {}
    cell = hybrid_cells(plan).cell(swa_ratio(plan)) if plan.hybrid else plain_cell(plan)
    return {"cell_size": cell}


def capacity(plan: Plan, context: int, rest_gib: float) -> Capacity:
    """The pools for `rest_gib`; EngineRefuses where the engine would not start."""
    details: dict[str, object] = {}
    slots: int | None = None
    if plan.states:
        found = _state_slots(plan, rest_gib)
        slots, rest_gib = found.max_mamba_cache_size, found.rest_gib
        per_state = sum(state.bytes for state in plan.states)
        details |= {"max_mamba_cache_size": slots, "mamba_cache_per_req": per_state}
    pool, cell = _pools(plan, pools.budget_bytes(rest_gib), context)
    requests = pools.max_num_reqs(
        pool.max_total_num_tokens,
        context,
        max_running_requests=per_dp_rank(plan, "max_running_requests"),
        state_slots=slots,
        slots_per_request=slots_per_request(plan),
    )
    details |= {
        "cell_size": cell,
        "max_total_num_tokens": pool.max_total_num_tokens,
        "max_running_requests": requests,
        "kv_alloc_bytes": allocated_bytes(plan, pool, logged=True),
        "req_to_token_bytes": _table_bytes(plan, requests, context),
    }
    if pool.swa_tokens is not None:
        details |= {"full_tokens": pool.full_tokens, "swa_tokens": pool.swa_tokens}
    if slots is not None:
        details["mamba_pool_bytes"] = mamba.pool_bytes(
            plan.states,
            slots,
            requests=requests,
            draft_tokens=plan.draft_tokens,
            topk=plan.values.whole("speculative_eagle_topk"),
        )
    details["kv_pool_all_tensor_bytes"] = _all_tensor_bytes(plan, pool, details)
    return Capacity(pool.max_total_num_tokens, cell, details)


def _state_slots(plan: Plan, rest_gib: float) -> mamba.Slots:
    wanted = mamba.Wanted(
        max_mamba_cache_size=explicit_slots(plan),
        max_running_requests=per_dp_rank(plan, "max_running_requests"),
        draft_tokens=plan.draft_tokens,
        radix_cache=not plan.values.flag("disable_radix_cache"),
        slots_per_request=slots_per_request(plan),
        full_memory_ratio=plan.values.number("mamba_full_memory_ratio"),
    )
    return mamba.state_slots(rest_gib, sum(state.bytes for state in plan.states), wanted)


def _all_tensor_bytes(plan: Plan, pool: pools.Pools, details: dict[str, object]) -> int:
    """Every tensor of the pools: keys and values, tables of addresses, states."""
    layers = attending(plan.fullest)
    latents = sum(layer.latent for layer in layers)
    total = allocated_bytes(plan, pool)
    total += cells.pointer_table_bytes(len(layers) - latents, plan.packing)
    total += cells.pointer_table_bytes(latents, plan.packing, latent=True)
    states = details.get("mamba_pool_bytes", 0)
    return total + (states if isinstance(states, int) else 0)


def _pools(plan: Plan, budget: int, context: int) -> tuple[pools.Pools, float]:
    limit = plan.values.whole_or_none("max_total_tokens")
    if not plan.hybrid:
        cell = plain_cell(plan)
        if not cell:  # states alone: the engine counts the tokens of one context
            return pools.Pools(max_total_num_tokens=limit or context), cell
        return pools.plain_pool(budget, cell, plan.page_size, limit), cell
    found, rule, cap = hybrid_cells(plan), sliding_rule(plan), _request_cap(plan)
    if cap is not None and found.full_bytes:
        pool = pools.capped_pools(budget, found, plan.page_size, cap, limit)
        return pool, found.full_bytes + found.draft_full_bytes
    return pools.hybrid_pools(budget, found, rule, limit), found.cell(rule.ratio)


def _request_cap(plan: Plan) -> int | None:
    """The sliding pool's request cap: without radix cache, with a request limit and chunks."""
    requests = per_dp_rank(plan, "max_running_requests")
    chunk = plan.values.whole("chunked_prefill_size")
    if requests is None or chunk <= 0 or not plan.values.flag("disable_radix_cache"):
        return None
    scheduling = pools.Scheduling(
        chunked_prefill_size=chunk,
        overlap=not plan.values.flag("disable_overlap_schedule"),
        draft_tokens=plan.draft_tokens,
        steps=plan.values.whole("speculative_num_steps"),
        topk=plan.values.whole("speculative_eagle_topk"),
    )
    return pools.swa_request_cap(requests, sliding_rule(plan), scheduling)


def allocated_bytes(plan: Plan, pool: pools.Pools, *, logged: bool = False) -> int:
    """What the target's pools allocate for keys and values: a spare page each, no draft.

    `logged`: as the engine prints it, without the scales of FP4 latents.
    """
    total = 0
    for layer in attending(plan.fullest):
        tokens = pool.max_total_num_tokens
        if plan.hybrid:
            tokens = (pool.swa_tokens if layer.sliding else pool.full_tokens) or 0
        row_bytes = layer.token_bytes - (layer.unlogged_bytes if logged else 0)
        total += cells.pool_rows(tokens, plan.page_size) * row_bytes
        if layer.latent and layer.index_bytes:
            total += cells.index_rows(tokens, plan.page_size) * layer.index_bytes
        else:
            total += cells.pool_rows(tokens, plan.page_size) * layer.index_bytes
    spare = cells.pool_rows(pool.max_total_num_tokens, plan.page_size)
    return total + spare * plan.workspace_bytes


def _table_bytes(plan: Plan, requests: int, context: int) -> int:
    extra = cells.req_to_token_extra(
        plan.page_size,
        plan.draft_tokens,
        plan.values.whole("speculative_num_steps"),
        plan.values.whole("speculative_eagle_topk"),
    )
    return cells.req_to_token_bytes(requests, context, extra)
