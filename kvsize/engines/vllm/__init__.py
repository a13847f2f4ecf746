"""vLLM: blocks of a paged pool, grouped by how layers attend (V1 engine, 0.33)."""

from __future__ import annotations

from kvsize.engines.options import Request
from kvsize.engines.vllm import plan as planning
from kvsize.engines.vllm.capacity import capacity, stage_blocks
from kvsize.engines.vllm.options import OPTIONS
from kvsize.engines.vllm.settings import settle
from kvsize.engines.vllm.versions import VERSIONS
from kvsize.model import Model
from kvsize.results import Fit, Size

NAME = "vllm"
TITLE = "vLLM V1: paged blocks in groups of layers, per GPU rank"
NOT_MODELLED: tuple[str, ...] = ()


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    settings = settle(model, request)
    plan = planning.make(settings)
    sizes = stage_blocks(plan.groups, settings.pipeline_parallel_size, block_outermost=plan.block_outermost)
    memory = settings.options["kv_cache_memory_bytes"] or kv_memory
    found = capacity(plan.groups, sizes, settings.demand, memory=memory, override=settings.options["num_gpu_blocks_override"], auto_fit=settings.auto_fit, rules=settings.rules)
    return Fit(engine=NAME, engine_version=settings.rules.version, context=found.max_model_len, kv_dtype=settings.kv_dtype, kv_memory=memory, blocks=found.blocks, block_bytes=max(sizes), tokens=found.tokens, concurrency=found.concurrency, details={}, notes=())


def size(model: Model, request: Request) -> Size:
    raise NotImplementedError
