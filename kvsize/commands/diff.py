"""`kvsize diff`: what changed between two caches, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._asking import ask, load_models, look
from kvsize.commands._flags import (
    Answer,
    AsJson,
    Contexts,
    EngineOptions,
    ModelName,
    Offline,
    Output,
    Sequences,
    Strict,
    TextFormat,
    Unit,
)
from kvsize.errors import Exit, UsageError

EXITS = {
    Exit.NO: "with --exit-code: they differ; else the engine itself refuses these settings",
}
EXAMPLES = """\b
kvsize diff qwen3-32b qwen3.5-27b
kvsize diff llama-3.1-70b qwen3-32b --ctx 8k,32k,128k --format markdown
kvsize diff llama-3.1-70b --engine transformers,vllm
kvsize diff llama-3.1-70b --engine vllm --kv-dtype auto,fp8
kvsize diff deepseek-v3 --engine-version 5.13.1,5.24.0
kvsize diff org/name@v1 org/name@v2 --exit-code
kvsize diff ./config.json qwen3-8b --json
"""


def command(
    first: ModelName,
    second: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL]", show_default=False, help="Another; left out, it is the same."
        ),
    ] = "",
    ctx: Contexts = "",
    batch: Sequences = "1",
    kv_dtype: Annotated[
        str,
        typer.Option(
            "--kv-dtype", "--kv-cache-dtype", metavar="DTYPE[,DTYPE]", help="Of both, or of each."
        ),
    ] = "auto",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME[,NAME]", help="Of both, or of each.")
    ] = "",
    engine_version: Annotated[
        str,
        typer.Option("--engine-version", metavar="X.Y.Z[,X.Y.Z]", help="Of both, or of each."),
    ] = "",
    option: EngineOptions = None,
    cache: Annotated[
        str, typer.Option("--cache", metavar="KIND[,KIND]", help="Short for -o cache=KIND.")
    ] = "",
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 where they differ, as git diff does.")
    ] = False,
    format_name: TextFormat = "text",
    as_json: AsJson = False,
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
) -> Answer:
    """Show what changed between two caches, and why: figures, layers, heads, dtype, keys.

    Two models, or one with two engines, versions, dtypes or kinds of cache: a comma separates what
    is for the first and for the second. They differ where a figure or the number of layers of a
    kind does.
    """
    from kvsize import arguments
    from kvsize.comparison import compare
    from kvsize.render import _diff

    shown = look(unit, output)
    draw = _diff.drawing("json" if as_json else format_name)
    pairs = [
        arguments.pair("--kv-dtype", kv_dtype),
        arguments.pair("--engine", engine),
        arguments.pair("--engine-version", engine_version),
        arguments.pair("--cache", cache),
    ]
    if not second and all(one == other for one, other in pairs):
        msg = "there is nothing to compare with."
        raise UsageError(msg, "name another model, or give two values: --engine vllm,transformers.")
    contexts = arguments.tokens(ctx)
    sequences = arguments.one("--batch", arguments.counts("--batch", batch)) or 1
    one, other = (
        ask(dtype, name, version, option, kind, "1", "1")
        for dtype, name, version, kind in zip(*pairs, strict=True)
    )
    names = [first, second] if second else [first]
    models = load_models(names, one, strict=strict, offline=offline)
    found = compare((models[0], models[-1]), (one, other), contexts, sequences)
    code = Exit.NO if exit_code and found.differs else Exit.OK
    return draw(found, shown), output, code
