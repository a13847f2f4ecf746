"""For pull requests and step summaries: one Markdown table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.checks.formats import Report
    from kvsize.checks.records import Outcome

_HEADER = "| | check | asked | found | why |\n| :--- | :--- | :--- | :--- | :--- |\n"


def text(report: Report) -> str:
    """The sentence, the table, and the notes under it."""
    rows = "".join(f"| {' | '.join(row)} |\n" for each in report.outcomes for row in _rows(each))
    notes = [note for outcome in report.outcomes for note in outcome.notes]
    below = "".join(f"\n- {cell(note)}" for note in dict.fromkeys(notes))
    return (
        f"**kvsize check**: {report.sentence}\n\n{_HEADER}{rows}{below}{chr(10) if below else ''}"
    )


def cell(value: object) -> str:
    """Text that ends no cell, opens no tag and starts no markup."""
    told = printable(str(value)).replace("\\", "\\\\").replace("|", "\\|")
    for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("`", "\\`"), ("*", "\\*")):
        told = told.replace(mark, escaped)
    return told.replace("_", "\\_").replace("[", "\\[")


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    name = cell(outcome.check.name)
    if outcome.error is not None:
        yield "❌", name, "", "", cell(f"{outcome.error.message} {outcome.error.hint}")
    for each in outcome.assertions:
        mark, why = ("✅", "") if each.holds else ("❌", cell(each.reason))
        yield mark, name, cell(f"{each.key} {each.wanted}"), cell(each.found), why
