"""A check that is stated on the command line instead of in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize import arguments
from kvsize.checks.keys import CHECK, EXPECT, Key
from kvsize.checks.reader import check_of
from kvsize.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvsize.checks.records import Check
    from kvsize.checks.session import Manner


def check(given: Mapping[str, object], manner: Manner) -> Check | None:
    """The check that the options in `given` state, or None where they name no model.

    Raises UsageError for options that state a check without naming a model, or that are about a
    file where there is none.
    """
    asked, expect = _stated(given, CHECK), _stated(given, EXPECT)
    if pairs := given.get("option"):
        asked["options"] = arguments.engine_options([*_texts(pairs)], "")
    if "model" in asked:
        _refuse_file(given, manner)
        return check_of(asked, expect)
    if stray := [*asked, *expect]:
        flag = _flag("option" if stray[0] == "options" else stray[0])
        msg = f"{flag} states a check on the line, which needs a model."
        raise UsageError(msg, "give --model too, or write the key in the file.")
    return None


def _stated(given: Mapping[str, object], keys: tuple[Key, ...]) -> dict[str, object]:
    """What was given of `keys`, as their values in a file would be."""
    found: dict[str, object] = {}
    for key in keys:
        value = given.get(key.name)
        if value in {None, ""} or (key.name == "strict" and value is False):
            continue
        count = key.kind == "count"
        found[key.name] = arguments.count(_flag(key.name), str(value)) if count else value
    return found


def _refuse_file(given: Mapping[str, object], manner: Manner) -> None:
    about_file = (
        ("--config", bool(given.get("config"))),
        ("--update", manner.update),
        ("--lock", manner.lock),
        ("--locked", manner.locked),
    )
    for flag, stated in about_file:
        if stated:
            msg = f"{flag} is about a file, and --model states a check on the line."
            raise UsageError(msg, "leave one of them out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _texts(pairs: object) -> list[str]:
    return [str(pair) for pair in pairs] if isinstance(pairs, list) else []
