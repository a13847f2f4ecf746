"""For programs: every check with its assertions; docs/ci.md describes the fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvsize.checks.records import exit_code

if TYPE_CHECKING:
    from kvsize.checks.formats import Report
    from kvsize.checks.records import Outcome

# Grows when a field changes its meaning or goes away, not when one is added.
SCHEMA_VERSION = 1


def text(report: Report) -> str:
    """The report as one JSON object."""
    made = {
        "schema_version": SCHEMA_VERSION,
        "file": report.file or None,
        "holds": all(each.holds for each in report.outcomes),
        "exit_code": int(exit_code(report.outcomes)),
        "checks": [_check(each) for each in report.outcomes],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _check(outcome: Outcome) -> dict[str, object]:
    error = outcome.error
    return {
        "name": outcome.check.name,
        "model": outcome.check.asked["model"],
        "subject": outcome.subject,
        "line": outcome.check.line or None,
        "holds": outcome.holds,
        "error": error
        and {"message": error.message, "hint": error.hint, "exit_code": int(error.exit_code)},
        "assertions": [
            {
                "key": each.key,
                "line": each.line or None,
                "asked": each.wanted_value,
                "found": each.found_value,
                "asked_text": each.wanted,
                "found_text": each.found,
                "holds": each.holds,
                "reason": each.reason if not each.holds else "",
            }
            for each in outcome.assertions
        ],
        "notes": list(outcome.notes),
    }
