"""Memory against context: one curve for each combination, or one cache by kinds of layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kvsize.capacity.search import largest
from kvsize.errors import UsageError
from kvsize.plot import naming, sampling
from kvsize.plot.asking import LEFT_OUT, accepted, one_case, refuse_crowds, with_choices
from kvsize.plot.chart import Chart, Point, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvsize.plot.asking import Case, Memory, Wanted
    from kvsize.plot.chart import Crossing, Line
    from kvsize.plot.sampling import Points
    from kvsize.results import Size

TITLE = "KV cache against context"


def chart(wanted: Wanted, least: int, most: int, memory: Memory) -> Chart:
    """The curves from `least` to `most` tokens with their budgets.

    Combinations that an engine does not take are left out and named in the notes; where it takes
    none, its own error is raised. Raises UsageError for more curves than can be told apart.
    """
    refuse_crowds(wanted)
    return _chart(wanted, least, most, memory)


def _chart(wanted: Wanted, least: int, most: int, memory: Memory) -> Chart:
    cases, left_out = accepted(wanted, least)
    drawn = [_curve(case, least, most) for case in cases]
    found, crossed, notes = _budgets(cases, drawn, memory)
    sizes = [case.size(least) for case in cases]
    names, common = naming.labels(cases, sizes)
    series = tuple(
        _series(name, case, size, _through(case, points, crossed, index), most)
        for index, (name, case, size, points) in enumerate(
            zip(names, cases, sizes, drawn, strict=True)
        )
    )
    return Chart(
        title=TITLE,
        subtitle=common,
        quantity=_quantity(wanted),
        stacked=False,
        least_context=least,
        most_context=most,
        series=series,
        budgets=found,
        crossings=crossed,
        notes=(*left_out, *_refusals(series), *notes),
    )


def explorable(wanted: Wanted, least: int, most: int, memory: Memory) -> Chart:
    """The curves of `chart`, with more numbers of sequences and dtypes to choose from."""
    refuse_crowds(wanted)
    left_out = accepted(wanted, least)[1]
    found = _chart(with_choices(wanted), least, most, memory)
    others = (note for note in found.notes if not note.startswith(LEFT_OUT))
    return replace(found, notes=(*left_out, *others))


def kinds(wanted: Wanted, least: int, most: int, memory: Memory) -> Chart:
    """One cache, split by kind of layer; the budgets are for the whole of it.

    Raises UsageError where several caches are asked for, or one that several GPUs share.
    """
    if wanted.ranks > 1:
        msg = "--by kind splits the whole cache, and --tp and --pp ask for one GPU's share."
        raise UsageError(msg, "leave out --tp and --pp, or --by kind.")
    cases, left_out = accepted(wanted, least)
    case = one_case(cases, "--by kind")
    whole = _curve(case, least, most)
    found, crossed, notes = _budgets(cases, [whole], memory)
    contexts = [context for context, _ in _through(case, whole, crossed, 0)]
    first = case.size(least)
    _, common = naming.labels(cases, [first])
    parts = _parts(case, contexts)
    series = tuple(_series(name, case, first, points, most) for name, points in parts.items())
    return Chart(
        title=f"KV cache of {case.model.name} by kind of layer",
        subtitle=common,
        quantity=_quantity(wanted),
        stacked=True,
        least_context=least,
        most_context=most,
        series=series,
        budgets=found,
        crossings=crossed,
        notes=(*left_out, *_refusals(series[:1]), *notes),
    )


def _budgets(
    cases: Sequence[Case], curves: Sequence[Points], memory: Memory
) -> tuple[tuple[Line, ...], tuple[Crossing, ...], list[str]]:
    """The budgets, where the curves cross them, and what must be said about both."""
    if not (memory.budgets or memory.gpus or memory.gpu_memory):
        return (), (), []
    from kvsize.plot import budgets

    found, notes = budgets.lines(cases, memory)
    crossed = tuple(budgets.crossings(cases, curves, found))
    return tuple(found), crossed, [*notes, *budgets.held_back(crossed, found, cases)]


def _quantity(wanted: Wanted) -> str:
    return "KV cache of the fullest GPU" if wanted.ranks > 1 else "KV cache"


def _curve(case: Case, least: int, most: int) -> Points:
    """The exact points, up to the last context that the engine takes."""
    if not case.takes(most):
        limit = case.model.context_limit or most
        most = largest(case.takes, at_most=most, guess=limit)
    contexts = [*sampling.grid(least, most), *sampling.bends(case.model, least, most)]
    return sampling.curve(case.measure, contexts)


def _through(case: Case, points: Points, crossed: Iterable[Crossing], index: int) -> Points:
    """The points, and with them each crossing and the first context that is too long."""
    first, last = points[0][0], points[-1][0]
    marks = {
        context
        for crossing in crossed
        if crossing.series == index and crossing.context
        for context in (crossing.context, crossing.context + 1)
        if first <= context <= last
    }
    return tuple(sorted({*points, *((context, case.measure(context)) for context in marks)}))


def _series(label: str, case: Case, size: Size, points: Points, most: int) -> Series:
    last = points[-1][0]
    return Series(
        label=label,
        model=case.model.name,
        engine=size.engine,
        engine_version=size.engine_version,
        cache=size.cache,
        kv_dtype=size.kv_dtype,
        asked_kv_dtype=case.ask["kv_dtype"],
        sequences=size.sequences,
        context_limit=case.model.context_limit,
        refused_beyond=last if last < most else None,
        points=tuple(Point(*point) for point in points),
    )


def _refusals(series: Iterable[Series]) -> list[str]:
    sentences = (
        f"{each.engine} takes no more than {each.refused_beyond:,} tokens of {each.model}."
        for each in series
        if each.refused_beyond is not None
    )
    return list(dict.fromkeys(sentences))


def _parts(case: Case, contexts: Sequence[int]) -> dict[str, Points]:
    """The bytes of each kind of layer at each context, under names that differ."""
    found: dict[str, list[tuple[int, int]]] = {}
    for context in contexts:
        seen: Counter[str] = Counter()
        for group in case.size(context).groups:
            name = f"{group.layers} × {group.kind}"
            seen[name] += 1
            name = name if seen[name] == 1 else f"{name} ({seen[name]})"
            found.setdefault(name, []).append((context, group.total_bytes))
    return {name: tuple(points) for name, points in found.items()}
