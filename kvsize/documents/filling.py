"""What stands in a block: the output of the command line that its marker holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kvsize.documents.blocks import told_at
from kvsize.errors import KvsizeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.documents.blocks import Block
    from kvsize.documents.dialects import Dialect

# Commands that print a table for a document, and take --format.
_TABLES = ("size", "table", "diff", "explain", "fit")
_WITH_COLUMNS = ("size", "table")
# Where the text goes is the document's business.
_FORBIDDEN = ("--output", "--copy", "--json", "--help", "-h")


class CommandLine(Protocol):
    """What answers a block: kvsize.commands, handed in because `docs` is one of its commands."""

    def names(self) -> list[str]:
        """The names of all commands."""
        ...

    def said(self, words: list[str]) -> object:
        """What a command line returns: its output first; KvsizeError where it is wrong."""
        ...


def filled(
    block: Block, dialect: Dialect, file: str, commands: CommandLine, *, offline: bool
) -> str:
    """The text of a block as it is now; KvsizeError, with file and line, where it cannot be made."""
    words = [*block.words, "--offline"] if offline else list(block.words)
    try:
        if block.inline:
            return _figure(words, commands)
        return _lines(_table(words, dialect, commands), block)
    except KvsizeError as error:
        raise told_at(error, file, block.line) from error


def _table(words: Sequence[str], dialect: Dialect, commands: CommandLine) -> str:
    chosen = _value_of(words, "--format")
    if chosen is None:
        words = [*words, "--format", dialect.formats[0]]
    elif chosen not in dialect.formats:
        msg = f"--format {chosen} cannot stand in {dialect.name}."
        raise UsageError(msg, f"leave it out, or use {' or '.join(dialect.formats)}.")
    command = words[0] if words[0] in commands.names() else "size"
    if command in _WITH_COLUMNS and _value_of(words, "--columns") is None:
        words = [*words, "--columns", "auto"]  # the table alone
    return _said(words, commands)


def _figure(words: Sequence[str], commands: CommandLine) -> str:
    """One cell: the column is the last word, the figure that of the only row."""
    *asked, column = words if words[-1] != "--offline" else [*words[:-2], words[-1], words[-2]]
    if len(asked) < 1 or column.startswith("-"):
        msg = "a figure is a model, options, and last the name of a column."
        raise UsageError(msg, "write kvsize:value llama-3.1-70b ctx=32k total.")
    if _value_of(words, "--format") is not None or _value_of(words, "--columns") is not None:
        msg = "a figure has one column, the last word, and no format."
        raise UsageError(msg, "leave out --format and --columns.")
    table = _said([*asked, "--columns", column, "--format", "markdown"], commands).splitlines()
    rows = [line.strip("|").strip() for line in table[2:]]
    if len(rows) != 1:
        msg = f"a figure is one, and this asks for {len(rows)}."
        raise UsageError(msg, "name one model, one context (ctx=32k) and one batch.")
    return rows[0]


def _said(words: Sequence[str], commands: CommandLine) -> str:
    """The output of a command line; what does not start with a command's name is for `size`."""
    for word in words:
        name = word.partition("=")[0]
        if name in _FORBIDDEN:
            msg = f"{name} has no place in a document."
            raise UsageError(msg, "leave it out.")
    first = words[0] if words[0] in commands.names() else "size"
    if first not in _TABLES:
        msg = f"kvsize {first} prints no table for documents."
        raise UsageError(
            msg, f"use one of {', '.join(sorted(set(_TABLES) & {*commands.names()}))}."
        )
    said = commands.said(list(words) if words[0] == first else ["size", *words])
    if not isinstance(said, tuple):
        msg = f"'{' '.join(words)}' prints no table."
        raise UsageError(msg, "write what you would type after `kvsize`: llama-3.1-70b --ctx 32k.")
    return str(said[0])


def _value_of(words: Sequence[str], option: str) -> str | None:
    """What `--option VALUE` or `--option=VALUE` gives; None where it is not there."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else "".join(words[index + 1 : index + 2])
    return None


def _lines(table: str, block: Block) -> str:
    """A table with a blank line on each side, which all dialects of Markdown and rst take."""
    prefix, newline = block.prefix, block.newline
    rows = [f"{prefix}{line}".rstrip() for line in ["", *table.splitlines(), ""]]
    return newline + "".join(f"{row}{newline}" for row in rows) + prefix
