"""The questions users ask, answered in whole numbers: how many, how long, and what more costs.

Every answer n satisfies fits(n) and not fits(n + 1), under the engine's own rounding; a spread of
memory gives a spread of answers, and a known memory a single one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.capacity.holding import fits, held, needed_bytes
from kvsize.capacity.limits import MEMORY
from kvsize.capacity.search import largest

if TYPE_CHECKING:
    from kvsize.capacity.budget import Budget
    from kvsize.capacity.setup import Setup

CONTEXT_LIMIT = "the model's context limit"
NOTHING = "nothing up to there"
# Where a model states no limit: beyond any published one.
_LONGEST_CONTEXT = 2**24


@dataclass(frozen=True, slots=True)
class Span:
    """A whole number as least, best and most, where the memory is an estimate."""

    least: int
    best: int
    most: int

    @property
    def exact(self) -> bool:
        """Whether the three are one."""
        return self.least == self.best == self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many sequences of one length fit, what bounds them, and what one more would cost.

    `tokens`: what the engine logs as its cache size, over all replicas. `next_bytes`: further
    memory per rank for one more sequence, None where memory does not bound them.
    """

    context: int
    sequences: Span
    binding: str
    tokens: int | None
    needed_bytes: int | None
    next_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Longest:
    """The longest context for so many sequences, what bounds it, and what one token more costs."""

    sequences: int
    context: Span
    binding: str
    next_bytes: int | None


def capacity(setup: Setup, context: int, budget: Budget) -> Capacity:
    """The sequences of `context` tokens that `budget` holds."""
    found = held(setup, context, budget.best_bytes)
    count, bound = found.sequences, found.binding.name
    span = Span(count, count, count)
    if not budget.exact:
        least, most = (held(setup, context, size).sequences for size in budget.range_bytes)
        span = Span(least, count, most)
    return Capacity(
        context=context,
        sequences=span,
        binding=bound,
        tokens=found.tokens,
        needed_bytes=needed_bytes(setup, context, count) if count else None,
        next_bytes=_further(setup, context, count + 1, budget) if bound == MEMORY else None,
    )


def longest(setup: Setup, sequences: int, budget: Budget) -> Longest:
    """The longest context that `sequences` sequences may have."""
    limit = setup.model.context_limit or _LONGEST_CONTEXT
    best = max_context(setup, sequences, budget.best_bytes, limit)
    span = Span(best, best, best)
    if not budget.exact:
        least, most = (max_context(setup, sequences, b, limit) for b in budget.range_bytes)
        span = Span(least, best, most)
    if best == limit:
        bound = CONTEXT_LIMIT if setup.model.context_limit else NOTHING
        return Longest(sequences=sequences, context=span, binding=bound, next_bytes=None)
    bound = held(setup, best + 1, budget.best_bytes).binding.name
    return Longest(
        sequences=sequences,
        context=span,
        binding=bound,
        next_bytes=_further(setup, best + 1, sequences, budget) if bound == MEMORY else None,
    )


def max_context(setup: Setup, sequences: int, kv_memory: int, limit: int) -> int:
    """The longest context ≤ `limit` with which `sequences` fit; 0 where none does."""
    return largest(
        lambda context: fits(setup, context, sequences, kv_memory), at_most=limit, guess=limit
    )


def _further(setup: Setup, context: int, sequences: int, budget: Budget) -> int | None:
    wanted = needed_bytes(setup, context, sequences)
    return None if wanted is None else max(0, wanted - budget.left.columns[1])
