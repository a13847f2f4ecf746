"""The file of checks: found from the current folder upwards, read, and told apart."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvsize.checks.lines import Lines
from kvsize.checks.records import FileError
from kvsize.errors import UsageError

NAME, PYPROJECT = "kvsize.toml", "pyproject.toml"
_EXAMPLE = "write [[check]] with a model and [check.expect]; docs/ci.md shows how."


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text and the table of kvsize's in it; `root` is the path of that table."""

    path: Path
    shown: str
    text: str
    table: dict[str, Any]
    lines: Lines
    root: tuple[str, ...] = ()


def document(file: str) -> Document:
    """The file named, or the nearest one above the current folder; UsageError where none is."""
    path = Path(file) if file else _nearest()
    if path.is_dir():
        path /= NAME
    return _read(path)


def _nearest() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in (NAME, PYPROJECT):
            path = folder / name
            if path.is_file() and (name == NAME or _has_table(path)):
                return path
    msg = f"there is no {NAME} here or above, and no pyproject.toml with [tool.kvsize]."
    raise UsageError(msg, f"{_EXAMPLE} Or ask on the line: --model llama-3.1-8b --max-total 4GiB.")


def _has_table(path: Path) -> bool:
    """Whether a pyproject.toml is ours too; one that cannot be read is another tool's matter."""
    try:
        parsed = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError):
        return False
    tool = parsed.get("tool")
    return isinstance(tool, dict) and "kvsize" in tool


def _read(path: Path) -> Document:
    shown = _shown(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        msg = f"{shown} cannot be read: {error.strerror}."
        raise UsageError(msg, f"name a {NAME} or a pyproject.toml: --config FILE.") from error
    except UnicodeDecodeError as error:
        raise FileError(
            shown, 0, "it is not UTF-8.", "TOML files are UTF-8; save it as such."
        ) from error
    return parsed(path, text)


def parsed(path: Path, text: str) -> Document:
    """The document that `text` is at `path`; FileError where it is no TOML or has no table of ours."""
    shown = _shown(path)
    if text.startswith("\ufeff"):
        raise FileError(shown, 1, "it starts with a byte order mark.", "TOML has none; remove it.")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of too many digits is a ValueError
        told = str(error)
        hint = "correct the file; https://toml.io has the format."
        raise FileError(shown, 0, f"not TOML: {told[:1].lower()}{told[1:]}.", hint) from error
    root: tuple[str, ...] = ()
    if path.name == PYPROJECT:
        root, content = ("tool", "kvsize"), _tool(shown, content)
    return Document(path, shown, text, content, Lines(text), root)


def _tool(shown: str, parsed: dict[str, Any]) -> dict[str, Any]:
    tool = parsed.get("tool")
    table = tool.get("kvsize") if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        hint = "write [[tool.kvsize.check]] there, or [[check]] in a kvsize.toml."
        raise FileError(shown, 0, "it has no [tool.kvsize].", hint)
    return table


def _shown(path: Path) -> str:
    """The path from the current folder where that is no longer than the path itself."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return Path(relative).as_posix()
