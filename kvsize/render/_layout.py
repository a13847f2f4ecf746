"""What every format for people shows, before it is drawn: heading, columns, rows, remarks.

A fact that all rows share stands in the heading, once; one that differs becomes a column. Where
columns are chosen, the table stands alone: a line for each row and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.errors import printable
from kvsize.render._columns import COLUMNS, Column
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvsize.render import Look
    from kvsize.report import Report, Row

Cells = list[str]


class Layout:
    """A report laid out: `heading` is label and text, `parts` says which rows belong to the one
    above, `remarks` is label and text, `figures` which columns are aligned to the right.
    """

    def __init__(self, report: Report, look: Look) -> None:
        self.heading: list[tuple[str, str]] = []
        self.rows: list[Cells] = []
        self.parts: list[bool] = []
        self.remarks: list[tuple[str, str]] = []
        if look.columns is None:
            self._whole(report, look.unit)
        else:
            self._choose(_telling(report, look.columns) or _called_for(report))
            for row in report.rows:
                self._add(self._cells(row, look.unit), part=False)

    def widths(self) -> list[int]:
        """The widest cell of each column."""
        return [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]

    def bytes_column(self) -> int | None:
        """The column of the figure itself, which the parts of a row add up to."""
        names = [column.name for column in self.columns]
        return next((names.index(name) for name in ("total", "sequence") if name in names), None)

    def lines(self, mark: str) -> list[Cells]:
        """The rows with `mark` before the first cell of those that are parts."""
        return [
            [mark + cells[0], *cells[1:]] if part else cells
            for cells, part in zip(self.rows, self.parts, strict=True)
        ]

    def _whole(self, report: Report, unit: str | None) -> None:
        """Heading, the columns that differ, the parts of each row, and all remarks."""
        rows = report.rows
        shared = [(column.heading, full(rows[0])) for column, full in _facts() if _same(rows, full)]
        self.heading = [(name, printable(text)) for name, text in shared if text]
        facts = [column for column, full in _facts() if not _same(rows, full)]
        self._choose((*facts, *_figures(report)))
        figure = self.bytes_column()
        longest = 0
        if not facts:  # the labels of parts stand under the first figure, as under a text
            self.figures[0] = False
            longest = max(len(format_tokens(row.context)) for row in rows)
        for row in rows:
            cells = self._cells(row, unit)
            self._add([cells[0].rjust(longest), *cells[1:]], part=False)
            for label, size in _split(row, unit):
                part = [label, *[""] * (len(cells) - 1)]
                if figure is not None:
                    part[figure] = size
                self._add(part, part=True)
        self.remarks = [(label, printable(text)) for label, text in _remarks(report, unit)]

    def _choose(self, columns: tuple[Column, ...]) -> None:
        self.columns = columns
        self.header = [column.heading for column in columns]
        self.figures = [column.figure for column in columns]

    def _cells(self, row: Row, unit: str | None) -> Cells:
        return [printable(column.text(row, unit)) for column in self.columns]

    def _add(self, cells: Cells, *, part: bool) -> None:
        self.rows.append(cells)
        self.parts.append(part)


def _facts() -> list[tuple[Column, Callable[[Row], str]]]:
    return [(column, column.full) for column in COLUMNS if column.full is not None]


def _figures(report: Report) -> list[Column]:
    return [column for column in COLUMNS if column.shown is not None and column.shown(report)]


def _called_for(report: Report) -> tuple[Column, ...]:
    """The model, the facts that differ, and the figures: what a table that stands alone needs."""
    facts = [
        column
        for column, full in _facts()
        if column.name == "model" or not _same(report.rows, full)
    ]
    return (*facts, *_figures(report))


def _telling(report: Report, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """`columns`, and before their figures the context or batch without which rows look alike."""
    missing = [
        column
        for column in COLUMNS
        if columns and column.name in {"context", "batch"} and column not in columns
        if len({column.text(row, None) for row in report.rows}) > 1
    ]
    first = next((index for index, each in enumerate(columns) if each.figure), len(columns))
    return (*columns[:first], *missing, *columns[first:])


def _same(rows: tuple[Row, ...], text: Callable[[Row], str]) -> bool:
    return len({text(row) for row in rows}) == 1


def _split(row: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    groups = [group for group in row.groups if group.total_bytes]
    if len(groups) > 1:
        for group in groups:
            yield f"{group.layers} × {group.kind}", format_bytes(group.total_bytes, unit)


def _others(row: Row, unit: str | None) -> str:
    """Each engine, its version and figure: `vllm 0.33.0 3.11 GiB, …` in one sentence."""
    figures = ", ".join(
        f"{other.engine} {other.engine_version} {format_bytes(other.total_bytes, unit)}"
        for other in row.other_engines
    )
    return f"{figures} for one sequence of {format_tokens(row.context)} tokens."


def _remarks(report: Report, unit: str | None) -> Iterator[tuple[str, str]]:
    """Notes and warnings, each once per model: that of its largest figure."""
    found: dict[tuple[str, str], tuple[int, str, str]] = {}
    for row in report.rows:
        told = [("note", note, note) for note in row.notes]
        lines = row.details.get("log", ())
        if isinstance(lines, tuple):  # the engine's own log lines, to compare
            told += [("log", f"log {number}", str(line)) for number, line in enumerate(lines)]
        if row.other_engines:
            told.append(("in other engines", "others", _others(row, unit)))
        told += [(f"warning {w.code}", w.code, w.message) for w in row.warnings]
        for label, key, text in told:
            largest = found.get((row.model, key), (0, "", ""))[0]
            if row.total_bytes >= largest:
                found[row.model, key] = (row.total_bytes, label, text)
    several = len({row.model for row in report.rows}) > 1
    for (model, _), (_, label, text) in found.items():
        yield label, f"{model}: {text}" if several else text
