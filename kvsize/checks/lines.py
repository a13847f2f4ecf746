"""Where a TOML file says what it says.

tomllib gives values without places. A statement is the fewest lines, from where the one before
ended, that tomllib can parse: TOML's own parser decides where it ends, so no second one is needed,
nor a library that a base install would carry for it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: where it starts and ends in the text, its line, and what it sets.

    `paths`: every key it sets, from the root, with the index of each array's element.
    """

    start: int
    end: int
    line: int
    paths: tuple[Path, ...]


def statements(text: str) -> list[Statement]:
    """The statements of a TOML document that tomllib has already taken."""
    found: list[Statement] = []
    table: Path = ()
    counts: dict[Path, int] = {}
    for start, end, line, parsed in _pieces(text):
        if text[start:end].lstrip().startswith("["):
            table = _table(parsed, text[start:end], counts)
            paths: tuple[Path, ...] = (table,)
        else:
            paths = tuple((*table, *path) for path in _keys(parsed))
        found.append(Statement(start, end, line, paths))
    return found


def _pieces(text: str) -> Iterator[tuple[int, int, int, dict[str, object]]]:
    """Start, end, line and content of each statement; blank lines and comments are none."""
    start = end = 0
    line = first = 1
    for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
        end += len(piece)
        try:
            parsed = tomllib.loads(text[start:end])
        except tomllib.TOMLDecodeError:
            line += 1
            continue
        if parsed:
            yield start, end, first, parsed
        line += 1
        start, first = end, line


def _table(parsed: dict[str, object], header: str, counts: dict[Path, int]) -> Path:
    """The table that a header opens, `[a.b]` or `[[a.b]]`, with the index of each array's element."""
    names: list[str] = []
    level: object = parsed
    while isinstance(level, dict | list) and level:
        if isinstance(level, dict):
            name, level = next(iter(level.items()))
            names.append(name)
        else:
            level = level[0]
    path: Path = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    path = (*path, names[-1])
    if header.lstrip().startswith("[["):
        counts[path] = counts.get(path, -1) + 1
        path = (*path, counts[path])
    elif path in counts:
        path = (*path, counts[path])
    return path


def _keys(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keys(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _keys(inner, (*path, index))


class Lines:
    """The line of each key of a document."""

    def __init__(self, text: str) -> None:
        self.statements: list[Statement] = statements(text)
        self._of = {path: one for one in reversed(self.statements) for path in one.paths}

    def statement(self, path: Path) -> Statement | None:
        """The statement that sets `path`, where one does."""
        return self._of.get(path)

    def line(self, path: Path) -> int:
        """The line of `path`, or of the nearest table around it; 1 where there is none."""
        for length in range(len(path), 0, -1):
            if (found := self._of.get(path[:length])) is not None:
                return found.line
        return 1
