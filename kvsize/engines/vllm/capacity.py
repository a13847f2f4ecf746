"""From memory to blocks, tokens and concurrency, and whether one longest request fits.

Rules of get_kv_cache_configs and get_max_concurrency_for_kv_cache_config in
vllm/v1/core (0.33.0); the figures of older versions differ by `Rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvsize.engines.vllm.grouping import Group, block_bytes
from kvsize.engines.vllm.specs import Demand
from kvsize.engines.vllm.versions import Rules
from kvsize.errors import EngineRefuses
from kvsize.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What vLLM logs at start: blocks, tokens, concurrency, and what they rest on."""

    blocks: int
    tokens: int
    concurrency: float
    demand: Demand
    """With the longest length that was chosen."""


def stage_sizes(groups: Sequence[Group], stages: int, *, block_outermost: bool) -> tuple[int, ...]:
    """Bytes of one block on each pipeline stage."""
    return tuple(
        block_bytes(groups, stage=stage, block_outermost=block_outermost) for stage in range(stages)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What the blocks are made of: `memory` bytes per rank, or `override` blocks.

    `auto_fit`: max_model_len -1, the longest length that fits.
    """

    memory: int
    override: int | None
    auto_fit: bool
    rules: Rules


def capacity(groups: Sequence[Group], sizes: Sequence[int], demand: Demand, pool: Pool) -> Capacity:
    """What a pool holds, `sizes` being each stage's bytes per block.

    Raises EngineRefuses where one request of the longest length does not fit.
    """
    memory, override, rules = pool.memory, pool.override, pool.rules
    used = [size for size in sizes if size]
    if not used:  # nothing is cached, and the pool is the one block that is held back
        return Capacity(blocks=1, tokens=0, concurrency=0.0, demand=demand)
    budgets = [memory if override is None else override * size for size in used]
    # One block is held back for ever as the null block (checked from 0.29 on).
    check = [m - size * rules.null_block for m, size in zip(budgets, used, strict=True)]
    if pool.auto_fit:
        longest = min(
            longest_that_fits(groups, demand, size, budget)
            for size, budget in zip(used, check, strict=True)
        )
        demand = replace(demand, max_model_len=_at_least_one_token(longest))
    for size, budget in zip(used, check, strict=True):
        _check_fits(groups, demand, size, budget)
    blocks = min(m // size for m, size in zip(budgets, used, strict=True))
    concurrency = blocks / sum(group.blocks_needed(demand) for group in groups)
    return Capacity(
        blocks=blocks,
        tokens=_logged_tokens(groups, demand, blocks, concurrency, rules),
        concurrency=concurrency,
        demand=demand,
    )


def request_bytes(groups: Sequence[Group], demand: Demand, size: int) -> int:
    """Bytes that one request of the longest length takes from a stage's pool."""
    return size * sum(group.blocks_needed(demand) for group in groups)


def longest_that_fits(groups: Sequence[Group], demand: Demand, size: int, budget: int) -> int:
    """The longest length ≤ demand's whose request fits `budget`; 0 where not even one token."""
    fits, too_long = 0, demand.max_model_len + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if request_bytes(groups, replace(demand, max_model_len=middle), size) <= budget:
            fits = middle
        else:
            too_long = middle
    return fits


def _at_least_one_token(longest: int) -> int:
    if longest < 1:
        msg = "vllm: cannot auto-fit max_model_len: not even one token fits the memory."
        raise EngineRefuses(msg, "give more memory, or more ranks.")
    return longest


def _check_fits(groups: Sequence[Group], demand: Demand, size: int, budget: int) -> None:
    if budget <= 0:
        msg = "vllm: no memory is left for the cache blocks."
        raise EngineRefuses(msg, "give more memory than one block takes, or more ranks.")
    wanted = request_bytes(groups, demand, size)
    if wanted <= budget:
        return
    longest = longest_that_fits(groups, demand, size, budget)
    msg = (
        f"vllm: one request of max_model_len {demand.max_model_len:,} takes "
        f"{format_bytes(wanted)} of cache, and {format_bytes(budget)} are left."
    )
    known = f"a context of at most {longest:,} tokens fits; " if longest else ""
    raise EngineRefuses(msg, f"{known}give more memory, a smaller context or more ranks.")


def _logged_tokens(
    groups: Sequence[Group], demand: Demand, blocks: int, concurrency: float, rules: Rules
) -> int:
    """The figure of the line "GPU KV cache size: N tokens"."""
    if rules.capacity_line == "concurrency":
        # A float product cut off, as vLLM computes it.
        return int(concurrency * demand.max_model_len)
    smallest = min(group.spec.block_size for group in groups)
    return blocks // len(groups) * smallest * demand.decode_context_parallel_size
