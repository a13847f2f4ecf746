r"""Cells between tabs, to paste into a spreadsheet: no quotes, a tab in a name is written `\t`.

Bytes are integers, or with a unit plain numbers of it: 10 in a column `total_GiB`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.errors import printable
from kvsize.render import _cells

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

REMARKS = False


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as lines of cells with a tab between."""
    out.writelines(
        "\t".join(map(printable, cells)) + "\n" for cells in _cells.table(report, look, look.unit)
    )
