"""DeepSeek-V4's cache layers: a window, compressed rows, and what waits to be compressed.

DeepseekV4HCACache and DeepseekV4CSACache in transformers 5.24.0, modeling_deepseek_v4.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsize.dtypes import KVDtype, torch_dtype
from kvsize.engines.transformers.tensors import CacheTensor, Form
from kvsize.layers import CompressedAttention


def compressed_tensors(layer: CompressedAttention, form: Form) -> Iterator[CacheTensor]:
    """The parts of one layer; keys and values are one tensor under two names, counted once."""
    dim, tokens, window = layer.head_dim, form.tokens, layer.sliding_window
    kept = tokens if window == 1 else min(tokens, window - 1)
    yield _part("keys", (1, kept), dim, form, stored=min(tokens, window), prefilled=tokens)
    if layer.compress_rate is None:
        return
    rate, index = layer.compress_rate, layer.index_head_dim
    overlaps = index > 0
    waiting, rows = tokens % rate, tokens // rate
    for name, width in (("compressor", dim), ("indexer", index))[: 1 + overlaps]:
        buffered = 2 * width if overlaps else width
        if waiting:
            yield _part(f"{name}_buffer_kv", (waiting,), buffered, form)
            yield _part(f"{name}_buffer_gate", (waiting,), buffered, form)
        if rows:
            yield _part(f"{name}_rows", (rows,), width, form)
        if overlaps and rows:
            yield _part(f"{name}_overlap_kv", (rate,), width, form)
            gate = torch_dtype("float32")
            yield _part(f"{name}_overlap_gate", (rate,), width, form, dtype=gate)


def _part(  # noqa: PLR0913 - one tensor's dimensions
    name: str,
    lead: tuple[int, ...],
    width: int,
    form: Form,
    *,
    stored: int | None = None,
    prefilled: int | None = None,
    dtype: KVDtype | None = None,
) -> CacheTensor:
    dtype = dtype or form.dtype
    per_token = form.sequences * width * dtype.block_bytes
    held = lead[-1]
    return CacheTensor(
        name=name,
        shape=(form.sequences, *lead, width),
        axes=f"[batch, {'1, ' if len(lead) > 1 else ''}seq_len, {width}]",
        dtype=dtype.name,
        total_bytes=held * per_token,
        storage_bytes=(held if stored is None else stored) * per_token,
        prefill_bytes=(held if prefilled is None else prefilled) * per_token,
    )
