"""What a file of checks may say: one table of keys, for the reader, the schema and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvsize.errors import UsageError, printable
from kvsize.units import format_tokens, parse_bytes, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal[
    "text", "words", "yes", "count", "tokens", "bytes", "share", "headroom", "number", "options"
]
Role = Literal["needs memory", "of size", "pin"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its name, the kind of its value, and what it means.

    `role`: of an assertion, what it is held against: a memory that is stated, a size, or a
    figure that must be the same to the byte and that `--update` rewrites.
    """

    name: str
    kind: Kind
    help: str
    role: Role | None = None


CHECK = (
    Key("name", "words", "What reports call the check; the model where it is left out."),
    Key("model", "words", "A preset, a Hub id (org/name@revision), a path from here, or a .gguf."),
    Key("engine", "text", "Whose cache. Default: vllm where a memory is stated, else as in size."),
    Key("engine_version", "text", "The engine's version; the newest modelled by default."),
    Key("gpu", "text", "A GPU by its name in `kvsize gpus`."),
    Key("gpus", "count", "How many GPUs there are; 1 unless tp, pp, dp or dcp say otherwise."),
    Key("gpu_memory", "bytes", "The memory of a GPU that has no name here."),
    Key("kv_memory", "bytes", "The cache's memory per GPU, from a log: exact."),
    Key("weights", "text", "The weights' size (140GB) or dtype (fp8, int4, bf16)."),
    Key("reserve", "bytes", "Instead of the modelled runtime reserve."),
    Key("memory_fraction", "share", "The engine's share of the memory: 0.9."),
    Key("ctx", "tokens", "Tokens of one sequence; the model's limit by default."),
    Key("sequences", "count", "Sequences at once; 1 by default."),
    Key("kv_dtype", "text", "The cache's dtype; auto is the model's own."),
    Key("tp", "count", "Tensor-parallel size."),
    Key("pp", "count", "Pipeline-parallel size."),
    Key("dp", "count", "Data-parallel size."),
    Key("dcp", "count", "Decode-context-parallel size."),
    Key("options", "options", "Options of the engine, in its own words."),
    Key("strict", "yes", "Whether a guess about the model is an error."),
)
EXPECT = (
    Key("fits", "yes", "Whether all sequences fit, whatever the estimate.", "needs memory"),
    Key("min_headroom", "headroom", "Left over, of the cache's memory: 10%, 4GiB.", "needs memory"),
    Key("min_sequences", "count", "Sequences of ctx tokens that fit at least.", "needs memory"),
    Key("min_context", "tokens", "Context that fits with so many sequences.", "needs memory"),
    Key("max_kv_per_token", "bytes", "One more token of a sequence, at most.", "of size"),
    Key("max_kv_per_sequence", "bytes", "One sequence of ctx tokens, at most.", "of size"),
    Key("max_total", "bytes", "All sequences together, at most.", "of size"),
    Key("token_bytes", "bytes", "What one more token adds, exactly.", "pin"),
    Key("sequence_bytes", "bytes", "What one sequence holds, exactly.", "pin"),
    Key("total_bytes", "bytes", "What all sequences hold, exactly.", "pin"),
    Key("attention", "text", "The kind of attention, as kvsize names it.", "pin"),
    Key("layers", "number", "Layers of the cache.", "pin"),
    Key("num_key_value_heads", "number", "Cached heads, where all layers have the same.", "pin"),
    Key("head_dim", "number", "Width of a cached key, where all layers have the same.", "pin"),
    Key("context_limit", "number", "The longest sequence the model is made for.", "pin"),
)
BY_NAME = {key.name: key for key in (*CHECK, *EXPECT)}
# The assertion that each limit is about, in the words of the report.
FIGURES = {
    "max_kv_per_token": "token_bytes",
    "max_kv_per_sequence": "sequence_bytes",
    "max_total": "total_bytes",
}

