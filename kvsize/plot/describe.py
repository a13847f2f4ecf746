"""A picture in sentences, for those who cannot see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.plot.chart import Chart, fits_text, percent, size_text
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.plot.chart import Picture


def description(picture: Picture) -> str:
    """What the picture shows, and its main figures."""
    sentences = _chart(picture) if isinstance(picture, Chart) else _ways(picture)
    return " ".join((f"{picture.subtitle}.", *sentences, *picture.notes))


def _chart(chart: Chart) -> Iterator[str]:
    for series in chart.series:
        first, last = series.points[0], series.points[-1]
        yield (
            f"{series.label}: {format_bytes(first.size_bytes)} at {format_tokens(first.context)} "
            f"tokens, {format_bytes(last.size_bytes)} at {format_tokens(last.context)}."
        )
    for crossing in chart.crossings:
        line = chart.budgets[crossing.budget]
        name = "It" if chart.stacked else chart.series[crossing.series].label
        yield f"{name} {fits_text(crossing)} in {size_text(line)} ({line.meaning})."


def _ways(picture: Picture) -> Iterator[str]:
    for way in picture.ways if not isinstance(picture, Chart) else ():
        size = format_bytes(way.size_bytes)
        yield f"{way.way}: {size} per sequence, {percent(way.wasted)} wasted; {way.detail}."
