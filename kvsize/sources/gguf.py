"""GGUF files: on this machine, or on the Hub by reading the first kilobytes of one."""

from __future__ import annotations

import re
from pathlib import Path

from kvsize.errors import ConfigError
from kvsize.gguf.header import Header, read_header
from kvsize.model import Raw

# llama.cpp's name of one file of several (`llama_split_path` in src/llama.cpp).
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def find(text: str) -> Raw:
    """The metadata of the .gguf at path `text`, or of the first shard where it names another.

    Raises ConfigError for a file that cannot be read or is no GGUF.
    """
    given = Path(text).expanduser()
    shards = _shards(given)
    path = shards[0]
    header = _read(path)
    weight_bytes = None
    if all(shard.is_file() for shard in shards):
        weight_bytes = sum(shard.stat().st_size for shard in shards)
    return Raw(
        config=header.metadata,
        name=_name(path.name),
        where=str(path),
        source="gguf",
        weight_bytes=weight_bytes,
    )


def _read(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return read_header(read, str(path), size=size)
    except OSError as error:
        msg = f"{path}: {error.strerror or error}."
        hint = "give the path of a .gguf file; of a split model, the first shard must be there."
        raise ConfigError(msg, hint) from error


def _shards(path: Path) -> list[Path]:
    """All files of the model that `path` belongs to, the one with the metadata first."""
    return [path.with_name(name) for name in shard_names(path.name)]


def shard_names(name: str) -> list[str]:
    """The names of all shards of the model that `name` belongs to; itself if it is whole."""
    match = SHARD.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def _name(file_name: str) -> str:
    match = SHARD.fullmatch(file_name)
    return match["stem"] if match else file_name.removesuffix(".gguf")
