"""One HTML table that stands by itself: colours and fonts are the page's, light or dark.

Its few styles are inline, as a style sheet may only stand in a page's head.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvsize.render._layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

REMARKS = True
_CELL = "padding:0.2em 0.6em"
_HEAD = ";border-bottom:1px solid"  # in the colour of the text
_ALIGN = {
    True: ";text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums",
    False: ";text-align:left",
}


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as a table: the heading is its caption, remarks stand in its foot."""
    layout = Layout(report, look)
    out.writelines(f"{line}\n" for line in _lines(layout))


def _lines(layout: Layout) -> Iterator[str]:
    yield '<table style="border-collapse:collapse">'
    if layout.heading:
        facts = "<br>".join(f"{label}: {escape(text)}" for label, text in layout.heading)
        yield f'<caption style="text-align:left">{facts}</caption>'
    yield "<thead>"
    yield _row("th", layout.header, layout.figures, _HEAD, ' scope="col"')
    yield "</thead>"
    yield "<tbody>"
    for cells in layout.lines("↳ "):
        yield _row("td", (cell.strip() for cell in cells), layout.figures)
    yield "</tbody>"
    if layout.remarks:
        yield "<tfoot>"
        for label, text in layout.remarks:
            told = f"<strong>{label}</strong>: {escape(text)}"
            span, style = len(layout.header), _CELL + _ALIGN[False]
            yield f'<tr><td colspan="{span}" style="{style}"><small>{told}</small></td></tr>'
        yield "</tfoot>"
    yield "</table>"


def _row(
    tag: str, cells: Iterable[str], figures: list[bool], style: str = "", scope: str = ""
) -> str:
    drawn = [
        f'<{tag}{scope} style="{_CELL}{_ALIGN[figure]}{style}">{escape(cell)}</{tag}>'
        for cell, figure in zip(cells, figures, strict=True)
    ]
    return f"<tr>{''.join(drawn)}</tr>"
