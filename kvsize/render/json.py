"""JSON: the report's own fields, bytes as integers; `kvsize schema` prints its schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvsize.record import as_dict

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report


def write(report: Report, out: TextIO, look: Look) -> None:  # noqa: ARG001 - a writer's signature
    """Write `report` as one JSON object."""
    json.dump(as_dict(report), out, indent=2, ensure_ascii=False)
    out.write("\n")
