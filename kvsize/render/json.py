"""JSON: the report's own fields, bytes as integers; `kvsize schema` prints its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvsize.errors import UsageError
from kvsize.record import as_dict

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

REMARKS = False


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as one JSON object; UsageError where columns are chosen: it has all fields."""
    if look.columns is not None:
        message = "JSON has every field, and no columns to choose."
        raise UsageError(message, "leave out --columns, or use --format csv or tsv.")
    json.dump(as_dict(report), out, indent=2, ensure_ascii=False)
    out.write("\n")
