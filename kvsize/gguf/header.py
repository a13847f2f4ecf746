"""The metadata at the head of a GGUF file, read without its tensors.

Layout, little-endian (ggml's `docs/gguf.md`, version 3; `ggml/src/gguf.cpp` in llama.cpp):

    "GGUF" · u32 version · u64 tensor count · u64 key count
    per key: u64 length · the key · u32 type · the value
    (array value: u32 element type · u64 count · elements; string value: u64 length · bytes)

Converted files hold `general.*` and the architecture's keys in the first kilobytes and the
vocabulary, megabytes of it, after them. So a remote file is read in growing ranges and no
further than its first `tokenizer.` key, unless a key that is needed has not come by then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvsize.errors import ConfigError

Read = Callable[[int, int], bytes]
"""`read(offset, length)`: those bytes of the file, fewer only where the file ends."""

# Where a Raw config says before which key reading stopped; no GGUF key starts with `kvsize.`.
READ_UNTIL = "kvsize.read_until"
MAGIC = b"GGUF"
TOKENIZER = "tokenizer."
FIRST_RANGE_BYTES = 64 * 1024
# The largest vocabularies (260,000 tokens with merges) take about 15 MB of header.
LARGEST_HEADER_BYTES = 64 * 1024 * 1024
# Real files hold fewer than a hundred keys; docs/gguf.md caps a key at 65,535 bytes.
LARGEST_KEY_COUNT = 1 << 12
LARGEST_KEY_BYTES = (1 << 16) - 1
# Per-layer arrays have at most 512 entries (LLAMA_MAX_LAYERS); what is longer is vocabulary.
LARGEST_ARRAY_KEPT = 1 << 10

_BOOL, _STRING, _ARRAY = 7, 8, 9
# Value types by their number: u8 i8 u16 i16 u32 i32 f32 bool u64 i64 f64.
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_REGENERATE = "fetch the file again, or convert the model again with a current llama.cpp."


@dataclass(frozen=True, slots=True)
class Header:
    """A file's metadata. An array too long to be per-layer, or of strings, is None in it.

    `stopped_at`: the key before which reading stopped, or None when all keys were read.
    """

    metadata: Mapping[str, object]
    stopped_at: str | None


def read_header(
    read: Read,
    where: str,
    *,
    size: int | None = None,
    enough: Callable[[Mapping[str, object]], bool] | None = None,
) -> Header:
    """The metadata of the file that `read` reads.

    `size` is the file's length where it is known. With `enough`, reading stops at the first
    `tokenizer.` key once `enough(metadata)` holds; without it every key is read. Raises
    ConfigError for a file that is no GGUF, is cut short, or claims what cannot be true.
    """
    cursor = _Cursor(read, where, size)
    count = _key_count(cursor)
    metadata: dict[str, object] = {}
    for _ in range(count):
        key = cursor.key()
        if key in metadata:
            raise cursor.wrong(f"the key '{key}' appears twice")
        if enough is not None and key.startswith(TOKENIZER):
            if enough(metadata):
                return Header(metadata, key)
            enough = None
        metadata[key] = cursor.value(cursor.number(_U32), key)
    return Header(metadata, None)


def _key_count(cursor: _Cursor) -> int:
    magic = cursor.take(4)
    if magic != MAGIC:
        raise cursor.no_gguf(magic)
    version = cursor.number(_U32)
    if version & 0xFFFF == 0:
        raise cursor.wrong("it is a big-endian file, which llama.cpp does not read here")
    if version not in {2, 3}:
        raise cursor.wrong(f"its GGUF version is {version}, and 2 and 3 are the ones that load")
    cursor.number(_U64)
    count = cursor.number(_U64)
    if count > LARGEST_KEY_COUNT:
        raise cursor.wrong(f"it claims {count:,} metadata keys")
    return count


class _Cursor:
    """A position in a window that starts at the file's first byte and doubles on demand."""

    def __init__(self, read: Read, where: str, size: int | None) -> None:
        self._read = read
        self._where = where
        self._size = size
        self._data = bytearray()
        self._at = 0

    # -- the window ------------------------------------------------------------------------
    def _need(self, length: int) -> int:
        """The current position, with `length` bytes behind it in the window."""
        end = self._at + length
        if end > len(self._data):
            self._grow(end)
        return self._at

    def _grow(self, end: int) -> None:
        if end > LARGEST_HEADER_BYTES:
            raise self.wrong(f"its header claims to reach past byte {LARGEST_HEADER_BYTES:,}")
        if self._size is not None and end > self._size:
            raise self.wrong(f"it ends at byte {self._size:,}, inside its header")
        window = max(FIRST_RANGE_BYTES, len(self._data))
        while window < end:
            window *= 2
        start = len(self._data)
        self._data += self._read(start, window - start)
        if end > len(self._data):
            raise self.wrong(f"it ends at byte {len(self._data):,}, inside its header")

    def take(self, length: int) -> bytes:
        at = self._need(length)
        self._at = at + length
        return bytes(self._data[at : self._at])

    def number(self, kind: struct.Struct) -> int:
        at = self._need(kind.size)
        self._at = at + kind.size
        found: int = kind.unpack_from(self._data, at)[0]
        return found

    # -- keys and values -------------------------------------------------------------------
    def key(self) -> str:
        length = self.number(_U64)
        if not 0 < length <= LARGEST_KEY_BYTES:
            raise self.wrong(f"it holds a key of {length:,} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.wrong("it holds a key that is not UTF-8 text") from error

    def value(self, kind: int, key: str) -> object:
        if kind == _STRING:
            return self.take(self.number(_U64)).decode(errors="replace")
        if kind == _ARRAY:
            return self._array(key)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self.wrong(f"'{key}' has the unknown value type {kind}")
        return self.number(scalar)

    def _array(self, key: str) -> object:
        kind, count = self.number(_U32), self.number(_U64)
        if kind == _STRING:
            self._skip_strings(count)
            return None
        scalar = _SCALARS.get(kind)
        if scalar is None:
            what = "an array of arrays" if kind == _ARRAY else f"the unknown element type {kind}"
            raise self.wrong(f"'{key}' has {what}")
        if count > LARGEST_ARRAY_KEPT:
            self._at = self._need(count * scalar.size) + count * scalar.size
            return None
        return [item for (item,) in scalar.iter_unpack(self.take(count * scalar.size))]

    def _skip_strings(self, count: int) -> None:
        """Past `count` strings; each has its own length, so there is no shorter way."""
        if count * _U64.size > LARGEST_HEADER_BYTES:
            raise self.wrong(f"it claims an array of {count:,} strings")
        length_at = _U64.unpack_from
        while count:
            at, last = self._need(_U64.size), len(self._data) - _U64.size
            while count and at <= last:
                at += _U64.size + length_at(self._data, at)[0]
                count -= 1
            self._at = at
        self._need(0)

    # -- errors ----------------------------------------------------------------------------
    def wrong(self, message: str) -> ConfigError:
        return ConfigError(f"{self._where}: {message}.", _REGENERATE)

    def no_gguf(self, magic: bytes) -> ConfigError:
        if magic == b"vers":
            hint = "it looks like a git-lfs pointer; fetch the file itself with `git lfs pull`."
        elif magic in {b"lmgg", b"fmgg", b"tjgg", b"algg"}:
            hint = "it is an older ggml format; convert the model again with a current llama.cpp."
        else:
            hint = "give a .gguf file; its first four bytes are GGUF."
        return ConfigError(
            f"{self._where}: it is not a GGUF file (it starts with {magic!r}).", hint
        )
