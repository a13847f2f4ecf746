"""Bytes of a token and how many blocks fit: TensorRT-LLM's arithmetic, no model.

Sources: TensorRT-LLM main (late 2026, 1.3), tensorrt_llm/_torch/pyexecutor/resource_manager.py
(KVCacheManager) and _util.py (KvCacheCreator); cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import KVDtype
from kvsize.parallel import heads_per_rank_ceil
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "tensorrt-llm"
TOKENS_PER_BLOCK = 32
FRACTION = 0.9  # free_gpu_memory_fraction

# Elements of a pool, and the FP8 scale per 16 of them that NVFP4 keeps in a second pool.
_SIXTEEN_BIT = KVDtype("bfloat16", 2)
ELEMENTS = {
    "bfloat16": _SIXTEEN_BIT,
    "float16": KVDtype("float16", 2),
    "float32": KVDtype("float32", 4),
    "fp8": KVDtype("fp8", 1),
    "int8": KVDtype("int8", 1),
    "nvfp4": KVDtype("nvfp4", 1, 2),
}
_NVFP4_SCALES = KVDtype("nvfp4 scales", 1, 16)
_INDEX_SCALE_BLOCK = 128


def element_bytes(elements: int, dtype: str) -> int:
    """Bytes of `elements` cache elements, NVFP4's block scales included."""
    scales = _NVFP4_SCALES.bytes_of(elements) if dtype == "nvfp4" else 0
    return ELEMENTS[dtype].bytes_of(elements) + scales


def index_row_bytes(index_head_dim: int, *, fp4: bool = False) -> int:
    """One token's row in the indexer's K cache: elements and a float32 scale per 128 (DSA)."""
    scales = index_head_dim // _INDEX_SCALE_BLOCK * 4
    return (index_head_dim // 2 if fp4 else index_head_dim) + scales


def layer_token_bytes(
    num_key_value_heads: int, head_dim: int, dtype: str, *, tensor_parallel_size: int = 1
) -> int:
    """One layer's keys and values of one token on one rank: heads are divided and rounded up."""
    heads = heads_per_rank_ceil(num_key_value_heads, tensor_parallel_size)
    return element_bytes(2 * heads * head_dim, dtype)


def latent_token_bytes(kv_lora_rank: int, qk_rope_head_dim: int, dtype: str) -> int:
    """One MLA layer's latent and rotary key (one tensor, one head, on every rank)."""
    return element_bytes(kv_lora_rank + qk_rope_head_dim, dtype)


def estimate_token_bytes(
    layers: int, num_key_value_heads: int, head_dim: int, dtype: str, tensor_parallel_size: int
) -> int:
    """What `get_cache_size_per_token` estimates before the manager exists: heads floored.

    With fewer KV heads than ranks it is below what the manager allocates.
    """
    per_layer = 2 * (num_key_value_heads * head_dim // tensor_parallel_size)
    return element_bytes(layers * per_layer, dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the engine measures, and the share it takes of each.

    `available_bytes` after the profiling run, `free_bytes` when the final manager is made.
    """

    available_bytes: int
    free_bytes: int
    free_gpu_memory_fraction: float = FRACTION

    @property
    def budget_bytes(self) -> int:
        """The pool's bytes by the profile: `Estimated max memory in KV cache`."""
        return int(self.available_bytes * self.free_gpu_memory_fraction)


def max_tokens(
    memory: Memory, estimate_bytes: int, token_bytes: int, *, max_tokens: int | None = None
) -> int:
    """Tokens of the final manager: the profile's bound by the estimate, the manager's by bytes.

    `KvCacheCreator.configure_kv_cache_capacity`, then `KVCacheManager.calculate_max_num_blocks`.
    """
    bounds = [
        memory.budget_bytes // estimate_bytes,
        int(memory.free_gpu_memory_fraction * memory.free_bytes / token_bytes),
    ]
    return min(bounds if max_tokens is None else [*bounds, max_tokens])


def cpp_blocks(
    free_bytes: int, fraction: float, token_bytes: int, tokens_per_block: int = TOKENS_PER_BLOCK
) -> int:
    """Blocks in engines built for the C++ runtime, where the division is rounded up."""
    return ceil_div(int(free_bytes * fraction) // token_bytes, tokens_per_block)


def blocks_per_sequence(
    tokens: int, tokens_per_block: int = TOKENS_PER_BLOCK, window: int | None = None
) -> int:
    """Blocks one sequence holds; a sliding layer keeps its window's and a spare one."""
    needed = ceil_div(tokens, tokens_per_block)
    if window is None or tokens <= window:
        return needed
    return min(needed, ceil_div(window, tokens_per_block) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """A pool of attention blocks and recurrent-state slots."""

    max_tokens: int
    kv_blocks: int
    state_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRequest:
    """What decides the number of states: live sequences, snapshots, drafts, the user's limit."""

    max_batch_size: int
    pipeline_parallel_size: int = 1
    tokens_per_block: int = TOKENS_PER_BLOCK
    snapshot_interval: int = 0
    block_reuse: bool = False
    max_tokens: int | None = None
    max_draft_len: int = 0


def hybrid(budget_bytes: int, token_bytes: int, state_bytes: int, asked: StateRequest) -> Hybrid:
    """Blocks and slots of a hybrid model (`_calculate_max_num_blocks_for_linear_attention`).

    A token costs its keys and values and a share of the snapshot every `snapshot_interval`
    tokens; every live sequence costs one state. The slot for CUDA graph padding and those for
    drafts are allocated above the budget.
    """
    live, interval = asked.max_batch_size * asked.pipeline_parallel_size, asked.snapshot_interval
    slope = token_bytes + (state_bytes // interval if interval > 0 else 0)
    left = budget_bytes - live * state_bytes
    # Without attention in the model a token costs nothing, and only the user's limit holds.
    tokens = max(left // slope, 0) if slope else (asked.max_tokens or 0)
    if asked.max_tokens is not None:
        tokens = min(tokens, asked.max_tokens)
    slots = live + 1 + asked.max_draft_len
    if asked.block_reuse and interval > 0:
        slots += tokens // interval
    return Hybrid(max_tokens=tokens, kv_blocks=tokens // asked.tokens_per_block, state_slots=slots)


def state_bytes(convolutions: Sequence[tuple[int, int]], recurrences: Sequence[int]) -> int:
    """One layer's state in bytes.

    Convolutions are (channels, kernel) of 16 bits and keep kernel - 1 columns; recurrences are
    bytes already.
    """
    return sum(channels * (kernel - 1) * 2 for channels, kernel in convolutions) + sum(recurrences)
