"""LMDeploy's PyTorch engine: blocks whose tensors are each rounded up to 256 bytes.

Sources: lmdeploy 0.18.0, pytorch/engine/cache_engine/schema.py and layout.py (tensors of a block),
pytorch/engine/executor/base.py (how many fit), pytorch/configurations/*.py (heads and states).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.engines._layers import parallel_notes, parts, recurrents, served_layers, uncounted_note
from kvsize.engines._result import Answer, Pool, Stored, assemble, filled, stored
from kvsize.engines._settings import Values, version_of, with_context
from kvsize.engines.lmdeploy_pytorch.blocks import (
    DSA_WORKSPACE_BYTES,
    DTYPES,
    NAME,
    Startup,
    capacity,
)
from kvsize.engines.lmdeploy_pytorch.plan import OPTIONS, Plan, plan_of
from kvsize.errors import EngineRefuses
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.model import Model
    from kvsize.results import Fit, Size

__all__ = ["KV_DTYPES", "NAME", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "fit", "size"]

TITLE = "LMDeploy PyTorch engine: blocks of 256-byte aligned tensors, recurrent state slots"
VERSIONS = ("0.18.0",)
KV_DTYPES = tuple(DTYPES)
NOT_MODELLED = (
    "DeepSeek-V4, whose blocks its own operators request.",
    "Draft models and MemDecode, which take blocks of their own.",
    "Blocks that the engine frees when every layer slides: windows save nothing in a block.",
)


def size(model: Model, request: Request) -> Size:
    """The blocks of `sequences` sequences of `context` tokens, and the state slots, per rank.

    Raises UsageError for a dtype the engine lacks or a model that is not modelled here,
    EngineRefuses where the engine refuses the settings.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    blocks = request.sequences * ceil_div(request.context, plan.block_size)
    layers = _stored(model, plan, blocks, request)
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="paged blocks",
        kv_dtype=plan.dtype,
        details=_details(plan) | {"blocks": blocks, "block_bytes": sum(plan.layer_block_bytes)},
        notes=_notes(model, request),
    )
    return assemble(answer, request, layers, [range(len(layers))])


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """The blocks that fit in `kv_memory` bytes per rank beside the state slots.

    Without `cache_max_entry_count`, `kv_memory` is the cache's own budget; with it, the free memory
    after loading, of which the engine keeps runtime buffers and (1 - ratio) free. Raises
    EngineRefuses when the engine does not start.
    """
    request = with_context(model, request, NAME)
    plan = plan_of(model, request)
    block_bytes = sum(plan.layer_block_bytes)
    if not block_bytes:
        msg = f"{NAME}: {model.name} keeps no keys and values, so there are no blocks to count."
        raise EngineRefuses(msg, "use a model with attention layers.")
    details = _details(plan)
    left = kv_memory - plan.slots * plan.slot_bytes
    if left <= 0:
        msg = f"{NAME}: {plan.slots:,} state slots take {plan.slots * plan.slot_bytes:,} bytes."
        raise EngineRefuses(msg, "give more memory, or a smaller max_batch_size.")
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="paged blocks",
        kv_dtype=plan.dtype,
        details=details,
        notes=_notes(model, request),
    )
    pool = Pool(
        blocks=_blocks(model, plan, left, details),
        block_bytes=block_bytes,
        block_tokens=plan.block_size,
        needed=ceil_div(request.context, plan.block_size),
        short="the engine starts, and rejects longer requests",
    )
    return filled(answer, request, kv_memory, pool)


def _blocks(model: Model, plan: Plan, left: int, details: dict[str, object]) -> int:
    """Blocks in the bytes left beside the states; notes the prefill step it settles on."""
    block_bytes = sum(plan.layer_block_bytes)
    ratio = plan.values.number_or_none("cache_max_entry_count")
    if ratio is None:
        return left // block_bytes
    startup = Startup(
        ratio=ratio,
        max_prefill_token_num=plan.values.whole("max_prefill_token_num"),
        max_batches=plan.values.whole("max_batch_size"),
        vocab_size=_vocab_size(model, plan.values),
        workspace_bytes=DSA_WORKSPACE_BYTES if plan.indexed else 0,
    )
    found = capacity(left, block_bytes, startup)
    details["max_prefill_token_num"] = found.max_prefill_token_num
    return found.blocks


def _vocab_size(model: Model, values: Values) -> int:
    return values.whole_or_none("vocab_size") or model.config.count("vocab_size")


def _stored(model: Model, plan: Plan, blocks: int, request: Request) -> list[Stored]:
    """Per layer: its blocks, and its share of the state slots (the remainder on the first).

    The sequences fill their own slots and the engine's two; it allocates max_batch_size slots.
    """
    ranks = request.tensor_parallel_size
    states = len(recurrents(model))
    own, system = min(request.sequences + 2, plan.slots), plan.slots
    used_share, used_rest = divmod(own * plan.slot_bytes, states or 1)
    share, rest = divmod(system * plan.slot_bytes, states or 1)
    result = []
    for layer, row_bytes in zip(served_layers(model), plan.layer_block_bytes, strict=True):
        used = allocated = blocks * row_bytes
        if parts(layer)[1] is not None:
            used, allocated = used + used_share + used_rest, allocated + share + rest
            used_rest = rest = 0
        result.append(stored(layer, plan.dtype, [used] * ranks, [allocated] * ranks))
    return result


def _details(plan: Plan) -> dict[str, object]:
    details: dict[str, object] = {"block_size": plan.block_size}
    if plan.slot_bytes:
        details |= {"num_state_caches": plan.slots, "state_slot_bytes": plan.slot_bytes}
    return details


def _notes(model: Model, request: Request) -> tuple[str | None, ...]:
    remedy = "with `attn_tp_size` 1 and `dp` each serves its own requests"
    return (*parallel_notes(model, request.tensor_parallel_size, remedy), uncounted_note(model))
