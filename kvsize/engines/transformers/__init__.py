"""Engine `transformers`: what DynamicCache and StaticCache hold, tensor by tensor.

Rules read in transformers 5.24.0, cache_utils.py, and held against the real classes; older
versions differ as `versions.py` lists.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvsize.dtypes import KVDtype, torch_dtype
from kvsize.engines.options import Option, Request, resolve
from kvsize.engines.transformers.tensors import CacheTensor, Form, layer_tensors
from kvsize.engines.transformers.versions import NEWEST, VERSIONS, CachedLayer, rules_for
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import CrossAttention, FullAttention, HybridLayer, LatentAttention
from kvsize.layers import SlidingAttention as Sliding
from kvsize.model import Model
from kvsize.results import LayerGroup, Size

__all__ = ["NAME", "NEWEST", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "size", "tensors"]

NAME = "transformers"
TITLE = "Hugging Face transformers: DynamicCache and StaticCache"
OPTIONS = (
    Option(
        name="cache",
        kind=str,
        default="dynamic",
        help="dynamic grows with the tokens, static is allocated for max_cache_len at once",
        choices=("dynamic", "static"),
    ),
    Option(
        name="max_cache_len",
        kind=int,
        default=None,
        help="tokens a static cache is allocated for (default: the context)",
        least=1,
    ),
    Option(
        name="encoder_tokens",
        kind=int,
        default=None,
        help="tokens of the encoder, for cross-attention (default: the model's own length)",
        least=0,
    ),
)
NOT_MODELLED = (
    "Attention masks, activations and the memory that torch's allocator adds are not counted.",
    "Bookkeeping scalars of 8 bytes per layer (positions, lengths) are not counted.",
    "Fused GPU kernels may return recurrent states in another dtype than the reference path.",
)


def size(model: Model, request: Request) -> Size:
    """The bytes that the cache's tensors hold, and their storages."""
    form = _form(model, request)
    layers = form.rules.layers(model, form.cache)
    per_layer = tensors(model, request)
    layer_bytes = tuple(sum(t.total_bytes for t in layer) for layer in per_layer)
    total_bytes = sum(layer_bytes)
    return Size(
        engine=NAME,
        engine_version=form.rules.version,
        cache=model.cache_class or f"{form.cache.capitalize()}Cache",
        context=request.context,
        sequences=request.sequences,
        kv_dtype=form.dtype.name,
        total_bytes=total_bytes,
        layer_bytes=layer_bytes,
        allocated_bytes=sum(t.storage_bytes for layer in per_layer for t in layer),
        prefill_bytes=sum(t.prefill_bytes for layer in per_layer for t in layer),
        rank_bytes=_rank_bytes(model, total_bytes, request),
        groups=_groups(layers, per_layer),
    )


def tensors(model: Model, request: Request) -> list[tuple[CacheTensor, ...]]:
    """Every tensor of the cache, layer by layer, in the cache object's order."""
    form = _form(model, request)
    layers = form.rules.layers(model, form.cache)
    made = {layer: tuple(layer_tensors(layer, form)) for layer in set(layers)}
    return [made[layer] for layer in layers]


def _form(model: Model, request: Request) -> Form:
    """The request with every default filled in; raises what transformers would raise."""
    if request.context < 1:
        message = "a transformers cache needs a context of at least 1 token."
        raise UsageError(message, "give --ctx 32k, or another number of tokens.")
    options = resolve(NAME, OPTIONS, request.options)
    cache = str(options["cache"])
    tokens = request.context + model.prompt_tokens
    length = options["max_cache_len"]
    max_cache_len = int(str(length)) if length is not None else tokens
    if cache == "static":
        _check_static(model, tokens, max_cache_len)
    encoder = options["encoder_tokens"]
    if encoder is None:
        encoder = model.encoder_tokens if model.encoder_tokens is not None else request.context
    return Form(
        cache=cache,
        rules=rules_for(request.engine_version),
        tokens=tokens,
        sequences=request.sequences,
        dtype=_dtype(model, request.kv_dtype),
        max_cache_len=max_cache_len,
        encoder_tokens=int(str(encoder)),
    )


def _dtype(model: Model, kv_dtype: str) -> KVDtype:
    """Caches take the dtype of the keys they are given: the model's."""
    return torch_dtype(model.dtype if kv_dtype == "auto" else kv_dtype)


def _check_static(model: Model, tokens: int, max_cache_len: int) -> None:
    if model.no_static_cache is not None:
        message = f"{model.name} has no StaticCache: {model.no_static_cache}."
        raise EngineRefuses(message, "use the dynamic cache.")
    whole = any(
        isinstance(layer, FullAttention | LatentAttention) and not isinstance(layer, Sliding)
        for layer in model.layers
    )
    if whole and tokens > max_cache_len:
        message = f"a StaticCache of max_cache_len {max_cache_len} cannot hold {tokens} tokens."
        raise EngineRefuses(message, f"give max_cache_len at least {tokens}.")


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
            kind=KINDS[type(layer).__name__],
            layers=count[layer],
            tensors=tuple(part.described() for part in parts),
            total_bytes=count[layer] * sum(part.total_bytes for part in parts),
        )
        for layer, parts in held.items()
    )
