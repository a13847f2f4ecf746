"""Budgets over a picture: memory that is stated, or what GPUs leave for a cache beside the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.capacity import asked
from kvsize.capacity.holding import fits
from kvsize.capacity.machine import budget_of
from kvsize.capacity.search import largest
from kvsize.plot.chart import Crossing, Line
from kvsize.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvsize.plot.asking import Case, Memory
    from kvsize.plot.sampling import Points

# By a twentieth.
_CLEARLY = 20


def lines(cases: Sequence[Case], memory: Memory) -> tuple[list[Line], list[str]]:
    """The budgets, and a sentence for each GPU that the weights alone fill.

    What a GPU leaves depends on the model and on the engine's share, so each such pair has its
    own line where there are several.
    """
    everyone = tuple(range(len(cases)))
    found = [_stated(text, everyone) for text in memory.budgets]
    notes: list[str] = []
    pairs = _pairs(cases)
    machines = [(gpu, "") for gpu in memory.gpus] + [("", size) for size in memory.gpu_memory]
    for gpu in machines:
        for names, members in pairs.items():
            curves = names if len(pairs) > 1 else ""
            line = _left(gpu, curves, (cases[members[0]], members), memory.weights)
            if line.size_bytes > 0:
                found.append(line)
            else:
                notes.append(f"Nothing is {line.meaning}.")
    return found, notes


def _stated(text: str, series: tuple[int, ...]) -> Line:
    size = parse_bytes(text)
    return Line(
        label=format_bytes(size),
        meaning="budget as stated",
        size_bytes=size,
        least_bytes=size,
        most_bytes=size,
        series=series,
    )


def _pairs(cases: Sequence[Case]) -> dict[str, list[int]]:
    """The curves that share a model and an engine, by what tells them from others."""
    models = {case.model.name for case in cases}
    engines = {case.ask["engine"] for case in cases}
    found: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        model = case.model.name if len(models) > 1 or len(engines) == 1 else ""
        engine = str(case.ask["engine"]) if len(engines) > 1 else ""
        found.setdefault(" in ".join(filter(None, (model, engine))), []).append(index)
    return found


def _left(gpu: tuple[str, str], names: str, curves: tuple[Case, list[int]], weights: str) -> Line:
    """What a GPU, by its name or its memory, leaves to one model in one engine."""
    case, series = curves
    called = gpu[0] or f"a GPU of {gpu[1]}"
    label = f"{called}, {names}" if names else called
    machine = asked.machine(case.model, *gpu, "", weights, "", "")
    engine = asked.spelled(case.ask["engine"] or "")
    layout = case.setup().layout
    budget = budget_of(machine, case.model, engine, case.ask["engine_version"], layout)
    least, most = budget.range_bytes
    size = format_bytes(budget.best_bytes)
    each = "each " if layout.gpus > 1 else ""
    return Line(
        label=f"{label}: {size}",
        meaning=f"left on {each}{called} beside the weights of {case.model.name} in {engine}",
        size_bytes=budget.best_bytes,
        least_bytes=least,
        most_bytes=most,
        series=tuple(series),
    )


def crossings(
    cases: Sequence[Case], curves: Sequence[Points], budgets: Sequence[Line]
) -> Iterator[Crossing]:
    """The largest context of each curve that its engine holds in each of its budgets."""
    for index, (case, points) in enumerate(zip(cases, curves, strict=True)):
        for at, line in enumerate(budgets):
            if index in line.series:
                yield _crossing(index, at, line, case, points)


def _crossing(series: int, budget: int, line: Line, case: Case, points: Points) -> Crossing:
    last = points[-1][0]
    context = held_context(case, points, line.size_bytes)
    estimated = line.least_bytes != line.most_bytes
    least, most = (
        held_context(case, points, size) if estimated else context
        for size in (line.least_bytes, line.most_bytes)
    )
    return Crossing(
        series=series,
        budget=budget,
        context=context,
        size_bytes=case.measure(context) if context else 0,
        everywhere=context == last,
        least_context=least,
        most_context=most,
    )


def held_context(case: Case, points: Points, size_bytes: int) -> int:
    """The largest context up to the last point that the engine holds in `size_bytes`; 0 for none.

    What `kvsize fit` says: an engine with a pool needs more than the sequences fill, where it
    holds blocks back or cuts its memory by a rule of its own.
    """
    guess = max((context for context, size in points if size <= size_bytes), default=1)
    setup = case.setup()
    return largest(
        lambda context: fits(setup, context, case.sequences, size_bytes),
        at_most=points[-1][0],
        guess=guess,
    )


def held_back(
    crossings: Sequence[Crossing], budgets: Sequence[Line], cases: Sequence[Case]
) -> list[str]:
    """A sentence for each engine of which a mark lies clearly below its line."""
    engines = {
        str(cases[crossing.series].ask["engine"]): None
        for crossing in crossings
        if not crossing.everywhere
        and crossing.size_bytes * _CLEARLY < budgets[crossing.budget].size_bytes * (_CLEARLY - 1)
    }
    return [
        f"{engine} needs more memory than the sequences fill (see `kvsize fit`), so its marks lie "
        "below the line."
        for engine in engines
    ]
