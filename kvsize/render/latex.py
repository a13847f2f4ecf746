r"""LaTeX with booktabs' rules: `\usepackage{booktabs}`.

Whole, it is a `table` with caption and remarks; where columns are chosen, a `tabular` alone.
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
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': r"{\char34}",
    # After a row's end both are an argument of it.
    "*": "{*}",
    "[": "{[}",
    "]": "{]}",
    "×": r"\ensuremath{\times}",
    "÷": r"\ensuremath{\div}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "→": r"\ensuremath{\rightarrow}",
    "↳": r"\ensuremath{\hookrightarrow}",
    "²": r"\ensuremath{^2}",
    "³": r"\ensuremath{^3}",
    "⁰": r"\ensuremath{^0}",
    "…": r"\ldots{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "’": r"\textquoteright{}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
}
_TABLE = str.maketrans(_COMMANDS)
_DASH = re.compile(r"-(?=-)")


def write(report: Report, out: TextIO, look: Look) -> None:
    """Write `report` as LaTeX."""
    layout = Layout(report, look)
    whole = bool(layout.heading or layout.remarks)
    lines = [*_table(layout)] if whole else [*_tabular(layout)]
    out.writelines(f"{line}\n" for line in ("% \\usepackage{booktabs}", *lines))


def escape(text: str) -> str:
    """`text` so that LaTeX sets it as it is.

    Letters outside the engine's fonts stay as they are: LuaLaTeX and XeLaTeX take them from a
    font, pdfLaTeX needs a package for their script.
    """
    return _DASH.sub("-{}", text.translate(_TABLE))


def _table(layout: Layout) -> Iterator[str]:
    yield r"\begin{table}"
    yield r"\centering"
    if layout.heading:
        facts = "; ".join(f"{label}: {escape(text)}" for label, text in layout.heading)
        yield rf"\caption{{{facts}.}}"
    yield from _tabular(layout)
    if layout.remarks:
        yield r"\par\medskip"
        yield r"\begin{minipage}{\linewidth}\footnotesize"
        for label, text in layout.remarks:
            yield rf"\textbf{{{escape(label)}}}: {escape(text)}\par"
        yield r"\end{minipage}"
    yield r"\end{table}"


def _tabular(layout: Layout) -> Iterator[str]:
    letters = "".join("r" if figure else "l" for figure in layout.figures)
    yield rf"\begin{{tabular}}{{{letters}}}"
    yield r"\toprule"
    yield _row(layout.header)
    yield r"\midrule"
    for cells in layout.lines("↳ "):
        yield _row(cells)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _row(cells: list[str]) -> str:
    return " & ".join(escape(cell.strip()) for cell in cells) + r" \\"
