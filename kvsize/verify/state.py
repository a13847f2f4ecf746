"""The results of a sweep in a file, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from kvsize.errors import UsageError
from kvsize.verify.evidence import versions
from kvsize.verify.sweep import Result


class State:
    """A JSON-lines file: one result in each line, with what it holds for.

    A result holds for the versions of kvsize, torch and transformers and the variants that were
    run; lines of other runs stay in the file and are not used.
    """

    def __init__(self, file: Path, variants: Iterable[str]) -> None:
        self.file = file
        self.holds_for: dict[str, object] = {"versions": versions(), "variants": list(variants)}

    def results(self) -> dict[str, Result]:
        """What an earlier run found; nothing where there is no file yet.

        Raises UsageError where the file cannot be read or holds something else.
        """
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--state {self.file} cannot be read: {error}.", _OTHER) from error
        found = [self._result(number, line) for number, line in enumerate(lines, 1)]
        return {result.model_type: result for result in found if result is not None}

    def add(self, result: Result) -> None:
        """Write one more result. Raises UsageError where that cannot be done."""
        line = json.dumps({"for": self.holds_for, **asdict(result)})
        try:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(line + "\n")
        except OSError as error:
            raise UsageError(f"--state {self.file} cannot be written: {error}.", _OTHER) from error

    def _result(self, number: int, line: str) -> Result | None:
        try:
            row = json.loads(line)
            holds_for = row.pop("for")
            result = Result(**row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"--state {self.file}: line {number} is no result of `kvsize verify --all`."
            raise UsageError(message, "delete that line, or name another file.") from error
        return result if holds_for == self.holds_for else None


_OTHER = "name a file that can be written, or leave out --state."
