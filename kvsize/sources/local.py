"""Files on this machine: a config.json, a folder that holds one, standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvsize.errors import ConfigError, printable
from kvsize.model import Raw
from kvsize.sources.contents import CONFIG, Place, refuse_other, without_config
from kvsize.sources.parsing import parse, read_file, read_stream
from kvsize.suggest import nearest

# Enough to say what a folder is; a cache or home folder may hold far more.
_MOST_ENTRIES = 1_000


def find(text: str) -> Raw:
    """The config at path `text`, or on standard input for `-`; ConfigError where there is none."""
    if text == "-":
        where = "standard input"
        return _raw(_standard_input(where), text, where, "stdin")
    path = Path(os.path.expanduser(text))  # unlike Path's own, leaves an unknown ~user as it is
    try:
        if not path.is_dir():
            return _raw(read_file(path, text), text, text, "file")
        where = os.path.join(text, CONFIG)  # unlike Path's /, keeps `./` as typed
        if not (path / CONFIG).exists():
            raise ConfigError(*without_config(_place(path, text)))
        return _raw(read_file(path / CONFIG, where), text, where, "file")
    except OSError as error:
        raise _unreadable(error, path, text) from None


def _raw(data: bytes, text: str, where: str, source: str) -> Raw:
    config = parse(data, where)
    refuse_other(config, where)
    name = "stdin" if source == "stdin" else text.rstrip("/" + os.sep) or text
    return Raw(config, printable(name), where, source)


def _standard_input(where: str) -> bytes:
    try:
        return read_stream(sys.stdin.buffer, where)
    except (OSError, ValueError, AttributeError):  # unreadable, closed, or none at all
        msg = f"{where} cannot be read."
        raise ConfigError(msg, "pipe a config.json into kvsize, or name the file.") from None


def _place(path: Path, text: str) -> Place:
    names: list[str] = []
    with os.scandir(path) as entries:
        for entry, _ in zip(entries, range(_MOST_ENTRIES), strict=False):
            names.append(entry.name)
            if os.path.isfile(os.path.join(entry.path, CONFIG)):
                names.append(f"{entry.name}/{CONFIG}")
    prefix = os.path.join(text, "")  # unlike Path's /, keeps `./` as typed
    return Place(text, prefix, names, lambda name: read_file(path / name, name))


def _unreadable(error: OSError, path: Path, text: str) -> ConfigError:
    match error:
        case FileNotFoundError():
            if path.is_symlink():
                return ConfigError(f"{text} links to a file that is gone.", _NAME_ONE)
            return ConfigError(f"{text}: there is no such file or folder.", _near(path))
        case PermissionError():
            return ConfigError(
                f"{text}: reading it is not permitted.", f"make it readable: `chmod u+r {text}`."
            )
        case IsADirectoryError():
            return ConfigError(
                f"{text}: its {CONFIG} is a folder.", "give a file with a model's config."
            )
        case NotADirectoryError():
            return ConfigError(f"{text}: a part of this path is a file, not a folder.", _NAME_ONE)
        case _:
            told = (error.strerror or str(error)).lower()
            return ConfigError(f"{text}: it cannot be read ({told}).", _NAME_ONE)


_NAME_ONE = "name a config.json, or a folder that holds one."


def _near(path: Path) -> str:
    otherwise = "a model on the Hub is org/name; `kvsize presets` lists the built-in ones"
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no folder {path.parent} either; {otherwise}."
    return nearest(path.name, beside, otherwise)
