"""What a document asks to be filled in: the blocks between its markers."""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from kvsize.documents.code import lines
from kvsize.errors import KvsizeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.documents.dialects import Dialect

# `kvsize: …` and `kvsize:value …` open, `/kvsize` and `/kvsize:value` close; other comments that
# start with the word are somebody's prose.
_MARKER = re.compile(r"\s*(/?)kvsize(:value(?![\w.-]))?(:?)\s*([\s\S]*?)\s*")
# `ctx=32k` says --ctx 32k: older Markdown allows no `--` inside an inline comment.
_OPTION = re.compile(r"^([a-z][a-z-]*)=")


@dataclass(frozen=True, slots=True)
class Block:
    """Text from `start` to `end` that `words` replace: a table on lines of its own, or a figure.

    `line` is where its marker stands, from 1; `prefix` starts each line of a table (a quote's
    `> `), `newline` ends it.
    """

    start: int
    end: int
    line: int
    words: tuple[str, ...]
    inline: bool
    prefix: str
    newline: str


@dataclass(frozen=True, slots=True)
class _Marker:
    start: int
    end: int
    line: int
    closes: bool
    inline: bool
    text: str

    @property
    def name(self) -> str:
        return "kvsize:value" if self.inline else "kvsize"


def blocks(text: str, dialect: Dialect, file: str) -> list[Block]:
    """The blocks of a document, in order; UsageError, with file and line, for a wrong marker."""
    found: list[Block] = []
    opened: _Marker | None = None
    for marker in _markers(text, dialect):
        where = f"{file}:{marker.line}"
        if opened is None:
            if marker.closes:
                msg = f"{where}: /{marker.name} closes nothing."
                raise UsageError(msg, f"open a block before it: {dialect.example}.")
            opened = marker
        elif marker.closes and marker.inline == opened.inline:
            found.append(_block(text, dialect, opened, marker, file))
            opened = None
        else:
            raise _unclosed(opened, file, f"before line {marker.line}, where another marker stands")
    if opened is not None:
        raise _unclosed(opened, file, "to the end of the file")
    return found


def told_at(error: KvsizeError, file: str, line: int) -> KvsizeError:
    """The same failure, with the place in the document before it."""
    return type(error)(f"{file}:{line}: {error.message}", error.hint)


def _unclosed(opened: _Marker, file: str, until: str) -> UsageError:
    msg = f"{file}:{opened.line}: {opened.name} is not closed {until}."
    return UsageError(msg, f"add a marker with /{opened.name} after what it stands for.")


def _markers(text: str, dialect: Dialect) -> Iterator[_Marker]:
    starts = [0, *accumulate(map(len, lines(text)))]
    code = {number for span in dialect.code(text) for number in span}
    position = 0
    while (match := dialect.scan.search(text, position)) is not None:
        number = bisect_right(starts, match.start()) - 1
        if number in code:  # what starts in code may not reach beyond it
            position = starts[number + 1]
            continue
        position = match.end()
        body = next((match[name] for name in dialect.comments if match[name] is not None), None)
        marker = _MARKER.fullmatch(body) if body is not None else None
        if marker is None:
            continue
        closes, inline, colon, words = marker.groups()
        closing = bool(closes) and not colon and not words
        if closing or (not closes and bool(inline) != bool(colon)):
            yield _Marker(match.start(), match.end(), number + 1, closing, bool(inline), words)


def _block(text: str, dialect: Dialect, opened: _Marker, closed: _Marker, file: str) -> Block:
    where = f"{file}:{opened.line}"
    if opened.inline and not dialect.inline:
        msg = f"{where}: {dialect.name} has no comments inside a line, so no figures there."
        raise UsageError(msg, f"use a table: {dialect.example}.")
    before = re.split(r"[\r\n]", text[: opened.start])[-1]
    # A marker of reStructuredText has the indent of its line.
    prefix = before + text[opened.start : opened.start + _indent(text[opened.start : opened.end])]
    after = re.split(r"[\r\n]", text[closed.end :], maxsplit=1)[0]
    if not opened.inline and (prefix.strip(" \t>") or after.strip()):
        msg = f"{where}: a table's markers share a line with other text."
        raise UsageError(
            msg, "give each a line of its own; kvsize:value puts a figure into a line."
        )
    newline = re.search(r"\r\n|\r|\n", text[opened.end :])
    return Block(
        start=opened.end,
        end=closed.start + _indent(text[closed.start : closed.end]),
        line=opened.line,
        words=_words(opened.text, where),
        inline=opened.inline,
        prefix=prefix,
        newline=newline[0] if newline else "\n",
    )


def _words(text: str, where: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text.replace("\\", "\\\\"))  # paths of Windows keep their backslashes
    except ValueError as error:
        msg = f"{where}: the quotes in '{text}' are not closed."
        raise UsageError(msg, "close them, or leave them out.") from error
    if not words:
        msg = f"{where}: the marker names no model."
        raise UsageError(msg, "write what you would type after `kvsize`: llama-3.1-70b --ctx 32k.")
    return tuple(
        _OPTION.sub(r"--\1=", word) if before not in {"-o", "--option"} else word
        for before, word in zip(("", *words), words, strict=False)
    )


def _indent(marker: str) -> int:
    return len(marker) - len(marker.lstrip())
