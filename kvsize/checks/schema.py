"""The JSON schema of a file of checks, for editors; the file comes with kvsize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvsize.checks.keys import CHECK, EXPECT, PATTERNS, Key

FILE = Path(__file__).parents[1] / "data" / "check.schema.json"
_MOST = 10**18 - 1


def schema_text() -> str:
    """The schema as it is shipped."""
    return FILE.read_text(encoding="utf-8")


def generated() -> str:
    """The schema as the table of keys has it; names and types, not what contradicts what."""
    check = {key.name: _value(key) for key in CHECK}
    expect = _table({key.name: _value(key) for key in EXPECT})
    top = {
        "check": {
            "type": "array",
            "minItems": 1,
            "items": {**_table({**check, "expect": expect}), "required": ["expect"]},
        },
        "defaults": _table({name: each for name, each in check.items() if name != "name"}),
    }
    expect["minProperties"] = 1
    made = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kvsize.toml: assertions about KV caches, for kvsize check",
        **_table(top),
        "required": ["check"],
    }
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(key: Key) -> dict[str, Any]:
    return {"description": key.help, **_kind(key.kind)}


def _kind(kind: str) -> dict[str, Any]:
    if kind == "yes":
        return {"type": "boolean"}
    if kind == "options":
        return {"type": "object"}
    if kind in {"count", "number"}:
        return {"type": "integer", "minimum": int(kind == "count"), "maximum": _MOST}
    text = {"type": "string", "pattern": PATTERNS[kind]}
    if kind in {"text", "words"}:
        return text
    if kind == "share":
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, text]}
    least = int(kind == "tokens")
    return {"anyOf": [{"type": "integer", "minimum": least, "maximum": _MOST}, text]}
