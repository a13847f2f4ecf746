"""Text to numbers and back: token counts (32k = 32 × 1024) and bytes (GiB = 2³⁰, GB = 10⁹)."""

from __future__ import annotations

import re

from kvsize.errors import UsageError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}

_TOKEN_SUFFIXES = {"": 1, "k": KIB, "m": MIB}
_BYTE_SUFFIXES = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_NUMBER = re.compile(r"([0-9][0-9_,]*)(?:\.([0-9]+))?\s*([a-zA-Z]*)")
# No figure kvsize deals in comes near this; anything larger is a slip of the keyboard.
_LARGEST = 10**18


def ceil_div(value: int, step: int) -> int:
    """The smallest integer not below value / step."""
    return -(-value // step)


def pad(value: int, step: int) -> int:
    """`value` rounded up to a multiple of `step`."""
    return ceil_div(value, step) * step


def parse_tokens(text: str) -> int:
    """Read a token count: `32768`, `32_768`, `32k` (= 32 × 1024), `1m` (= 1024²), `1.5k`.

    Raises UsageError for anything else, zero included.
    """
    value = _scaled(text, _TOKEN_SUFFIXES)
    if value is None or value < 1:
        msg = f"'{text}' is not a number of tokens."
        raise UsageError(msg, "write 32768, 32_768, 32k (= 32 × 1024) or 1m (= 1024 × 1024).")
    return value


def parse_bytes(text: str) -> int:
    """Read a size: `40GiB` (40 × 2³⁰), `40GB` (40 × 10⁹), `512MiB`, `123456` (bytes).

    Raises UsageError for anything else.
    """
    value = _scaled(text, _BYTE_SUFFIXES)
    if value is None:
        msg = f"'{text}' is not a size in bytes."
        raise UsageError(msg, "write 40GiB (40 × 2³⁰), 40GB (40 × 10⁹), 512MiB, or plain bytes.")
    return value


def _scaled(text: str, suffixes: dict[str, int]) -> int | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[3].lower() not in suffixes:
        return None
    whole, fraction, scale = match[1], match[2] or "", suffixes[match[3].lower()]
    digits = int(re.sub(r"[_,]", "", whole) + fraction)
    value, rest = divmod(digits * scale, 10 ** len(fraction))
    return value if rest == 0 and value <= _LARGEST else None


def format_tokens(tokens: int) -> str:
    """32768 → `32,768`."""
    return f"{tokens:,}"


def format_bytes(size_bytes: int, unit: str | None = None) -> str:
    """Bytes as people read them: `320.00 KiB`, `10.00 GiB`; below 1 KiB as plain bytes.

    `unit` fixes the binary unit (`B`, `KiB`, `MiB`, `GiB`, `TiB`) instead of choosing one.
    """
    if unit is None:
        fitting = (name for name, scale in reversed(UNITS.items()) if abs(size_bytes) >= scale)
        unit = next(fitting, "B")
    if unit == "B":
        return f"{size_bytes:,} B"
    value = size_bytes / UNITS[unit]
    # A unit too large for the figure still shows what there is, never 0.00 of it.
    return f"{value:.2g} {unit}" if 0 < value < 0.005 else f"{value:,.2f} {unit}"


def format_exact(size_bytes: int) -> str:
    """Bytes for people and to the byte: `320.00 KiB (327,680 B)`."""
    short = format_bytes(size_bytes)
    return short if short.endswith(" B") else f"{short} ({size_bytes:,} B)"
