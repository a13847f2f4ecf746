"""Where a figure comes from: the keys, the tensors, the multiplication, and what is not stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal

from kvsize import attention
from kvsize.api import size as size_of
from kvsize.dtypes import torch_dtype
from kvsize.errors import ConfigError, UsageError
from kvsize.layers import (
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    RecurrentState,
    TokenTensor,
)

if TYPE_CHECKING:
    from kvsize.advice import Ask
    from kvsize.model import Model
    from kvsize.results import Size


@dataclass(frozen=True, slots=True)
class Key:
    """A value the figure rests on, and where it was found."""

    key: str
    value: object
    origin: str
    detail: str


@dataclass(frozen=True, slots=True)
class Factor:
    """One number of a multiplication: `value` of `unit`, and how it came about."""

    value: int
    unit: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """Layers that are alike: their tensors, and the factors whose product is total_bytes."""

    kind: str
    layers: int
    tensors: tuple[str, ...]
    factors: tuple[Factor, ...]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Query rows that one layer computes while generating, with a cache and without one."""

    prompt: int
    new: int
    sequences: int
    num_attention_heads: int
    without_cache: int
    with_cache: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which query heads read which KV head: query head h reads h // group_size."""

    num_attention_heads: int
    num_key_value_heads: int
    group_size: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A figure taken apart."""

    schema_version: Literal[1] = 1
    model: str
    hub_id: str | None
    source: str
    attention: str
    attention_detail: str
    engine: str
    engine_version: str
    cache: str
    kv_dtype: str
    context: int
    sequences: int
    total_bytes: int
    token_bytes: int
    keys: tuple[Key, ...]
    terms: tuple[Term, ...]
    query_rows: QueryRows | None
    sharing: tuple[Sharing, ...]


def explain(
    model: Model, ask: Ask, *, context: int, sequences: int, prompt: int, new: int
) -> Explanation:
    """The derivation of one figure, with `prompt` and `new` tokens to show the query rows for.

    Raises what `kvsize.size` raises, and ConfigError where heads cannot share KV heads equally.
    """
    from kvsize.report import token_bytes

    keys = _keys(model)
    size = size_of(model, context=context, sequences=sequences, **ask)
    one = size_of(model, context=context, **ask).total_bytes
    heads = max((h for h, _ in _head_counts(model)), default=0)
    return Explanation(
        model=model.name,
        hub_id=model.hub_id,
        source=model.source,
        attention=attention.attention_name(model.layers),
        attention_detail=attention.attention_detail(model.layers),
        engine=size.engine,
        engine_version=size.engine_version,
        cache=size.cache,
        kv_dtype=size.kv_dtype,
        context=size.context,
        sequences=size.sequences,
        total_bytes=size.total_bytes,
        token_bytes=token_bytes(model, context, ask, one),
        keys=keys,
        terms=_terms(model, size),
        query_rows=query_rows(prompt, new, sequences, heads) if heads else None,
        sharing=_sharing(model),
    )


def query_rows(prompt: int, new: int, sequences: int, num_attention_heads: int) -> QueryRows:
    """Query rows of one layer for generating `new` tokens after `prompt` tokens.

    Without a cache step i computes all `prompt + i` rows again, for i = 0 … new - 1. With one the
    first step computes the prompt's rows, each later step one row; the last token is never fed.
    So a prompt of 12 and 20 new tokens, 2 sequences, 4 heads: 3,440 rows against 248.
    """
    if min(prompt, new, sequences, num_attention_heads) < 1:
        msg = f"a prompt of {prompt} and {new} new tokens cannot be generated."
        raise UsageError(msg, "give at least one token for each.")
    rows = sequences * num_attention_heads
    without = rows * (new * prompt + new * (new - 1) // 2)
    cached = rows * (prompt + new - 1)
    ratio = round(without / cached, 4)
    return QueryRows(prompt, new, sequences, num_attention_heads, without, cached, ratio)


def kv_head_of(query_head: int, num_attention_heads: int, num_key_value_heads: int) -> int:
    """The KV head that a query head reads; ConfigError where heads do not form equal groups.

    Contiguous groups, `h // (num_attention_heads // num_key_value_heads)`: what repeat_kv of
    transformers 5.24.0 gives (models/llama/modeling_llama.py).
    """
    return query_head // group_size(num_attention_heads, num_key_value_heads)


def group_size(num_attention_heads: int, num_key_value_heads: int) -> int:
    """How many query heads share a KV head; ConfigError where they do not form equal groups."""
    size, rest = divmod(num_attention_heads, num_key_value_heads)
    if rest or not size:
        msg = (
            f"num_key_value_heads {num_key_value_heads} does not divide "
            f"num_attention_heads {num_attention_heads}."
        )
        raise ConfigError(msg, "every KV head serves the same number of query heads; correct the file.")
    return size


def _keys(model: Model) -> tuple[Key, ...]:
    sections = [model.config] if model.config is model.root else [model.root, model.config]
    found = [origin for section in sections for origin in section.origins.values()]
    return tuple(
        Key(origin.key, origin.value, origin.kind, origin.detail)
        for origin in found
        if not isinstance(origin.value, dict) and origin.value not in (None, False, [])
    )


def _head_counts(model: Model) -> list[tuple[int, int]]:
    layers = attention.attention_layers(model.layers)
    return [
        (layer.num_attention_heads, layer.num_key_value_heads)
        for layer in layers
        if isinstance(layer, FullAttention)
    ]


def _sharing(model: Model) -> tuple[Sharing, ...]:
    counts = _head_counts(model)
    return tuple(
        Sharing(heads, cached, group_size(heads, cached), counts.count((heads, cached)))
        for heads, cached in dict.fromkeys(counts)
    )


def _terms(model: Model, size: Size) -> tuple[Term, ...]:
    """The engine's groups with the factors of each, where its layers are the model's."""
    if len(size.layer_bytes) != len(model.layers):
        return tuple(Term(g.kind, g.layers, g.tensors, (), g.total_bytes) for g in size.groups)
    alike: dict[tuple[Layer, int], int] = {}
    for each in zip(model.layers, size.layer_bytes, strict=True):
        alike[each] = alike.get(each, 0) + 1
    return ()
