"""One module per output format; the file name is its `--format` name.

A format module defines `write(report, out, look)`, and REMARKS, which says whether it tells the notes
and warnings in words. Modules that start with `_` are shared parts.
"""

from __future__ import annotations

import importlib
import os
from io import StringIO
from typing import TYPE_CHECKING, Protocol, cast

from kvsize.errors import UsageError
from kvsize.record import Record

if TYPE_CHECKING:
    from typing import TextIO

    from kvsize.render._columns import Column
    from kvsize.report import Report


class Look(Record):
    """How text for people is to look; JSON takes no notice.

    `unit` fixes the unit of bytes (`GiB`), `width` is in columns, `terminal` allows styles.
    `columns` are those chosen, for a table that stands alone; none: those that the rows call for;
    None: the format's own whole output.
    """

    unit: str | None = None
    width: int = 80
    terminal: bool = False
    columns: tuple[Column, ...] | None = None


class Writer(Protocol):
    """What a format module offers."""

    REMARKS: bool

    def write(self, report: Report, out: TextIO, look: Look) -> None:
        """Write `report` to `out`."""
        ...


def formats() -> list[str]:
    """The names of all output formats."""
    # os, not Path.glob, which costs as much start-up as a format itself.
    files = os.listdir(os.path.dirname(__file__))  # noqa: PTH120, PTH208
    return sorted(
        name[: -len(".py")] for name in files if name.endswith(".py") and not name.startswith("_")
    )


def writer(format_name: str) -> Writer:
    """The module of an output format; UsageError where there is none of that name."""
    known = formats()
    if format_name not in known:
        msg = f"no output format named '{format_name}'."
        raise UsageError(msg, f"use one of {', '.join(known)}.")
    return cast("Writer", importlib.import_module(f"kvsize.render.{format_name}"))


def text(format_writer: Writer, report: Report, look: Look) -> str:
    """`report` as text in a format."""
    out = StringIO(newline="")
    format_writer.write(report, out, look)
    return out.getvalue()
