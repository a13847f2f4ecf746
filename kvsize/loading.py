"""From a name to a Model: pick a source, then the family that reads its dialect."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kvsize.model import Model
from kvsize.sources import find


def load(source: str | os.PathLike[str] | Mapping[str, object], *, offline: bool = False) -> Model:
    """The model that `source` names.

    `source`: a preset's name, a Hub id (`org/name`, `org/name@revision`), a path (config.json,
    a folder, a .gguf file), `-` for standard input, or a mapping with config.json's content.
    `offline`: take Hub files from the local cache only, as with HF_HUB_OFFLINE=1.
    Raises ConfigError for a config that is no decoder's or contradicts itself, UsageError for an
    unknown preset, HubError where the Hub cannot give the file.
    """
    raw = find(source, offline=offline)
    if raw.source == "gguf":
        from kvsize.families import gguf

        return gguf.build(raw)
    from kvsize import families

    return families.build(raw)
