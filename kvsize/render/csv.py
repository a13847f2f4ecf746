"""CSV as RFC 4180 has it: a header, CRLF, bytes as integers, empty where nothing is known."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from kvsize.render import _cells

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

REMARKS = False


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as one table, whose bytes are integers whatever the unit."""
    csv.writer(out).writerows(_cells.table(report, look, unit=None))
