"""Ticks of the axes and how they read: powers of two, `32k` tokens, `4 GiB`."""

from __future__ import annotations

from math import ceil, floor, log2

from kvsize.units import KIB, MIB, UNITS, ceil_div


def tokens_text(tokens: int) -> str:
    """1024 → `1k`, 1536 → `1.5k`, 1048576 → `1m`; a number that is no such multiple in full."""
    for scale, suffix in ((MIB, "m"), (KIB, "k")):
        if tokens >= scale and tokens * 8 % scale == 0:
            return f"{tokens / scale:g}{suffix}"
    return f"{tokens:,}"


def bytes_text(size_bytes: int) -> str:
    """2³² → `4 GiB`, 3 · 2²⁹ → `1.5 GiB`, 0 → `0`."""
    if not size_bytes:
        return "0"
    name, scale = max(
        ((name, scale) for name, scale in UNITS.items() if size_bytes >= scale),
        key=lambda unit: unit[1],
        default=("B", 1),
    )
    return f"{size_bytes / scale:g} {name}"


def powers(least: float, most: float, at_most: int) -> list[int]:
    """Powers of two from `least` to `most`, evenly spaced, no more than `at_most` of them."""
    first, last = max(0, ceil(log2(least))), floor(log2(most))
    step = max(1, ceil_div(last - first + 1, at_most))
    # The last one is kept: it is where the figures are large.
    return [2**exponent for exponent in range(last, first - 1, -step)][::-1]


def even(most: int, at_most: int) -> list[int]:
    """Multiples of a power of two from 0 to `most`, no more than `at_most` of them."""
    step = 1
    while most // step + 1 > at_most:
        step *= 2
    return list(range(0, most + 1, step))


def octaves(least: int, most: int) -> tuple[int, int]:
    """The exponents of the powers of two that enclose both: (2³⁰ + 1, 2³³) → (30, 33)."""
    low = least.bit_length() - 1
    high = (most - 1).bit_length() if most > 1 else 0
    return low, max(high, low + 1)
