"""Untrusted bytes to a JSON object: size, encoding, syntax and nesting are checked here.

`NaN` and `Infinity` are let in although JSON has neither: published configs hold them
(`"time_step_limit": [0.0, Infinity]` in Nemotron-H), and Python's own reader takes them. A
dimension that is one of them is refused where it is read, in `kvsize.config`.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, BinaryIO, cast

from kvsize.errors import ConfigError
from kvsize.units import MIB, format_bytes

if TYPE_CHECKING:
    from pathlib import Path

# Published files are a few kB; with every quantized module listed by name the largest of 138 looked
# at has 89 kB (nvidia/Qwen3.6-27B-NVFP4). Two hundred times that is no config.
LARGEST_CONFIG_BYTES = 20 * MIB
# Published configs nest 7 deep (Kimi-K2's quantization_config).
_DEEPEST = 64
# What `_refuse_magic` needs of a file.
_HEAD_BYTES = 64

_FETCH_AGAIN = "correct the file there, or fetch the published config.json again."
_GIVE_CONFIG = "give the config.json of a model."
_WEIGHTS = "give the config.json that belongs to it, or the folder that holds both."

# First bytes, what they are, what to do.
_MAGIC = (
    (b"GGUF", "a GGUF model", "give it a name that ends in .gguf, and kvsize reads its header."),
    (b"PK\x03\x04", "a zip archive (torch keeps weights in one)", _WEIGHTS),
    (b"\x80", "a pickle (torch keeps weights in one)", _WEIGHTS),
    (b"\x1f\x8b", "gzip-compressed data", "unpack it first."),
    (b"version https://git-lfs", "a Git LFS pointer to the file", "run `git lfs pull` to get it."),
    (b"<", "a web page", "download the raw file: its address has /resolve/ in place of /blob/."),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8."),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8."),
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_file(path: Path, where: str, largest_bytes: int = LARGEST_CONFIG_BYTES) -> bytes:
    """The file's bytes; ConfigError, before they are read, where it is too large or no JSON.

    Raises OSError where the file cannot be read.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        _refuse_magic(head, where)
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > largest_bytes:
            raise too_large(where, status.st_size)
        return head + read_stream(stream, where, largest_bytes)


def read_stream(stream: BinaryIO, where: str, largest_bytes: int = LARGEST_CONFIG_BYTES) -> bytes:
    """What is left of a stream, which may be a pipe without end; ConfigError past the limit."""
    data = stream.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        raise too_large(where)
    return data


def parse(data: bytes, where: str) -> dict[str, object]:
    """The JSON object in `data`; `where` names it in the ConfigError raised where it is none."""
    _refuse_magic(data[:_HEAD_BYTES], where)
    text = _text(data, where)
    if not text.strip():
        msg = f"{where}: there is nothing in it."
        raise ConfigError(msg, _GIVE_CONFIG)
    loaded = _loaded(text, where)
    if not isinstance(loaded, dict):
        msg = f"{where}: the JSON is {_kind(loaded)}, not an object."
        raise ConfigError(msg, _GIVE_CONFIG)
    return cast("dict[str, object]", loaded)


def _refuse_magic(head: bytes, where: str) -> None:
    """ConfigError where the first bytes of a file show that it is no JSON."""
    for magic, what, hint in _MAGIC:
        if head.lstrip().startswith(magic):
            msg = f"{where}: this is {what}, not JSON."
            raise ConfigError(msg, hint)
    # safetensors: the header's length in 8 bytes, then the header, a JSON object.
    if head[8:9] == b"{" and head[4:8] == bytes(4):
        msg = f"{where}: this is a safetensors file, not JSON."
        raise ConfigError(msg, _WEIGHTS)


def too_large(where: str, size_bytes: int | None = None) -> ConfigError:
    """The error for a file of `size_bytes` (None: of a stream that does not end in time)."""
    size = format_bytes(size_bytes) if size_bytes is not None else "the input"
    limit = format_bytes(LARGEST_CONFIG_BYTES)
    msg = f"{where}: {size} is more than any config.json has; kvsize reads up to {limit}."
    return ConfigError(msg, _GIVE_CONFIG)


def _text(data: bytes, where: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{where}: byte {error.start:,} is not UTF-8 text."
        raise ConfigError(msg, "give a config.json saved as UTF-8.") from None
    if "\0" in text:
        msg = f"{where}: this is binary data, not JSON."
        raise ConfigError(msg, _GIVE_CONFIG)
    return text


def _loaded(text: str, where: str) -> object:
    def checked(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            _refuse_contradiction(pairs, where)
        return found

    try:
        loaded = json.loads(text, object_pairs_hook=checked)
    except json.JSONDecodeError as error:
        told = error.msg[:1].lower() + error.msg[1:]
        msg = f"{where}: not JSON at line {error.lineno}, column {error.colno}: {told}."
        raise ConfigError(msg, _FETCH_AGAIN) from None
    except ValueError:  # Python's limit on the digits of an integer
        msg = f"{where}: a number in it has thousands of digits."
        raise ConfigError(msg, _FETCH_AGAIN) from None
    except RecursionError:
        raise _too_deep(where) from None
    _refuse_depth(loaded, where)
    if _SURROGATE.search(text):
        _refuse_lone_surrogates(loaded, where)
    return loaded


def _refuse_contradiction(pairs: list[tuple[str, object]], where: str) -> None:
    """A key twice with one value is untidy; with two values, readers differ in which they take."""
    first: dict[str, object] = {}
    for key, value in pairs:
        if first.setdefault(key, value) != value:
            msg = f"{where}: the key `{key[:60]}` stands twice in one object, with two values."
            raise ConfigError(msg, "the file contradicts itself; keep the one that is meant.")


def _refuse_depth(loaded: object, where: str) -> None:
    level = [loaded]
    for _ in range(_DEEPEST + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise _too_deep(where)


def _too_deep(where: str) -> ConfigError:
    msg = f"{where}: the JSON nests more than {_DEEPEST} deep."
    return ConfigError(msg, _GIVE_CONFIG)


def _refuse_lone_surrogates(loaded: object, where: str) -> None:
    """Half a UTF-16 pair is no character: it could not be printed."""
    try:
        json.dumps(loaded, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        msg = f"{where}: a string holds half a surrogate pair (\\ud800 to \\udfff)."
        raise ConfigError(msg, _FETCH_AGAIN) from None


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else json.dumps(value)
