"""What each of exllamav3's cache layers allocates: arithmetic, no model.

Sources: exllamav3 1.4.1, cache/fp16.py, cache/quant.py, cache/mla.py, cache/dsa.py,
modules/sliding_attn.py (SWALayerState), modules/gated_delta_net.py (GDNLayerState) and
modules/short_conv.py (ShortConvLayerState). Every figure is bytes on one device.
"""

from __future__ import annotations

from kvsize.errors import EngineRefuses
from kvsize.units import pad

NAME = "exllamav3"
PAGE_SIZE = 256
_FP16 = 2
_GROUP = 32  # elements that share one fp16 scale
_OVERPROVISION = 2 * PAGE_SIZE  # history a ring keeps in front of its window


def check_pages(max_num_tokens: int) -> None:
    """EngineRefuses unless `max_num_tokens` is a multiple of the page of 256 tokens."""
    if max_num_tokens % PAGE_SIZE or max_num_tokens <= 0:
        msg = f"{NAME}: max_num_tokens {max_num_tokens:,} is not a multiple of {PAGE_SIZE}."
        lower = max(max_num_tokens // PAGE_SIZE, 1) * PAGE_SIZE
        raise EngineRefuses(msg, f"use {lower:,} or {lower + PAGE_SIZE:,}.")


def check_bits(k_bits: int, v_bits: int) -> None:
    """EngineRefuses unless both are 2 to 8 bits."""
    if not (2 <= k_bits <= 8 and 2 <= v_bits <= 8):
        msg = f"{NAME}: a quantized cache has 2 to 8 bits, not {k_bits} and {v_bits}."
        raise EngineRefuses(msg, "give k_bits and v_bits from 2 to 8, or neither for fp16.")


def fp16_bytes(kv_heads: int, head_dim: int, tokens: int) -> int:
    """CacheLayer_fp16: keys and values of `head_dim` (values are never of another width)."""
    return 2 * tokens * kv_heads * head_dim * _FP16


def quantized_bytes(kv_heads: int, head_dim: int, tokens: int, k_bits: int, v_bits: int) -> int:
    """CacheLayer_quant: per 32 elements `bits` 32-bit words and one fp16 scale.

    A token's heads are one row; a remainder of a row below 32 elements is not stored, as the
    engine floors it.
    """
    groups = kv_heads * head_dim // _GROUP
    return tokens * groups * ((k_bits + v_bits) * 4 + 2 * _FP16)


def latent_bytes(kv_lora_rank: int, qk_rope_head_dim: int, tokens: int) -> int:
    """CacheLayer_MLA_fp16: the latent and the rotary key."""
    return tokens * (kv_lora_rank + qk_rope_head_dim) * _FP16


def latent_quantized_bytes(
    kv_lora_rank: int, qk_rope_head_dim: int, tokens: int, k_bits: int
) -> int:
    """CacheLayer_MLA_quant: the latent in `k_bits`, the rotary key in fp16 (v_bits is unused)."""
    groups = kv_lora_rank // _GROUP
    return tokens * (groups * (k_bits * 4 + _FP16) + qk_rope_head_dim * _FP16)


def overhead_bytes(kv_heads: int, head_dim: int) -> int:
    """What one token's row takes while a quantized cache quantizes it."""
    return 2 * kv_heads * head_dim * _FP16


def latent_overhead_bytes(kv_lora_rank: int, k_bits: int) -> int:
    """The same for a quantized latent: its packed words and scales."""
    groups = kv_lora_rank // _GROUP
    return groups * k_bits * 4 + groups * _FP16


def ring_bytes(kv_heads: int, head_dim: int, sliding_window: int, max_batch_size: int) -> int:
    """SWALayerState: per slot a ring of the window and two pages, in whole pages, always fp16."""
    rows = pad(sliding_window + _OVERPROVISION, PAGE_SIZE)
    return 2 * max_batch_size * rows * kv_heads * head_dim * _FP16


def delta_bytes(
    channels: int,
    conv_kernel: int,
    state: tuple[int, ...],
    *,
    max_batch_size: int,
    max_history: int,
) -> int:
    """GDNLayerState: a bfloat16 convolution and a float32 state, with `max_history` past ones."""
    elements = 1
    for length in state:
        elements *= length
    convolution = channels * (conv_kernel + max_history) * 2
    return max_batch_size * (convolution + (max_history + 1) * elements * 4)


def short_conv_bytes(
    channels: int, conv_kernel: int, *, max_batch_size: int, max_history: int
) -> int:
    """ShortConvLayerState: an fp16 convolution with `max_history` past columns."""
    return max_batch_size * channels * (conv_kernel + max_history) * _FP16


def compressed_pool_bytes(
    head_dim: int, compress_rate: int, index_head_dim: int, tokens: int
) -> int:
    """CacheLayer_dsa: one fp16 row per `compress_rate` tokens, and the indexer's key beside it."""
    return tokens // PAGE_SIZE * (PAGE_SIZE // compress_rate) * (head_dim + index_head_dim) * _FP16


def compressed_state_bytes(
    head_dim: int,
    sliding_window: int,
    compress_rate: int | None,
    index_head_dim: int,
    max_batch_size: int,
) -> int:
    """DSV4LayerState: the window's ring, and the compressor's unfinished rows.

    Overlapping compression (CSA, with an indexer) projects to twice the head and keeps float32
    snapshots of the windows that end inside a page.
    """
    per_slot = pad(sliding_window + _OVERPROVISION, PAGE_SIZE) * head_dim * _FP16
    if compress_rate is not None:
        rows = PAGE_SIZE + compress_rate
        overlap = 2 if index_head_dim else 1
        per_slot += 2 * rows * overlap * (head_dim + index_head_dim) * _FP16
        if index_head_dim:
            depth = PAGE_SIZE // compress_rate + 2
            per_slot += depth * 2 * compress_rate * (head_dim + index_head_dim) * 4
    return max_batch_size * per_slot
