"""GGUF files by name: where a name points, which files are one model, which one a tag means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvsize.errors import UsageError
from kvsize.suggest import nearest

# llama.cpp's name of one file of several (`llama_split_path` in src/llama.cpp).
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_TAGGED = re.compile(r"(?P<hub_id>[^/@:]+/[^/@:]+)(?:@(?P<revision>[^:]+))?:(?P<tag>[^/:]+)")
_FILE = re.compile(
    r"(?P<hub_id>[^/@:.~][^/@:]*/[^/@:]+)(?:@(?P<revision>[^:/]+))?/(?P<file>.+\.gguf)",
    re.IGNORECASE,
)
# Projectors and importance matrices lie beside models in the same format.
_NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:I?Q\d\w*|TQ\d_\d|B?F16|F32|MXFP4\w*|NVFP4)(?![A-Za-z0-9_])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class OnHub:
    """A file or a quantization in a repo: `org/name[@revision]/path.gguf` or `…:TAG`."""

    hub_id: str
    revision: str | None
    file: str | None = None
    tag: str | None = None


def on_hub(text: str) -> OnHub | None:
    """What `text` names on the Hub; None where it is a path on this machine."""
    if Path(text).expanduser().exists():
        return None
    if match := _TAGGED.fullmatch(text):
        return OnHub(match["hub_id"], match["revision"], tag=match["tag"])
    if match := _FILE.fullmatch(text):
        return OnHub(match["hub_id"], match["revision"], file=match["file"])
    return None


def shard_names(name: str) -> list[str]:
    """All files of the model that `name` belongs to, the one with the metadata first."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return [name]
    count = int(match["count"])
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def model_name(file: str) -> str:
    """The file's name without folder, shard number and ending."""
    name = file.rpartition("/")[2]
    match = _SHARD.fullmatch(name)
    return match["stem"] if match else name[: -len(".gguf")]


def choose(wanted: OnHub, files: Iterable[str]) -> list[str]:
    """The files of the model that `wanted` means, among a repo's `files`, the first shard first.

    Raises UsageError, with those there are, where none or several fit.
    """
    present = [name for name in files if name.lower().endswith(".gguf")]
    if wanted.file is not None:
        if wanted.file not in present:
            msg = f"{wanted.hub_id} has no file {wanted.file}."
            raise UsageError(msg, nearest(wanted.file, present, _listed(wanted, present)))
        return shard_names(wanted.file)
    models = sorted({shard_names(name)[0] for name in present if not _NO_MODEL.search(name)})
    tag = re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(wanted.tag or '')}(?![A-Za-z0-9_])", re.IGNORECASE
    )
    fitting = [name for name in models if tag.search(name[: -len(".gguf")])]
    if not fitting:
        msg = f"{wanted.hub_id} has no GGUF file for '{wanted.tag}'."
        raise UsageError(msg, f"{_listed(wanted, models)}.")
    if len(fitting) > 1:
        msg = f"{wanted.hub_id} has {len(fitting)} GGUF files for '{wanted.tag}'."
        listed = " or ".join(f"{wanted.hub_id}/{name}" for name in fitting)
        raise UsageError(msg, f"name one of them: {listed}.")
    return shard_names(fitting[0])


def _listed(wanted: OnHub, models: list[str]) -> str:
    """What the repo has: its quantizations, or its files where their names show none."""
    tags = [match[0] for name in models if (match := _QUANTIZATION.search(name))]
    if tags:
        return f"it has {', '.join(dict.fromkeys(tags))}"
    shown = ", ".join(models[:12])
    return f"it has {shown}" if shown else f"{wanted.hub_id} has no GGUF files"
