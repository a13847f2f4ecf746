"""DeepSeek-V4: every layer slides, and two kinds of compressed layers keep more beside it.

vllm/models/deepseek_v4/attention.py and compressor.py, vllm/v1/attention/backends/mla/
sparse_swa.py (0.33.0), FlashMLA's packed fp8 layout (fp8_ds_mla), the only one on Hopper and the
default on Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsize.config import Config
from kvsize.engines.vllm.specs import MLAAttentionSpec, SlidingWindowMLASpec, Spec
from kvsize.layers import CompressedAttention, Layer

BLOCK_SIZE = 256
_WINDOW_BLOCK = 64
_ROW_BYTES = 584
"""448 bytes of fp8 latent, 128 of bfloat16 rotary key, 8 of scales."""
_ALIGNMENT = 576
"""The decode kernel's stride: pages are rounded up to it."""
_STATE_BLOCK = {4: 4, 128: 8}
"""Tokens to a page of compressor state, so that it is no larger than a page of rows."""


def specs(config: Config, layer: Layer, block_size: int) -> Iterator[tuple[str, Spec]]:
    """The entries of one layer, in the order vLLM registers them."""
    head_dim = config.count("head_dim")
    compressed = layer if isinstance(layer, CompressedAttention) else None
    if compressed is not None and compressed.index_head_dim:
        yield from _indexer(compressed.index_head_dim, compressed.compress_rate, block_size)
    yield "swa_cache", _window(_WINDOW_BLOCK, config.count("sliding_window"), head_dim, _ROW_BYTES)
    if compressed is not None:
        rate = compressed.compress_rate
        yield "attn", _rows(head_dim, _ROW_BYTES, rate, block_size)
        yield "compressor.state_cache", _state(head_dim, rate)


def _indexer(head_dim: int, rate: int, block_size: int) -> Iterator[tuple[str, Spec]]:
    """fp8 keys with one float32 scale per 128 elements, and their compressor's state."""
    width = head_dim + head_dim // 128 * 4
    yield "indexer.k_cache", _rows(width, width, rate, block_size)
    yield "indexer.compressor.state_cache", _state(head_dim, rate)


def _rows(head_size: int, row_bytes: int, rate: int, block_size: int) -> MLAAttentionSpec:
    return MLAAttentionSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=head_size,
        head_size_v=0,
        cell_bytes=row_bytes,
        packing="fp8_ds_mla",
        tokens_per_state=rate,
        alignment=_ALIGNMENT,
    )


def _window(block_size: int, window: int, head_size: int, row_bytes: int) -> SlidingWindowMLASpec:
    return SlidingWindowMLASpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=head_size,
        head_size_v=0,
        cell_bytes=row_bytes,
        packing="fp8_ds_mla" if row_bytes == _ROW_BYTES else "float32",
        alignment=_ALIGNMENT,
        sliding_window=window,
    )


def _state(head_dim: int, rate: int) -> SlidingWindowMLASpec:
    """Keys and scores in float32 of the tokens being compressed; rate 4 overlaps, so twice."""
    overlap = 2 if rate == 4 else 1
    width = 2 * overlap * head_dim
    return _window(_STATE_BLOCK[rate], overlap * rate, width, width * 4)
