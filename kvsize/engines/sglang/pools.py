"""How many tokens fit: SGLang's budget, pools and request limits, as arithmetic.

Sources: SGLang 0.5.23, srt/mem_cache/kv_cache_configurator.py (budget and requests) and
srt/model_executor/pool_configurator.py (pools). The engine computes the budget in binary64 GiB
and ratios in binary64; so does this.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvsize.engines.sglang.cells import NAME, decode_alloc
from kvsize.errors import EngineRefuses
from kvsize.units import GIB, pad

SWA_FULL_TOKENS_RATIO = 0.8
EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL
_FEWEST_ESTIMATED, _MOST_ESTIMATED = 2048, 4096


def rest_memory_gib(
    free_gib: float, pre_model_load_gib: float, mem_fraction_static: float, mm_gib: float = 0.0
) -> float:
    """GiB left for pools: free now, less the slack of what was free before the weights."""
    return free_gib - pre_model_load_gib * (1 - mem_fraction_static) - mm_gib


def budget_bytes(rest_gib: float) -> int:
    """The budget in bytes; EngineRefuses when the weights leave nothing."""
    if rest_gib <= 0:
        msg = f"{NAME}: the loaded weights leave no memory for the KV cache."
        raise EngineRefuses(msg, "raise mem_fraction_static, or use more ranks.")
    return int(rest_gib * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Tokens of the pools: `max_total_num_tokens` is what the engine logs."""

    max_total_num_tokens: int
    full_tokens: int | None = None
    swa_tokens: int | None = None


