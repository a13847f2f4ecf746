"""From a model and a request to the PyTorch engine's rows, blocks and state slots.

Source: lmdeploy 0.18.0, pytorch/configurations/*.py (heads and states) and
pytorch/engine/executor/base.py (`_adjust_block_size`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import torch_dtype
from kvsize.engines._layers import attentions, parts, recurrents, served_layers, sixteen_bit
from kvsize.engines._settings import Values, named_dtype, no_pipeline, not_modelled, options_of
from kvsize.engines.lmdeploy_pytorch.blocks import (
    DTYPES,
    NAME,
    POLICY_DTYPES,
    Packing,
    Row,
    layer_block_bytes,
    state_slot_bytes,
    state_slots,
)
from kvsize.engines.options import Option
from kvsize.errors import EngineRefuses
from kvsize.layers import CompressedAttention, CrossAttention, LatentAttention
from kvsize.parallel import heads_per_rank

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model

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


def plan_of(model: Model, request: Request) -> Plan:
    """The plan; raises UsageError and EngineRefuses for what cannot be meant or is refused."""
    no_pipeline(NAME, request, "set tensor_parallel_size instead.")
    values = options_of(NAME, OPTIONS, request)
    policy = values.whole_or_none("quant_policy")
    dtype = request.kv_dtype if policy is None else POLICY_DTYPES[policy]
    packing = named_dtype(NAME, DTYPES, dtype)
    ranks = request.tensor_parallel_size
    latents = (a for a in attentions(model) if isinstance(a, LatentAttention))
    indexed = any(latent.extras for latent in latents)
    ds_mla = indexed and dtype in {"fp8", "fp8_e4m3"}
    rows = tuple(_row(model, layer, ranks, ds_mla=ds_mla) for layer in served_layers(model))
    return Plan(
        values=values,
        dtype=sixteen_bit(model) if dtype == "auto" else dtype,
        packing=packing,
        model_itemsize=torch_dtype(sixteen_bit(model)).block_bytes,
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
        if stated != 64:
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
