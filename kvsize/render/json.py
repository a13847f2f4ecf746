"""JSON: the report's own fields, bytes as integers; `kvsize schema` prints its schema."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report


def write(report: Report, out: TextIO, look: Look) -> None:  # noqa: ARG001 - a writer's signature
    """Write `report` as one JSON object."""
    json.dump(asdict(report), out, indent=2, ensure_ascii=False)
    out.write("\n")
