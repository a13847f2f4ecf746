"""Titles, sentences and small tables: what answers that are no report are drawn from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from kvsize.errors import UsageError
from kvsize.record import Record
from kvsize.render.markdown import escape
from kvsize.render.table import hang

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")


class Section(Record):
    """A title, sentences, and rows of cells under them."""

    title: str
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()


def sections_text(sections: Iterable[Section], width: int) -> str:
    """Plain text, its sentences wrapped to `width`."""
    lines: list[str] = []
    for section in sections:
        lines += [section.title]
        for cells in _aligned(section.rows):
            lines.append(f"  {'  '.join(cells)}".rstrip())
        for sentence in section.sentences:
            lines += hang(sentence, "  ", width)
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def sections_markdown(sections: Iterable[Section]) -> str:
    """GitHub-flavoured Markdown: a heading, a table and sentences for each section."""
    lines: list[str] = []
    for section in sections:
        lines += [f"### {escape(section.title)}", ""]
        for index, cells in enumerate(section.rows):
            lines.append(f"| {' | '.join(map(escape, cells))} |")
            if index == 0:
                lines.append(f"|{' --- |' * len(cells)}")
        lines += [""] if section.rows else []
        for sentence in section.sentences:
            lines += [escape(sentence), ""]
    return "\n".join(lines[:-1]) + "\n"


def chosen(known: Mapping[str, T], format_name: str, what: str) -> T:
    """The drawing of `what` in a format; UsageError where there is none of that name."""
    if format_name not in known:
        msg = f"no format named '{format_name}' for {what}."
        raise UsageError(msg, f"use one of {', '.join(known)}.")
    return known[format_name]


def brief(value: object) -> str:
    """A value in few characters: a long list as how often each of its values stands in it."""
    if isinstance(value, list | tuple):
        counted = Counter(map(str, value))
        return ", ".join(f"{count} × {item}" for item, count in counted.items())
    return str(value)


def plural(count: int, noun: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _aligned(rows: tuple[tuple[str, ...], ...]) -> Iterator[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        yield [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
