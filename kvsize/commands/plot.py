"""`kvsize plot`: the cache as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._asking import ask, load_models, look
from kvsize.commands._fit_flags import LengthsFile, WeightsSize
from kvsize.commands._flags import (
    Cache,
    EngineOptions,
    EngineVersion,
    Models,
    Offline,
    PipelineParallel,
    Sequences,
    Strict,
    TensorParallel,
)
from kvsize.errors import Exit, UsageError

EXAMPLES = """\b
kvsize plot llama-3.1-70b qwen3-32b --ctx 1k:1m
kvsize plot llama-3.1-8b gemma-3-27b --ctx 1k:128k --gpu h100 --budget 40GiB --out kv.svg
kvsize plot gemma-3-27b --engine vllm,transformers --kv-dtype auto,fp8 --out kv.png
kvsize plot gemma-3-27b --by kind --ctx 1k:128k
kvsize plot llama-3.1-8b --lengths 2k:70,8k:25,32k:5
kvsize plot llama-3.1-8b --engine vllm --gpu l4 --out kv.html
"""
EXITS = {Exit.MISSING_EXTRA: "an .svg or a .png is to be drawn, and matplotlib is not installed"}
KINDS = ("", "kind")
CHOICES = {"--by": ("kind",)}


def command(
    models: Models,
    ctx: Annotated[
        str,
        typer.Option(
            "--ctx",
            "--context",
            "--max-model-len",
            metavar="FROM:TO",
            help="Contexts to draw: 1k:1m. Default: from 1k to the models' longest limit.",
        ),
    ] = "",
    batch: Sequences = "1",
    kv_dtype: Annotated[
        str,
        typer.Option(
            "--kv-dtype", "--kv-cache-dtype", metavar="DTYPE", help="Several with commas: auto,fp8."
        ),
    ] = "auto",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Several with commas: vllm,llama.cpp.")
    ] = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    tp: TensorParallel = "1",
    pp: PipelineParallel = "1",
    by: Annotated[
        str,
        typer.Option("--by", metavar="WHAT", help="kind: stack one cache by kind of layer."),
    ] = "",
    lengths: LengthsFile = "",
    budget: Annotated[
        str,
        typer.Option(
            "--budget", metavar="BYTES", help="Lines to mark: 40GiB, several with commas."
        ),
    ] = "",
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Lines at what GPUs leave beside the weights: h100,l4; see `kvsize gpus`.",
        ),
    ] = "",
    gpu_memory: Annotated[
        str,
        typer.Option("--gpu-memory", metavar="BYTES", help="GPUs that have no name here: 24GiB."),
    ] = "",
    weights: WeightsSize = "",
    as_json: Annotated[bool, typer.Option("--json", help="The picture's data as JSON.")] = False,
    strict: Strict = False,
    offline: Offline = False,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "--output",
            metavar="FILE",
            help="Write there: .svg or .png (extra plot), .html, .json, .txt.",
        ),
    ] = "",
) -> tuple[str | bytes, str]:
    """Draw memory against context: models, engines, dtypes and budgets in one picture.

    Without --out: a chart in plain text. Every point is an exact figure, and a mark by a budget's
    line the exact largest context that fits. The .html page is self-contained; in it context,
    sequences and dtype can be moved.
    """
    from kvsize import arguments
    from kvsize.plot import asking
    from kvsize.plot.writers import format_of, written

    if by not in KINDS:
        raise UsageError(f"--by is '{by}'.", "use --by kind, or leave it out.")
    format_name = format_of(out, as_json=as_json)
    if (by or lengths) and format_name == "html":
        msg = "an .html page shows curves, whose context, sequences and dtype can be moved."
        hint = "write --by kind and --lengths to an .svg, .png, .txt or .json file."
        raise UsageError(msg, hint)
    for flag, given in (
        ("--by", by),
        ("--ctx", ctx),
        ("--budget", budget),
        ("--gpu", gpu),
        ("--gpu-memory", gpu_memory),
    ):
        if lengths and given:
            msg = f"--lengths compares ways of allocating, and has no {flag}."
            hint = f"leave out {flag}; `kvsize fit --lengths` counts what a memory holds."
            raise UsageError(msg, hint)
    if weights and not (gpu or gpu_memory):
        raise UsageError("--weights is for --gpu, which is not given.", "add --gpu h100.")
    asked = ask("auto", "", engine_version, option, cache, tp, pp)
    counts = arguments.counts("--batch", batch)
    loaded = tuple(load_models(models, asked, strict=strict, offline=offline))
    wanted = asking.wanted(
        loaded, asked, arguments.names(engine), arguments.names(kv_dtype), counts
    )
    if lengths:
        from kvsize.plot.lengths import ways

        return written(ways(wanted, lengths), format_name, look("", out).width), out
    from kvsize.plot import lines

    memory = asking.Memory(
        budgets=arguments.names(budget),
        gpus=arguments.names(gpu),
        gpu_memory=arguments.names(gpu_memory),
        weights=weights,
    )
    least, most = asking.context_range(ctx, loaded)
    build = lines.kinds if by else lines.explorable if format_name == "html" else lines.chart
    picture = build(asking.with_gpu(wanted, memory.gpus), least, most, memory)
    return written(picture, format_name, look("", out).width), out
