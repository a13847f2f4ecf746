"""Curves and stacks by matplotlib, with budgets and where they are crossed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kvsize.plot.palette import COLOURS, HATCHES, INK, MARKERS, Style
from kvsize.plot.ticks import bytes_text, even, powers, tokens_text
from kvsize.units import format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from kvsize.plot.chart import Chart, Series

_DASHES = (0, (4, 2.5))
# Labels of lines that are closer than this share of the height stand side by side.
_CLOSE = 0.045
# The width of a line of rotated text, in shares of the axes.
_ROTATED = 0.022
_RING: Style = {
    "marker": "o",
    "markersize": 9,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "linestyle": "none",
}
_HEADROOM = 1.3
"""Above the highest figure there is room for a line's label."""


def draw(chart: Chart, axes: Axes) -> list[Artist]:
    """Draw; what the legend has."""
    low, high = chart.extent()
    if chart.stacked:
        _even_axes(chart, axes)
        _stack(chart, axes)
    else:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xlim(chart.least_context, chart.most_context)
        axes.set_ylim(low / _HEADROOM, high * _HEADROOM)
        _ticks(axes, powers(chart.least_context, chart.most_context, 11), powers(low, high, 12))
        for index, series in enumerate(chart.series):
            _curve(index, series, axes, _twins(series, chart.series[index + 1 :]))
    _budgets(chart, axes)
    _crossings(chart, axes)
    axes.set_xlabel("context, tokens (1k = 1,024)")
    axes.set_ylabel(chart.quantity)
    axes.grid(visible=True, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    return _legend(chart, axes)


def _even_axes(chart: Chart, axes: Axes) -> None:
    """From zero in even steps: only then the heights of a stack are its bytes."""
    high = chart.extent()[1]
    axes.set_xlim(chart.least_context, chart.most_context)
    axes.set_ylim(0, high * (1 + _CLOSE))
    contexts = [tick for tick in even(chart.most_context, 9) if tick >= chart.least_context]
    _ticks(axes, contexts, even(high, 9))


def _ticks(axes: Axes, contexts: list[int], sizes: list[int]) -> None:
    for axis, ticks in ((axes.xaxis, contexts), (axes.yaxis, sizes)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda context, _: tokens_text(round(context))))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(round(size))))


def _twins(series: Series, later: Sequence[Series]) -> int:
    """How many later curves lie on this one: within 1 % at every context that both have."""
    own = dict(series.pairs())
    return sum(
        1
        for other in later
        if all(abs(own.get(context, size) - size) * 100 <= size for context, size in other.pairs())
    )


def _curve(index: int, series: Series, axes: Axes, twins: int) -> None:
    """Solid to the model's limit, dashed beyond; marked at powers of two.

    A curve on which others lie is wider, and shows beside them.
    """
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    pairs = series.pairs()
    limit = series.context_limit or pairs[-1][0]
    own = [pair for pair in pairs if pair[0] <= limit]
    beyond = [*own[-1:], *(pair for pair in pairs if pair[0] > limit)]
    shape: Style = {"color": colour, "linewidth": 1.8 + 2.8 * twins}
    axes.plot(*_columns(own), **shape)
    axes.plot(*_columns(beyond), linestyle=_DASHES, **shape)
    marked = [pair for pair in pairs if pair[0] & (pair[0] - 1) == 0]
    dots: Style = {"marker": marker, "markersize": 4.5, "linestyle": "none", "clip_on": False}
    axes.plot(*_columns(marked), color=colour, **dots)


def _columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [context for context, _ in pairs], [size for _, size in pairs]


def _stack(chart: Chart, axes: Axes) -> None:
    floor = [0] * len(chart.series[0].points)
    for index, series in enumerate(chart.series):
        contexts, sizes = _columns(list(series.pairs()))
        roof = [low + size for low, size in zip(floor, sizes, strict=True)]
        colour = COLOURS[index % len(COLOURS)]
        area = axes.fill_between(contexts, floor, roof, label=series.label)
        # In svg one opacity holds for the area and its hatch, which is then seen by its colour only.
        area.set(facecolor=(colour, 0.5), edgecolor=INK, hatch=HATCHES[index % len(HATCHES)])
        area.set_linewidth(0.8)
        floor = roof
    limit = chart.series[0].context_limit
    if limit is not None and limit < chart.most_context:
        axes.axvline(limit, color=INK, linestyle=_DASHES, linewidth=1, label="the model's limit")


