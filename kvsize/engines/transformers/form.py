"""A request with every default filled in: which cache, for how many tokens, in which dtype."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.dtypes import KVDtype, torch_dtype
from kvsize.engines.options import Request, resolve
from kvsize.engines.transformers.implementations import Implementation, implementation
from kvsize.engines.transformers.options import OPTIONS
from kvsize.engines.transformers.versions import Rules, rules_for
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    SlidingAttention,
)
from kvsize.model import Model
from kvsize.record import Record, fields, replace

# Bits and axes that each backend's layer class accepts (cache_utils.py, `__init__`).
BACKENDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "quanto": ((2, 4), (0, -1)),
    "hqq": ((1, 2, 3, 4, 8), (0, 1)),
}


class Quantization(Record):
    """The arguments of QuantizedCache, with its defaults (transformers 5.24.0)."""

    backend: str = "quanto"
    nbits: int = 4
    axis_key: int = 0
    axis_value: int = 0
    q_group_size: int = 64
    residual_length: int = 128


class Form(Record, kw_only=True):
    """What a cache is built for.

    `prompt`: tokens of the first forward pass, the rest came one by one; None where the request
    does not say, then the figures are those of a cache that has been decoding for a while.
    """

    made: Implementation
    rules: Rules
    tokens: int
    prompt: int | None
    sequences: int
    dtype: KVDtype
    max_cache_len: int
    encoder_tokens: int
    offload_only_non_sliding: bool
    quantization: Quantization
    ignored_max_cache_len: bool = False

    @property
    def cache(self) -> str:
        """`dynamic`, `static` or `quantized`."""
        return self.made.cache

    @property
    def decoded(self) -> bool:
        """Whether tokens came after the first forward pass."""
        return self.prompt is None or self.prompt < self.tokens

    def after(self, tokens: int) -> Form:
        """The same cache when it had seen `tokens` tokens."""
        prompt = self.prompt if self.prompt is None else min(self.prompt, tokens)
        return replace(self, tokens=tokens, prompt=prompt)


def form_of(model: Model, request: Request) -> Form:
    """The request as a Form; raises what transformers would raise for it."""
    options = resolve("transformers", OPTIONS, request.options)
    rules = rules_for(request.engine_version)
    made = implementation(_name(request.options), rules)
    context, prompt = _lengths(model, request.context, options)
    tokens = context + model.prompt_tokens
    stated = _integer(options, "max_cache_len")
    generating = _integer(options, "new_tokens") is not None
    max_cache_len = stated or tokens
    if generating:
        # generate() takes the longer of what the call needs and generation_config.max_cache_len.
        max_cache_len = max(max_cache_len, tokens)
    if made.cache == "static":
        _check_static(model, tokens, max_cache_len)
    only_non_sliding = options["offload_only_non_sliding"]
    return Form(
        made=made,
        rules=rules,
        tokens=tokens,
        prompt=None if prompt is None else prompt + model.prompt_tokens,
        sequences=request.sequences,
        dtype=torch_dtype(model.dtype if request.kv_dtype == "auto" else request.kv_dtype),
        max_cache_len=max_cache_len,
        encoder_tokens=_encoder_tokens(model, context, options),
        offload_only_non_sliding=made.cache == "static"
        if only_non_sliding is None
        else bool(only_non_sliding),
        quantization=_quantization(request.options, options, made, rules),
        ignored_max_cache_len=stated is not None and made.cache != "static",
    )


def _integer(options: Mapping[str, object], name: str) -> int | None:
    value = options[name]
    return value if isinstance(value, int) else None


def _name(stated: Mapping[str, object]) -> str:
    """The implementation's name, under either spelling of the option."""
    given = [stated[key] for key in ("cache", "cache_implementation") if stated.get(key)]
    if len(set(given)) > 1:
        message = f"cache is '{given[0]}' and cache_implementation is '{given[1]}'."
        raise UsageError(message, "give one of them: they are two spellings of one option.")
    return str(given[0]) if given else "dynamic"


