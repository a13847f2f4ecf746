"""The `fit` and `gpus` sub-commands: what is typed, as a question; the answer, as text.

`COMMANDS` has the shape of the command line's own table, and `register` adds both to a typer app.
What a command needs is imported inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvsize.capacity.flags import (
    AsJson,
    Contexts,
    DataParallel,
    DecodeContext,
    Emit,
    EngineName,
    EngineOptions,
    EngineVersion,
    Format,
    Fraction,
    GpuMemory,
    GpuName,
    Gpus,
    KVDtype,
    KVMemory,
    LengthsFile,
    MaxContext,
    ModelName,
    Offline,
    Output,
    Overflow,
    PipelineParallel,
    Reserve,
    Sequences,
    TensorParallel,
    Unit,
    WeightsSize,
)
from kvsize.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.gpus import Gpu
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.machine import Machine
    from kvsize.capacity.question import Question
    from kvsize.model import Model

EXAMPLES = """\b
kvsize fit llama-3.1-70b --gpu h100 --gpus 8 --ctx 32k
kvsize fit qwen3-30b-a3b --gpu rtx4090 --weights int4 --max-ctx
kvsize fit deepseek-v3 --gpu h200 --gpus 8 --engine sglang --tp 8 --dp 8 --sequences 64 --ctx 16k
kvsize fit gemma-3-27b --kv-memory 40GiB --ctx 8k,32k,128k --json
kvsize fit llama-3.1-70b --ctx 32k --sequences 50 --gpu h100      the fewest GPUs
kvsize fit llama-3.1-8b --gpu l4 --lengths 2k:70,8k:25,32k:5
kvsize gpus
"""
Said = tuple[str, str] | int
"""A command's whole output and its file, or, where that is written already, the exit code."""


def register(app: typer.Typer) -> None:
    """Add `fit` and `gpus` to a typer app."""
    for name, (function, epilog) in COMMANDS.items():
        app.command(name, epilog=epilog)(function)


def fit(  # noqa: PLR0913, PLR0917 - the command's options
    model: ModelName,
    gpu: GpuName = "",
    gpus_count: Gpus = "",
    gpu_memory: GpuMemory = "",
    kv_memory: KVMemory = "",
    weights: WeightsSize = "",
    reserve: Reserve = "",
    fraction: Fraction = "",
    ctx: Contexts = "",
    max_ctx: MaxContext = False,
    sequences: Sequences = "",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    kv_dtype: KVDtype = "auto",
    option: EngineOptions = None,
    tp: TensorParallel = "",
    pp: PipelineParallel = "",
    dp: DataParallel = "",
    dcp: DecodeContext = "",
    lengths: LengthsFile = "",
    overflow: Overflow = "0.01",
    emit: Emit = "",
    format_name: Format = "text",
    as_json: AsJson = False,
    unit: Unit = "",
    offline: Offline = False,
    output: Output = "",
) -> Said:
    """Say whether it fits: how long, how many sequences, on how many GPUs.

    Exit 0 for yes, 1 for no. Where the memory is an estimate, figures stand with their range.
    """
    from kvsize import arguments
    from kvsize.capacity.answer import answer
    from kvsize.capacity.emit import engine_of
    from kvsize.capacity.render import render
    from kvsize.loading import load

    wanted = engine_of(emit) if emit else ""
    if engine and wanted and _spelled(engine) != wanted:
        msg = f"--emit {emit} prints a command for {wanted}, and --engine is {engine}."
        raise UsageError(msg, "leave one of them out.")
    name = _spelled(engine) if engine else wanted or "vllm"
    found = load(model, offline=offline)
    machine = _machine(found, gpu, gpu_memory, kv_memory, weights, reserve, fraction)
    stated = arguments.engine_options(option or (), "")
    question = _question(found, machine, name, engine_version, kv_dtype, stated)
    question = _asked(question, ctx, sequences, lengths, overflow, emit, max_ctx=max_ctx)
    question = _laid_out(question, gpus_count, (tp, pp, dp, dcp))
    said = answer(question)
    text = render(said, "json" if as_json else format_name, arguments.unit(unit))
    if said.fits:
        return text, output
    from kvsize.output import write

    write(text, output)
    return Exit.NO


def gpus(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those that contain this.")
    ] = "",
    format_name: Format = "text",
    as_json: AsJson = False,
) -> Said:
    """List the accelerators that --gpu knows, with their memory and where the figure is from."""
    from kvsize.capacity.gpus import gpus as catalogue
    from kvsize.capacity.render import gpus_text

    wanted = search.lower()
    found = [each for each in catalogue() if wanted in f"{each.name} {each.title}".lower()]
    return gpus_text(found, "json" if as_json else format_name), ""


def _spelled(engine: str) -> str:
    """The engine's name as kvsize shows it; UsageError for one that there is not."""
    from kvsize.engines import engine as engine_called

    return engine_called(engine).NAME