def _budgets(chart: Chart, axes: Axes) -> None:
    """Dotted lines, each with its label at the left; an estimate's range as a band."""
    to_axes = axes.transData + axes.transAxes.inverted()
    lines = sorted(chart.budgets, key=lambda each: each.size_bytes)
    heights = [to_axes.transform((chart.least_context, line.size_bytes))[1] for line in lines]
    for index, (line, height) in enumerate(zip(lines, heights, strict=True)):
        axes.axhline(line.size_bytes, color=INK, linewidth=1, linestyle=(0, (1, 1.5)))
        if line.least_bytes < line.most_bytes:
            least = max(line.least_bytes, axes.get_ylim()[0])
            axes.axhspan(least, line.most_bytes, facecolor=(INK, 0.08), edgecolor="none")
        under = any(0 < other - height < _CLOSE for other in heights[index + 1 :])
        beside = 0 if under else heights[:index].count(height)
        axes.annotate(
            line.label,
            (0.012 + 0.32 * beside, height),
            xycoords="axes fraction",
            xytext=(0, -3 if under else 2),
            textcoords="offset points",
            va="top" if under else "bottom",
            fontsize=8,
        )


def _crossings(chart: Chart, axes: Axes) -> None:
    """A ring at each, and its context: in a stack beside it, else at the foot of a drop line."""
    shown = [
        crossing
        for crossing in chart.crossings
        if not crossing.everywhere and crossing.context >= chart.least_context
    ]
    shown.sort(key=lambda crossing: crossing.context)
    places = _side_by_side(chart, [crossing.context for crossing in shown], axes)
    for crossing, place in zip(shown, places, strict=True):
        size, text = crossing.size_bytes, format_tokens(crossing.context)
        axes.plot(crossing.context, size, **_RING)
        if chart.stacked:
            offset: Style = {"xytext": (-5, 5), "textcoords": "offset points", "ha": "right"}
            axes.annotate(text, (crossing.context, size), fontsize=8, **offset)
            continue
        colour = COLOURS[crossing.series % len(COLOURS)]
        axes.vlines(crossing.context, axes.get_ylim()[0], size, color=colour, linewidth=0.8)
        axes.text(place, 0.015, text, rotation=90, fontsize=8, transform=axes.transAxes)


def _side_by_side(chart: Chart, contexts: list[int], axes: Axes) -> list[float]:
    """Where labels of ascending contexts stand, in shares of the width, without touching.

    Each stands right of its line, or left of it where another line follows closely.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    lines = [to_axes.transform((context, chart.extent()[0]))[0] for context in contexts]
    placed, last = [], -1.0
    for line, following in pairwise([*lines, 2.0]):
        left = line - _ROTATED
        crowded = following - line < _ROTATED and left - last >= _ROTATED
        last = left if crowded else max(line + 0.004, last + _ROTATED)
        placed.append(last)
    return placed


def _legend(chart: Chart, axes: Axes) -> list[Artist]:
    handles: list[Artist] = []
    if chart.stacked:
        handles += axes.get_legend_handles_labels()[0]
    for index, series in enumerate(() if chart.stacked else chart.series):
        style: Style = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": MARKERS[index % len(MARKERS)],
        }
        handles.append(Line2D([], [], label=series.label, linewidth=1.8, markersize=4.5, **style))
    if not chart.stacked and any(series.beyond_limit() for series in chart.series):
        dashed: Style = {"color": INK, "linestyle": _DASHES, "linewidth": 1.8}
        handles.append(Line2D([], [], label="beyond the model's own limit", **dashed))
    if any(not crossing.everywhere for crossing in chart.crossings):
        handles.append(Line2D([], [], label="largest context that fits in the budget", **_RING))
    return handles
