"""LMDeploy's PyTorch engine: blocks whose tensors are each rounded up to 256 bytes.

Sources: lmdeploy 0.18.0, pytorch/engine/cache_engine/schema.py and layout.py (tensors of a block),
pytorch/engine/executor/base.py (how many fit), pytorch/configurations/*.py (heads and states).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import torch_dtype
from kvsize.engines._serving import (
    Answer,
    Stored,
    Values,
    assemble,
    attentions,
    kind_of,
    named_dtype,
    no_pipeline,
    not_modelled,
    options_of,
    parallel_notes,
    parts,
    recurrents,
    short_note,
    version_of,
    with_context,
)
from kvsize.engines.lmdeploy_pytorch.blocks import (
    DSA_WORKSPACE_BYTES,
    DTYPES,
    NAME,
    POLICY_DTYPES,
    Packing,
    Row,
    capacity,
    layer_block_bytes,
    state_slot_bytes,
    state_slots,
)
from kvsize.engines.options import Option
from kvsize.errors import EngineRefuses
from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    LatentAttention,
    RecurrentState,
)
from kvsize.parallel import heads_per_rank
from kvsize.results import Fit
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Size

TITLE = "LMDeploy PyTorch engine: blocks of 256-byte aligned tensors, recurrent state slots"
VERSIONS = ("0.18.0",)
OPTIONS = (
    Option("block_size", int, 64, "tokens in one block", least=1),
    Option(
        "quant_policy",
        int,
        None,
        "0 none, 4 int4, 8 int8, 16 fp8_e4m3, 17 fp8_e5m2, 42 TurboQuant",
        choices=(0, 4, 8, 16, 17, 42),
    ),
    Option(
        "cache_max_entry_count",
        float,
        None,
        "share of free memory the blocks take (the engine's default is 0.8); when given, kv_memory "
        "is the free memory after loading, from which states and runtime buffers go first",
    ),
    Option("max_prefill_token_num", int, 8192, "tokens of one prefill step", least=1),
    Option("max_batch_size", int, 128, "sequences run at once (A100 384, H100 1024)", least=1),
    Option("prefix_cache_state_budget", int, 0, "state slots kept for prefix caching", least=0),
    Option("fp32_mamba_ssm_dtype", bool, False, "LMDEPLOY_FP32_MAMBA_SSM_DTYPE=1"),
    Option("use_flash_mla", bool, True, "flash_mla is installed and the GPU is Hopper or newer"),
    Option("vocab_size", int, None, "instead of the model's own", least=1),
)
NOT_MODELLED = (
    "DeepSeek-V4, whose blocks its own operators request.",
    "Draft models and MemDecode, which take blocks of their own.",
    "Sliding windows save nothing in a block's size; the engine frees blocks of models whose "
    "every layer slides.",
)

# Configurations that turn a latent into keys and values per head (configurations/minicpm3.py).
_EXPANDS_LATENT = {"minicpm3"}
# Without flash_mla the attention kernel takes at most 32 tokens of heads this wide.
_LARGE_HEAD, _LARGE_HEAD_BLOCK = 512, 32


@dataclass(frozen=True, slots=True)
class Plan:
    """What model and request settle: dtype, block size, and each layer's row on one rank."""

    values: Values
    dtype: str
    packing: Packing
    model_itemsize: int
    block_size: int
    rows: tuple[Row | None, ...]
    slot_bytes: int
    indexed: bool

    @property
    def layer_block_bytes(self) -> tuple[int, ...]:
        """Bytes of each layer's part of a block on one rank."""
        return tuple(
            0
            if row is None
            else layer_block_bytes(
                row,
                self.packing,
                block_size=self.block_size,
                model_itemsize=self.model_itemsize,
            )
            for row in self.rows
        )

    @property
    def slots(self) -> int:
        """State slots, where the model has states."""
        if not self.slot_bytes:
            return 0
        budget = self.values.whole("prefix_cache_state_budget")
        return state_slots(self.values.whole("max_batch_size"), budget)


