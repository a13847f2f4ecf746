"""What a block and a state slot take, and how many blocks fit: arithmetic, no model.

Sources: lmdeploy 0.18.0, pytorch/engine/cache_engine/schema.py and layout.py (tensors of a block),
pytorch/engine/executor/base.py (how many fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.errors import EngineRefuses
from kvsize.units import MIB, pad

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "lmdeploy-pytorch"
ALIGNMENT = 256
# cache_engine/schema.py: 512 fp8 elements, four float32 scales, 64 bfloat16 rotary elements.
DS_MLA_ROW_BYTES = 656
# The indexer's fp8 key and its float32 scale per 128 elements.
_INDEX_SCALE_BLOCK = 128
DSA_WORKSPACE_BYTES = 512 * MIB  # LMDEPLOY_DSA_INDEXER_MAX_LOGITS_MB
_LEAST_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Packing:
    """Bytes of an element, how many elements share one byte, and scales per head and token."""

    element_bytes: int | None
    k_per_byte: int = 1
    v_per_byte: int = 1
    k_scales: int = 0
    v_scales: int = 0


DTYPES = {
    "auto": Packing(None),
    "int8": Packing(1, k_scales=2, v_scales=2),
    "int4": Packing(1, 2, 2, 2, 2),
    "fp8": Packing(1),
    "fp8_e4m3": Packing(1),
    "fp8_e5m2": Packing(1),
    "turbo_quant": Packing(1, 2, 4, 2, 1),
}
POLICY_DTYPES = {
    0: "auto",
    4: "int4",
    8: "int8",
    16: "fp8_e4m3",
    17: "fp8_e5m2",
    42: "turbo_quant",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One layer's dimensions on one rank: heads, widths, and bytes of an indexer's row."""

    kv_heads: int
    k_head_dim: int
    v_head_dim: int
    index_head_dim: int = 0
    ds_mla: bool = False


def layer_block_bytes(row: Row, packing: Packing, *, block_size: int, model_itemsize: int) -> int:
    """Bytes of one layer's block on one rank: every tensor rounded up to 256 bytes."""
    if row.ds_mla:
        tensors = [block_size * row.kv_heads * DS_MLA_ROW_BYTES]
    else:
        itemsize = packing.element_bytes or model_itemsize
        per_block = block_size * row.kv_heads
        tensors = [
            per_block * (row.k_head_dim // packing.k_per_byte) * itemsize,
            per_block * (row.v_head_dim // packing.v_per_byte) * itemsize,
            per_block * packing.k_scales * model_itemsize,
            per_block * packing.v_scales * model_itemsize,
        ]
    if row.index_head_dim:
        scales = row.index_head_dim // _INDEX_SCALE_BLOCK * 4
        tensors += [block_size * row.index_head_dim, block_size * scales]
    return sum(pad(tensor, ALIGNMENT) for tensor in tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The blocks that fit and the prefill step the engine settles on to fit them."""

    blocks: int
    max_prefill_token_num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """What the engine reserves before blocks: a step's logits, a workspace, and a share."""

    ratio: float
    max_prefill_token_num: int
    max_batches: int
    vocab_size: int
    workspace_bytes: int = 0

    def runtime_bytes(self, prefill: int) -> int:
        """Bytes kept free for steps of `prefill` tokens."""
        return (prefill + 2 * self.max_batches) * self.vocab_size * 2 + self.workspace_bytes


def capacity(free_bytes: int, block_bytes: int, startup: Startup) -> Capacity:
    """Blocks that fit in `free_bytes`, which exclude the states.

    `ExecutorBase._get_runtime_size`: the logits buffer goes first, and the prefill step is halved
    while fewer than 16 blocks would fit. Raises EngineRefuses at two blocks or fewer.
    """
    prefill, blocks = startup.max_prefill_token_num, 0
    while prefill > 0:
        left = free_bytes - startup.runtime_bytes(prefill)
        blocks = _blocks(int(left * startup.ratio), block_bytes)
        if blocks >= _LEAST_BLOCKS:
            break
        prefill //= 2
    if prefill == 0:
        msg = f"{NAME}: no prefill step leaves 16 blocks of memory."
        raise EngineRefuses(msg, "give more memory, or a smaller max_batch_size.")
    return Capacity(blocks=blocks, max_prefill_token_num=prefill)


def _blocks(available_bytes: int, block_bytes: int) -> int:
    blocks = available_bytes // block_bytes
    if blocks <= 2:
        msg = f"{NAME}: {max(blocks, 0)} blocks fit, and the engine starts with three or more."
        raise EngineRefuses(msg, "give more memory, a smaller prefill step, or int4.")
    return blocks


def state_slot_bytes(shapes: Sequence[tuple[tuple[int, ...], int]]) -> int:
    """Bytes of one state slot: each tensor (its shape, bytes per element) rounded up to 256."""
    total = 0
    for shape, itemsize in shapes:
        elements = itemsize
        for length in shape:
            elements *= length
        total += pad(elements, ALIGNMENT)
    return total


def state_slots(max_batches: int, prefix_cache_state_budget: int = 0) -> int:
    """Slots the engine keeps: one for itself, one for rolling prefill, and the sequences'."""
    return max_batches + 2 + prefix_cache_state_budget
