"""How many sequences of random length share a pool before it overflows more often than allowed.

The lengths are drawn independently. The distribution of their sum is computed by repeated
convolution in fixed-point integers: one multiplication of two large numbers convolves two
distributions (Kronecker substitution). Probabilities are cut off downwards, so that the answer is
on the safe side by less than a millionth.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import gcd, sqrt
from statistics import NormalDist

from kvsize.capacity.search import largest
from kvsize.units import ceil_div

_BITS = 96
_ONE = 1 << _BITS
# Coefficients sum to at most 2^96, so one of a product is at most 2^192: 26 bytes hold it.
_SLOT_BYTES = 26
_FINEST_GRID = 8192
# From here on the sum of so many lengths is normal to within the rounding of the grid.
_NORMAL_FROM = 400


@dataclass(frozen=True, slots=True)
class Shared:
    """The sequences, and how the probability was found: exactly or by the normal distribution."""

    sequences: int
    method: str


def sequences_within(
    costs: tuple[tuple[int, int], ...], capacity: int, probability: Fraction
) -> Shared:
    """The most sequences whose costs together exceed `capacity` with at most `probability`.

    `costs`: what a sequence takes, in units of the pool, and how often.
    """
    cheapest, dearest = min(cost for cost, _ in costs), max(cost for cost, _ in costs)
    most = capacity // max(cheapest, 1)
    safe = capacity // max(dearest, 1)
    if most == safe or capacity <= 0:
        return Shared(safe, "all are equally long")
    if safe >= _NORMAL_FROM:
        return Shared(_normal(costs, capacity, probability, most), "normal distribution")
    sums = _Sums(costs, capacity)

    def within(count: int) -> bool:
        return sums.overflow(count) <= probability

    return Shared(largest(within, at_most=most, guess=max(safe, 1)), "convolution")


def _normal(
    costs: tuple[tuple[int, int], ...], capacity: int, probability: Fraction, most: int
) -> int:
    total = sum(count for _, count in costs)
    mean = sum(cost * count for cost, count in costs) / total
    variance = sum((cost - mean) ** 2 * count for cost, count in costs) / total
    z = NormalDist().inv_cdf(1 - float(probability))

    def within(count: int) -> bool:
        return count * mean + z * sqrt(count * variance) <= capacity

    return largest(within, at_most=most)


class _Sums:
    """Distributions of the sum of n costs up to the capacity, by doubling."""

    def __init__(self, costs: tuple[tuple[int, int], ...], capacity: int) -> None:
        unit = max(reduce(gcd, (cost for cost, _ in costs)), ceil_div(capacity, _FINEST_GRID))
        self.size = capacity // unit + 1
        total = sum(count for _, count in costs)
        single = [0] * self.size
        for cost, count in costs:
            step = ceil_div(cost, unit)
            if step < self.size:
                single[step] += count * _ONE // total
        self.powers = [single]

    def overflow(self, count: int) -> Fraction:
        """The probability that `count` costs exceed the capacity, rounded up."""
        result: list[int] | None = None
        for bit in range(count.bit_length()):
            while len(self.powers) <= bit:
                self.powers.append(self._product(self.powers[-1], self.powers[-1]))
            if count >> bit & 1:
                power = self.powers[bit]
                result = power if result is None else self._product(result, power)
        return 1 - Fraction(sum(result or [_ONE]), _ONE)

    def _product(self, left: list[int], right: list[int]) -> list[int]:
        product = _packed(left) * _packed(right)
        data = product.to_bytes(2 * self.size * _SLOT_BYTES, "little")
        slots = (
            int.from_bytes(data[at : at + _SLOT_BYTES], "little")
            for at in range(0, self.size * _SLOT_BYTES, _SLOT_BYTES)
        )
        return [slot >> _BITS for slot in slots]


def _packed(coefficients: list[int]) -> int:
    data = b"".join(value.to_bytes(_SLOT_BYTES, "little") for value in coefficients)
    return int.from_bytes(data, "little")
