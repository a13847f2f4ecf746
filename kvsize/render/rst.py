"""reStructuredText: a list-table, the only kind whose cells may hold anything.

Its columns have no alignment of their own; the style sheet decides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvsize.render._layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kvsize.render import Look
    from kvsize.report import Report

REMARKS = True
# Markup inside a line: emphasis, literals, substitutions, references, a literal block's sign, and
# addresses, which docutils makes links of (org/name@main would be somebody's mail).
_INLINE = re.compile(r"[\\*`|@]|_(?![^\W_])|(?<=:):|:(?=//)")
# What starts a block of another kind: bullets, enumerators, fields, options, quotes, directives.
_BLOCK = re.compile(r"[!-/:-@\[-`{-~•‣⁃]|\w+[.)](?:\s|$)")


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as a field list of facts, a table, and a bullet list of remarks."""
    out.writelines(f"{line}".rstrip() + "\n" for line in _lines(Layout(report, look)))


def escape(text: str) -> str:
    """`text` so that reStructuredText shows it as it is, at the start of a paragraph too."""
    inline = _INLINE.sub(r"\\\g<0>", text)
    return rf"\ {inline}" if _BLOCK.match(text) else inline


def _lines(layout: Layout) -> Iterator[str]:
    for label, text in layout.heading:
        yield f":{label}: {escape(text)}"
    if layout.heading:
        yield ""
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield "   :widths: auto"
    yield ""
    for cells in (layout.header, *layout.lines("↳ ")):
        for index, cell in enumerate(cells):
            yield f"   {'* -' if index == 0 else '  -'} {escape(cell.strip())}"
    if layout.remarks:
        yield ""
    for label, text in layout.remarks:
        yield f"- **{label}**: {escape(text)}"
