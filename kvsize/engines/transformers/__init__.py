"""Engine `transformers`: what its DynamicCache, StaticCache and QuantizedCache hold.

Rules read in transformers 5.24.0, cache_utils.py, and held against the real classes; older
versions differ as `versions.py` and `implementations.py` list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvsize.dtypes import TORCH_DTYPES
from kvsize.engines.options import Request
from kvsize.engines.transformers.form import Form, form_of
from kvsize.engines.transformers.implementations import cached_layers
from kvsize.engines.transformers.notes import notes
from kvsize.engines.transformers.options import OPTIONS
from kvsize.engines.transformers.tensors import CacheTensor, layer_tensors
from kvsize.engines.transformers.versions import NEWEST, VERSIONS, CachedLayer, ReturnedWindow
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    ReferenceAttention,
)
from kvsize.model import Model
from kvsize.results import LayerGroup, Size

__all__ = [
    "KV_DTYPES",
    "NAME",
    "NEWEST",
    "NOT_MODELLED",
    "OPTIONS",
    "TITLE",
    "VERSIONS",
    "cached",
    "held",
    "peak_bytes",
    "size",
    "tensors",
]

NAME = "transformers"
KV_DTYPES = ("auto", *TORCH_DTYPES)
TITLE = "Hugging Face transformers: DynamicCache, StaticCache and QuantizedCache"
NOT_MODELLED = (
    "Attention masks, activations and the memory that torch's allocator adds are not counted.",
    "Bookkeeping scalars of 8 bytes per layer (positions, lengths) are not counted.",
    "Fused GPU kernels may return recurrent states in another dtype than the reference path.",
)
# Their update makes copies that kvsize has no rule for.
WITHOUT_PEAK = (CompressedAttention, ReferenceAttention, ReturnedWindow)


def size(model: Model, request: Request) -> Size:
    """The bytes that the cache's tensors hold, their storages, and the peak while it grows."""
    form = form_of(model, request)
    layers = cached(model, form)
    per_layer = held(layers, form)
    layer_bytes = tuple(sum(t.total_bytes for t in layer) for layer in per_layer)
    total_bytes = sum(layer_bytes)
    details = _details(layers, per_layer, form)
    prefilled = per_layer if form.prompt is None else held(layers, form.after(form.prompt))
    return Size(
        engine=NAME,
        engine_version=form.rules.version,
        cache=model.cache_class or f"{form.cache.capitalize()}Cache",
        context=request.context or form.tokens - model.prompt_tokens,
        sequences=request.sequences,
        kv_dtype=form.dtype.name,
        total_bytes=total_bytes,
        layer_bytes=layer_bytes,
        allocated_bytes=_storages(per_layer),
        prefill_bytes=sum(t.prefill_bytes for layer in prefilled for t in layer),
        peak_bytes=peak_bytes(model, layers, form),
        rank_bytes=_rank_bytes(model, total_bytes, request),
        groups=_groups(layers, per_layer),
        details=details,
        notes=notes(model, form, details),
    )


def tensors(model: Model, request: Request) -> list[tuple[CacheTensor, ...]]:
    """Every tensor of the cache, layer by layer, in the cache object's order."""
    form = form_of(model, request)
    return held(cached(model, form), form)


def cached(model: Model, form: Form) -> Sequence[CachedLayer]:
    """The model's layers as this kind of cache holds them in this version."""
    layers = form.rules.layers(model, "static" if form.cache == "static" else "dynamic")
    if form.cache == "quantized":
        from kvsize.engines.transformers.quantized import quantized_layers

        return quantized_layers(model, layers, form.rules)
    return cached_layers(layers, form.made, form.rules)


def held(layers: Sequence[CachedLayer], form: Form) -> list[tuple[CacheTensor, ...]]:
    """Every tensor of these layers, as `cached` gives them; EngineRefuses as `size`."""
    if form.cache == "quantized":
        from kvsize.engines.transformers.quantized import quantized_tensors

        made = {layer: tuple(quantized_tensors(layer, form)) for layer in set(layers)}
    else:
        made = {layer: tuple(layer_tensors(layer, form)) for layer in set(layers)}
    return [made[layer] for layer in layers]


