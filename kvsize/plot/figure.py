"""A picture as svg or png, drawn by matplotlib: for paper and, as svg, for dark pages too.

The same picture gives the same bytes with one version of matplotlib: the user's settings are not
read, ids are salted, and no date is written. In svg text stays text.
"""

from __future__ import annotations

import textwrap
from io import BytesIO
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from kvsize.plot import bars, curves
from kvsize.plot.chart import Chart
from kvsize.plot.describe import description
from kvsize.plot.palette import DARK_SHEET, INK, Style
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from matplotlib.artist import Artist

    from kvsize.plot.chart import Picture

# Inches; what stands above and below the axes adds to the height.
_WIDTH, _HEIGHT, _MARGIN = 7.2, 4.2, 0.08
_TITLE_HEIGHT, _LINE_HEIGHT = 0.24, 0.15
_DPI = 200
_LEGEND_HEIGHT = 0.19
# Characters in a line of that width.
_SUBTITLE_WIDTH, _NOTE_WIDTH, _LEGEND_WIDTH = 100, 120, 100
# Comes with matplotlib, so it is there; a viewer of the svg may have to take another.
_FONT, _FONTS = "DejaVu Sans", "'DejaVu Sans', Verdana, Arial, sans-serif"
_STYLE: dict[Any, Any] = {
    "font.family": [_FONT],
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kvsize",
}


def draw(picture: Picture, format_name: str) -> bytes:
    """The picture as the bytes of an svg file, or of a png file on white."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = Figure()
        axes = figure.add_subplot()
        if isinstance(picture, Chart):
            handles = curves.draw(picture, axes)
        else:
            handles = bars.draw(picture, axes)
        _lay_out(picture, figure, handles)
        return _svg(picture, figure) if format_name == "svg" else _png(picture, figure)


def _lay_out(picture: Picture, figure: Figure, handles: list[Artist]) -> None:
    """Title and subtitle above the axes; the legend and then the notes below, each with its room."""
    subtitle = textwrap.fill(picture.subtitle, _SUBTITLE_WIDTH)
    notes = "\n".join(textwrap.fill(note, _NOTE_WIDTH) for note in picture.notes)
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = next(
        count for count in (3, 2, 1) if count * (longest + 6) <= _LEGEND_WIDTH or count == 1
    )
    noted = _MARGIN + _LINE_HEIGHT * (notes.count("\n") + 1) if notes else 0.0
    above = _TITLE_HEIGHT + _LINE_HEIGHT * (subtitle.count("\n") + 1)
    below = noted + _LEGEND_HEIGHT * ceil_div(len(handles), columns)
    height = above + _HEIGHT + below + 2 * _MARGIN
    figure.set_size_inches(_WIDTH, height)
    room = (0, (below + _MARGIN) / height, 1, (_HEIGHT - _MARGIN) / height)
    figure.set_layout_engine("constrained", rect=room)
    left, low, top = _MARGIN / _WIDTH, _MARGIN / height, 1 - _MARGIN / height
    small: Style = {"fontsize": 8.5, "linespacing": 1.3}
    figure.text(left, top, picture.title, va="top", weight="bold", fontsize=11)
    figure.text(left, top - _TITLE_HEIGHT / height, subtitle, va="top", **small)
    figure.text(left, low, notes, va="bottom", fontsize=7.5, linespacing=1.3)
    at = (left, low + noted / height)
    style: Style = {"ncols": columns, "frameon": False, "borderpad": 0, "borderaxespad": 0.0}
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=at, **style)


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