def _machine(  # noqa: PLR0913, PLR0917 - what describes a machine
    model: Model,
    gpu: str,
    gpu_memory: str,
    kv_memory: str,
    weights: str,
    reserve: str,
    fraction: str,
) -> Machine:
    from kvsize.capacity.machine import Machine
    from kvsize.capacity.rules import parse_fraction
    from kvsize.capacity.sharding import shares
    from kvsize.capacity.weights import weights_of
    from kvsize.units import parse_bytes

    chosen = _gpu(gpu, gpu_memory)
    if kv_memory:
        return Machine(gpu=chosen, kv_memory=parse_bytes(kv_memory))
    if chosen is None:
        msg = "no memory is stated, so nothing can be said to fit."
        raise UsageError(msg, "give --gpu h100, --gpu-memory 24GiB or --kv-memory 40GiB.")
    return Machine(
        gpu=chosen,
        weights=weights_of(model, weights),
        shares=shares(model),
        fraction=parse_fraction(fraction) if fraction else None,
        reserve_bytes=parse_bytes(reserve) if reserve else None,
    )


def _gpu(name: str, memory: str) -> Gpu | None:
    from kvsize.capacity import gpus as catalogue
    from kvsize.units import parse_bytes

    if name and memory:
        raise UsageError("--gpu and --gpu-memory both name a GPU.", "leave one of them out.")
    if memory:
        return catalogue.of_memory(parse_bytes(memory))
    if name.strip().lower() == "local":
        return min(catalogue.local(), key=lambda found: found.memory_bytes)
    return catalogue.gpu(name) if name else None


def _question(  # noqa: PLR0913, PLR0917 - what describes a deployment
    model: Model,
    machine: Machine,
    engine: str,
    engine_version: str,
    kv_dtype: str,
    options: dict[str, object],
) -> Question:
    from kvsize.capacity.layouts import Plan
    from kvsize.capacity.machine import vllm_gpu
    from kvsize.capacity.question import Question

    if engine == "vllm" and "gpu" not in options and machine.gpu is not None:
        options = {**options, "gpu": vllm_gpu(machine.gpu)}
    plan = Plan(
        model=model,
        machine=machine,
        engine=engine,
        engine_version=engine_version or None,
        kv_dtype=kv_dtype,
        options=options,
    )
    return Question(plan=plan)


def _asked(  # noqa: PLR0913, PLR0917 - what can be asked
    question: Question,
    ctx: str,
    sequences: str,
    lengths: str,
    overflow: str,
    emit: str,
    *,
    max_ctx: bool,
) -> Question:
    from dataclasses import replace

    from kvsize import arguments
    from kvsize.capacity.lengths import read
    from kvsize.capacity.rules import parse_fraction

    return replace(
        question,
        contexts=arguments.tokens(ctx),
        sequences=arguments.count("--sequences", sequences) if sequences else None,
        longest=max_ctx,
        lengths=read(lengths) if lengths else None,
        overflow=parse_fraction(overflow),
        emit=emit or None,
    )


def _laid_out(question: Question, gpus_count: str, sizes: tuple[str, str, str, str]) -> Question:
    """The question with the layout that --tp, --pp, --dp and --dcp state, if any does."""
    from dataclasses import replace

    from kvsize import arguments

    count = arguments.count("--gpus", gpus_count) if gpus_count else None
    if not any(sizes):
        return replace(question, gpus=count)
    names = ("--tp", "--pp", "--dp", "--dcp")
    tensor, pipeline, data, shards = (
        arguments.count(name, size) if size else 1 for name, size in zip(names, sizes, strict=True)
    )
    return replace(question, layout=_layout(question, count, (tensor, pipeline, data, shards)))


def _layout(question: Question, gpus_count: int | None, sizes: tuple[int, int, int, int]) -> Layout:
    """The layout; data-parallel ranks are the tensor-parallel ones where no GPUs are left."""
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.rules import rules_for

    tensor, pipeline, data, shards = sizes
    rules, shares = rules_for(question.plan.engine), question.plan.machine.shares
    ranks = tensor * pipeline
    inside = rules.attention_dp is not None and data > 1 and gpus_count == ranks
    layout = Layout(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=data,
        decode_context_parallel_size=shards,
        attention_dp=inside,
        shared_experts=rules.shared_experts and shares is not None and shares.experts,
    )
    if gpus_count is not None and layout.gpus != gpus_count:
        msg = f"{layout.label} takes {layout.gpus} GPUs, and --gpus says {gpus_count}."
        raise UsageError(msg, f"give --gpus {layout.gpus}, or leave it out.")
    if inside and tensor % data:
        msg = f"--dp {data} does not divide --tp {tensor}."
        raise UsageError(msg, "DP attention needs equal groups of ranks.")
    return layout


COMMANDS: dict[str, tuple[Callable[..., Said], str | None]] = {
    "fit": (fit, EXAMPLES),
    "gpus": (gpus, None),
}
