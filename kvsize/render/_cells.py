"""A row's fields as the cells of formats for programs: csv and tsv."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.record import fields
from kvsize.render._columns import COLUMNS, Column
from kvsize.report import Row
from kvsize.units import UNITS

if TYPE_CHECKING:
    from kvsize.render import Look
    from kvsize.report import Report

_BYTES = "_bytes"


def table(report: Report, look: Look, unit: str | None) -> list[list[str]]:
    """A line of names, then one for each row: the columns chosen, else every field.

    Sentences and nested figures have no place in a cell; JSON has them. Bytes are integers, or
    with `unit` numbers of that unit, which their names then end in.
    """
    columns = look.columns or _all()
    names = [_name(column, unit) for column in columns]
    return [names, *([_cell(row, column, unit) for column in columns] for row in report.rows)]


def _all() -> list[Column]:
    known = {column.field: column for column in COLUMNS}
    return [known[name] for name in fields(Row) if name in known]


def _name(column: Column, unit: str | None) -> str:
    name = column.field or column.name
    return f"{name.removesuffix(_BYTES)}_{unit}" if unit and name.endswith(_BYTES) else name


def _cell(row: Row, column: Column, unit: str | None) -> str:
    """A cell; the parts of a list are separated by `;`."""
    match column.field:
        case "":
            parts = [column.text(row, unit)]
        case "groups":
            parts = [
                f"{group.kind}:{group.layers}:{_size(group.total_bytes, unit)}"
                for group in row.groups
            ]
        case "warnings":
            parts = [warning.code for warning in row.warnings]
        case "options":
            parts = [f"{key}={value}" for key, value in row.options.items()]
        case "rank_bytes":
            parts = [_size(rank, unit) for rank in row.rank_bytes]
        case field:
            value = getattr(row, field)
            parts = [_size(value, unit) if field.endswith(_BYTES) else _scalar(value)]
    return ";".join(parts)


def _size(size_bytes: int | None, unit: str | None) -> str:
    """Bytes as an integer, or in `unit` with the 15 digits that a spreadsheet keeps."""
    if size_bytes is None or unit is None:
        return _scalar(size_bytes)
    return f"{size_bytes / UNITS[unit]:.15g}"


def _scalar(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
