"""What `kvsize presets`, `kvsize engines` and `kvsize schema` print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from kvsize.attention import attention_name, attention_short, heads
from kvsize.engines import engine, engines
from kvsize.errors import UsageError
from kvsize.loading import load
from kvsize.sources import preset
from kvsize.units import format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.engines.options import Option

SCHEMA = Path(__file__).parent / "data" / "report.schema.json"


class Preset(TypedDict):
    """What `kvsize presets --json` tells of one preset."""

    name: str
    hub_id: str | None
    aliases: list[str]
    model_type: str
    attention: str
    num_attention_heads: int | None
    num_key_value_heads: int | None
    layers: int
    context_limit: int | None
    weight_bytes: int | None


def presets_text(search: str, *, as_json: bool) -> str:
    """The presets whose name, alias or Hub id contains `search`: a table, or JSON.

    Raises UsageError where none does.
    """
    other_names: dict[str, list[str]] = {}
    for alias, name in preset.aliases().items():
        other_names.setdefault(name, []).append(alias)
    found = [
        _preset(name, sorted(other_names.get(name, [])))
        for name in preset.presets()
        if _matches(search, name, other_names.get(name, []))
    ]
    if not found:
        msg = f"no preset has '{search}' in its name, aliases or Hub id."
        raise UsageError(
            msg, "`kvsize presets` lists all of them; any Hub id or config.json works too."
        )
    if as_json:
        return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    header = ("preset", "attention", "layers", "context", "on the Hub")
    return _columns([header, *(_line(each) for each in found)])


def engines_text() -> str:
    """Every engine with what it is, one a line."""
    found = [engine(name) for name in engines()]
    return _columns([(each.NAME, each.VERSIONS[0], each.TITLE) for each in found])


def engine_text(name: str) -> str:
    """One engine: versions, dtypes, options with defaults and legal values, and what is not modelled."""
    found = engine(name)
    options = [
        (option.name, f"default {_word(option.default)}", _help(option)) for option in found.OPTIONS
    ]
    return "\n".join(
        [
            f"{found.NAME}: {found.TITLE}",
            "",
            f"versions: {', '.join(found.VERSIONS)}",
            f"--kv-dtype: {', '.join(found.KV_DTYPES)}",
            "",
            "options, given as -o NAME=VALUE:",
            _columns(options, indent="  "),
            "not modelled:",
            *(f"  {sentence}" for sentence in found.NOT_MODELLED),
            "",
        ]
    )


def schema_text() -> str:
    """The JSON schema of the report, as it is shipped."""
    return SCHEMA.read_text(encoding="utf-8")


def _preset(name: str, other_names: list[str]) -> Preset:
    model = load(name)
    queries, cached, _ = heads(model.layers)
    return {
        "name": name,
        "hub_id": model.hub_id,
        "aliases": other_names,
        "model_type": model.model_type,
        "attention": attention_name(model.layers),
        "num_attention_heads": queries,
        "num_key_value_heads": cached,
        "layers": len(model.layers),
        "context_limit": model.context_limit,
        "weight_bytes": model.weight_bytes,
    }


def _matches(search: str, name: str, other_names: list[str]) -> bool:
    wanted = search.lower()
    names = [name, *other_names, preset.find(name).hub_id or ""]
    return any(wanted in each.lower() for each in names)


def _line(found: Preset) -> tuple[str, ...]:
    limit = found["context_limit"]
    return (
        found["name"],
        attention_short(
            found["attention"], found["num_attention_heads"], found["num_key_value_heads"]
        ),
        str(found["layers"]),
        "" if limit is None else format_tokens(limit),
        found["hub_id"] or "",
    )


def _word(value: object) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _help(option: Option) -> str:
    choices = (
        f" ({', '.join(_word(choice) for choice in option.choices)})" if option.choices else ""
    )
    return f"{option.help}{choices}"


def _columns(rows: Sequence[tuple[str, ...]], indent: str = "") -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)
