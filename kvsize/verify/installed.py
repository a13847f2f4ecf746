"""Which version's rules a figure follows when it is held against the installed transformers."""

from __future__ import annotations

import re
from importlib.metadata import version

from kvsize.engines.transformers import NEWEST


def installed_rules() -> str:
    """The installed transformers' version, or the newest one modelled if that is older."""
    return rules_of(version("transformers"))


def rules_of(installed: str) -> str:
    """`5.13.1` for 5.13.1, `5.19.0` for 5.19.0.dev0; the newest modelled for a newer one."""
    return ".".join(map(str, min(_numbers(installed), _numbers(NEWEST))))


def note_on(installed: str) -> str | None:
    """What to say where the installed version is newer than what is modelled."""
    if _numbers(installed)[:2] <= _numbers(NEWEST)[:2]:
        return None
    return f"transformers {installed} is newer than kvsize's rules, which are those of {NEWEST}."


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
