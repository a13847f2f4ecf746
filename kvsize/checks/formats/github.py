"""For GitHub Actions: the table, and an annotation on the line of what does not hold.

The escapes are those of the runner's workflow commands (actions/toolkit, core/src/command.ts).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvsize.checks.formats import markdown, table
from kvsize.errors import printable

if TYPE_CHECKING:
    from kvsize.checks.formats import Report
    from kvsize.checks.records import FileError, Outcome


def text(report: Report) -> str:
    """What the job's log is given."""
    lines = [line for outcome in report.outcomes for line in _annotations(report.file, outcome)]
    return table.text(report) + "".join(f"{line}\n" for line in lines)


def summarise(report: Report) -> None:
    """Append the Markdown table to the step's summary, where GitHub says it takes one."""
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        # The annotations matter more than a summary that cannot be written.
        with suppress(OSError), Path(file).open("a", encoding="utf-8") as summary:
            summary.write(markdown.text(report))


def of_file(error: FileError) -> str:
    """The annotation of a file that cannot be meant."""
    return _annotation(
        "error", error.file, error.line, "kvsize check", f"{error.bare} {error.hint}"
    )


def _annotations(file: str, outcome: Outcome) -> list[str]:
    check = outcome.check
    found = [
        _annotation(
            "error",
            file,
            each.line,
            check.name,
            f"{each.key}: asked {each.wanted}, found {each.found}. {each.reason}".rstrip(),
        )
        for each in outcome.assertions
        if not each.holds
    ]
    if outcome.error is not None:
        told = f"{outcome.error.message} {outcome.error.hint}"
        found.append(_annotation("error", file, check.line, check.name, told))
    return found + [_annotation("warning", file, check.line, check.name, n) for n in outcome.notes]


def _annotation(level: str, file: str, line: int, title: str, message: str) -> str:
    properties = {"file": _from_root(file), "line": str(line)} if file else {}
    properties["title"] = printable(title)
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {told}::{_data(message)}"


def _from_root(file: str) -> str:
    """The path from the repository's root, which is what annotations are placed by."""
    root = os.environ.get("GITHUB_WORKSPACE")
    return Path(os.path.relpath(file, root)).as_posix() if root else file


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
