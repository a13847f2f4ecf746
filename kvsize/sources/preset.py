"""Models that come with kvsize: `model_presets/NAME.json`, read without any network.

A preset holds the config.json keys that decide the cache, in config.json's own words, with the
Hub id, further facts and where each comes from; it goes through the same code as a config from
anywhere else. `data/preset.schema.json` says what a file may hold. One model by its own name
costs one file; only an alias or a slip of the keyboard reads them all.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TypedDict, cast

from kvsize.errors import ConfigError, UsageError
from kvsize.model import Raw
from kvsize.suggest import nearest

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,99}")
_REINSTALL = "reinstall kvsize; its presets come with it."


class _Always(TypedDict):
    hub_id: str
    aliases: list[str]
    config: dict[str, object]
    sources: dict[str, str]


class Preset(_Always, total=False):
    """What one file says: the config, other names for it, and where its facts come from.

    `released`: year and month; `weight_bytes`: bytes of all parameters in the file's dtype. Both
    are there only where they are known.
    """

    released: str
    weight_bytes: int


@cache
def folder() -> Path:
    """Where the presets are: inside the installed package, or beside it in a checkout."""
    installed = Path(__file__).parents[1] / "model_presets"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "model_presets"


def presets() -> list[str]:
    """The names of all presets, sorted; ConfigError where the folder has none."""
    names = sorted(path.stem for path in folder().glob("*.json"))
    if not names:
        raise ConfigError(f"{folder()}: there are no presets.", _REINSTALL)
    return names


def read(name: str) -> Preset:
    """The preset whose file is called `name`; ConfigError where the file is damaged."""
    path = folder() / f"{name}.json"
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: the preset cannot be read.", _REINSTALL) from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("config"), dict):
        raise ConfigError(f"{path}: the preset has no config.", _REINSTALL)
    return cast("Preset", loaded)


def catalogue() -> dict[str, Preset]:
    """Every preset under its name, in the order of the names."""
    return {name: read(name) for name in presets()}


def aliases() -> dict[str, str]:
    """Every alias with the preset it stands for."""
    return {
        _spelled(alias): name
        for name, preset in catalogue().items()
        for alias in preset.get("aliases", [])
    }


def find(name: str) -> Raw:
    """The preset called `name`, in any case, or by one of its aliases; UsageError otherwise."""
    wanted = _spelled(name)
    if not _NAME.fullmatch(wanted) or not (folder() / f"{wanted}.json").is_file():
        wanted = _preset_of_alias(wanted)
    return raw(wanted, read(wanted))


def raw(name: str, preset: Preset) -> Raw:
    """The config that the preset `name` stands for, as every source gives it."""
    return Raw(
        config=preset["config"],
        name=name,
        where=f"preset {name}",
        source="preset",
        hub_id=preset.get("hub_id"),
        weight_bytes=preset.get("weight_bytes"),
    )


def _spelled(name: str) -> str:
    """Names have no capitals and no underscores: `Llama-3_3-70B` is `llama-3-3-70b`."""
    return name.strip().lower().replace("_", "-")


def _preset_of_alias(wanted: str) -> str:
    known = aliases()
    if wanted not in known:
        shown = wanted if len(wanted) <= 60 else f"{wanted[:57]}…"
        spellings = known | {name: name for name in presets()}
        hint = nearest(wanted, spellings, "`kvsize presets` lists all of them", spellings)
        raise UsageError(f"no preset named '{shown}'.", hint)
    return known[wanted]
