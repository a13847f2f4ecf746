"""For people: each check, what was asked and found, and why what does not hold does not."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kvsize.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.checks.formats import Report
    from kvsize.checks.records import Outcome

_WIDTH = 96
_INDENT = " " * 8


def text(report: Report) -> str:
    """The table, and how many hold."""
    blocks = ["\n".join(_block(outcome)) for outcome in report.outcomes]
    return "\n\n".join([*blocks, report.sentence]) + "\n"


def _block(outcome: Outcome) -> Iterator[str]:
    # A verdict comes first: a name never starts a line, where CI systems look for commands.
    yield f"{'ok' if outcome.holds else 'FAIL'}  {printable(outcome.check.name)}"
    if outcome.subject and outcome.subject != outcome.check.name:
        yield f"      {printable(outcome.subject)}"
    if outcome.error is not None:
        yield from _wrapped(f"error: {outcome.error.message}")
        yield from _wrapped(f"hint: {outcome.error.hint}")
    rows = [
        (each.key, f"asked {each.wanted}", f"found {each.found}") for each in outcome.assertions
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, each in zip(rows, outcome.assertions, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'ok  ' if each.holds else 'FAIL'}  {cells}".rstrip()
        if not each.holds and each.reason:
            yield from _wrapped(each.reason)
    for note in outcome.notes:
        yield from _wrapped(f"note: {note}")


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(
        sentence, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
    )
