"""`kvsize size`, the default command: what a cache takes."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._asking import ask, generation, load_models, look
from kvsize.commands._flags import (
    AsJson,
    Cache,
    Columns,
    Contexts,
    Copy,
    EngineName,
    EngineOptions,
    EngineVersion,
    Format,
    KVDtype,
    Models,
    Offline,
    Output,
    PipelineParallel,
    Sequences,
    Strict,
    TensorParallel,
    Text,
    Unit,
)

EXAMPLES = """\b
kvsize llama-3.1-70b --ctx 32k              # a preset, offline
kvsize meta-llama/Llama-3.1-70B --ctx 32k   # the Hub (org/name@revision too)
kvsize ./config.json; cat config.json | kvsize -
kvsize llama-3.1-70b qwen3-32b --ctx 8k,32k --batch 1,16 --format markdown
kvsize llama-3.1-70b qwen3-32b --ctx 32k --columns model,kv-heads,token,total --format html
kvsize llama-3.1-8b --prompt 1000 --new 200  # what generate() leaves: 1199 tokens
kvsize deepseek-v3 --json | jq .
kvsize explain gemma-3-27b --ctx 32k
kvsize fit llama-3.1-70b --gpu h100 --gpus 8 --ctx 32k
"""


def command(
    models: Models,
    ctx: Contexts = "",
    batch: Sequences = "1",
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt",
            metavar="TOKENS",
            help="Prompt of a generation, instead of --ctx; an encoder-decoder's is encoded.",
        ),
    ] = "",
    new: Annotated[
        str,
        typer.Option(
            "--new",
            metavar="TOKENS",
            help="max_new_tokens of it. The last one is never cached: P + N - 1 tokens are.",
        ),
    ] = "",
    kv_dtype: KVDtype = "auto",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    tp: TensorParallel = "1",
    pp: PipelineParallel = "1",
    format_name: Format = "table",
    as_json: AsJson = False,
    columns: Columns = "",
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
    copy: Copy = False,
) -> Text:
    """Size the KV cache of one or more models; the default command.

    Without --ctx: a few contexts up to the model's limit. The figure per token is what each of the
    next 256 tokens adds on average: a sliding window that is full adds nothing.
    """
    from kvsize import arguments, render, report
    from kvsize.record import replace

    shown = look(unit, output, columns)
    writer = render.writer("json" if as_json else format_name)
    contexts, sequences = arguments.tokens(ctx), arguments.counts("--batch", batch)
    asked = ask(kv_dtype, engine, engine_version, option, cache, tp, pp)
    if prompt or new:
        # 0: as many tokens as the generation leaves cached, by model.
        contexts, asked = (0,), generation(asked, ctx, prompt, new)
    found = load_models(models, asked, strict=strict, offline=offline)
    remarks = writer.REMARKS and shown.columns is None
    made = report.build(found, asked, contexts, sequences, compare=remarks)
    text = render.text(writer, made, shown)
    if copy:
        from kvsize import clipboard
        from kvsize.output import write

        write(text, output)  # first: it is shown even where there is no clipboard
        clipboard.put(render.text(writer, made, replace(shown, terminal=False)))
        return "", ""
    return text, output
