"""The table on a terminal, drawn by rich; NO_COLOR and COLUMNS are rich's own business."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render._layout import Layout


def write(layout: Layout, out: TextIO, width: int) -> None:
    """Draw `layout` with styles, `width` columns wide."""
    console = Console(file=out, width=width, force_terminal=True, highlight=False)
    heading = Table.grid(padding=(0, 2))
    for label, text in layout.heading:
        heading.add_row(Text(label, "dim"), Text(text, "bold" if label == "model" else ""))
    console.print(Padding(heading, (0, 0, 0, 1)))
    console.print(_figures(layout))
    for label, text in layout.remarks:
        style = "yellow" if label.startswith("warning") else "cyan"
        console.print(Padding(Text.assemble((f"{label}: ", style), text), (0, 0, 0, 1)))


def _figures(layout: Layout) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", padding=(0, 1))
    bytes_column = next(
        layout.header.index(name) for name in ("all sequences", "per sequence") if name in layout.header
    )
    for index, name in enumerate(layout.header):
        style = "bold green" if index == bytes_column else ""
        if index < layout.text_columns:
            table.add_column(name, style=style)
        else:
            table.add_column(name, justify="right", style=style, no_wrap=True)
    for cells, part in zip(layout.rows, layout.parts, strict=True):
        if part:
            table.add_row(Text(f"  {cells[0]}"), *cells[1:], style="dim not bold")
        else:
            table.add_row(*(Text(cell) for cell in cells))
    return table
