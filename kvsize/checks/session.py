"""One run of `kvsize check`, from where its checks are to what it says and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.checks import files, lock, reader, runner, update
from kvsize.checks.formats import Report
from kvsize.checks.records import Check, Outcome, exit_code
from kvsize.errors import Exit, UsageError
from kvsize.output import write

if TYPE_CHECKING:
    from kvsize.checks.files import Document
    from kvsize.model import Model


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run goes about it: what it may ask, hold to, and write."""

    offline: bool = False
    locked: bool = False
    lock: bool = False
    update: bool = False


def of_file(file: str, manner: Manner) -> tuple[Report, int]:
    """The checks of a file, run; its pins and its lock are written where that was asked.

    Raises FileError where the file is wrong, UsageError where there is none.
    """
    document = files.document(file)
    checks = reader.checks_of(document)
    lock_file = document.path.with_name(lock.NAME)
    entries = None if manner.lock else lock.read(lock_file)
    models = lock.Models(entries, manner.offline, manner.locked, renew=manner.lock)
    models.fetch(str(check.asked["model"]) for check in checks)
    outcomes = runner.run(checks, models)
    if manner.lock:
        _refuse_unread(outcomes)
        write(lock.text(models.found), str(lock_file))
    if manner.update and _updated(document, outcomes, models):
        document = files.document(str(document.path))
        outcomes = runner.run(reader.checks_of(document), models)
    return Report(document.shown, outcomes), exit_code(outcomes)


def of_line(check: Check, *, offline: bool) -> tuple[Report, int]:
    """The one check that the command line states, run."""
    outcomes = runner.run((check,), lock.Models(offline=offline))
    # One check that cannot be asked fails as any other command does.
    if (error := outcomes[0].error) is not None:
        raise error
    return Report("", outcomes), exit_code(outcomes)


def _refuse_unread(outcomes: tuple[Outcome, ...]) -> None:
    """A lock without a model that could not be read would pass for complete."""
    for each in outcomes:
        name = str(each.check.asked["model"])
        if each.error is not None and lock.is_hub_id(name) and not each.subject:
            raise each.error


def _updated(document: Document, outcomes: tuple[Outcome, ...], models: lock.Models) -> bool:
    """Write the pins that have changed; whether there were any."""
    if exit_code(outcomes) > Exit.NO:
        return False  # what could not be asked may be a slip in the file, which comes first
    changes: list[tuple[tuple[str | int, ...], object]] = []
    for each in outcomes:
        if each.error is not None or not update.pins(each.check.expect):
            continue
        model, _ = models.load(str(each.check.asked["model"]))
        changes += _changes(each.check, model)
    if changes:
        text = update.updated(document, changes)
        reader.checks_of(files.parsed(document.path, text))  # never a file that is refused next
        write(text, str(document.path))
    return bool(changes)


def _changes(check: Check, model: Model) -> list[tuple[tuple[str | int, ...], object]]:
    figures = runner.figures(check, model)
    found = []
    for name in update.pins(check.expect):
        if figures[name] is None:
            msg = f"{check.name}: {check.asked['model']} has no one `{name}` to pin."
            raise UsageError(msg, "leave it out.")
        if figures[name] != check.expect[name]:
            found.append(((*check.path, "expect", name), figures[name]))
    return found
