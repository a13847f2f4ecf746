"""CSV as RFC 4180 has it: a header, CRLF, bytes as integers, empty where nothing is known."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from kvsize.record import fields
from kvsize.report import Row

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

# Sentences and nested figures have no place in a cell; JSON has them.
LEFT_OUT = {"details", "notes", "other_engines"}


def write(report: Report, out: TextIO, look: Look) -> None:  # noqa: ARG001 - a writer's signature
    """Write `report` as one table; parts of a list are separated by `;`."""
    names = [name for name in fields(Row) if name not in LEFT_OUT]
    writer = csv.writer(out)
    writer.writerow(names)
    for row in report.rows:
        writer.writerow([_cell(row, name) for name in names])


def _cell(row: Row, name: str) -> str:
    match name:
        case "groups":
            parts = [f"{group.kind}:{group.layers}:{group.total_bytes}" for group in row.groups]
        case "warnings":
            parts = [warning.code for warning in row.warnings]
        case "options":
            parts = [f"{key}={value}" for key, value in row.options.items()]
        case "rank_bytes":
            parts = [str(rank) for rank in row.rank_bytes]
        case _:
            parts = [_scalar(getattr(row, name))]
    return ";".join(parts)


def _scalar(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
