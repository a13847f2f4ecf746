"""Hints for names that were nearly right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def nearest(
    name: str, known: Iterable[str], otherwise: str, meant: Mapping[str, str] | None = None
) -> str:
    """`did you mean X? …` where something is near, else the sentence `otherwise`.

    `meant` gives the name to show for those of `known` that are only spellings of it.
    """
    import difflib  # only when something went wrong: it costs start-up

    close = difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.6)
    listed = " or ".join(dict.fromkeys((meant or {}).get(match, match) for match in close))
    return f"did you mean {listed}? {otherwise}." if close else f"{otherwise}."


def shortened(names: Sequence[str], most: int) -> str:
    """`a, b, c and 9 more`: at most `most` names."""
    listed = ", ".join(names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed
