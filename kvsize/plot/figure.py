"""A picture as svg or png, drawn by matplotlib: for paper and, as svg, for dark pages too.

The same picture gives the same bytes with one version of matplotlib: the user's settings are not
read, ids are salted, and no date is written. In svg text stays text.
"""

from __future__ import annotations

import textwrap
from io import BytesIO
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from kvsize.plot import bars, curves
from kvsize.plot.chart import Chart
from kvsize.plot.describe import description
from kvsize.plot.palette import DARK_SHEET, INK

if TYPE_CHECKING:
    from kvsize.plot.chart import Picture

# Inches; what stands above and below the axes adds to the height.
_WIDTH, _HEIGHT, _MARGIN = 7.2, 4.2, 0.08
_TITLE_HEIGHT, _LINE_HEIGHT = 0.24, 0.15
_DPI = 200
# Characters in a line of that width.
_SUBTITLE_WIDTH, _NOTE_WIDTH = 100, 120
# Comes with matplotlib, so it is there; a viewer of the svg may have to take another.
_FONT, _FONTS = "DejaVu Sans", "'DejaVu Sans', Verdana, Arial, sans-serif"
_STYLE = {
    "font.family": [_FONT],
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "kvsize",
}


def draw(picture: Picture, format_name: str) -> bytes:
    """The picture as the bytes of an svg file, or of a png file on white."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = _sheet(picture)
        if isinstance(picture, Chart):
            curves.draw(picture, figure)
        else:
            bars.draw(picture, figure)
        return _svg(picture, figure) if format_name == "svg" else _png(picture, figure)


def _sheet(picture: Picture) -> Figure:
    """A figure with the title above and the notes below the room for axes."""
    subtitle = textwrap.fill(picture.subtitle, _SUBTITLE_WIDTH)
    notes = "\n".join(textwrap.fill(note, _NOTE_WIDTH) for note in picture.notes)
    above = _MARGIN + _TITLE_HEIGHT + _LINE_HEIGHT * (subtitle.count("\n") + 1)
    below = _LINE_HEIGHT * (notes.count("\n") + 1) if notes else 0.0
    height = above + _HEIGHT + below
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    room = (0, below / height, 1, 1 - (above + below) / height)
    figure.set_layout_engine("constrained", rect=room)
    left = _MARGIN / _WIDTH
    top = (height - _MARGIN) / height
    figure.text(left, top, picture.title, va="top", weight="bold", fontsize=11)
    under = top - _TITLE_HEIGHT / height
    figure.text(left, under, subtitle, va="top", fontsize=8.5, linespacing=1.3)
    figure.text(left, _MARGIN / height, notes, va="bottom", fontsize=7.5, linespacing=1.3)
    return figure


def _png(picture: Picture, figure: Figure) -> bytes:
    out = BytesIO()
    metadata = {"Title": picture.title, "Software": "kvsize"}
    figure.savefig(out, format="png", dpi=_DPI, metadata=metadata)
    return out.getvalue()


def _svg(picture: Picture, figure: Figure) -> bytes:
    """Transparent, with a title and a description for those who cannot see it."""
    out = BytesIO()
    metadata = {"Date": None, "Creator": "kvsize"}
    figure.savefig(out, format="svg", transparent=True, metadata=metadata)
    head, root, body = out.getvalue().decode().partition("<svg ")
    attributes, _, body = body.partition(">")
    said = (
        f"<title>{escape(picture.title)}</title>\n"
        f"<desc>{escape(description(picture))}</desc>\n"
        f"<style>@media (prefers-color-scheme: dark){{{escape(DARK_SHEET)}}}</style>"
    )
    body = body.replace(f"'{_FONT}'", _FONTS)
    return f'{head}{root}role="img" {attributes}>\n{said}{body}'.encode()
