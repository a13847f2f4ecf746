"""Budgets over a picture: memory that is stated, or what GPUs leave for a cache beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.capacity import asked
from kvsize.capacity.layout import Layout
from kvsize.capacity.machine import budget_of
from kvsize.capacity.search import largest
from kvsize.plot.chart import Crossing, Line
from kvsize.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvsize.plot.asking import Case
    from kvsize.plot.sampling import Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was stated: sizes, names of GPUs, and the weights on them (a size or a dtype)."""

    budgets: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    weights: str = ""


def lines(cases: Sequence[Case], memory: Memory) -> tuple[list[Line], list[str]]:
    """The budgets, and a sentence for each GPU that the weights alone fill.

    What a GPU leaves depends on the model and on the engine's share, so each such pair has its
    own line where there are several.
    """
    everyone = tuple(range(len(cases)))
    found = [_stated(text, everyone) for text in memory.budgets]
    notes: list[str] = []
    pairs = _pairs(cases)
    for gpu in memory.gpus:
        for names, members in pairs.items():
            label = f"{gpu}, {names}" if len(pairs) > 1 else gpu
            line = _left(label, gpu, (cases[members[0]], members), memory.weights)
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


def _left(label: str, gpu: str, curves: tuple[Case, list[int]], weights: str) -> Line:
    case, series = curves
    machine = asked.machine(case.model, gpu, "", "", weights, "", "")
    engine = asked.spelled(case.ask["engine"] or "")
    layout = Layout(
        tensor_parallel_size=case.ask["tensor_parallel_size"],
        pipeline_parallel_size=case.ask["pipeline_parallel_size"],
    )
    budget = budget_of(machine, case.model, engine, case.ask["engine_version"], layout)
    least, most = budget.range_bytes
    size = format_bytes(budget.best_bytes)
    each = "each " if layout.gpus > 1 else ""
    return Line(
        label=f"{label}: {size}",
        meaning=f"left on {each}{gpu} beside the weights of {case.model.name} in {engine}",
        size_bytes=budget.best_bytes,
        least_bytes=least,
        most_bytes=most,
        series=tuple(series),
    )


def crossings(
    cases: Sequence[Case], curves: Sequence[Points], budgets: Sequence[Line]
) -> Iterator[Crossing]:
    """Where each curve leaves each of its budgets, found among exact figures."""
    for index, (case, points) in enumerate(zip(cases, curves, strict=True)):
        for at, line in enumerate(budgets):
            if index in line.series:
                yield _crossing(index, at, line, case.measure, points)


def _crossing(
    series: int, budget: int, line: Line, measure: Callable[[int], int], points: Points
) -> Crossing:
    context = within(measure, points, line.size_bytes)
    estimated = line.least_bytes != line.most_bytes
    least, most = (
        within(measure, points, size) if estimated else context
        for size in (line.least_bytes, line.most_bytes)
    )
    return Crossing(
        series=series,
        budget=budget,
        context=context,
        size_bytes=measure(context) if context else 0,
        everywhere=context == points[-1][0],
        least_context=least,
        most_context=most,
    )


def within(measure: Callable[[int], int], points: Points, size_bytes: int) -> int:
    """The largest context up to the last point whose figure is at most `size_bytes`; 0 for none."""
    guess = max((context for context, size in points if size <= size_bytes), default=1)
    return largest(
        lambda context: measure(context) <= size_bytes, at_most=points[-1][0], guess=guess
    )
