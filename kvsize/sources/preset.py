"""Models that come with kvsize: `model_presets/NAME.json`, read without any network.

A preset holds the config.json keys that decide the cache, in config.json's own words, with the
Hub id, further facts and where each comes from; it goes through the same code as a config from
anywhere else.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from kvsize.errors import UsageError
from kvsize.model import Raw
from kvsize.suggest import nearest


@cache
def folder() -> Path:
    """Where the presets are: inside the installed package, or beside it in a checkout."""
    installed = Path(__file__).parents[1] / "model_presets"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "model_presets"


def presets() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(path.stem for path in folder().glob("*.json"))


def find(name: str) -> Raw:
    """The preset called `name`, in any case, or by one of its aliases; UsageError otherwise."""
    wanted = name.lower()
    path = folder() / f"{wanted}.json"
    if not path.is_file():
        path = folder() / f"{_preset_of_alias(wanted)}.json"
    loaded = json.loads(path.read_text(encoding="utf-8"))
    return Raw(
        config=loaded["config"],
        name=path.stem,
        where=f"preset {path.stem}",
        source="preset",
        hub_id=loaded.get("hub_id"),
        weight_bytes=loaded.get("weight_bytes"),
    )


def aliases() -> dict[str, str]:
    """Every alias, in lower case, with the preset it stands for."""
    found: dict[str, str] = {}
    for path in folder().glob("*.json"):
        for alias in json.loads(path.read_text(encoding="utf-8")).get("aliases", []):
            found[alias.lower()] = path.stem
    return found


def _preset_of_alias(wanted: str) -> str:
    known = aliases()
    if wanted not in known:
        msg = f"no preset named '{wanted}'."
        hint = nearest(wanted, [*presets(), *known], "`kvsize presets` lists all of them")
        raise UsageError(msg, hint)
    return known[wanted]
