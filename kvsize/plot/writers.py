"""The formats of a picture, by the ending of the file that is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING

from kvsize.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from kvsize.plot.chart import Picture

FORMATS = ("svg", "png", "html", "json", "txt")
_DRAWN = ("svg", "png")
"""Those that the extra `plot` draws."""


def format_of(file: str, *, as_json: bool) -> str:
    """The format for `file`; text for none.

    Raises UsageError for an ending that names no format, and MissingExtra where the format's
    library is not installed: before anything is computed.
    """
    if as_json:
        return "json"
    if not file:
        return "txt"
    ending = PurePath(file).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        msg = f"--out {file} ends in no format that a picture has."
        raise UsageError(msg, f"use one of {known}.")
    if ending in _DRAWN and find_spec("matplotlib") is None:
        msg = f"`kvsize plot --out {file}` draws with matplotlib, which is not installed."
        raise MissingExtra(msg, "pip install 'kvsize[plot]'")
    return ending


def written(picture: Picture, format_name: str, width: int) -> str | bytes:
    """The picture in a format: text, or for png bytes."""
    if format_name in _DRAWN:
        from kvsize.plot.figure import draw

        return draw(picture, format_name)
    if format_name == "html":
        from kvsize.plot.page import page

        return page(picture)
    if format_name == "json":
        from kvsize.plot.chart import to_json

        return to_json(picture)
    from kvsize.plot.text import text

    return text(picture, width)
