"""Where a document shows code, so that a marker there is an example and nothing to fill."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python's str.splitlines also splits at form feeds and the like, which Markdown does not.
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# A run of backticks and the next one as long, in a paragraph: up to an empty line, or a comment that
# starts a line.
CODE_SPAN = (
    r"(?P<ticks>(?<!`)`+(?!`))"
    r"(?:(?!\n[ \t]*\r?\n|\r[ \t]*\r|[\r\n][ \t>]*<!--)[\s\S])*?"
    r"(?<!`)(?P=ticks)(?!`)"
)
# docutils 0.22, parsers/rst/directives: those whose content is shown as it stands, and Sphinx's.
_LITERAL_DIRECTIVES = (
    r"code|code-block|sourcecode|parsed-literal|highlight|math|raw|"
    r"doctest|testcode|testoutput|testsetup|prompt|productionlist"
)
_DIRECTIVE = re.compile(r"\s*\.\.\s+(?:\|[^|]*\|\s+)?([\w:+.-]+)::")
_LITERAL_DIRECTIVE = re.compile(rf"\s*\.\.\s+(?:{_LITERAL_DIRECTIVES})::")


def lines(text: str) -> list[str]:
    """The lines of `text` with their endings: LF, CRLF or CR."""
    return LINE.findall(text)


def markdown_code(text: str, *, indented: bool) -> Iterator[range]:
    """The lines (from 0) of fenced code and, if it is code at all, of indented code.

    MDX has no indented code. Lists, quotes and longer fences are the parser's business.
    """
    parser = MarkdownIt("commonmark")
    if not indented:
        parser.disable("code")
    for token in parser.parse(text):
        if token.type in {"fence", "code_block"} and token.map is not None:
            yield range(*token.map)


def rst_code(text: str) -> Iterator[range]:
    """The lines (from 0) of literal blocks: what is indented below `::` or a code directive."""
    all_lines = lines(text)
    index = 0
    while index < len(all_lines):
        line = all_lines[index].rstrip()
        index += 1
        if not _opens_literal(line):
            continue
        start, indent = index, _indent(line)
        while index < len(all_lines) and _belongs(all_lines[index], indent):
            index += 1
        yield range(start, index)


def _opens_literal(line: str) -> bool:
    if _DIRECTIVE.match(line):
        return _LITERAL_DIRECTIVE.match(line) is not None
    return line.endswith("::")


def _belongs(line: str, indent: int) -> bool:
    return not line.strip() or _indent(line) > indent


def _indent(line: str) -> int:
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())
