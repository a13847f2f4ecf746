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

_SIZE = (7.2, 4.8)
_DPI = 200
_NOTE_WIDTH = 110
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
        figure = Figure(figsize=_SIZE, layout="constrained")
        _write_heads(picture, figure)
        if isinstance(picture, Chart):
            curves.draw(picture, figure)
        else:
            bars.draw(picture, figure)
        figure.axes[0].set_title(picture.subtitle, loc="left", fontsize=8.5)
        return _svg(picture, figure) if format_name == "svg" else _png(picture, figure)


def _write_heads(picture: Picture, figure: Figure) -> None:
    figure.suptitle(picture.title, x=0.01, ha="left", weight="bold", fontsize=11)
    if picture.notes:
        lines = [line for note in picture.notes for line in textwrap.wrap(note, _NOTE_WIDTH)]
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7)


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