def _lengths(model: Model, context: int, options: Mapping[str, object]) -> tuple[int, int | None]:
    """Tokens in the cache, and how many of them the first forward pass brought.

    `generate(max_new_tokens=N)` on a prompt of P tokens feeds P + N - 1: the last sampled token
    is never fed back. An encoder-decoder's prompt goes to the encoder; its own cache starts with
    one start token, so it ends at N (measured in transformers 5.24.0).
    """
    prompt, new_tokens = _integer(options, "prompt"), _integer(options, "new_tokens")
    if any(isinstance(layer, CrossAttention) for layer in model.layers):
        prompt = None if new_tokens is None else 1
    if prompt is not None and new_tokens is not None:
        cached = prompt + new_tokens - 1
        if context not in {0, cached}:
            message = (
                f"context {context} contradicts {prompt} prompt and {new_tokens} new tokens, "
                f"which leave {cached} cached."
            )
            raise UsageError(message, "leave the context out, or the prompt and new tokens.")
        return cached, prompt
    if context < 1:
        message = "a transformers cache needs a context of at least 1 token."
        raise UsageError(message, "give --ctx 32k, or another number of tokens.")
    if new_tokens is not None:
        prompt = context - new_tokens + 1
    if prompt is not None and not 1 <= prompt <= context:
        message = f"a prompt of {prompt} tokens cannot be part of a context of {context}."
        raise UsageError(message, f"give a prompt of 1 to {context} tokens, or a longer context.")
    return context, prompt


def _encoder_tokens(model: Model, context: int, options: Mapping[str, object]) -> int:
    """As stated, else the prompt, else the encoder's own length, else the context."""
    for stated in (_integer(options, "encoder_tokens"), _integer(options, "prompt")):
        if stated is not None:
            return stated
    return context if model.encoder_tokens is None else model.encoder_tokens


def _quantization(
    stated: Mapping[str, object], options: Mapping[str, object], made: Implementation, rules: Rules
) -> Quantization:
    """The arguments of QuantizedCache, refused where the class refuses them."""
    names = fields(Quantization)
    given = [name for name in names if name in stated]
    if made.cache != "quantized" and given:
        message = f"{given[0]} is an option of a quantized cache."
        raise UsageError(message, "add cache=quantized, or leave the option out.")
    chosen = Quantization(**{name: options[name] for name in names})  # type: ignore[arg-type]
    if chosen.backend == "fp8":
        _check_fp8(given, rules)
        return chosen
    bits, axes = BACKENDS[chosen.backend]
    for name, legal in (("nbits", bits), ("axis_key", axes), ("axis_value", axes)):
        if getattr(chosen, name) not in legal:
            message = f"the {chosen.backend} backend has no {name} {getattr(chosen, name)}."
            raise EngineRefuses(message, f"use one of {', '.join(map(str, legal))}.")
    return chosen


def _check_fp8(given: list[str], rules: Rules) -> None:
    if rules.number < (5, 21):
        message = f"transformers {rules.version} has no fp8 backend; it came with 5.21."
        raise EngineRefuses(message, "use quanto or hqq.")
    others = [name for name in given if name != "backend"]
    if others:
        message = f"the fp8 backend has one scale per tensor, and no {others[0]}."
        raise EngineRefuses(message, "leave the option out, or use quanto or hqq.")


def _check_static(model: Model, tokens: int, max_cache_len: int) -> None:
    if model.no_static_cache is not None:
        message = f"{model.name} has no StaticCache: {model.no_static_cache}."
        raise EngineRefuses(message, "use the dynamic cache.")
    if any(_keeps_all(layer) for layer in model.layers) and tokens > max_cache_len:
        message = f"a StaticCache of max_cache_len {max_cache_len} cannot hold {tokens} tokens."
        raise EngineRefuses(message, f"give max_cache_len at least {tokens}.")


def _keeps_all(layer: Layer) -> bool:
    """Whether a StaticCache keeps every token of the layer: a window just rolls on."""
    attention = layer.attention if isinstance(layer, HybridLayer) else layer
    if isinstance(attention, LatentAttention):
        return attention.sliding_window is None
    windowed = SlidingAttention | ChunkedAttention
    return isinstance(attention, FullAttention) and not isinstance(attention, windowed)
