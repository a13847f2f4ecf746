"""The kinds of documents: how each writes a comment, what is code in it, which formats it shows.

A kind of document is an entry in `DIALECTS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from kvsize.documents.code import CODE_SPAN, markdown_code, rst_code
from kvsize.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a comment holds. Words may go on over several lines; in reStructuredText while indented.
_HTML = r"<!--(?P<html>(?:(?!-->)[\s\S])*)-->"
_MDX = r"\{/\*(?P<mdx>(?:(?!\*/)[\s\S])*)\*/\}"
_RST = r"^[ \t]*\.\. +(?P<rst>/?kvsize[^\r\n]*(?:\r?\n[ \t]+(?!\.\.)\S[^\r\n]*)*)"


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of document.

    `scan` matches a comment, its content in one of the groups `comments`, or what must be stepped
    over; `code` gives the lines that are code;
    `formats` are the output formats it can show, its own first; `inline`: it has inline comments.
    """

    name: str
    suffixes: tuple[str, ...]
    scan: re.Pattern[str]
    comments: tuple[str, ...]
    code: Callable[[str], Iterator[range]]
    formats: tuple[str, ...]
    inline: bool
    example: str


_MARKDOWN = re.compile(rf"\\[\\`]|{CODE_SPAN}|{_HTML}|{_MDX}")
_END = "<!-- /kvsize -->"
DIALECTS = (
    Dialect(
        name="Markdown",
        suffixes=(".md", ".markdown", ".mdown", ".mkd", ".qmd", ".rmd"),
        scan=_MARKDOWN,
        comments=("html", "mdx"),
        code=lambda text: markdown_code(text, indented=True),
        formats=("markdown", "html"),
        inline=True,
        example=f"<!-- kvsize: llama-3.1-70b --ctx 32k -->, and {_END} after the table",
    ),
    Dialect(
        name="MDX",
        suffixes=(".mdx",),
        scan=_MARKDOWN,
        comments=("html", "mdx"),
        code=lambda text: markdown_code(text, indented=False),
        formats=("markdown",),
        inline=True,
        example="{/* kvsize: llama-3.1-70b --ctx 32k */}, and {/* /kvsize */} after the table",
    ),
    Dialect(
        name="reStructuredText",
        suffixes=(".rst", ".rest"),
        scan=re.compile(_RST, re.MULTILINE),
        comments=("rst",),
        code=rst_code,
        formats=("rst",),
        inline=False,
        example=".. kvsize: llama-3.1-70b --ctx 32k, and .. /kvsize after the table",
    ),
)


def dialect_of(file: str) -> Dialect:
    """The kind of document `file` is by the end of its name; UsageError where it is none of them."""
    suffix = PurePath(file).suffix.lower()
    for dialect in DIALECTS:
        if suffix in dialect.suffixes:
            return dialect
    known = ", ".join(each for dialect in DIALECTS for each in dialect.suffixes)
    msg = f"{file} is no document that kvsize docs knows."
    raise UsageError(msg, f"name files that end in one of {known}.")
