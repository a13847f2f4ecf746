"""Where configs come from: one module per source, each turning a name into a Raw config.

`find` decides which one is meant, from the name alone:

    a mapping                          the content of a config.json, as it is
    -                                  standard input
    a path (./x, /x, x.json, x.gguf, an existing folder)      local.py, gguf.py
    org/name, org/name@revision        hub.py, the only module that imports the Hub client
    anything else                      preset.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kvsize.model import Raw


def find(source: str | os.PathLike[str] | Mapping[str, object]) -> Raw:
    """The raw config that `source` names. Raises ConfigError, UsageError or HubError."""
    if isinstance(source, Mapping):
        return Raw(source, str(source.get("_name_or_path") or "config"), "the mapping", "mapping")
    text = os.fspath(source)
    if text == "-" or not isinstance(source, str) or _is_path(text):
        from kvsize.sources import local

        return local.find(text)
    if "/" in text:
        from kvsize.sources import hub

        return hub.find(text)
    from kvsize.sources import preset

    return preset.find(text)


def _is_path(text: str) -> bool:
    local_looking = text.startswith((".", "/", "~", os.sep)) or text.endswith((".json", ".gguf"))
    return (local_looking and text.count("/") != 1) or Path(text).exists()
