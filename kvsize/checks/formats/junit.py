"""For CI systems that read JUnit XML (GitLab, Jenkins, Azure): a test case per assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvsize.errors import printable

if TYPE_CHECKING:
    from kvsize.checks.formats import Report
    from kvsize.checks.records import Outcome

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def text(report: Report) -> str:
    """The XML document. A check that could not be asked is one case with an error."""
    cases = [case for outcome in report.outcomes for case in _cases(report, outcome)]
    asserted = [each for outcome in report.outcomes for each in outcome.assertions]
    counts = _attributes(
        tests=len(cases),
        failures=sum(not each.holds for each in asserted),
        errors=sum(outcome.error is not None for outcome in report.outcomes),
    )
    body = "".join(cases)
    return (
        f'{_HEAD}<testsuites name="kvsize check"{counts}>\n'
        f'  <testsuite name="kvsize check"{counts}>\n{body}  </testsuite>\n</testsuites>\n'
    )


def _cases(report: Report, outcome: Outcome) -> list[str]:
    name, error = outcome.check.name, outcome.error
    if error is not None:
        inner = _problem("error", type(error).__name__, error.message, error.hint)
        return [_case(report, name, outcome.check.line, inner)]
    return [
        _case(
            report,
            f"{name}: {each.key}",
            each.line,
            ""
            if each.holds
            else _problem(
                "failure", each.key, f"asked {each.wanted}, found {each.found}", each.reason
            ),
        )
        for each in outcome.assertions
    ]


def _case(report: Report, name: str, line: int, inner: str) -> str:
    place = {"file": report.file, "line": line} if report.file else {}
    head = _attributes(classname=report.file or "command line", name=name, **place)
    if not inner:
        return f"    <testcase{head}/>\n"
    return f"    <testcase{head}>\n{inner}    </testcase>\n"


def _problem(tag: str, kind: str, message: str, told: str) -> str:
    head = _attributes(message=message, type=kind)
    return f"      <{tag}{head}>{escape(printable(told))}</{tag}>\n"


def _attributes(**values: object) -> str:
    # XML has no way at all to write most control characters.
    return "".join(f" {name}={quoteattr(printable(str(value)))}" for name, value in values.items())
