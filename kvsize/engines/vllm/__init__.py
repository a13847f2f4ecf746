"""vLLM: a pool of equal blocks, shared by groups of layers (V1 engine, 0.33).

Facts: the sources of vLLM 0.33.0 named in each module; older versions as far as `versions.py`
says. All sizes are per rank unless a name says total.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from kvsize.engines.options import Request
from kvsize.engines.vllm import describe
from kvsize.engines.vllm import plan as planning
from kvsize.engines.vllm.architectures import NOT_MODELLED as NOT_MODELLED_TYPES
from kvsize.engines.vllm.capacity import Pool, capacity, stage_sizes
from kvsize.engines.vllm.dtypes import KV_DTYPES
from kvsize.engines.vllm.options import OPTIONS
from kvsize.engines.vllm.plan import Plan
from kvsize.engines.vllm.settings import settle
from kvsize.engines.vllm.specs import Demand
from kvsize.engines.vllm.versions import VERSIONS
from kvsize.errors import UsageError
from kvsize.model import Model
from kvsize.results import Fit, Size

NAME = "vllm"
TITLE = "vLLM V1: blocks of a paged pool, shared by groups of layers"
NOT_MODELLED = (
    (
        "The memory left for the cache is given, not predicted: weights, activations and CUDA graphs "
        "are vLLM's to measure."
    ),
    (
        "Only CUDA GPUs are modelled, with FlashInfer, FlashMLA and FlashAttention installed; CPU, "
        "ROCm, XPU and TPU choose other backends and block sizes."
    ),
    "Prefill context parallelism, KV connectors, HiSparse, ReplaySSM and plugins are left out.",
    f"Model types whose caches have parts of their own: {', '.join(sorted(NOT_MODELLED_TYPES))}.",
    "The floor that audio input puts under max_num_batched_tokens needs the processor's files.",
)
__all__ = ["KV_DTYPES", "NAME", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "fit", "size"]


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """The blocks that `kv_memory` bytes per rank make, and what vLLM logs for them.

    Raises EngineRefuses where vLLM does not start: heads that cannot be split, no backend for a
    dtype, one request of the longest length that does not fit.
    """
    if kv_memory < 0:
        msg = f"kv_memory is {kv_memory}, and must not be negative."
        raise UsageError(msg, "give the bytes per rank that are left for the cache.")
    settings = settle(model, request)
    plan = planning.make(settings)
    sizes = _stage_sizes(plan)
    memory = cast("int | None", settings.options["kv_cache_memory_bytes"]) or kv_memory
    pool = Pool(
        memory=memory,
        override=cast("int | None", settings.options["num_gpu_blocks_override"]),
        auto_fit=settings.auto_fit,
        rules=settings.rules,
    )
    found = capacity(plan.groups, sizes, settings.demand, pool)
    demand = found.demand
    return Fit(
        engine=NAME,
        engine_version=settings.rules.version,
        context=demand.max_model_len,
        kv_dtype=settings.stored_dtype,
        kv_memory=memory,
        blocks=found.blocks,
        block_bytes=max(sizes, default=0),
        tokens=found.tokens,
        concurrency=found.concurrency,
        details=describe.details(plan, demand, sizes),
        notes=describe.notes(plan, demand),
    )


def size(model: Model, request: Request) -> Size:
    """What `request.sequences` sequences of `request.context` tokens take of the pool.

    Each group of layers takes whole blocks, as many as vLLM plans for one such request; the
    total counts every rank. `allocated_bytes` also counts the places in a block that no layer of
    a group uses. Raises EngineRefuses where vLLM does not start.
    """
    settings = settle(model, request)
    plan = planning.make(settings)
    demand = settings.demand
    sizes = _stage_sizes(plan)
    needed = sum(group.blocks_needed(demand) for group in plan.groups)
    ranks = settings.tensor_parallel_size
    stages = _pages_by(plan, demand, (entry.stage for entry in plan.entries))
    rank_bytes = tuple(
        request.sequences * stages.get(stage, 0)
        for stage in range(settings.pipeline_parallel_size)
        for _ in range(ranks)
    )
    owners = _pages_by(plan, demand, (entry.owner for entry in plan.entries))
    total = sum(rank_bytes)
    return Size(
        engine=NAME,
        engine_version=settings.rules.version,
        cache="paged",
        context=demand.max_model_len,
        sequences=request.sequences,
        kv_dtype=settings.stored_dtype,
        total_bytes=total,
        layer_bytes=tuple(request.sequences * ranks * pages for pages in owners.values()),
        allocated_bytes=request.sequences * ranks * needed * sum(sizes),
        prefill_bytes=total,
        rank_bytes=rank_bytes,
        groups=describe.layer_groups(plan, demand, request.sequences),
        details=describe.details(plan, demand, sizes),
        notes=describe.notes(plan, demand),
    )


def _stage_sizes(plan: Plan) -> tuple[int, ...]:
    stages = plan.settings.pipeline_parallel_size
    return stage_sizes(plan.groups, stages, block_outermost=plan.block_outermost)


def _pages_by(plan: Plan, demand: Demand, keys: Iterable[object]) -> dict[object, int]:
    """Bytes of one sequence's pages on one rank, summed by a key of each entry."""
    blocks = {
        layer.name: (layer.spec.page_bytes, count)
        for group in plan.groups
        for count in (group.blocks_needed(demand),)
        for layer in group.layers
    }
    found: dict[object, int] = {}
    for entry, key in zip(plan.entries, keys, strict=True):
        page_bytes, count = blocks[entry.name]
        found[key] = found.get(key, 0) + page_bytes * count
    return found
