"""From a document, or from what was typed, to checks whose values are legal; FileError otherwise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsize.checks.keys import BY_NAME, CHECK, EXPECT, Key, shown_raw, value_of
from kvsize.checks.records import Check, FileError
from kvsize.errors import UsageError
from kvsize.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvsize.checks.files import Document

TOP = ("check", "defaults")
_CHECK_KEYS = (*(key.name for key in CHECK), "expect")
_EXPECT_KEYS = tuple(key.name for key in EXPECT)
_DEFAULT_KEYS = tuple(key.name for key in CHECK if key.name != "name")
# Stating a memory twice, or what a stated cache memory leaves nothing to say about.
_APART = (
    ("gpu", "gpu_memory"),
    ("kv_memory", "weights"),
    ("kv_memory", "reserve"),
    ("kv_memory", "memory_fraction"),
)
_NEEDS_GPU = ("gpus", "weights", "reserve", "memory_fraction", "dp", "dcp")
_MEMORIES = ("gpu", "gpu_memory", "kv_memory")
_WHOLE_DEPLOYMENT = ("max_total", "total_bytes")


@dataclass(frozen=True, slots=True)
class _Place:
    """A table of a document, for errors about its keys."""

    document: Document
    path: tuple[str | int, ...]

    def line(self, *further: str) -> int:
        return self.document.lines.line((*self.path, *further))

    def wrong(self, message: str, hint: str, *further: str) -> FileError:
        return FileError(self.document.shown, self.line(*further), message, hint)


def checks_of(document: Document) -> tuple[Check, ...]:
    """Every check of the document, in its order."""
    place = _Place(document, document.root)
    _refuse_unknown(place, document.table, TOP)
    tables = document.table.get("check")
    if not isinstance(tables, list) or not tables:
        written = "[[tool.kvsize.check]]" if document.root else "[[check]]"
        what = "there are no checks." if not tables else f"`check` is {shown_raw(tables)}."
        raise place.wrong(what, f"write one {written} for each check.", "check")
    defaults = _defaults(_Place(document, (*document.root, "defaults")), document)
    found = [
        _check(_Place(document, (*document.root, "check", index)), table, defaults)
        for index, table in enumerate(tables)
    ]
    _refuse_duplicates(document, found)
    return tuple(found)


def check_of(asked: dict[str, object], expect: dict[str, object]) -> Check:
    """The one check that a command line states; UsageError where it cannot be meant."""
    values = {name: value_of(BY_NAME[name], raw) for name, raw in asked.items()}
    wanted = {name: value_of(BY_NAME[name], raw) for name, raw in expect.items()}
    check = Check(str(values.get("name", values["model"])), values, wanted, "", 0)
    if not wanted:
        raise UsageError("nothing is expected.", "give --max-total 40GiB, --fits or another limit.")
    if (problem := _contradiction(check)) is not None:
        _, message, hint = problem
        raise UsageError(message, hint)
    return check


def _defaults(place: _Place, document: Document) -> dict[str, Any]:
    table = document.table.get("defaults", {})
    if not isinstance(table, dict):
        raise place.wrong(f"`defaults` is {shown_raw(table)}.", "it is a table: [defaults].")
    _refuse_unknown(place, table, _DEFAULT_KEYS)
    return _values(place, table)


def _check(place: _Place, table: object, defaults: dict[str, Any]) -> Check:
    if not isinstance(table, dict):
        raise place.wrong(f"a check is {shown_raw(table)}.", "each check is a table: [[check]].")
    _refuse_unknown(place, table, _CHECK_KEYS)
    own = {name: raw for name, raw in table.items() if name != "expect"}
    asked = _with_defaults(_values(place, own), defaults)
    if "model" not in asked:
        raise place.wrong("a check has no model.", 'write model = "llama-3.1-8b", or any other.')
    expect = table.get("expect", {})
    if not isinstance(expect, dict) or not expect:
        what = f"`expect` is {shown_raw(expect)}" if expect else "a check expects nothing"
        raise place.wrong(f"{what}.", "write [check.expect] with max_total, fits or a figure.")
    inner = _Place(place.document, (*place.path, "expect"))
    _refuse_unknown(inner, expect, _EXPECT_KEYS)
    wanted = _values(inner, expect)
    lines = {name: inner.line(name) for name in wanted}
    if asked["model"] == "-":
        raise place.wrong(
            "the check of a file cannot read standard input.", "name a preset, a Hub id or a path."
        )
    asked["model"] = _from_file(str(asked["model"]), place.document.path)
    name = str(asked.get("name", asked["model"]))
    check = Check(name, asked, wanted, place.document.shown, place.line(), lines, place.path)
    if (problem := _contradiction(check)) is not None:
        key, message, hint = problem
        where = inner if key in wanted else place
        raise where.wrong(message, hint, key)
    return check


def _with_defaults(own: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """A check's keys over the defaults; a memory of its own replaces that of the defaults."""
    kept = dict(defaults)
    if any(name in own for name in _MEMORIES):
        for name in _MEMORIES:
            kept.pop(name, None)
    if "kv_memory" in own:
        for name in ("weights", "reserve", "memory_fraction"):
            kept.pop(name, None)
    if not any(name in own or name in kept for name in _MEMORIES):
        for name in _NEEDS_GPU:
            kept.pop(name, None)
    return {**kept, **own}


