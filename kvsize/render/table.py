"""A table for people: aligned plain text, drawn by rich where the output is a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kvsize.render._layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

GAP = "  "
REMARKS = True


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as heading, table and remarks."""
    layout = Layout(report, look)
    if look.terminal:
        from kvsize.render import _terminal  # rich costs as much start-up as all the rest

        _terminal.write(layout, out, look.width)
    else:
        out.writelines(f"{line.rstrip()}\n" for line in _lines(layout, look.width))


def _lines(layout: Layout, width: int) -> Iterator[str]:
    label_width = max((len(label) for label, _ in layout.heading), default=0)
    for label, text in layout.heading:
        yield from hang(text, f"{label:<{label_width}}{GAP}", width)
    if layout.heading:
        yield ""
    rows = layout.lines(GAP)
    widths = [max(map(len, column)) for column in zip(layout.header, *rows, strict=True)]
    for cells in (layout.header, *rows):
        yield _line(cells, widths, layout.figures)
    if layout.remarks:
        yield ""
    for label, text in layout.remarks:
        yield from hang(text, f"{label}: ", width, indent=GAP)


def _line(cells: list[str], widths: list[int], figures: list[bool]) -> str:
    padded = [
        cell.rjust(width) if figure else cell.ljust(width)
        for cell, width, figure in zip(cells, widths, figures, strict=True)
    ]
    return GAP.join(padded)


def hang(text: str, label: str, width: int, indent: str | None = None) -> list[str]:
    """`text` after `label`, wrapped to `width`; further lines start under it, or at `indent`."""
    hanging = " " * len(label) if indent is None else indent
    return textwrap.wrap(
        text,
        max(width, len(hanging) + 20),
        initial_indent=label,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
