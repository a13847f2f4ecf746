"""What the Python API returns: figures as data, integers in bytes, no text layout."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.record import NOTHING, Record


class LayerGroup(Record):
    """The layers of one kind together: how many, what each stores, and their bytes.

    `tensors` are shapes in words, such as `keys [batch, 8, seq_len, 128] bfloat16`.
    """

    kind: str
    layers: int
    tensors: tuple[str, ...]
    total_bytes: int


class Size(Record, kw_only=True):
    """What one cache takes.

    `total_bytes`: what its tensors hold, all sequences and all ranks. `layer_bytes`: the same
    per cache layer, in the cache object's order. `allocated_bytes`: what their storages hold,
    larger where a tensor is a view of a bigger buffer. `prefill_bytes`: what the storages hold
    right after one forward pass over all `context` tokens. `peak_bytes`: what the storages and
    the copies made while they grow hold at most, where an engine grows them. `rank_bytes`: per
    GPU rank.
    """

    engine: str
    engine_version: str
    cache: str
    context: int
    sequences: int
    kv_dtype: str
    total_bytes: int
    layer_bytes: tuple[int, ...]
    allocated_bytes: int
    prefill_bytes: int
    peak_bytes: int | None = None
    rank_bytes: tuple[int, ...] = ()
    groups: tuple[LayerGroup, ...] = ()
    details: Mapping[str, object] = NOTHING
    """Figures in the engine's own words (blocks, cells, pool sizes), where it has any."""
    notes: tuple[str, ...] = ()
    """What the reader must know to compare the figure, in whole sentences."""


class Fit(Record, kw_only=True):
    """What a given cache memory holds in an engine that allocates blocks.

    `blocks` and `block_bytes`: the pool, per rank. `tokens` and `concurrency`: what the engine
    logs for sequences of `context` tokens.
    """

    engine: str
    engine_version: str
    context: int
    kv_dtype: str
    kv_memory: int
    blocks: int
    block_bytes: int
    tokens: int
    concurrency: float
    details: Mapping[str, object] = NOTHING
    notes: tuple[str, ...] = ()
