"""A picture as one HTML page that needs nothing else: its data is in it, and nothing is fetched.

The page draws with its own script, 200 lines beside the megabytes of a plotting library. It shows
only figures that are in its data: where the pointer is between two of them it names the nearest.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from kvsize.plot.chart import as_data
from kvsize.plot.describe import description
from kvsize.plot.palette import COLOURS

if TYPE_CHECKING:
    from kvsize.plot.chart import Picture

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(picture: Picture) -> str:
    """The page of a picture of curves."""
    template = files("kvsize.plot").joinpath("page.html").read_text(encoding="utf-8")
    values = {
        "title": _text(picture.title),
        "description": _text(description(picture)),
        "colours": json.dumps(COLOURS),
        "data": _script(as_data(picture)),
    }
    return _PLACE.sub(lambda place: values[place[1]], template)


def _text(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _script(data: dict[str, object]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
