"""`--update`: pinned figures are rewritten where they stand; every other byte stays.

The value is replaced in the text of its own statement, and tomllib then has to read exactly the
old document with the new figures: whatever cannot be rewritten so is refused, not guessed.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from kvsize.checks.keys import BY_NAME
from kvsize.checks.records import FileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvsize.checks.files import Document
    from kvsize.checks.lines import Path, Statement

# A number, or a string on one line, and the key in front of it; dotted keys end in the name.
_VALUE = r"""(?P<before>(?:^|[\s.{{,])(?P<quote>["']?){name}(?P=quote)\s*=\s*)(?P<value>"[^"\n]*"|'[^'\n]*'|[0-9][0-9_a-zA-Z]*)"""


def updated(document: Document, changes: Iterable[tuple[Path, object]]) -> str:
    """The document's text with each value at its path replaced; FileError where one cannot be."""
    wanted = tomllib.loads(document.text)
    text = document.text
    # From the end, so that the places of the statements before stay right.
    placed = [(document.lines.statement(path), path, value) for path, value in changes]
    for statement, path, value in sorted(placed, key=lambda one: -(one[0].start if one[0] else 0)):
        _put(wanted, path, value)
        if statement is not None:
            text = _replaced(text, statement, str(path[-1]), value)
    if _read(text) != wanted:
        line = min(one[0].line for one in placed if one[0] is not None)
        msg = "a pinned figure is written in a way that cannot be rewritten in place."
        raise FileError(document.shown, line, msg, "write [check.expect] and one key a line.")
    return text


def _read(text: str) -> object:
    try:
        return tomllib.loads(text)
    except ValueError:  # a value of several lines, cut in two
        return None


def _replaced(text: str, statement: Statement, name: str, value: object) -> str:
    """`text` with the value of one key of a statement replaced."""
    pattern = re.compile(_VALUE.format(name=re.escape(name)), re.MULTILINE)
    match = pattern.search(text, statement.start)
    if match is None:
        return text
    return text[: match.start("value")] + _written(value) + text[match.end("value") :]


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _put(table: Any, path: Path, value: object) -> None:
    for step in path[:-1]:
        table = table[step]
    table[path[-1]] = value


def pins(expect: Iterable[str]) -> list[str]:
    """The keys of `expect` that pin a figure."""
    return [name for name in expect if BY_NAME[name].role == "pin"]
