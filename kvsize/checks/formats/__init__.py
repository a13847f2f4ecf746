"""How outcomes are told: a module per format, whose file name is its `--format` name.

Each has `text(report)`, the whole output.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kvsize.errors import UsageError
from kvsize.suggest import nearest

if TYPE_CHECKING:
    from kvsize.checks.records import Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to; `file` is empty for a check that was stated on the line."""

    file: str
    outcomes: tuple[Outcome, ...]

    @property
    def sentence(self) -> str:
        """How many hold, as in: 3 checks: 2 hold, 1 does not."""
        total, good = len(self.outcomes), sum(each.holds for each in self.outcomes)
        bad = total - good
        if not bad:
            return "1 check holds." if total == 1 else f"all {total} checks hold."
        held = f"{good} {'holds' if good == 1 else 'hold'}, " if good else ""
        checks = "1 check" if total == 1 else f"{total} checks"
        return f"{checks}: {held}{bad} {'does' if bad == 1 else 'do'} not."


def names() -> list[str]:
    """The formats there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def writer(name: str) -> Callable[[Report], str]:
    """The format called `name`; UsageError for one that there is not."""
    known = names()
    if name not in known:
        otherwise = f"use one of {', '.join(known)}"
        raise UsageError(f"--format is '{name}'.", nearest(name, known, otherwise))
    module = importlib.import_module(f"{__name__}.{name}")
    return cast("Callable[[Report], str]", module.text)