# For the schema: what the readers below take as text.
PATTERNS = {
    "text": r"^\S(.*\S)?$",
    "words": r"^\S(.*\S)?$",
    "tokens": r"^[0-9][0-9_]*(\.[0-9]+)?\s*[kKmM]?$",
    "bytes": r"^[0-9][0-9_,]*(\.[0-9]+)?\s*(([kKmMgGtT][iI]?)?[bB])?$",
    "headroom": r"^[0-9][0-9_,]*(\.[0-9]+)?\s*(%|([kKmMgGtT][iI]?)?[bB])?$",
    "share": r"^(0?\.[0-9]*[1-9][0-9]*|1(\.0+)?)$",
}
LEGAL = {
    "text": "text that is not empty",
    "words": "text that is not empty",
    "yes": "true or false",
    "count": "a whole number of at least 1",
    "number": "a whole number",
    "tokens": "a whole number of at least 1, or text such as 32k",
    "bytes": "a whole number of bytes, or text such as 40GiB",
    "share": "a number from 0 to 1, as in 0.9",
    "headroom": "a share such as 10%, or a size such as 4GiB, as text or plain bytes",
    "options": "a table of options, in the engine's own words",
}


def value_of(key: Key, raw: object) -> object:
    """`raw`, as TOML gives it, as the key's value; UsageError where it cannot be meant.

    Sizes and tokens become whole numbers, a share of headroom stays text such as `10%`.
    """
    value = _READERS[key.kind](raw)
    if value is None:
        msg = f"`{key.name}` is {shown_raw(raw)}."
        raise UsageError(msg, f"it is {LEGAL[key.kind]}.")
    return value


def shown_raw(raw: object) -> str:
    """A value as the file has it, in short."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, dict | list):
        return "a table" if isinstance(raw, dict) else "a list"
    text = f"'{raw}'" if isinstance(raw, str) else str(raw)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _whole(raw: object, least: int) -> int | None:
    good = isinstance(raw, int) and not isinstance(raw, bool) and least <= raw < 10**18
    return raw if good and isinstance(raw, int) else None


def _text(raw: object) -> str | None:
    return raw if isinstance(raw, str) and raw.strip() == raw and raw else None


def _tokens(raw: object) -> int | None:
    return parse_tokens(raw) if isinstance(raw, str) and "," not in raw else _whole(raw, 1)


def _bytes(raw: object) -> int | None:
    return parse_bytes(raw) if isinstance(raw, str) else _whole(raw, 0)


def _headroom(raw: object) -> int | str | None:
    if not isinstance(raw, str) or not raw.rstrip().endswith("%"):
        return _bytes(raw)
    from fractions import Fraction

    try:
        percent = Fraction(raw.rstrip()[:-1].strip())
    except ValueError:
        return None
    return raw.strip() if 0 <= percent <= 100 else None


def _share(raw: object) -> str | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return None
    from kvsize.capacity.rules import parse_fraction

    parse_fraction(str(raw))
    return str(raw)


def _options(raw: object) -> dict[str, object] | None:
    return raw if isinstance(raw, dict) else None


_READERS: dict[Kind, Callable[[object], object]] = {
    "text": _text,
    "words": _text,
    "yes": lambda raw: raw if isinstance(raw, bool) else None,
    "count": lambda raw: _whole(raw, 1),
    "number": lambda raw: _whole(raw, 0),
    "tokens": _tokens,
    "bytes": _bytes,
    "share": _share,
    "headroom": _headroom,
    "options": _options,
}


def shown(key: Key, value: object) -> str:
    """A value as reports show it: sizes for people, pins to the byte."""
    from kvsize.units import format_bytes, format_exact

    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, int) and key.kind in {"bytes", "headroom"}:
        return format_exact(value) if key.role == "pin" else format_bytes(value)
    if isinstance(value, int):
        return format_tokens(value)
    return printable(str(value))
