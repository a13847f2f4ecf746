r"""Where configs come from: one module per source, each turning a name into a Raw config.

`find` decides which source is meant; the first line that fits wins:

    a mapping                                    a config.json's content, as it is
    -                                            local: standard input
    x.gguf, org/name/x.gguf, org/name:TAG        gguf: a GGUF file, here or on the Hub
    a path by its looks: ./x ../x /x ~/x x/ x.json a/b/c, on Windows C:x and a\b
                                                 local
    a/b where that exists here                   local (as in transformers, it hides a Hub id)
    org/name, org/name@revision                  hub, the only source with the Hub client
    x, where a folder x here holds a config.json local
    x                                            preset, or what is here under that name

The looks of a name decide, not who knows it: a mistyped path is not looked up on the Hub, and
a preset's name never leaves this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from kvsize.errors import UsageError
from kvsize.model import Raw

# Linux's PATH_MAX; presets and Hub ids are far shorter.
LONGEST_NAME = 4096
_HUB_ID = re.compile(r"[^/@:]+/[^/@:]+(@.*)?")
_GGUF = re.compile(r".*\.gguf|[^/@:]+/[^/@:]+(@[^:]+)?:[^/:]+", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:https?://[^/]+/|hf://)([^/]+/[^/?#]+).*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PIPE_IT = "to give a config's content, pipe it in: `kvsize - < config.json`."


def find(source: str | os.PathLike[str] | Mapping[str, object], *, offline: bool = False) -> Raw:
    """The raw config that `source` names; `offline` takes Hub files from the local cache only.

    Raises UsageError for a name that cannot be meant, ConfigError where there is no readable
    config, HubError where the Hub cannot give it.
    """
    if isinstance(source, Mapping):
        return _from_mapping(source)
    text = _name(source)
    if _is_path(text) or not isinstance(source, str):
        return _local(text, offline=offline)
    if _GGUF.fullmatch(text):
        return _gguf(text, offline=offline)
    if "/" in text:
        from kvsize.sources import hub

        return hub.find(text, offline=offline)
    return _named(text)


def asks_hub(source: str) -> bool:
    """Whether finding `source` asks the Hub; UsageError for what cannot be a name."""
    text = _name(source)
    return "/" in text and not _is_path(text)


def _is_path(text: str) -> bool:
    """Whether `text` is a file, a folder or `-`, by its looks or, with a slash, by its presence."""
    if text == "-" or text.startswith((".", "/", "~")) or text.lower().endswith((".json", "/")):
        return True
    if os.sep != "/" and (os.sep in text or os.path.splitdrive(text)[0]):
        return True
    if "/" not in text:
        return False
    return os.path.exists(text) or not (_HUB_ID.fullmatch(text) or _GGUF.fullmatch(text))


def _local(text: str, *, offline: bool) -> Raw:
    if text.lower().endswith(".gguf"):
        return _gguf(text, offline=offline)
    from kvsize.sources import local

    return local.find(text)


def _gguf(text: str, *, offline: bool) -> Raw:
    from kvsize.sources import gguf

    return gguf.find(text, offline=offline)


def _named(text: str) -> Raw:
    """A name without a slash: a preset, unless a model's folder of that name is here.

    Any other file or folder of that name counts only where no preset has it: `kvsize gpt2 > gpt2`
    makes an empty file before kvsize starts.
    """
    from kvsize.sources import preset

    if os.path.isfile(os.path.join(text, "config.json")):
        return _local(text, offline=True)
    try:
        return preset.find(text)
    except UsageError:
        if os.path.exists(text):
            return _local(text, offline=True)
        raise


def _from_mapping(config: Mapping[str, object]) -> Raw:
    from kvsize.sources.contents import refuse_other

    where = "the mapping"
    refuse_other(config, where)
    name = config.get("_name_or_path")
    return Raw(config, name if isinstance(name, str) and name else "config", where, "mapping")


def _name(source: object) -> str:
    """What was typed, where it can be a name at all; UsageError otherwise."""
    if not isinstance(source, str | os.PathLike):
        msg = f"a model is named by a string, a path or a mapping, not by {type(source).__name__}."
        raise UsageError(msg, "of a transformers config object, give the `to_dict()`.")
    text = os.fsdecode(source)
    if not text.strip():
        msg = "the model's name is empty."
        raise UsageError(msg, "give a preset (`kvsize presets`), org/name, a path, or - for stdin.")
    if len(text) > LONGEST_NAME:
        msg = f"'{text[:40]}…' has {len(text):,} characters, and is no model's name."
        raise UsageError(msg, _PIPE_IT)
    if _CONTROL.search(text):
        msg = f"{text[:60]!r} holds control characters, and is no model's name."
        raise UsageError(msg, _PIPE_IT)
    if address := _ADDRESS.fullmatch(text):
        msg = f"{text} is an address; a model on the Hub is named org/name."
        raise UsageError(msg, f"give {address[1]}.")
    return text