def _values(place: _Place, table: dict[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, raw in table.items():
        try:
            found[name] = value_of(BY_NAME[name], raw)
            _known(BY_NAME[name], found[name])
        except UsageError as error:
            quoted = error.message if name in error.message else f"`{name}`: {error.message}"
            raise place.wrong(quoted, error.hint, name) from error
    return found


def _known(key: Key, value: object) -> None:
    """UsageError where a GPU or an engine of that name is not known."""
    if key.name == "gpu":
        from kvsize.capacity.gpus import gpu

        if str(value).strip().lower() != "local":
            gpu(str(value))
    if key.name == "engine":
        from kvsize.engines import engine

        engine(str(value))


def _refuse_unknown(place: _Place, table: dict[str, object], legal: Iterable[str]) -> None:
    known = list(legal)
    for name in table:
        if name not in known:
            otherwise = f"legal here: {', '.join(known)}"
            raise place.wrong(f"unknown key `{name}`.", nearest(name, known, otherwise), name)


def _refuse_duplicates(document: Document, found: list[Check]) -> None:
    """Two checks of one name could not be told apart; nameless ones carry their model's."""
    seen: dict[str, Check] = {}
    for check in found:
        if "name" not in check.asked:
            continue
        if (first := seen.setdefault(check.name, check)) is not check:
            line = document.lines.line((*check.path, "name"))
            msg = f"two checks are named '{check.name}'; the other is in line {first.line}."
            raise FileError(document.shown, line, msg, "give each check a name of its own.")


def _contradiction(check: Check) -> tuple[str, str, str] | None:
    """The key, message and hint of what cannot stand together; None where all can."""
    asked = check.asked
    for one, other in _APART:
        if one in asked and other in asked:
            return other, f"`{one}` and `{other}` both say what memory there is.", "leave out one."
    for name in check.expect:
        if BY_NAME[name].role == "needs memory" and not check.has_memory:
            msg = f"`{name}` is asked, but no memory is stated."
            return name, msg, "give gpu, gpu_memory or kv_memory; sizes need none."
        if name in _WHOLE_DEPLOYMENT and asked.get("dp", 1) > 1:
            msg = f"`{name}` is one replica's figure, and `dp` states {asked['dp']} of them."
            return name, msg, "leave out dp, and count one replica's sequences."
    for name in _NEEDS_GPU:
        if name in asked and not check.has_memory:
            return name, f"`{name}` changes nothing without a memory.", "give gpu, or leave it out."
    if check.expect.get("fits") is False and "min_headroom" in check.expect:
        return "min_headroom", "`min_headroom` contradicts `fits = false`.", "leave out one."
    return None


def _from_file(model: str, file: Path) -> str:
    """A path is meant from the file's folder; a preset, a Hub id and an absolute path stay."""
    folder = file.parent
    looks = model.startswith(".") or model.lower().endswith((".json", "/"))
    bare_gguf = model.lower().endswith(".gguf") and "/" not in model
    there = folder / model
    here = (there / "config.json").is_file() or ("/" in model and there.exists())
    if model.startswith(("~", "/")) or not (looks or bare_gguf or here):
        return model
    relative = Path(os.path.relpath(there)).as_posix()
    return relative if relative.startswith(("../", "/")) else f"./{relative}"
