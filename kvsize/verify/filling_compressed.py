"""Feeds DeepSeek-V4's cache layers as its modeling file does (transformers 5.24.0)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvsize.engines.transformers.form import Form
from kvsize.layers import CompressedAttention

if TYPE_CHECKING:
    import torch


def feed_compressed(
    layer: Any,
    attention: CompressedAttention,
    form: Form,
    tokens: int,
    new: Callable[[tuple[int, ...], str], torch.Tensor],
) -> None:
    """One forward pass: the window, then what waits to be compressed, and the rows it closes.

    Keys and values are one tensor. An indexer's rows go through the same steps as the
    compressor's; the overlapping kind hands over twice the width, and adds a bias in float32 to
    its gates, which the next pass reads.
    """
    batch, dtype = form.sequences, form.dtype.name
    keys = new((batch, 1, tokens, attention.head_dim), dtype)
    layer.update(keys, keys)
    del keys
    overlaps = attention.index_head_dim > 0
    parts = {"compressor": attention.head_dim}
    if overlaps:
        parts["indexer"] = attention.index_head_dim
    for name, width in parts.items():
        handed = (batch, tokens, 2 * width if overlaps else width)
        values, gates, _ = layer.store_compression_weights(
            name, new(handed, dtype), new(handed, dtype)
        )
        rows = values.shape[1] // attention.compress_rate
        if rows and overlaps:
            shape = (batch, rows, attention.compress_rate, -1)
            bias = new((1,), "float32" if form.rules.own_state_dtype else dtype)
            layer.update_overlap_state(name, values.view(shape), gates.view(shape) + bias, width)
        layer.update_compressor_states(name, new((batch, rows, width), dtype))