def _storages(per_layer: Sequence[tuple[CacheTensor, ...]]) -> int:
    return sum(t.storage_bytes for layer in per_layer for t in layer)


def peak_bytes(model: Model, layers: Sequence[CachedLayer], form: Form) -> int | None:
    """The peak of the last token's pass, and of the first after a stated prompt.

    None where kvsize has no rule. A first pass stores what it is given: its peak is its result.
    """
    known = not any(isinstance(layer, WITHOUT_PEAK) for layer in layers)
    if form.cache == "quantized" or model.cache_class is not None or not known:
        return None
    from kvsize.engines.transformers.peak import step_peak

    first = 1 if form.prompt is None else form.prompt
    if form.tokens == first:
        return _storages(held(layers, form.after(first)))
    steps = {form.tokens} if form.prompt is None else {first + 1, form.tokens}
    return max(
        step_peak(held(layers, form.after(step - 1)), held(layers, form.after(step)))
        for step in steps
    )


def _details(
    layers: Sequence[CachedLayer], per_layer: list[tuple[CacheTensor, ...]], form: Form
) -> Mapping[str, object]:
    """Where an offloaded cache lies, and what a quantized one rebuilds for every token."""
    if form.made.offloaded:
        from kvsize.engines.transformers.offloading import offloading_details

        return offloading_details(layers, per_layer, form)
    if form.cache == "quantized":
        plain = [tuple(layer_tensors(layer, form)) for layer in set(layers)]
        largest = max((sum(t.total_bytes for t in layer) for layer in plain), default=0)
        return {"dequantized_layer_bytes": largest}
    return {}


def _rank_bytes(model: Model, total_bytes: int, request: Request) -> tuple[int, ...]:
    """Per GPU: tensor parallelism splits the cached heads evenly, where they divide."""
    tp = request.tensor_parallel_size
    if request.pipeline_parallel_size > 1:
        message = "transformers has no pipeline parallelism that splits a cache."
        raise UsageError(message, "use --pp with an engine that has it, such as vllm.")
    if tp == 1:
        return (total_bytes,)
    for layer in set(model.layers):
        attention = layer.attention if isinstance(layer, HybridLayer) else layer
        divides = (
            isinstance(attention, FullAttention | CrossAttention)
            and attention.num_key_value_heads % tp == 0
        )
        if not divides or isinstance(layer, HybridLayer):
            message = f"tensor_parallel_size {tp} does not split every layer's cache evenly."
            raise EngineRefuses(message, "use a divisor of num_key_value_heads, or 1.")
    return (total_bytes // tp,) * tp


KINDS = {
    "FullAttention": "full attention",
    "SlidingAttention": "sliding window",
    "ChunkedAttention": "chunked attention",
    "LatentAttention": "latent (MLA)",
    "CompressedAttention": "compressed",
    "ReferenceAttention": "prompt and window",
    "RecurrentState": "recurrent state",
    "HybridLayer": "attention and state",
    "CrossAttention": "cross-attention",
    "NoCache": "no cache",
    "ReturnedWindow": "views for shared layers",
}


def _kind(layer: CachedLayer) -> str:
    """What such layers are called; those of one class that keep different things differ."""
    match layer:
        case CompressedAttention(compress_rate=rate):
            detail = f", ratio {rate}"
        case FullAttention(extras=(_, *_)) | LatentAttention(extras=(_, *_)):
            detail = " with indexer"
        case _:
            detail = ""
    return KINDS[type(layer).__name__] + detail


def _groups(
    layers: Sequence[CachedLayer], per_layer: list[tuple[CacheTensor, ...]]
) -> tuple[LayerGroup, ...]:
    """Equal layers together, in the order of their first appearance."""
    held: dict[CachedLayer, tuple[CacheTensor, ...]] = {}
    count: dict[CachedLayer, int] = {}
    for layer, parts in zip(layers, per_layer, strict=True):
        held[layer] = parts
        count[layer] = count.get(layer, 0) + 1
    return tuple(
        LayerGroup(
            kind=_kind(layer),
            layers=count[layer],
            tensors=tuple(part.described() for part in parts),
            total_bytes=count[layer] * sum(part.total_bytes for part in parts),
        )
        for layer, parts in held.items()
    )
