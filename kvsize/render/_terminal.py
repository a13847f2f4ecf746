"""The table on a terminal with styles, drawn by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render._layout import Layout


def write(layout: Layout, out: TextIO, width: int) -> None:
    """Draw `layout` with styles, `width` columns wide."""
    console = Console(
        file=out, width=width, force_terminal=True, markup=False, emoji=False, highlight=False
    )
    heading = Table.grid(padding=(0, 2))
    for label, text in layout.heading:
        heading.add_row(Text(label, "dim"), Text(text, "bold" if label == "model" else ""))
    if layout.heading:
        console.print(heading, "", sep="\n")
    console.print(_figures(layout))
    if layout.remarks:
        console.print()
    for label, text in layout.remarks:
        style = "yellow" if label.startswith("warning") else "cyan"
        console.print(Text.assemble((f"{label}: ", style), text))


def _figures(layout: Layout) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),  # with the box's own blank: two columns apart, as plain text has it
        header_style="bold",
    )
    columns = zip(layout.header, layout.widths(), layout.figures, strict=True)
    for index, (name, width, figure) in enumerate(columns):
        if not figure:  # names may wrap, figures never
            table.add_column(name, overflow="fold", min_width=min(width, 11))
        else:
            style = "bold green" if index == layout.bytes_column() else ""
            table.add_column(name, justify="right", style=style, no_wrap=True, min_width=width)
    for cells, part in zip(layout.lines("  "), layout.parts, strict=True):
        table.add_row(*map(Text, cells), style="dim not bold" if part else "")
    return table
