"""What an engine takes beside weights and cache: activations, graphs, contexts, communication.

No config.json says how much that is. `data/runtime_reserve.json` holds public measurements and
what tools/derive_reserves.py makes of them: low, best and high, with the sources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypedDict, cast

from kvsize.units import GIB


@dataclass(frozen=True, slots=True)
class Spread:
    """Bytes as low, best and high, and where they are from."""

    low_bytes: int
    best_bytes: int
    high_bytes: int
    source: str


class _Derived(TypedDict):
    engine: str
    of: str
    least_gpu_gib: int
    low_bytes: int
    best_bytes: int
    high_bytes: int
    measurements: int
    sources: list[str]


class _Assumed(TypedDict):
    engine: str
    low_bytes: int
    best_bytes: int
    high_bytes: int
    source: str


class _Data(TypedDict):
    reserves: list[_Derived]
    assumed: list[_Assumed]


@cache
def _data() -> _Data:
    text = files("kvsize").joinpath("data/runtime_reserve.json").read_text(encoding="utf-8")
    return cast("_Data", json.loads(text))


def kept_by_driver() -> Spread:
    """What NVIDIA's driver counts as memory and gives to no program."""
    return _spread(next(row for row in _data()["reserves"] if row["of"] == "driver"))


def taken_by(engine: str, gpu_bytes: int) -> Spread:
    """What `engine` takes on a GPU of `gpu_bytes`: measured where measurements are public."""
    own = [
        row
        for row in _data()["reserves"]
        if row["engine"] == engine and row["least_gpu_gib"] * GIB <= gpu_bytes
    ]
    if own:
        return _spread(max(own, key=lambda row: row["least_gpu_gib"]))
    assumed = {row["engine"]: row for row in _data()["assumed"]}
    row = assumed.get(engine, assumed["others"])
    return Spread(row["low_bytes"], row["best_bytes"], row["high_bytes"], row["source"])


def _spread(row: _Derived) -> Spread:
    sources = row["sources"]
    shown = ", ".join(sources[:3]) + (" and others" if len(sources) > 3 else "")
    source = f"{row['measurements']} public measurements ({shown})"
    return Spread(row["low_bytes"], row["best_bytes"], row["high_bytes"], source)