def size(model: Model, request: Request) -> Size:
    """The blocks of `sequences` sequences of `context` tokens, and the state slots, per rank.

    Raises UsageError for a dtype the engine lacks or a model that is not modelled here,
    EngineRefuses where the engine refuses the settings.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request)
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
    EngineRefuses when the engine does not start or one sequence does not fit.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request)
    block_bytes = sum(plan.layer_block_bytes)
    if not block_bytes:
        msg = f"{NAME}: {model.name} keeps no keys and values, so there are no blocks to count."
        raise EngineRefuses(msg, "use a model with attention layers.")
    details = _details(plan)
    left = kv_memory - plan.slots * plan.slot_bytes
    ratio = plan.values.number_or_none("cache_max_entry_count")
    if ratio is None:
        blocks = left // block_bytes
    else:
        found = capacity(
            left,
            block_bytes,
            ratio=ratio,
            max_prefill_token_num=plan.values.whole("max_prefill_token_num"),
            max_batches=plan.values.whole("max_batch_size"),
            vocab_size=_vocab_size(model, plan.values),
            workspace_bytes=DSA_WORKSPACE_BYTES if plan.indexed else 0,
        )
        blocks = found.blocks
        details["max_prefill_token_num"] = found.max_prefill_token_num
    needed = ceil_div(request.context, plan.block_size)
    short = short_note(blocks, needed, "blocks", "the engine starts, and rejects longer requests")
    return Fit(
        engine=NAME,
        engine_version=version_of(NAME, VERSIONS, request.engine_version),
        context=request.context,
        kv_dtype=plan.dtype,
        kv_memory=kv_memory,
        blocks=blocks,
        block_bytes=block_bytes,
        tokens=blocks * plan.block_size,
        concurrency=blocks / needed,
        details=details,
        notes=tuple(note for note in (*_notes(model, request), short) if note),
    )


# -- from a model to a plan -----------------------------------------------------------------
def _plan(model: Model, request: Request) -> Plan:
    no_pipeline(NAME, request, "set tensor_parallel_size instead.")
    values = options_of(NAME, OPTIONS, request)
    policy = values.whole_or_none("quant_policy")
    dtype = request.kv_dtype if policy is None else POLICY_DTYPES[policy]
    packing = named_dtype(NAME, DTYPES, dtype)
    ranks = request.tensor_parallel_size
    indexed = any(getattr(attention, "extras", ()) for attention in attentions(model))
    ds_mla = indexed and dtype in {"fp8", "fp8_e4m3"}
    rows = tuple(_row(model, layer, ranks, ds_mla=ds_mla) for layer in model.layers)
    return Plan(
        values=values,
        dtype=model.dtype if dtype == "auto" else dtype,
        packing=packing,
        model_itemsize=torch_dtype(model.dtype).block_bytes,
        block_size=_block_size(values, rows),
        rows=rows,
        slot_bytes=_slot_bytes(model, values, ranks),
        indexed=indexed,
    )


def _block_size(values: Values, rows: tuple[Row | None, ...]) -> int:
    stated = values.whole("block_size")
    wide = max((row.k_head_dim for row in rows if row), default=0)
    latent = any(row is not None and row.v_head_dim == 0 for row in rows)
    if latent and values.flag("use_flash_mla"):
        if stated != 64:  # noqa: PLR2004 - flash_mla's own page
            msg = f"{NAME}: flash_mla needs block_size 64, not {stated}."
            raise EngineRefuses(msg, "set block_size to 64.")
        return stated
    return min(stated, _LARGE_HEAD_BLOCK) if wide >= _LARGE_HEAD else stated


def _row(model: Model, layer: Layer, ranks: int, *, ds_mla: bool) -> Row | None:
    attention, _ = parts(layer)
    match attention:
        case None | CrossAttention():
            return None
        case CompressedAttention():
            raise not_modelled(NAME, "DeepSeek-V4's cache", "use vllm or sglang.")
        case LatentAttention() if model.model_type in _EXPANDS_LATENT:
            width = attention.qk_nope_head_dim + attention.qk_rope_head_dim
            heads = _local_heads(attention.num_attention_heads, ranks)
            return Row(kv_heads=heads, k_head_dim=width, v_head_dim=width)
        case LatentAttention():
            index = sum(extra.width for extra in attention.extras)
            width = attention.kv_lora_rank + attention.qk_rope_head_dim
            return Row(
                kv_heads=1, k_head_dim=width, v_head_dim=0, index_head_dim=index, ds_mla=ds_mla
            )
    heads = _local_heads(attention.num_key_value_heads, ranks)
    return Row(kv_heads=heads, k_head_dim=attention.head_dim, v_head_dim=attention.v_head_dim)


def _local_heads(heads: int, ranks: int) -> int:
    """KV heads of a rank: repeated up to one each, and refused where a rank would get a part."""
    if max(heads, ranks) % min(heads, ranks):
        msg = f"{NAME}: {heads} KV heads cannot be cut over {ranks} ranks."
        raise EngineRefuses(msg, "use a tensor_parallel_size that divides the KV heads.")
    return heads_per_rank(heads, ranks)


def _slot_bytes(model: Model, values: Values, ranks: int) -> int:
    """One slot of all linear layers' states: convolutions 16-bit, recurrences as set."""
    layers = recurrents(model)
    wide = 4 if values.flag("fp32_mamba_ssm_dtype") else 2
    together: dict[tuple[int, tuple[int, ...], int], int] = {}
    for layer in layers:
        for index, state in enumerate(layer.states):
            itemsize = 2 if state.name.startswith("conv") else wide
            shape = (state.shape[0] // ranks, *state.shape[1:])
            together[index, shape, itemsize] = together.get((index, shape, itemsize), 0) + 1
    return state_slot_bytes(
        [((count, *shape), itemsize) for (_, shape, itemsize), count in together.items()]
    )


def _vocab_size(model: Model, values: Values) -> int:
    return values.whole_or_none("vocab_size") or model.config.count("vocab_size")


def _stored(model: Model, plan: Plan, blocks: int, request: Request) -> list[Stored]:
    """Per layer: its blocks, and its share of every state slot's bytes (padding on the last)."""
    ranks = request.tensor_parallel_size
    states = sum(isinstance(parts(layer)[1], RecurrentState) for layer in model.layers)
    share, rest = divmod(plan.slots * plan.slot_bytes, states) if states else (0, 0)
    stored = []
    for layer, row_bytes in zip(model.layers, plan.layer_block_bytes, strict=True):
        used = blocks * row_bytes
        if parts(layer)[1] is not None:
            used += share + rest
            rest = 0
        stored.append(Stored(kind=kind_of(layer), tensors=(), used=(used,) * ranks))
    return stored


def _details(plan: Plan) -> dict[str, object]:
    details: dict[str, object] = {"block_size": plan.block_size}
    if plan.slot_bytes:
        details |= {"num_state_caches": plan.slots, "state_slot_bytes": plan.slot_bytes}
    return details


def _notes(model: Model, request: Request) -> tuple[str | None, ...]:
    remedy = "with `attn_tp_size` 1 and `dp` each serves its own requests"
    return parallel_notes(model, request.tensor_parallel_size, remedy)
