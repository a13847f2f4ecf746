"""The largest whole number that still satisfies a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def largest(holds: Callable[[int], bool], *, at_most: int, guess: int = 1) -> int:
    """The number n ≤ `at_most` with holds(n) and, below `at_most`, not holds(n + 1); else 0.

    For a condition that holds up to some point and not beyond. `guess` is tried first, and the
    steps away from it double: a good guess saves calls.
    """
    low, high = _bracket(holds, at_most, min(max(guess, 1), at_most))
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _bracket(holds: Callable[[int], bool], at_most: int, start: int) -> tuple[int, int]:
    """A number that holds (or 0) and a larger one that does not (or `at_most` + 1)."""
    step = 1
    if start >= 1 and holds(start):
        low = start
        while low < at_most:
            probe = min(low + step, at_most)
            if not holds(probe):
                return low, probe
            low, step = probe, step * 2
        return low, at_most + 1
    high = start
    while high > 1:
        probe = max(high - step, 1)
        if holds(probe):
            return probe, high
        high, step = probe, step * 2
    return 0, max(high, 1)
