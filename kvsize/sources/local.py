"""Files on this machine: a config.json, a folder that holds one, standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

from kvsize.errors import ConfigError
from kvsize.model import Raw


def find(text: str) -> Raw:
    """The config at path `text`, or on standard input for `-`."""
    if text == "-":
        return Raw(parse(sys.stdin.read(), "standard input"), "stdin", "standard input", "stdin")
    path = Path(text).expanduser()
    file = path / "config.json" if path.is_dir() else path
    name = path.name if path.is_dir() else path.stem
    return Raw(parse(file.read_text(encoding="utf-8"), str(file)), name, str(file), "file")


def parse(text: str, where: str) -> dict[str, object]:
    """The JSON object in `text`; ConfigError where it is not one."""
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        msg = f"{where}: the JSON is not an object."
        raise ConfigError(msg, "give the config.json of a model.")
    return cast("dict[str, object]", loaded)
