"""What several commands make of their options: the question, the models, the look of the text."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kvsize.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvsize.advice import Ask
    from kvsize.model import Model
    from kvsize.render import Look


def ask(
    kv_dtype: str,
    engine: str,
    engine_version: str,
    option: list[str] | None,
    cache: str,
    tp: str,
    pp: str,
) -> Ask:
    """The question that all figures of a run share, from options as they were typed."""
    from kvsize import arguments

    return {
        "kv_dtype": kv_dtype,
        "engine": engine,
        "engine_version": engine_version or None,
        "options": arguments.engine_options(option or (), cache),
        "tensor_parallel_size": arguments.count("--tp", tp),
        "pipeline_parallel_size": arguments.count("--pp", pp),
    }


def generation(asked: Ask, ctx: str, prompt: str, new: str) -> Ask:
    """The question with a generation's prompt and new tokens in it; UsageError if it has a context.

    Serving engines reserve by the length a sequence may reach, so only transformers is asked.
    """
    from kvsize import arguments
    from kvsize.errors import UsageError

    if ctx or not (prompt and new):
        message = "--prompt and --new say together how many tokens are cached, without --ctx."
        raise UsageError(message, "write --prompt 1000 --new 200, or --ctx 1199.")
    lengths = {
        "prompt": arguments.count("--prompt", prompt),
        "new_tokens": arguments.count("--new", new),
    }
    if asked["engine"] not in {"", "transformers"}:
        total = lengths["prompt"] + lengths["new_tokens"]
        message = f"--prompt and --new size transformers' generate(), not {asked['engine']}."
        hint = f"give the longest sequence that it is to hold: --ctx {total}."
        raise UsageError(message, hint)
    return {**asked, "engine": "transformers", "options": {**lengths, **asked["options"]}}


def load_models(names: Iterable[str], asked: Ask, *, strict: bool, offline: bool) -> list[Model]:
    """The models named, in order; `strict` raises GuessRefused where a figure would be a guess."""
    from kvsize.advice import refuse_guesses
    from kvsize.loading import load

    names = list(names)
    refuse_second_stdin(names)
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # what the Hub client itself reads, when it is imported
    models = [load(name) for name in names]
    for model in models if strict else ():
        refuse_guesses(model, asked)
    return models


def refuse_second_stdin(names: list[str]) -> None:
    """UsageError where `-` is named more than once: there is one standard input."""
    if names.count("-") > 1:
        msg = f"standard input (-) is named {names.count('-')} times, and can be read once."
        raise UsageError(msg, "name the other models by a file or a preset.")


def look(unit: str, output: str, columns: str = "") -> Look:
    """How text for people is to look where it goes."""
    import shutil

    from kvsize import arguments
    from kvsize.render import Look

    found = None
    if columns:
        from kvsize.render import _columns

        found = _columns.chosen(columns)
    width = shutil.get_terminal_size().columns
    return Look(arguments.unit(unit), width, not output and _has_styles(), found)


def _has_styles() -> bool:
    """Whether standard output is a terminal that shows colours and may (https://no-color.org).

    Bold and dim are colours to a reader: NO_COLOR leaves plain text.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in {"dumb", "unknown"}:
        return False
    return bool(sys.stdout and sys.stdout.isatty())  # a closed standard output is None
