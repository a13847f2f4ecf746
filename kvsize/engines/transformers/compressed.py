"""DeepSeek-V4's cache layers: a window, compressed rows, and what waits to be compressed.

DeepseekV4HCACache and DeepseekV4CSACache in transformers 5.24.0, modeling_deepseek_v4.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsize.dtypes import KVDtype, torch_dtype
from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.layers import CompressedAttention


def compressed_tensors(layer: CompressedAttention, form: Form) -> Iterator[CacheTensor]:
    """The parts of one layer; keys and values are one tensor under two names, counted once.

    A buffer is a view of the forward pass that filled it: after a prefill the storage behind it
    holds all tokens, and when a row has just been closed by decoding, the row's `rate` tokens.
    """
    dim, tokens, window = layer.head_dim, form.tokens, layer.sliding_window
    kept = tokens if window == 1 else min(tokens, window - 1)
    yield _part("keys", kept, dim, form, stored=min(tokens, window), prefilled=tokens, heads="1, ")
    rate, overlaps = layer.compress_rate, layer.index_head_dim > 0
    rows, waiting = divmod(tokens, rate)
    parts = [("compressor", dim)] + [("indexer", layer.index_head_dim)] * overlaps
    for name, width in parts:
        buffered = 2 * width if overlaps else width
        for kind in ("kv", "gate"):
            label = f"buffer_{kind}[{name}]"
            yield _part(label, waiting, buffered, form, stored=waiting or rate, prefilled=tokens)
        if rows:
            yield _part(f"compressed_kv[{name}]", rows, width, form)
        if rows and overlaps:
            yield _part(f"overlap_kv[{name}]", rate, width, form)
            # Measured: float32 in 5.24.0, the model's dtype in 5.13.1, as all states then were.
            gate = torch_dtype("float32") if form.rules.own_state_dtype else form.dtype
            yield _part(f"overlap_gate[{name}]", rate, width, form, dtype=gate)


def _part(  # noqa: PLR0913 - one tensor's dimensions
    name: str,
    held: int,
    width: int,
    form: Form,
    *,
    stored: int | None = None,
    prefilled: int | None = None,
    dtype: KVDtype | None = None,
    heads: str = "",
) -> CacheTensor:
    dtype = dtype or form.dtype
    if not form.decoded:
        stored = prefilled
    per_token = form.sequences * width * dtype.block_bytes
    shape = (form.sequences, 1, held, width) if heads else (form.sequences, held, width)
    return CacheTensor(
        name=name,
        shape=shape,
        axes=f"[batch, {heads}seq_len, {width}]",
        dtype=dtype.name,
        total_bytes=held * per_token,
        storage_bytes=(held if stored is None else stored) * per_token,
        prefill_bytes=(held if prefilled is None else prefilled) * per_token,
    )
