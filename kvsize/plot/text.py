"""A picture in plain characters, for terminals, pipes and documents: the same wherever it goes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kvsize.plot.canvas import Canvas, EvenScale, Scale
from kvsize.plot.chart import Chart, fits_text, percent, size_text
from kvsize.plot.sampling import between
from kvsize.plot.ticks import bytes_text, tokens_text
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.plot.chart import Picture, Series, Ways

_MARKS = "*o+#@%&$ABCDEFGHIJKLMNOP"
_CROSSING = "X"
_NARROWEST, _WIDEST = 50, 120
_GUTTER = 9
# Beyond a model's limit every third column is drawn.
_DASH = 3


def text(picture: Picture, width: int) -> str:
    """The picture in `width` columns, or the nearest width in which it can be read."""
    columns = max(_NARROWEST, min(width, _WIDEST))
    lines = [picture.title, *_wrapped(picture.subtitle, columns, ""), ""]
    lines += _chart(picture, columns) if isinstance(picture, Chart) else _ways(picture, columns)
    for note in picture.notes:
        lines += _wrapped(f"note: {note}", columns, "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(sentence: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(sentence, width, subsequent_indent=indent, break_on_hyphens=False)


def _chart(chart: Chart, width: int) -> Iterator[str]:
    columns = width - _GUTTER - 2
    scale = EvenScale(chart, columns) if chart.stacked else Scale(chart, columns)
    canvas = Canvas(scale.rows, scale.columns)
    lines: dict[int, list[str]] = {}
    for line in chart.budgets:
        lines.setdefault(scale.row(line.size_bytes), []).append(line.label)
    for row, names in lines.items():
        canvas.across(row, names)
    if chart.stacked:
        _stack(chart, scale, canvas)
    else:
        _curves(chart, scale, canvas)
    for crossing in chart.crossings:
        if not crossing.everywhere and crossing.context >= chart.least_context:
            row = scale.row(crossing.size_bytes)
            canvas.put(scale.column(crossing.context), row, _CROSSING)
    labels = {scale.row(size): bytes_text(size) for size in scale.byte_ticks}
    for row in range(scale.rows - 1, -1, -1):
        mark = "┤" if row in labels else "│"
        yield f"{labels.get(row, ''):>{_GUTTER}} {mark}{canvas.line(row)}"
    yield from _axis(scale)
    yield ""
    yield from _legend(chart, width)


def _drawn(series: Series, scale: Scale) -> Iterator[tuple[int, float]]:
    """Columns and bytes of a curve; beyond the model's limit there are gaps."""
    points, limit = series.pairs(), series.context_limit
    for column in range(scale.columns):
        context = scale.context(column)
        if context > points[-1][0] + 0.5:
            return
        if limit is None or context <= limit or column % _DASH == 0:
            yield column, between(points, context)


def _curves(chart: Chart, scale: Scale, canvas: Canvas) -> None:
    """Each curve by its mark; where several share a cell, each has its turn."""
    at: dict[tuple[int, int], list[str]] = {}
    for index, series in enumerate(chart.series):
        for column, size in _drawn(series, scale):
            marks = at.setdefault((column, scale.row(size)), [])
            marks.append(_MARKS[index])
    for (column, row), marks in at.items():
        canvas.put(column, row, marks[column % len(marks)])


def _stack(chart: Chart, scale: Scale, canvas: Canvas) -> None:
    """Columns filled from the axis up, each part with its mark."""
    floor = [0.0] * scale.columns
    for index, series in enumerate(chart.series):
        for column, size in _drawn(series, scale):
            low, floor[column] = floor[column], floor[column] + size
            bottom = scale.row(low) + (1 if low else 0)
            for row in range(bottom, scale.row(floor[column]) + 1):
                canvas.put(column, row, _MARKS[index])


def _axis(scale: Scale) -> Iterator[str]:
    ruler, labels = ["─"] * scale.columns, [" "] * (scale.columns + _GUTTER)
    for tick in scale.token_ticks:
        column, label = scale.column(tick), tokens_text(tick)
        ruler[column] = "┴"
        start = max(0, min(column - len(label) // 2, scale.columns - len(label)))
        labels[start : start + len(label)] = label
    yield f"{'':{_GUTTER}} └{''.join(ruler)}"
    yield f"{'':{_GUTTER}}  {''.join(labels)}"
    yield f"{'':{_GUTTER}}  {'tokens of context':^{scale.columns}}"


def _legend(chart: Chart, width: int) -> Iterator[str]:
    head = f"{chart.quantity} at {format_tokens(chart.least_context)}"
    yield from _wrapped(f"{head} and at {format_tokens(chart.most_context)} tokens:", width, "")
    names = max(len(series.label) for series in chart.series)
    sizes = [
        [format_bytes(series.points[end].size_bytes) for end in (0, -1)] for series in chart.series
    ]
    widths = [max(len(row[end]) for row in sizes) for end in (0, 1)]
    limits = {series.context_limit for series in chart.series}
    for index, (series, (first, last)) in enumerate(zip(chart.series, sizes, strict=True)):
        mark = _MARKS[index]
        limit = ""
        if series.context_limit is not None and len(limits) > 1:
            limit = f"  limit {format_tokens(series.context_limit)}"
        yield f"  {mark} {series.label:{names}}  {first:>{widths[0]}}  {last:>{widths[1]}}{limit}"
    if any(series.beyond_limit() for series in chart.series):
        shared = chart.series[0].context_limit if len(limits) == 1 else None
        tokens = f" of {format_tokens(shared)} tokens" if shared else ""
        yield f"  Beyond the model's own limit{tokens} every third column is drawn."
    yield from _budgets(chart, width)


def _budgets(chart: Chart, width: int) -> Iterator[str]:
    for at, line in enumerate(chart.budgets):
        yield from _wrapped(f"  - {size_text(line)} {line.meaning}", width, "    ")
        for crossing in chart.crossings:
            if crossing.budget == at:
                name = f"{chart.series[crossing.series].label} " if not chart.stacked else ""
                yield from _wrapped(f"    {_CROSSING} {name}{fits_text(crossing)}", width, "      ")


def _ways(picture: Ways, width: int) -> Iterator[str]:
    """A bar for each way: what tokens need, then what nothing reads."""
    names = max(len(way.way) for way in picture.ways)
    most = max(way.size_bytes for way in picture.ways)
    sizes = [format_bytes(way.size_bytes) for way in picture.ways]
    shares = [percent(way.wasted) for way in picture.ways]
    tail = max(map(len, sizes)) + max(map(len, shares)) + 4
    columns = width - names - tail - 2
    yield f"{picture.quantity}: # needed by tokens, - wasted"
    yield ""
    for way, size, share in zip(picture.ways, sizes, shares, strict=True):
        whole = round(way.size_bytes / most * columns)
        needed = round(way.needed_bytes / most * columns)
        bar = "#" * needed + "-" * (whole - needed)
        yield f"{way.way:{names}}  {bar:{columns}}  {size:>{max(map(len, sizes))}}  {share:>{max(map(len, shares))}}"
    yield ""
    for way in picture.ways:
        yield from _wrapped(f"{way.way}: {way.detail}.", width, "  ")
