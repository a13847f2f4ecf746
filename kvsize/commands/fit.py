"""`kvsize fit`: what a machine's memory holds."""

from __future__ import annotations

from kvsize.commands._fit_flags import (
    Contexts,
    DataParallel,
    DecodeContext,
    Emit,
    EngineName,
    EngineOptions,
    Fraction,
    GpuMemory,
    GpuName,
    Gpus,
    KVMemory,
    LengthsFile,
    MaxContext,
    ModelName,
    Overflow,
    Reserve,
    Sequences,
    WeightsSize,
)
from kvsize.commands._flags import (
    Answer,
    AsJson,
    EngineVersion,
    KVDtype,
    Offline,
    Output,
    PipelineParallel,
    TensorParallel,
    TextFormat,
    Unit,
)
from kvsize.errors import Exit, UsageError

DEFAULT_ENGINE = "vllm"
EXAMPLES = """\b
kvsize fit llama-3.1-70b --gpu h100 --gpus 8 --ctx 32k
kvsize fit qwen3-30b-a3b --gpu rtx4090 --weights int4 --max-ctx
kvsize fit deepseek-v3 --gpu h200 --gpus 8 --engine sglang --tp 8 --dp 8 --sequences 64 --ctx 16k
kvsize fit gemma-3-27b --kv-memory 40GiB --ctx 8k,32k,128k --json
kvsize fit llama-3.1-70b --ctx 32k --sequences 50 --gpu h100   # the fewest GPUs
kvsize fit llama-3.1-8b --gpu l4 --lengths 2k:70,8k:25,32k:5
kvsize gpus
"""
EXITS = {
    Exit.OK: "it fits",
    Exit.NO: "it does not fit, or the engine itself refuses these settings",
}


def command(
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
    format_name: TextFormat = "text",
    as_json: AsJson = False,
    unit: Unit = "",
    offline: Offline = False,
    output: Output = "",
) -> Answer:
    """Say whether it fits: how long, how many sequences, on how many GPUs.

    Exit 0 for yes, 1 for no. Where the memory is an estimate, figures stand with their range.
    """
    from kvsize import arguments
    from kvsize.capacity import asked
    from kvsize.capacity.answer import answer
    from kvsize.capacity.emit import engine_of
    from kvsize.capacity.render import render
    from kvsize.loading import load

    wanted = engine_of(emit) if emit else ""
    if engine and wanted and asked.spelled(engine) != wanted:
        msg = f"--emit {emit} prints a command for {wanted}, and --engine is {engine}."
        raise UsageError(msg, "leave one of them out.")
    name = asked.spelled(engine) if engine else wanted or DEFAULT_ENGINE
    found = load(model, offline=offline)
    machine = asked.machine(found, gpu, gpu_memory, kv_memory, weights, reserve, fraction)
    stated = arguments.engine_options(option or (), "")
    question = asked.question(found, machine, name, engine_version, kv_dtype, stated)
    question = asked.with_lengths(
        question, ctx, sequences, lengths, overflow, emit, max_ctx=max_ctx
    )
    question = asked.laid_out(question, gpus_count, (tp, pp, dp, dcp))
    said = answer(question)
    text = render(said, "json" if as_json else format_name, arguments.unit(unit))
    return text, output, Exit.OK if said.fits else Exit.NO
