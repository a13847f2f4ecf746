"""What was typed, as values: counts, token counts, engine options, units; UsageError otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvsize.errors import UsageError
from kvsize.units import UNITS, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

# 32,768 as it is printed; also what a list of 32 and 768 looks like.
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")


def tokens(text: str) -> tuple[int, ...]:
    """`8k,32k` → (8192, 32768); nothing → (). `32,768` could mean two things, and is refused."""
    if _GROUPED.fullmatch(text.strip()):
        msg = f"'{text}' may be one number of tokens or several."
        raise UsageError(msg, f"write {text.replace(',', '_')} for one; 32k,64k lists two.")
    return tuple(parse_tokens(part) for part in text.split(",")) if text.strip() else ()


def count(option: str, text: str) -> int:
    """A whole number of at least 1 given to `option`."""
    digits = text.strip().replace("_", "")
    if digits.isascii() and digits.isdigit() and len(digits) > 9:
        msg = f"{option} is {text.strip()}, which is more than anything has."
        raise UsageError(msg, "write a whole number of at most nine digits.")
    if not (digits.isascii() and digits.isdigit() and 1 <= len(digits) <= 9 and int(digits)):
        msg = f"{option} is '{text}', and must be a whole number of at least 1."
        raise UsageError(msg, f"write {option} 1, or a larger whole number.")
    return int(digits)


def counts(option: str, text: str) -> tuple[int, ...]:
    """`1,16` → (1, 16)."""
    return tuple(count(option, part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """`vllm, llama.cpp` → (`vllm`, `llama.cpp`), each once; nothing → ()."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def pair(option: str, text: str) -> tuple[str, str]:
    """`vllm,sglang` → (vllm, sglang), one for each side; `vllm` → the same for both."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or (len(parts) == 2 and not all(parts)):
        msg = f"{option} is '{text}', and takes one value, or one for each side."
        raise UsageError(msg, f"write it as in {option} A,B.")
    return parts[0], parts[-1]


def engine_options(given: Iterable[str], cache: str) -> dict[str, object]:
    """`NAME=VALUE` pairs, and `--cache` as the option `cache`; values stay text."""
    options: dict[str, object] = {}
    pairs = [*given, f"cache={cache}"] if cache else list(given)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            msg = f"--option '{pair}' is not NAME=VALUE."
            raise UsageError(msg, "write it as in -o max_cache_len=4096.")
        if name.strip() in options:
            msg = f"the engine option '{name.strip()}' is given twice."
            raise UsageError(msg, "give each option once; --cache KIND is -o cache=KIND.")
        options[name.strip()] = value.strip()
    return options


def unit(text: str) -> str | None:
    """`gib` → `GiB`; nothing → None, which means a fitting unit for each figure."""
    found = next((name for name in UNITS if name.lower() == text.strip().lower()), None)
    if text and found is None:
        msg = f"--unit is '{text}', which is not a unit of bytes here."
        raise UsageError(msg, f"use one of {', '.join(UNITS)}.")
    return found


def one(option: str, values: tuple[int, ...]) -> int | None:
    """The only value of an option that takes several elsewhere; None for none."""
    if len(values) > 1:
        msg = f"{option} takes one value here."
        raise UsageError(msg, "give one of them.")
    return values[0] if values else None
