"""Why two caches differ, in sentences: kinds of layers, heads, dtype, engine."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvsize.attention import attention_layers
from kvsize.dtypes import TORCH_DTYPES
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    NoCache,
    RecurrentState,
    ReferenceAttention,
    SlidingAttention,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.model import Model
    from kvsize.report import Row

Labels = tuple[str, str]
Kept = tuple[str, str, int | None]
"""A kind of layer, what one keeps in words, and the elements it keeps for a token."""


def reasons(models: tuple[Model, Model], rows: tuple[Row, Row], labels: Labels) -> Iterator[str]:
    """Each thing that the second cache has otherwise than the first, in a sentence."""
    if models[0].layers != models[1].layers:
        yield from _kinds(models, labels)
        yield from _query_heads(models)
    yield from _dtype(rows)
    yield from _engine(rows)
    limits = [model.context_limit for model in models]
    if limits[0] != limits[1]:
        told = ["no stated number of" if limit is None else f"{limit:,}" for limit in limits]
        yield f"The model is made for {told[1]} instead of {told[0]} tokens."
    yield from _notes(rows, labels)


def _kinds(models: tuple[Model, Model], labels: Labels) -> Iterator[str]:
    counts: list[dict[str, int]] = []
    keeps: list[dict[str, list[Kept]]] = []
    for model in models:
        found = Counter(map(kept, model.layers))
        count: Counter[str] = Counter()
        keep: dict[str, list[Kept]] = {}
        for each, number in found.items():
            count[each[0]] += number
            keep.setdefault(each[0], []).append(each)
        counts.append(dict(count))
        keeps.append(keep)
    total = len(models[1].layers)
    if len(models[0].layers) != total and any(len(count) > 1 for count in counts):
        yield f"{total} layers in all instead of {len(models[0].layers)}."
    for kind in dict.fromkeys([*counts[1], *counts[0]]):
        first, second = (count.get(kind, 0) for count in counts)
        if not first:
            words = _words(keeps[1][kind])
            yield f"{second} of {total} layers have {kind}{words}; {labels[0]} has no such layer."
        elif not second:
            words = _words(keeps[0][kind])
            yield f"No layer has {kind}; {labels[0]} has {first} such layers{words}."
        else:
            yield from _same_kind(kind, (first, second), (keeps[0][kind], keeps[1][kind]))


def _same_kind(
    kind: str, counts: tuple[int, int], keeps: tuple[list[Kept], list[Kept]]
) -> Iterator[str]:
    if counts[0] != counts[1]:
        layers = "layer has" if counts[1] == 1 else "layers have"
        yield f"{counts[1]} {layers} {kind} instead of {counts[0]}."
    if keeps[0] == keeps[1]:
        return
    first, second = ("; or ".join(each[1] for each in side) for side in keeps)
    elements = [{each[2] for each in side} for side in keeps]
    same = elements[0] == elements[1] and None not in elements[0]
    closing = ", which comes to the same" if same else ""
    if first != second:
        yield f"A layer with {kind} keeps {second} instead of {first}{closing}."


def _words(keep: list[Kept]) -> str:
    told = "; or ".join(each[1] for each in keep if each[1])
    return f" ({told})" if told else ""


def kept(layer: Layer) -> Kept:
    """What one layer keeps, by its kind, in words and in elements for a token."""
    match layer:
        case HybridLayer():
            attention, recurrent = kept(layer.attention), kept(layer.recurrent)
            words = f"{attention[1]}, and {recurrent[1]}"
            return f"{attention[0]} beside a recurrent state", words, attention[2]
        case RecurrentState():
            elements = sum(_product(state.shape) for state in layer.states)
            return "a recurrent state", f"{elements:,} elements, however long the sequence", None
        case LatentAttention():
            return _latent(layer)
        case CompressedAttention():
            words = (
                f"a row of {layer.head_dim} elements for each {layer.compress_rate} tokens, and "
                f"the last {layer.sliding_window:,} in full"
            )
            return "compressed attention", words, None
        case CrossAttention():
            heads = _plural(layer.num_key_value_heads, "KV head")
            return "cross-attention", f"the encoder's tokens, {heads} of {layer.head_dim}", None
        case NoCache():
            return "no cache", layer.reason, None
        case FullAttention():
            return _attention(layer)


def _attention(layer: FullAttention) -> Kept:
    heads, keys, values = layer.num_key_value_heads, layer.head_dim, layer.v_head_dim
    extra = sum(each.width for each in layer.extras if not each.positions)
    elements = heads * (keys + values) + extra
    indexer = f" + {extra} for an indexer" if extra else ""
    words = f"{_plural(heads, 'KV head')} × ({keys} + {values}){indexer} = {elements:,} elements a token"
    match layer:
        case SlidingAttention():
            kind, words = "a sliding window", f"{words} of the last {layer.sliding_window:,}"
        case ReferenceAttention():
            kind = "a kept prompt and a window"
            words = f"{words} of the prompt and the last {layer.sliding_window:,}"
        case ChunkedAttention():
            kind = "chunked attention"
            words = f"{words} of a chunk of {layer.attention_chunk_size:,}"
        case _:
            kind = "full attention"
    return kind, words, elements


def _latent(layer: LatentAttention) -> Kept:
    extra = sum(each.width for each in layer.extras if not each.positions)
    elements = layer.kv_lora_rank + layer.qk_rope_head_dim + extra
    indexer = f" + {extra} for an indexer" if extra else ""
    words = (
        f"one latent of {layer.kv_lora_rank} + {layer.qk_rope_head_dim}{indexer} = {elements:,} "
        "elements a token"
    )
    if layer.sliding_window is not None:
        words += f" of the last {layer.sliding_window:,}"
    return "latent attention", words, elements


def _query_heads(models: tuple[Model, Model]) -> Iterator[str]:
    first, second = (
        {layer.num_attention_heads for layer in attention_layers(model.layers)} for model in models
    )
    if first != second and len(first) == len(second) == 1:
        yield f"{_only(second)} query heads instead of {_only(first)} change nothing: queries are not cached."


def _dtype(rows: tuple[Row, Row]) -> Iterator[str]:
    first, second = rows
    if first.kv_dtype != second.kv_dtype:
        told = [
            f"{row.kv_dtype} ({_plural(TORCH_DTYPES[row.kv_dtype].block_bytes, 'byte')})"
            if row.kv_dtype in TORCH_DTYPES
            else row.kv_dtype
            for row in rows
        ]
        yield f"An element is kept as {told[1]} instead of {told[0]}."


def _engine(rows: tuple[Row, Row]) -> Iterator[str]:
    told = [f"{row.engine} {row.engine_version} ({row.cache})" for row in rows]
    if told[0] != told[1]:
        yield f"The cache is that of {told[1]} instead of {told[0]}."


def _notes(rows: tuple[Row, Row], labels: Labels) -> Iterator[str]:
    """What an engine says of one of them only."""
    for row, other, label in ((rows[0], rows[1], labels[0]), (rows[1], rows[0], labels[1])):
        for note in row.notes:
            if note not in other.notes:
                yield f"{label}: {note}"


def _product(shape: tuple[int, ...]) -> int:
    made = 1
    for size in shape:
        made *= size
    return made


def _only(values: set[int]) -> int:
    return next(iter(values))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
