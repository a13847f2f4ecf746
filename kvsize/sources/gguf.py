"""GGUF files: on this machine, or on the Hub by reading the first kilobytes of one."""

from __future__ import annotations

from pathlib import Path

from kvsize.errors import ConfigError
from kvsize.gguf.header import Header, read_header
from kvsize.model import Raw
from kvsize.sources.gguf_names import model_name, on_hub, shard_names


def find(text: str, *, offline: bool = False) -> Raw:
    """The metadata of the .gguf at path `text`, of its first shard, or of one on the Hub.

    On the Hub: `org/name:TAG` (a quantization, `Q4_K_M`) or `org/name/path/file.gguf`, either
    with `@revision` after the name. Raises ConfigError for a file that cannot be read or is no
    GGUF, UsageError for a tag that fits no file or several, HubError as the Hub client fails.
    """
    remote = on_hub(text)
    if remote is not None:
        from kvsize.sources import gguf_hub

        return gguf_hub.find(remote, offline=offline)
    return read_local(Path(text).expanduser())


def read_local(given: Path) -> Raw:
    """The metadata of the file at `given`, or of the first shard where it is a later one."""
    shards = [given.with_name(name) for name in shard_names(given.name)]
    header = _read(shards[0])
    weight_bytes = None
    if all(shard.is_file() for shard in shards):
        weight_bytes = sum(shard.stat().st_size for shard in shards)
    return Raw(
        config=header.metadata,
        name=model_name(given.name),
        where=str(shards[0]),
        source="gguf",
        weight_bytes=weight_bytes,
    )


def _read(path: Path) -> Header:
    try:
        with path.open("rb") as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            return read_header(read, str(path), size=path.stat().st_size)
    except OSError as error:
        msg = f"{path}: {error.strerror or error}."
        hint = "give the path of a .gguf file; of a split model, the first shard must be there."
        raise ConfigError(msg, hint) from error
