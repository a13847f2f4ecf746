"""GitHub-flavoured Markdown to paste into documents: the same input gives the same text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvsize.render._layout import Layout

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

# An underscore inside a word starts no emphasis in GitHub's dialect; braces are code in MDX.
_SPECIAL = re.compile(r"[\\`*\[\]<>|{}~&]|(?<![^\W_])_|_(?![^\W_])")
REMARKS = True


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as a list of facts, a table, and a list of remarks."""
    layout = Layout(report, look)
    out.writelines(f"- **{label}**: {escape(text)}\n" for label, text in layout.heading)
    rule = ["---:" if figure else ":---" for figure in layout.figures]
    out.write("\n" if layout.heading else "")
    out.writelines(
        f"| {' | '.join(escape(cell.strip()) for cell in cells)} |\n"
        for cells in (layout.header, rule, *layout.lines("↳ "))
    )
    out.write("\n" if layout.remarks else "")
    out.writelines(f"- **{label}**: {escape(text)}\n" for label, text in layout.remarks)


def escape(text: str) -> str:
    """`text` so that Markdown shows it as it is, inside a table's cell too."""
    return _SPECIAL.sub(r"\\\g<0>", text)
