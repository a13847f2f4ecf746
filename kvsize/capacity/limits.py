"""What bounds the sequences of a pool, engine by engine: its blocks, and the engine's own caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.units import pad

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.setup import Setup
    from kvsize.results import Fit

MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that bounds the sequences, and at how many."""

    name: str
    sequences: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The engine's answer, and what it was asked."""

    setup: Setup
    context: int
    fit: Fit


def usable_units(found: Fit) -> int:
    """Blocks (in SGLang, tokens) that sequences can have.

    One block of vLLM is the null block for ever, though its log counts it (vllm#39734).
    """
    if found.engine == "sglang":
        return found.tokens
    return max(0, found.blocks - 1) if found.engine == "vllm" else found.blocks


def units_each(found: Fit) -> int:
    """The units that one sequence of the longest length takes."""
    units = found.tokens if found.engine == "sglang" else found.blocks
    return max(1, round(units / found.concurrency)) if found.concurrency else units + 1


def _by_memory(found: Fit) -> Limit:
    return Limit(MEMORY, usable_units(found) // units_each(found))


def _vllm(asked: Asked) -> list[Limit]:
    from kvsize.engines.vllm.gpus import GPUS

    options = asked.setup.options
    gpu = GPUS[str(options.get("gpu", "h100"))]
    stated = options.get("max_num_seqs")
    return [
        _by_memory(asked.fit),
        Limit("max_num_seqs", int(str(stated)) if stated else gpu.sequences),
    ]


def _sglang(asked: Asked) -> list[Limit]:
    found, context = asked.fit, asked.context
    running = found.details.get("max_running_requests")
    if not found.block_bytes and isinstance(running, int):
        return [Limit(MEMORY, running)]  # recurrent states only: no token takes anything
    limits = [_by_memory(found)]
    swa_tokens = found.details.get("swa_tokens")
    if isinstance(swa_tokens, int):
        from kvsize.engines.sglang.plan import plan_of

        plan = plan_of(asked.setup.model, asked.setup.request(context))
        # A request keeps its window, which may start inside a page.
        window = pad(min(context, (plan.window or context) + plan.page_size), plan.page_size)
        limits.append(Limit("the sliding pool", swa_tokens // window))
    if isinstance(running, int):
        limits.append(Limit("max_running_requests", running))
    return limits


def _tensorrt_llm(asked: Asked) -> list[Limit]:
    from kvsize.engines.tensorrt_llm.blocks import blocks_per_sequence
    from kvsize.engines.tensorrt_llm.plan import plan_of

    context, found = asked.context, asked.fit
    plan = plan_of(asked.setup.model, asked.setup.request(context))
    pools = found.details.get("blocks_per_window")
    limits = []
    for window, blocks in (
        pools if isinstance(pools, Mapping) else {context: found.blocks}
    ).items():
        whole = window >= context
        needed = blocks_per_sequence(context, plan.tokens_per_block, None if whole else window)
        name = MEMORY if whole else f"the pool of window {window:,}"
        limits.append(Limit(name, blocks // needed))
    stated = asked.setup.options.get("max_batch_size", 2048)
    return (
        limits
        if asked.setup.chooses_batch
        else [*limits, Limit("max_batch_size", int(str(stated)))]
    )


def _lmdeploy(asked: Asked) -> list[Limit]:
    return [_by_memory(asked.fit)]


def _lmdeploy_pytorch(asked: Asked) -> list[Limit]:
    stated = asked.setup.options.get("max_batch_size", 128)
    return [*_lmdeploy(asked), Limit("max_batch_size", int(str(stated)))]


POOL_LIMITS: dict[str, Callable[[Asked], list[Limit]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "lmdeploy-turbomind": _lmdeploy,
    "lmdeploy-pytorch": _lmdeploy_pytorch,
}
