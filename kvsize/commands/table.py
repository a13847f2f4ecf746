"""`kvsize table`: one line for each model of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvsize.commands._asking import ask, look
from kvsize.commands._flags import (
    AsJson,
    Cache,
    Columns,
    Contexts,
    EngineName,
    EngineOptions,
    EngineVersion,
    Format,
    KVDtype,
    Offline,
    Output,
    Partial,
    PipelineParallel,
    Sequences,
    Strict,
    TensorParallel,
    Unit,
)
from kvsize.errors import Exit, KvsizeError, UsageError

if TYPE_CHECKING:
    from kvsize.advice import Ask
    from kvsize.lists import Entry
    from kvsize.model import Model
    from kvsize.report import Row

MOST_JOBS = 64
EXITS = {
    Exit.OK: "every model has its rows",
    Exit.NO: "the engine itself refuses the settings for a model",
    Exit.INPUT: "a model's config cannot be read, is incomplete or contradicts itself",
    Exit.HUB: "the Hub did not give a model's config",
}
EXAMPLES = """\b
kvsize table models.txt
kvsize table models.txt --ctx 8k,128k --format csv
kvsize presets --json | jq -r '.[].name' | kvsize table - --unit GiB
printf 'llama-3.1-8b\\nqwen3-8b\\n' | kvsize table - --engine vllm --kv-dtype fp8 --json
"""


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A model on each line, # before comments; of a .csv file the column `model` or the "
            "first; - for standard input.",
        ),
    ],
    ctx: Contexts = "32k",
    batch: Sequences = "1",
    kv_dtype: KVDtype = "auto",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    tp: TensorParallel = "1",
    pp: PipelineParallel = "1",
    jobs: Annotated[
        str, typer.Option("--jobs", metavar="N", help="Hub calls at once, 64 at most.")
    ] = "8",
    format_name: Format = "table",
    as_json: AsJson = False,
    columns: Columns = "",
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
) -> Partial:
    """Size every model of a list, a line for each, in the list's order.

    Models on the Hub are asked for side by side; a call without an answer, or with 429 or 5xx, is
    made again up to three times. A model that fails is told on standard error, with its line, and
    the others have their rows all the same; the exit code is that of the first failure. Tables for
    people leave out the split by kind of layer and all remarks but guesses; CSV and JSON have them.
    """
    from kvsize import arguments, lists, render, report
    from kvsize.engines import engine as find_engine
    from kvsize.many import load_many
    from kvsize.progress import progress

    shown = look(unit, output, columns)
    writer = render.writer("json" if as_json else format_name)
    contexts, sequences = arguments.tokens(ctx), arguments.counts("--batch", batch)
    asked = ask(kv_dtype, engine, engine_version, option, cache, tp, pp)
    side_by_side = arguments.count("--jobs", jobs)
    if side_by_side > MOST_JOBS:
        msg = f"--jobs is {side_by_side}, and the Hub is asked {MOST_JOBS} times at once at most."
        raise UsageError(msg, "8 is enough for most lists.")
    if engine:
        find_engine(engine)  # a slip here is not one of the models'
    entries = lists.read(file)
    with progress(len({entry.name for entry in entries})) as step:
        names = (entry.name for entry in entries)
        loaded = load_many(names, jobs=side_by_side, offline=offline, step=step)
    rows, failures = _sized(entries, loaded, asked, (contexts, sequences), strict=strict)
    complaint = _told(failures)
    code = failures[0][1].exit_code if failures else Exit.OK
    if not rows:
        return "", "", code, complaint  # and a file that is there stays as it is
    shown_rows = tuple(map(_bare, rows) if writer.REMARKS else rows)
    text = render.text(writer, report.Report(report.SCHEMA_VERSION, shown_rows), shown)
    return text, output, code, complaint


def _told(failures: list[tuple[str, KvsizeError]]) -> str:
    """Two lines for each failure; what is wrong with several alike is told once."""
    places: dict[tuple[str, str], list[str]] = {}
    for place, error in failures:
        places.setdefault((error.message, error.hint), []).append(place)
    return "".join(
        f"error: {found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}: {message}\n"
        f"hint: {hint}\n"
        for (message, hint), found in places.items()
    )


def _sized(
    entries: list[Entry],
    loaded: list[Model | KvsizeError],
    asked: Ask,
    points: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    strict: bool,
) -> tuple[list[Row], list[tuple[str, KvsizeError]]]:
    """The rows of all models that have some, and what is wrong with the others, by place."""
    from kvsize.advice import refuse_guesses
    from kvsize.report import build

    rows: list[Row] = []
    failures: list[tuple[str, KvsizeError]] = []
    for entry, model in zip(entries, loaded, strict=True):
        try:
            if isinstance(model, KvsizeError):
                raise model
            if strict:
                refuse_guesses(model, asked)
            rows += build([model], asked, *points).rows
        except KvsizeError as error:
            failures.append((entry.place, error))
    return rows, failures


def _bare(row: Row) -> Row:
    """One line: without parts and without remarks, but for what was guessed."""
    from kvsize.advice import GUESSES
    from kvsize.record import replace

    guesses = tuple(each for each in row.warnings if each.code in GUESSES)
    return replace(row, groups=(), notes=(), details={}, warnings=guesses)
