"""The memory ledger of one rank: from a GPU's memory to what is left for the cache.

Three columns, one per scenario of the runtime reserve: low, best and high. Every column adds up
to its own last line. Figures are bytes; a line that takes memory is negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from kvsize.capacity.reserve import Spread, kept_by_driver, taken_by
from kvsize.capacity.rules import rules_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.gpus import Gpu

Columns = tuple[int, int, int]
WEIGHTS = "weights"
# Metal's recommendedMaxWorkingSetSize against the machine's memory in public llama.cpp logs:
# 10.67 of 16 GiB on older systems, 48 of 64, 17.76 of 24, 28.08 of 36 on newer ones.
_KEPT_BY_MACOS = (Fraction(22, 100), Fraction(26, 100), Fraction(1, 3))
_METAL = "Metal's recommendedMaxWorkingSetSize in public logs: 67 to 78 % of unified memory"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger, signed, with where it is from."""

    label: str
    columns: Columns
    source: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The lines, and what they leave: `low`, `best` and `high` name the reserve's scenario."""

    entries: tuple[Entry, ...]

    @property
    def left(self) -> Entry:
        """What the lines add up to: the memory for the cache, negative where they do not fit."""
        low, best, high = (sum(entry.columns[i] for entry in self.entries) for i in range(3))
        return Entry("left for the cache", (low, best, high), "the sum of the lines above")

    @property
    def best_bytes(self) -> int:
        """The best estimate of the cache's memory, never negative."""
        return max(0, self.left.columns[1])

    @property
    def range_bytes(self) -> tuple[int, int]:
        """The least and the most memory for the cache, never negative."""
        return max(0, self.left.columns[2]), max(0, self.left.columns[0])

    @property
    def exact(self) -> bool:
        """Whether all scenarios are one: nothing in it was estimated."""
        return len(set(self.left.columns)) == 1


def known(kv_memory: int) -> Budget:
    """A budget that a log or `--kv-memory` states."""
    return Budget((_even("cache memory", kv_memory, "--kv-memory"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a ledger is made of: the weights of one rank, the share, and a stated reserve."""

    weights_bytes: int
    weights_source: str
    fraction: Fraction | None
    fraction_source: str = "the engine's default"
    reserve_bytes: int | None = None


def budget(engine: str, gpu: Gpu, costs: Costs) -> Budget:
    """The ledger of one rank of `engine` on `gpu`."""
    entries = [_even("GPU memory", gpu.memory_bytes, gpu.source)]
    entries += _kept(gpu, costs)
    base = rules_for(engine).base
    return Budget(tuple(_BASES[base](engine, gpu, costs, entries)))


def pooled(engine: str, gpu: Gpu, costs: Costs, gpus: int) -> Budget:
    """The ledger of `gpus` GPUs whose memory is one budget: each has its own reserve."""
    one = budget(engine, gpu, costs)
    return Budget(
        tuple(
            entry
            if entry.label == WEIGHTS
            else Entry(f"{gpus} × {entry.label}", _times(entry.columns, gpus), entry.source)
            for entry in one.entries
        )
    )


def _times(columns: Columns, factor: int) -> Columns:
    low, best, high = columns
    return low * factor, best * factor, high * factor


def _of_total(engine: str, gpu: Gpu, costs: Costs, entries: list[Entry]) -> list[Entry]:
    """VLLM: requested = ceil(total × share), whatever others use."""
    entries += _driver(gpu) if costs.reserve_bytes is None else []
    spared = _map(entries, lambda total: ceil(total * _share(costs)) - total)
    return [
        *entries,
        _share_line(engine, costs, spared, "of the total"),
        _weights(costs),
        *_runtime(engine, gpu, costs),
    ]


def _before_weights(engine: str, gpu: Gpu, costs: Costs, entries: list[Entry]) -> list[Entry]:
    """SGLang: what is free before the weights × share, less what was allocated since."""
    entries += _runtime(engine, gpu, costs)
    spared = _map(entries, lambda free: -int(free * (1 - _share(costs))))
    return [*entries, _share_line(engine, costs, spared, "of what is free before"), _weights(costs)]


def _after_weights(engine: str, gpu: Gpu, costs: Costs, entries: list[Entry]) -> list[Entry]:
    """TensorRT-LLM and LMDeploy: what is free after the weights × share."""
    entries += [_weights(costs), *_runtime(engine, gpu, costs)]
    spared = _map(entries, lambda free: -int(max(0, free) * (1 - _share(costs))))
    return [*entries, _share_line(engine, costs, spared, "of what is free after")]


def _all_left(engine: str, gpu: Gpu, costs: Costs, entries: list[Entry]) -> list[Entry]:
    """Engines that allocate what they are asked for."""
    return [*entries, _weights(costs), *_runtime(engine, gpu, costs)]


_BASES: dict[str, Callable[[str, Gpu, Costs, list[Entry]], list[Entry]]] = {
    "total": _of_total,
    "before": _before_weights,
    "after": _after_weights,
    "left": _all_left,
}


def _share(costs: Costs) -> Fraction:
    return Fraction(1) if costs.fraction is None else costs.fraction


def _kept(gpu: Gpu, costs: Costs) -> list[Entry]:
    """What the system keeps of Apple's unified memory."""
    if gpu.vendor != "apple" or costs.reserve_bytes is not None:
        return []
    low, best, high = (-int(gpu.memory_bytes * share) for share in _KEPT_BY_MACOS)
    return [Entry("kept by macOS", (low, best, high), _METAL)]


def _driver(gpu: Gpu) -> list[Entry]:
    """Between nvidia-smi's total and CUDA's, for cards whose figure is nvidia-smi's."""
    if gpu.vendor != "nvidia" or gpu.unified:
        return []
    return [_spent("kept by the driver", kept_by_driver())]


def _runtime(engine: str, gpu: Gpu, costs: Costs) -> list[Entry]:
    if costs.reserve_bytes is not None:
        return [_even("runtime reserve", -costs.reserve_bytes, "--reserve")]
    return [_spent("runtime reserve", taken_by(engine, gpu.memory_bytes))]


def _weights(costs: Costs) -> Entry:
    return _even(WEIGHTS, -costs.weights_bytes, costs.weights_source)


def _share_line(engine: str, costs: Costs, columns: Columns, of_what: str) -> Entry:
    option = rules_for(engine).fraction_option
    label = f"left free: {option} {float(_share(costs)):g} {of_what}"
    return Entry(label, columns, costs.fraction_source)


def _map(entries: list[Entry], change: Callable[[int], int]) -> Columns:
    low, best, high = Budget(tuple(entries)).left.columns
    return change(low), change(best), change(high)


def _even(label: str, size_bytes: int, source: str) -> Entry:
    return Entry(label, (size_bytes, size_bytes, size_bytes), source)


def _spent(label: str, spread: Spread) -> Entry:
    columns = (-spread.low_bytes, -spread.best_bytes, -spread.high_bytes)
    return Entry(label, columns, spread.source)
