"""Bars by matplotlib: what each way of allocating takes, and what of it no token needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FixedLocator, FuncFormatter

from kvsize.plot.chart import percent
from kvsize.plot.palette import COLOURS, INK, Style
from kvsize.plot.ticks import bytes_text, even
from kvsize.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from kvsize.plot.chart import Ways

_ROOM_FOR_LABELS = 1.45


def draw(picture: Ways, axes: Axes) -> list[Artist]:
    """Draw, the longest way as wide as there is room beside its label; what the legend has."""
    names = [way.way for way in picture.ways]
    needed = [way.needed_bytes for way in picture.ways]
    wasted = [way.size_bytes - way.needed_bytes for way in picture.ways]
    axes.barh(names, needed, height=0.6, color=COLOURS[0], label="needed by tokens")
    axes.barh(
        names,
        wasted,
        left=needed,
        height=0.6,
        fill=False,
        edgecolor=COLOURS[1],
        hatch="////",
        label="wasted",
    )
    for row, way in enumerate(picture.ways):
        label = f"{format_bytes(way.size_bytes)}, {percent(way.wasted)} wasted"
        offset: Style = {"xytext": (5, 0), "textcoords": "offset points"}
        axes.annotate(label, (way.size_bytes, row), va="center", **offset)
    most = max(way.size_bytes for way in picture.ways)
    axes.invert_yaxis()
    axes.set_xlim(0, most * _ROOM_FOR_LABELS)
    axes.xaxis.set_major_locator(FixedLocator(even(most, 6)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(round(size))))
    axes.set_xlabel(picture.quantity)
    axes.grid(visible=True, axis="x", color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)
    return list(axes.get_legend_handles_labels()[0])
