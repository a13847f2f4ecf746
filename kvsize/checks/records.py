"""What a check asks and what came of it, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvsize.errors import Exit, KvsizeError, UsageError


class FileError(UsageError):
    """A file of checks that cannot be meant, with the place."""

    def __init__(self, file: str, line: int, message: str, hint: str) -> None:
        self.file: str = file
        self.line: int = line
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        self.bare = message
        super().__init__(f"{place}{message}", hint)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what is asked about, what is expected, and the lines that say so.

    `asked` holds checked values under the keys' names, `expect` in the file's order; `path` is the
    check's table in the document.
    """

    name: str
    asked: Mapping[str, Any]
    expect: Mapping[str, Any]
    file: str
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)
    path: tuple[str | int, ...] = ()

    @property
    def has_memory(self) -> bool:
        """Whether a memory is stated, so that it can be said whether something fits."""
        return any(name in self.asked for name in ("gpu", "gpu_memory", "kv_memory"))


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion: what was wanted and found, and why it does not hold where it does not.

    `wanted` and `found` are for people, the `_value`s as a file would state them: bytes as integers,
    a share of the memory as a percentage, None where nothing is known.
    """

    key: str
    wanted: object
    found: object
    holds: bool
    reason: str = ""
    line: int = 0
    wanted_value: object = None
    found_value: object = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a check: its assertions, or the failure that left none to be held.

    `subject`: the model, engine and deployment in words; `notes`: what to know, none of it wrong.
    """

    check: Check
    subject: str = ""
    assertions: tuple[Assertion, ...] = ()
    error: KvsizeError | None = None
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every assertion holds."""
        return self.error is None and all(each.holds for each in self.assertions)


def exit_code(outcomes: tuple[Outcome, ...]) -> int:
    """0 where all hold; the first failure's own code where one could not be asked; else 1."""
    codes = [int(each.error.exit_code) for each in outcomes if each.error is not None]
    worse = [code for code in codes if code != Exit.NO]
    if worse:
        return worse[0]
    return Exit.OK if all(each.holds for each in outcomes) else Exit.NO
