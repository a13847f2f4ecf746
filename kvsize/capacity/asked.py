"""A question about capacity from what was typed, or stated in a file of checks: all of it text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.errors import UsageError

if TYPE_CHECKING:
    from kvsize.capacity.gpus import Gpu
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.machine import Machine
    from kvsize.capacity.question import Question
    from kvsize.model import Model


def spelled(engine: str) -> str:
    """The engine's name as kvsize shows it; UsageError for one that there is not."""
    from kvsize.engines import engine as engine_called

    return engine_called(engine).NAME


def machine(  # noqa: PLR0913, PLR0917 - what describes a machine
    model: Model,
    gpu: str,
    gpu_memory: str,
    kv_memory: str,
    weights: str,
    reserve: str,
    fraction: str,
) -> Machine:
    """What there is: a GPU, its weights, what is reserved; or the cache's memory itself.

    Raises UsageError where no memory is stated, or stated twice.
    """
    from kvsize.capacity.machine import Machine
    from kvsize.capacity.rules import parse_fraction
    from kvsize.capacity.sharding import shares
    from kvsize.capacity.weights import weights_of
    from kvsize.units import parse_bytes

    chosen = gpu_named(gpu, gpu_memory)
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


def gpu_named(name: str, memory: str) -> Gpu | None:
    """The GPU called `name`, `local` being this machine's, or one of so much memory; None for neither.

    Raises UsageError for a name there is not, and where both are given.
    """
    from kvsize.capacity import gpus as catalogue
    from kvsize.units import parse_bytes

    if name and memory:
        raise UsageError("--gpu and --gpu-memory both name a GPU.", "leave one of them out.")
    if memory:
        return catalogue.of_memory(parse_bytes(memory))
    if name.strip().lower() == "local":
        return min(catalogue.local(), key=lambda found: found.memory_bytes)
    return catalogue.gpu(name) if name else None


def question(  # noqa: PLR0913, PLR0917 - what describes a deployment
    model: Model,
    machine: Machine,
    engine: str,
    engine_version: str,
    kv_dtype: str,
    options: dict[str, object],
) -> Question:
    """The deployment that is asked about; nothing is asked yet."""
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


def with_lengths(  # noqa: PLR0913, PLR0917 - what can be asked
    question: Question,
    ctx: str,
    sequences: str,
    lengths: str,
    overflow: str,
    emit: str,
    *,
    max_ctx: bool,
) -> Question:
    """The question with what is asked: contexts, sequences, or a distribution of lengths."""
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


def laid_out(question: Question, gpus_count: str, sizes: tuple[str, str, str, str]) -> Question:
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
