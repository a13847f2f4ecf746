"""Where a figure comes from: the keys, the tensors, the multiplication, and what is not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from kvsize import attention
from kvsize.api import size as size_of
from kvsize.dtypes import torch_dtype
from kvsize.engines import engine as find_engine
from kvsize.engines.options import Request
from kvsize.errors import ConfigError, UsageError
from kvsize.layers import FullAttention
from kvsize.record import Record
from kvsize.report import token_bytes

if TYPE_CHECKING:
    from kvsize.advice import Ask
    from kvsize.engines.transformers.tensors import CacheTensor
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Size

DEFAULT_CONTEXT = 32768


class Key(Record):
    """A value the figure rests on, and where it was found: config.json, class default or rule."""

    key: str
    value: object
    origin: str
    detail: str


class Tensor(Record):
    """A tensor of one layer: total_bytes is the product of `shape` and `element_bytes`."""

    name: str
    axes: str
    shape: tuple[int, ...]
    dtype: str
    element_bytes: int
    total_bytes: int


class Term(Record):
    """Layers that are alike: total_bytes is `layers` times the sum of one layer's tensors.

    `tensors` is empty for an engine that does not allocate layer by layer.
    """

    kind: str
    layers: int
    tensors: tuple[Tensor, ...]
    total_bytes: int


class QueryRows(Record):
    """Query rows that one layer computes while generating, with a cache and without one."""

    prompt: int
    new: int
    sequences: int
    num_attention_heads: int
    without_cache: int
    with_cache: int
    ratio: float


class Sharing(Record):
    """Which query heads read which KV head, in `layers` layers: query head h reads h // group_size."""

    num_attention_heads: int
    num_key_value_heads: int
    group_size: int
    layers: int


class Explanation(Record, kw_only=True):
    """One figure taken apart."""

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
    kv_dtype_assumed: bool
    context: int
    sequences: int
    token_bytes: int
    total_bytes: int
    keys: tuple[Key, ...]
    terms: tuple[Term, ...]
    query_rows: QueryRows | None
    sharing: tuple[Sharing, ...]


def explain(
    model: Model, ask: Ask, context: int | None, sequences: int, example: tuple[int, int]
) -> Explanation:
    """The derivation of one figure; `example` is the prompt and new tokens to count query rows for.

    No `context`: the model's limit, 32,768 tokens at most. Raises what `kvsize.size` raises, and ConfigError where heads cannot share KV heads equally.
    """
    keys = keys_of(model)
    context = context or min(model.context_limit or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    size = size_of(model, context=context, sequences=sequences, **ask)
    one = size_of(model, context=context, **ask).total_bytes
    layers = attention.attention_layers(model.layers)
    heads = max((layer.num_attention_heads for layer in layers), default=0)
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
        kv_dtype_assumed=model.dtype_assumed and ask["kv_dtype"] == "auto",
        context=context,
        sequences=sequences,
        token_bytes=token_bytes(model, context, ask, one),
        total_bytes=size.total_bytes,
        keys=keys,
        terms=_terms(model, ask, size),
        query_rows=query_rows(*example, sequences, heads) if heads else None,
        sharing=_sharing(model),
    )


def query_rows(prompt: int, new: int, sequences: int, num_attention_heads: int) -> QueryRows:
    """Query rows of one layer for generating `new` tokens after `prompt` tokens.

    Without a cache step i computes all `prompt + i` rows again, for i = 0 … new - 1. With one the
    first step computes the prompt's rows and each later step one; the last token is never fed.
    Raises UsageError for a count below one.
    """
    if min(prompt, new, sequences, num_attention_heads) < 1:
        msg = f"{new} new tokens after a prompt of {prompt} cannot be generated."
        raise UsageError(msg, "give at least one token for each.")
    rows = sequences * num_attention_heads
    without = rows * (new * prompt + new * (new - 1) // 2)
    cached = rows * (prompt + new - 1)
    ratio = round(without / cached, 4)
    return QueryRows(prompt, new, sequences, num_attention_heads, without, cached, ratio)


def kv_head_of(query_head: int, num_attention_heads: int, num_key_value_heads: int) -> int:
    """The KV head that `query_head` reads; ConfigError where heads do not form equal groups.

    Contiguous groups, `h // (num_attention_heads // num_key_value_heads)`: the order of repeat_kv
    in transformers 5.24.0, models/llama/modeling_llama.py.
    """
    return query_head // group_size(num_attention_heads, num_key_value_heads)


def group_size(num_attention_heads: int, num_key_value_heads: int) -> int:
    """How many query heads share a KV head; ConfigError where they do not form equal groups."""
    if num_key_value_heads < 1 or num_attention_heads % num_key_value_heads:
        msg = (
            f"num_key_value_heads {num_key_value_heads} does not divide "
            f"num_attention_heads {num_attention_heads}."
        )
        raise ConfigError(msg, "each KV head serves equally many query heads; correct the config.")
    return num_attention_heads // num_key_value_heads


def keys_of(model: Model) -> tuple[Key, ...]:
    """Every value that was read to know the layers, with its origin."""
    sections = [model.config] if model.config is model.root else [model.root, model.config]
    found = [origin for section in sections for origin in section.origins.values()]
    return tuple(
        Key(origin.key, origin.value, origin.kind, origin.detail)
        for origin in found
        if origin.value not in (None, False, []) and not isinstance(origin.value, Mapping)
    )


def _sharing(model: Model) -> tuple[Sharing, ...]:
    counts = Counter(
        (layer.num_attention_heads, layer.num_key_value_heads)
        for layer in attention.attention_layers(model.layers)
        if isinstance(layer, FullAttention)
    )
    return tuple(
        Sharing(heads, cached, group_size(heads, cached), layers)
        for (heads, cached), layers in counts.items()
    )


def _terms(model: Model, ask: Ask, size: Size) -> tuple[Term, ...]:
    """The engine's groups, each with the tensors of one layer where the engine tells them."""
    tensors_of = getattr(find_engine(ask["engine"]), "tensors", None)
    if tensors_of is None:
        return tuple(Term(each.kind, each.layers, (), each.total_bytes) for each in size.groups)
    request = Request(
        context=size.context,
        sequences=size.sequences,
        kv_dtype=ask["kv_dtype"],
        engine_version=ask["engine_version"],
        options=ask["options"],
    )
    first: dict[Layer, tuple[CacheTensor, ...]] = {}
    for layer, held in zip(model.layers, tensors_of(model, request), strict=False):
        first.setdefault(layer, held)
    return tuple(
        Term(group.kind, group.layers, tuple(map(_tensor, held)), group.total_bytes)
        for group, held in zip(size.groups, first.values(), strict=True)
    )


def _tensor(held: CacheTensor) -> Tensor:
    element_bytes = torch_dtype(held.dtype).block_bytes
    return Tensor(held.name, held.axes, held.shape, held.dtype, element_bytes, held.total_bytes)
