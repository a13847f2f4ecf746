"""GGUF files made inside the tests: a writer of headers, and the metadata of a small model."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: object) -> tuple[int, bytes]:
    """Type and bytes: integers are u32, as llama.cpp's converter writes them."""
    if isinstance(item, bool):
        return BOOL, struct.pack("<?", item)
    if isinstance(item, int):
        return U32, struct.pack("<I", item)
    if isinstance(item, float):
        return F32, struct.pack("<f", item)
    if isinstance(item, str):
        return STRING, text(item)
    assert isinstance(item, list)
    kinds = [value(entry) for entry in item]
    kind = kinds[0][0] if kinds else U32
    return ARRAY, struct.pack("<IQ", kind, len(item)) + b"".join(data for _, data in kinds)


def pair(key: str, kind: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + data


def file_of(pairs: Iterable[bytes], *, version: int = 3, count: int | None = None) -> bytes:
    listed = list(pairs)
    number = len(listed) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", version, 0, number) + b"".join(listed)


def header(metadata: Mapping[str, object]) -> bytes:
    return file_of(pair(key, *value(item)) for key, item in metadata.items())


def write(path: Path, metadata: Mapping[str, object]) -> Path:
    path.write_bytes(header(metadata))
    return path


def metadata(arch: str = "llama", **changes: object) -> dict[str, object]:
    """Eight layers of eight heads, two of them cached, of 64 elements; `__` is a dot in a key."""
    keys: dict[str, object] = {
        "block_count": 8,
        "context_length": 8192,
        "embedding_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "attention.key_length": 64,
        "attention.value_length": 64,
    }
    for key, item in changes.items():
        keys[key.replace("__", ".")] = item
    stated = {f"{arch}.{key}": item for key, item in keys.items() if item is not None}
    return {"general.architecture": arch, **stated}
