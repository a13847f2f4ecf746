"""Rows and columns of characters, and where contexts and bytes lie on them."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from kvsize.plot.ticks import even, octaves, powers
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvsize.plot.chart import Chart

_HEIGHT, _TALLEST, _ROWS_AN_OCTAVE = 20, 26, 8
_TICKS = 10
_COLUMNS_PER_TICK = 6


class Canvas:
    """Rows of characters, the lowest first."""

    def __init__(self, rows: int, columns: int) -> None:
        self.cells: list[list[str]] = [[" "] * columns for _ in range(rows)]

    def put(self, column: int, row: int, mark: str) -> None:
        """One character."""
        self.cells[row][column] = mark

    def across(self, row: int, labels: Iterable[str]) -> None:
        """A dashed line that bears its labels."""
        text = "".join(f"-- {label} -" for label in labels)
        width = len(self.cells[row])
        self.cells[row] = list(text.ljust(width, "-")[:width])

    def line(self, row: int) -> str:
        """A row as text."""
        return "".join(self.cells[row])


class Scale:
    """Contexts to columns and bytes to rows, both by powers of two."""

    def __init__(self, chart: Chart, columns: int) -> None:
        self.columns = columns
        self.least: int = chart.least_context
        self.most: int = chart.most_context
        low, high = octaves(*chart.extent())
        self.low: int = low
        span = high - low
        self.octaves_a_row: int = max(1, ceil_div(span, _TALLEST))
        self.rows_an_octave: int = max(1, min(_TALLEST // span, _ROWS_AN_OCTAVE))
        self.rows: int = ceil_div(span, self.octaves_a_row) * self.rows_an_octave + 1
        step = max(self.octaves_a_row, ceil_div(span, _TICKS))
        self.byte_ticks: list[int] = [1 << (low + each) for each in range(0, span + 1, step)]
        self.token_ticks: list[int] = powers(self.least, self.most, columns // _COLUMNS_PER_TICK)

    def row(self, size_bytes: float) -> int:
        """The row of a figure."""
        height = log2(max(size_bytes, 1)) - self.low
        return self._inside(height * self.rows_an_octave / self.octaves_a_row, self.rows)

    def column(self, context: float) -> int:
        """The column of a context."""
        share = log2(context / self.least) / log2(self.most / self.least)
        return self._inside(share * (self.columns - 1), self.columns)

    def context(self, column: int) -> float:
        """The context in the middle of a column."""
        return float(self.least * (self.most / self.least) ** (column / (self.columns - 1)))

    @staticmethod
    def _inside(place: float, count: int) -> int:
        return min(max(0, round(place)), count - 1)


class EvenScale(Scale):
    """The same in even steps from 0, since only then the heights in a stack are its bytes."""

    def __init__(self, chart: Chart, columns: int) -> None:
        super().__init__(chart, columns)
        self.top: int = max(1, chart.extent()[1])
        self.rows = _HEIGHT + 1
        self.byte_ticks: list[int] = even(self.top, _TICKS)
        ticks = even(self.most, columns // _COLUMNS_PER_TICK)
        self.token_ticks: list[int] = [tick for tick in ticks if tick >= self.least]

    def row(self, size_bytes: float) -> int:
        """The row of a figure."""
        return self._inside(size_bytes / self.top * (self.rows - 1), self.rows)

    def column(self, context: float) -> int:
        """The column of a context."""
        share = (context - self.least) / (self.most - self.least)
        return self._inside(share * (self.columns - 1), self.columns)

    def context(self, column: int) -> float:
        """The context in the middle of a column."""
        return self.least + (self.most - self.least) * column / (self.columns - 1)
