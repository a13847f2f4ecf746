"""`kvsize explain`: where a figure comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._asking import ask, load_models, look
from kvsize.commands._flags import (
    AsJson,
    Cache,
    Contexts,
    EngineName,
    EngineOptions,
    EngineVersion,
    KVDtype,
    ModelName,
    Offline,
    Output,
    Sequences,
    Strict,
    Text,
    TextFormat,
    Unit,
)

EXAMPLES = """\b
kvsize explain llama-3.1-70b --ctx 32k
kvsize explain deepseek-v3 --ctx 128k --format markdown
kvsize explain gemma-3-27b --engine vllm --json
kvsize explain llama-3.1-8b --prompt 1000 --new 200
"""


def command(
    model: ModelName,
    ctx: Contexts = "",
    batch: Sequences = "1",
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="TOKENS", help="Prompt to count query rows for.")
    ] = "12",
    new: Annotated[
        str, typer.Option("--new", metavar="TOKENS", help="New tokens to count query rows for.")
    ] = "20",
    kv_dtype: KVDtype = "auto",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    format_name: TextFormat = "text",
    as_json: AsJson = False,
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
) -> Text:
    """Show where a figure comes from: keys, tensors, the multiplication, what is not cached."""
    from kvsize import arguments
    from kvsize.explain import explain as explained
    from kvsize.render import _explain
    from kvsize.report import for_model

    shown = look(unit, output)
    draw = _explain.drawing("json" if as_json else format_name)
    asked = ask(kv_dtype, engine, engine_version, option, cache, "1", "1")
    context = arguments.one("--ctx", arguments.tokens(ctx))
    sequences = arguments.one("--batch", arguments.counts("--batch", batch)) or 1
    example = (arguments.count("--prompt", prompt), arguments.count("--new", new))
    found = load_models([model], asked, strict=strict, offline=offline)[0]
    own = for_model(found, asked)
    return draw(explained(found, own, context, sequences, example), shown), output
