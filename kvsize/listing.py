"""What `kvsize presets`, `kvsize engines` and `kvsize schema` print."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

from kvsize.engines import engine, engines
from kvsize.errors import UsageError
from kvsize.sources import preset

if TYPE_CHECKING:
    from kvsize.engines.options import Option


def presets_text(search: str, *, as_json: bool) -> str:
    """Every preset whose name, alias or Hub id contains `search`, one a line or as JSON."""
