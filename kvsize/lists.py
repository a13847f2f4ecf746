"""A file that names models, one a line, or a CSV file with a column of them."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from kvsize.errors import UsageError
from kvsize.record import Record

# A revision or a path may hold the sign, a comment follows a blank.
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ONE_A_LINE = "give a file with a model on each line; `kvsize size` takes models themselves."
COLUMN = "model"


class Entry(Record):
    """A model's name and where it stands: `models.txt:3`."""

    name: str
    place: str


def read(file: str) -> list[Entry]:
    """The models that `file` names (`-`: standard input); UsageError where it names none.

    A `.csv` file: the column called `model`, or else the first. Any other: a model on each line,
    without what follows `#`.
    """
    if not file.strip():
        raise UsageError("the name of the list is empty.", _ONE_A_LINE)
    shown = "standard input" if file == "-" else file
    lines = _text(file, shown).splitlines()
    named = _column(lines) if file.lower().endswith(".csv") else _lines(lines)
    entries = [Entry(name, f"{shown}:{number}") for number, name in named if name]
    if not entries:
        raise UsageError(f"{shown} names no model.", _ONE_A_LINE)
    for entry in entries:
        if entry.name == "-":
            msg = f"{entry.place}: a list cannot name standard input (-)."
            raise UsageError(msg, "name a preset, a Hub id or a file.")
    return entries


def _lines(lines: list[str]) -> list[tuple[int, str]]:
    return [(number, _COMMENT.sub("", line).strip()) for number, line in enumerate(lines, 1)]


def _column(lines: list[str]) -> list[tuple[int, str]]:
    reader = csv.reader(lines)
    rows = [(reader.line_num, row) for row in reader if row]
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    index = header.index(COLUMN) if COLUMN in header else 0
    body = rows[1:] if COLUMN in header else rows
    return [(number, row[index].strip()) for number, row in body if len(row) > index]


def _text(file: str, shown: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8.", _ONE_A_LINE) from None
    except (OSError, ValueError, AttributeError) as error:
        reason = (getattr(error, "strerror", None) or "it cannot be read").lower()
        raise UsageError(f"{shown}: {reason}.", _ONE_A_LINE) from None