def plain_pool(
    budget: int, cell_bytes: int, page_size: int, max_total_tokens: int | None = None
) -> Pools:
    """One pool for all layers."""
    tokens = _page(budget // cell_bytes, page_size)
    if max_total_tokens is not None:
        tokens = min(tokens, _page(max_total_tokens, page_size))
    return Pools(max_total_num_tokens=_at_least_one(tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridCells:
    """Bytes per token of the two pools of a sliding-window model, on one rank."""

    full_bytes: int
    swa_bytes: int
    draft_full_bytes: int = 0
    draft_swa_bytes: int = 0

    def cell(self, ratio: float) -> float:
        """Bytes per full token; without full layers, bytes per sliding token."""
        if not self.full_bytes:
            return self.swa_bytes + self.draft_full_bytes + self.draft_swa_bytes
        full = self.full_bytes + self.draft_full_bytes
        return full + ratio * (self.swa_bytes + self.draft_swa_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingRule:
    """How the sliding pool follows the full one: page, ratio, and the window it must hold."""

    page_size: int
    ratio: float = SWA_FULL_TOKENS_RATIO
    window: int


def hybrid_pools(
    budget: int, cells: HybridCells, rule: SlidingRule, max_total_tokens: int | None = None
) -> Pools:
    """A full pool and one for sliding layers that is `ratio` as long, whatever the window.

    Raises EngineRefuses when the sliding pool could never admit a request.
    """
    tokens = int(budget // cells.cell(rule.ratio))
    if max_total_tokens is not None:
        tokens = min(tokens, max_total_tokens)
    found = hybrid_split(tokens, cells, rule)
    if cells.full_bytes and rule.window + rule.page_size >= (found.swa_tokens or 0):
        msg = (
            f"{NAME}: a sliding pool of {found.swa_tokens:,} tokens cannot hold one window of "
            f"{rule.window:,}."
        )
        raise EngineRefuses(msg, "give more memory, or a larger swa_full_tokens_ratio.")
    _at_least_one(found.max_total_num_tokens)
    return found


def hybrid_split(tokens: int, cells: HybridCells, rule: SlidingRule) -> Pools:
    """The two pools for `tokens`, whether or not the engine would start with them."""
    full = _page(tokens, rule.page_size)
    if not cells.full_bytes:
        return Pools(max_total_num_tokens=full, full_tokens=0, swa_tokens=full)
    swa = _page(int(full * rule.ratio), rule.page_size)
    return Pools(max_total_num_tokens=full, full_tokens=full, swa_tokens=swa)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What decides how many slots a request can hold; `draft_tokens` 0: no speculation."""

    chunked_prefill_size: int
    overlap: bool = True
    draft_tokens: int = 0
    steps: int = 1
    topk: int = 1


def swa_request_cap(max_running_requests: int, rule: SlidingRule, scheduling: Scheduling) -> int:
    """Slots that `max_running_requests` can hold at worst (compute_swa_request_cap)."""
    drafts, page_size = scheduling.draft_tokens, rule.page_size
    trailing = rule.window + EVICTION_INTERVAL * (drafts or 1) + page_size
    alloc = page_size
    if drafts and scheduling.overlap:
        alloc = 2 * decode_alloc(page_size, drafts, scheduling.steps, scheduling.topk)
    elif drafts:
        alloc = _decode_alloc_in_turns(page_size, scheduling)
    chunks = 2 if scheduling.overlap else 1
    requests = max(1, max_running_requests)
    return (trailing + alloc) * requests + chunks * scheduling.chunked_prefill_size + page_size


def _decode_alloc_in_turns(page_size: int, scheduling: Scheduling) -> int:
    """`spec_decode_alloc_len_per_request`: without overlap, branches and drafts in whole pages."""
    spare = page_size if page_size > 1 and scheduling.topk > 1 else 0
    steps = pad(scheduling.steps + spare, page_size)
    return max(steps * scheduling.topk, pad(scheduling.draft_tokens, page_size))


def capped_pools(
    budget: int, cells: HybridCells, page_size: int, cap: int, max_total_tokens: int | None = None
) -> Pools:
    """The sliding pool holds exactly the request cap; the full pool gets the rest.

    Raises EngineRefuses when nothing is left for the full pool.
    """
    swa = pad(cap, page_size)
    left = budget - swa * (cells.swa_bytes + cells.draft_swa_bytes)
    full = _page(left // (cells.full_bytes + cells.draft_full_bytes), page_size)
    if full <= 0:
        msg = f"{NAME}: the sliding pool of {swa:,} tokens leaves no room for the full pool."
        raise EngineRefuses(msg, "lower max_running_requests, or give more memory.")
    if max_total_tokens is not None and max_total_tokens < full:
        full = _page(max_total_tokens, page_size)
        swa = min(swa, max_total_tokens)
    return Pools(max_total_num_tokens=full, full_tokens=full, swa_tokens=swa)


def max_num_reqs(
    tokens: int,
    context_len: int,
    *,
    max_running_requests: int | None = None,
    state_slots: int | None = None,
    slots_per_request: int = 1,
) -> int:
    """Concurrent requests of one DP rank (resolve_max_num_reqs); EngineRefuses at none.

    `state_slots`: max_mamba_cache_size, of which a running request needs `slots_per_request`.
    """
    if max_running_requests is None:
        estimated = int(tokens / context_len * 512)
        wanted = max(min(estimated, _MOST_ESTIMATED), _FEWEST_ESTIMATED)
    else:
        wanted = max(1, max_running_requests)
    requests = min(wanted, tokens // 2)
    if state_slots is not None:
        requests = min(requests, state_slots // slots_per_request)
        if requests <= 0:
            msg = f"{NAME}: {state_slots} recurrent states serve no request."
            raise EngineRefuses(msg, "give more memory, or a larger mamba_full_memory_ratio.")
    return requests


def _page(tokens: int, page_size: int) -> int:
    return tokens // page_size * page_size


def _at_least_one(tokens: int) -> int:
    if tokens <= 0:
        msg = f"{NAME}: not enough memory for one page of tokens."
        raise EngineRefuses(msg, "raise mem_fraction_static, or use more ranks.")
    return tokens
