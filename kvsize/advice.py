"""What is easily counted wrong about a model, and what had to be assumed: warnings with codes.

One function for each code, named in ADVICE; docs/warnings.md explains them to users. A code never
changes its meaning. KV006, KV008 and KV010 say that the figure rests on something that was not
read; `--strict` turns them into errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypedDict

from kvsize import units
from kvsize.api import size as size_of
from kvsize.attention import attention_layers
from kvsize.config import Config, Origin
from kvsize.dtypes import TORCH_DTYPES, canonical
from kvsize.errors import GuessRefused
from kvsize.families import CONTEXT_LIMITS
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    SlidingAttention,
)
from kvsize.model import Model
from kvsize.record import Record, replace
from kvsize.results import Size

FORMULA = "2 · layers · heads · head_dim · bytes"


class Ask(TypedDict):
    """What all figures of a run have in common: the keyword arguments of `kvsize.size`."""

    kv_dtype: str
    engine: str
    engine_version: str | None
    options: Mapping[str, object]
    tensor_parallel_size: int
    pipeline_parallel_size: int


class Advice(Record):
    """A warning; `ratio` is the factor it tells of, where it tells of one."""

    code: str
    message: str
    ratio: float | None = None


class Case(Record):
    """A figure with what it was asked for."""

    model: Model
    ask: Ask
    size: Size

    def dtype(self) -> str | None:
        """The figure's dtype where a plain tensor can have it; None where it packs blocks."""
        named = canonical(self.size.kv_dtype)
        dtype = self.model.dtype if named == "auto" else named
        return dtype if dtype in TORCH_DTYPES else None

    def bytes_with(self, layers: tuple[Layer, ...]) -> int | None:
        """What plain tensors would take for a model with other layers (a DynamicCache's bytes)."""
        dtype = self.dtype()
        if dtype is None:
            return None
        model = replace(self.model, layers=layers)
        context, sequences = self.size.context, self.size.sequences
        return size_of(model, context=context, sequences=sequences, kv_dtype=dtype).total_bytes


def warnings(case: Case) -> Iterator[Advice]:
    """Every warning about a figure, in the order of their codes."""
    for find in ADVICE.values():
        yield from find(case)


def refuse_guesses(model: Model, ask: Ask) -> None:
    """`--strict`: raise GuessRefused where a figure for `model` would rest on a guess."""
    if dtype_is_assumed(model, ask):
        msg = f"{model.where}: no dtype is stated, and --strict forbids to assume {model.dtype}."
        raise GuessRefused(msg, f"give the dtype it runs in, such as --kv-dtype {model.dtype}.")
    for guess in model.guesses:
        msg = f"{model.where}: {guess.code}: {guess.message}"
        raise GuessRefused(msg, "leave out --strict to get the figure with a warning.")


def dtype_is_assumed(model: Model, ask: Ask) -> bool:
    """Whether the figure's dtype is neither asked for nor stated in the config."""
    return model.dtype_assumed and ask["kv_dtype"] == "auto"


def mha_bytes(case: Case) -> int | None:
    """What the MHA formula gives: 2 · layers · heads · head_dim · bytes, for every token.

    All from config.json: heads is num_attention_heads, head_dim that key, or where there is none
    hidden_size // num_attention_heads. None for a model without attention heads, and for a
    dtype that packs elements into blocks.
    """
    dtype, dimensions = case.dtype(), _formula_dimensions(case.model)
    if dtype is None or dimensions is None:
        return None
    layers, heads, head_dim = dimensions
    elements = 2 * layers * heads * head_dim * case.size.context * case.size.sequences
    return TORCH_DTYPES[dtype].bytes_of(elements)


def overcount(counted_bytes: int | None, total_bytes: int) -> float | None:
    """How many times `total_bytes` is in `counted_bytes`, to four digits after the point."""
    return round(counted_bytes / total_bytes, 4) if counted_bytes and total_bytes else None


def times(ratio: float) -> str:
    """A factor as people read it: 8.0 → `8×`, 24.8889 → `24.89×`."""
    return f"{ratio:,.2f}".rstrip("0").rstrip(".") + "×"


def counted_as_mha(case: Case) -> Iterator[Advice]:
    """KV001: the widely copied MHA formula is wrong for this model, and by how much."""
    counted, total = mha_bytes(case), case.size.total_bytes
    ratio = overcount(counted, total)
    if counted is None or ratio is None or counted == total:
        return
    verb = f"overcounts this model {times(ratio)}" if ratio > 1 else "undercounts this model"
    yield Advice(
        "KV001",
        f"the MHA formula {FORMULA} {verb}: {units.format_bytes(counted)} against "
        f"{units.format_bytes(total)} at {units.format_tokens(case.size.context)} tokens.",
        ratio,
    )


def head_dim_is_not_the_quotient(case: Case) -> Iterator[Advice]:
    """KV002: hidden_size / num_attention_heads is not the width of this model's heads."""
    config = _reader(case.model)
    hidden, heads = (
        config.optional_count("hidden_size"),
        config.optional_count("num_attention_heads"),
    )
    found = [
        each for each in attention_layers(case.model.layers) if isinstance(each, FullAttention)
    ]
    widths = sorted({layer.head_dim for layer in found})
    if hidden is None or heads is None or not widths or widths == [hidden / heads]:
        return
    quotient = f"{hidden / heads:,.2f}".rstrip("0").rstrip(".")
    named = " and ".join(str(width) for width in widths)
    yield Advice(
        "KV002",
        f"head_dim is {named}, not hidden_size / num_attention_heads = {quotient}.",
    )


def counted_without_windows(case: Case) -> Iterator[Advice]:
    """KV003: some layers keep a window or a chunk; counting them in full overstates the cache."""
    layers = case.model.layers
    windows = sorted({kept for layer in layers if (kept := _window(layer)) is not None})
    if not windows:
        return
    counted = case.bytes_with(tuple(_in_full(layer) for layer in layers))
    ratio = overcount(counted, case.size.total_bytes)
    if counted is None or ratio is None or ratio < 1.01:  # a window of one chunk is no saving
        return
    windowed = sum(_window(layer) is not None for layer in layers)
    named = " or ".join(units.format_tokens(window) for window in windows)
    yield Advice(
        "KV003",
        f"{windowed} of {len(layers)} layers look back {named} tokens at most; counting them in "
        f"full gives {units.format_bytes(counted)}, {times(ratio)} this figure.",
        ratio,
    )


def latent_counted_as_heads(case: Case) -> Iterator[Advice]:
    """KV004: MLA caches one latent for all heads, not keys and values for each."""
    latents = [layer for layer in case.model.layers if isinstance(layer, LatentAttention)]
    if not latents:
        return
    counted = case.bytes_with(tuple(_expanded(layer) for layer in case.model.layers))
    ratio = overcount(counted, case.size.total_bytes)
    if counted is None or ratio is None or ratio <= 1:
        return
    latent = latents[0]
    yield Advice(
        "KV004",
        f"one latent of {latent.kv_lora_rank} + {latent.qk_rope_head_dim} serves all "
        f"{latent.num_attention_heads} heads; keys and values for each head would take "
        f"{units.format_bytes(counted)}, {times(ratio)} this figure.",
        ratio,
    )


def beyond_the_limit(case: Case) -> Iterator[Advice]:
    """KV005: the context is longer than the model is made for."""
    context, limit = case.size.context, case.model.context_limit
    if limit is not None and context > limit:
        asked, longest = units.format_tokens(context), units.format_tokens(limit)
        yield Advice("KV005", f"{asked} tokens are beyond the model's limit of {longest}.")


def dtype_assumed(case: Case) -> Iterator[Advice]:
    """KV006: the config states no dtype, so one was assumed."""
    if dtype_is_assumed(case.model, case.ask):
        yield Advice("KV006", f"the config states no dtype; {case.model.dtype} is assumed.")


def from_class_defaults(case: Case) -> Iterator[Advice]:
    """KV007: keys that config.json leaves out were filled from the model type's class."""
    windowed = any(_window(layer) is not None for layer in case.model.layers)
    filled = [
        origin
        for origin in case.model.config.origins.values()
        if _decides_the_cache(origin) and (windowed or "window" not in origin.key)
    ]
    if filled:
        keys = ", ".join(f"{origin.key} {origin.value}" for origin in filled)
        yield Advice("KV007", f"not in config.json, so as in {filled[0].detail}: {keys}.")


def unknown_model_type(case: Case) -> Iterator[Advice]:
    """KV008: no rule is known for the model type; it was read as a plain decoder."""
    yield from _guesses(case, "KV008")


def prompt_outlives_window(case: Case) -> Iterator[Advice]:
    """KV009: the storage of windowed layers holds the whole prompt until the next token."""
    size = case.size
    ratio = overcount(size.prefill_bytes, size.total_bytes)
    if ratio is None or size.prefill_bytes <= size.allocated_bytes:
        return
    yield Advice(
        "KV009",
        f"after a prompt of {units.format_tokens(size.context)} tokens the storage holds "
        f"{units.format_bytes(size.prefill_bytes)}, {times(ratio)} this figure, until the next "
        "token is added.",
        ratio,
    )


def misread_by_the_engine(case: Case) -> Iterator[Advice]:
    """KV010: the engine's loader reads the file otherwise than it was meant."""
    yield from _guesses(case, "KV010")


ADVICE: Mapping[str, Callable[[Case], Iterator[Advice]]] = {
    "KV001": counted_as_mha,
    "KV002": head_dim_is_not_the_quotient,
    "KV003": counted_without_windows,
    "KV004": latent_counted_as_heads,
    "KV005": beyond_the_limit,
    "KV006": dtype_assumed,
    "KV007": from_class_defaults,
    "KV008": unknown_model_type,
    "KV009": prompt_outlives_window,
    "KV010": misread_by_the_engine,
}
GUESSES = {"KV006", "KV008", "KV010"}
"""The codes of figures that rest on something that was not read."""


def _guesses(case: Case, code: str) -> Iterator[Advice]:
    for guess in case.model.guesses:
        if guess.code == code:
            yield Advice(code, guess.message)


def _reader(model: Model) -> Config:
    """The decoder's section, to read without leaving a trace in its origins."""
    return model.config.unread()


def _formula_dimensions(model: Model) -> tuple[int, int, int] | None:
    """Layers, heads and head_dim as the MHA formula takes them; None without attention.

    MLA: a head_dim that only the class has means something else there (DeepseekV32Config's is
    the rotary key's), so it counts only where the file states it.
    """
    config, attending = _reader(model), attention_layers(model.layers)
    if not attending:
        return None
    latent = any(isinstance(layer, LatentAttention) for layer in attending)
    stated = config.optional_count("head_dim") if config.has("head_dim") or not latent else None
    heads = config.optional_count("num_attention_heads") or attending[0].num_attention_heads
    hidden = config.optional_count("hidden_size")
    head_dim = stated or (hidden // heads if hidden else None)
    layers = config.optional_count("num_hidden_layers") or len(model.layers)
    return (layers, heads, head_dim) if head_dim else None


def _decides_the_cache(origin: Origin) -> bool:
    """Whether a class default is a number that sizes something (a context limit does not)."""
    counted = isinstance(origin.value, int) and not isinstance(origin.value, bool)
    default = origin.kind == "class default" and origin.key not in CONTEXT_LIMITS
    return default and counted and origin.value != 0


def _window(layer: Layer) -> int | None:
    match layer:
        case SlidingAttention() | LatentAttention():
            return layer.sliding_window
        case ChunkedAttention():
            return layer.attention_chunk_size
        case HybridLayer(attention=SlidingAttention() as half):
            return half.sliding_window
        case _:
            return None


def _in_full(layer: Layer) -> Layer:
    match layer:
        case SlidingAttention() | ChunkedAttention():
            return _without_window(layer)
        case HybridLayer(attention=SlidingAttention() as half):
            return replace(layer, attention=_without_window(half))
        case LatentAttention():
            return replace(layer, sliding_window=None)
        case _:
            return layer


def _without_window(layer: FullAttention) -> FullAttention:
    return FullAttention(
        num_attention_heads=layer.num_attention_heads,
        num_key_value_heads=layer.num_key_value_heads,
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim,
        extras=layer.extras,
    )


def _expanded(layer: Layer) -> Layer:
    if not isinstance(layer, LatentAttention):
        return layer
    return FullAttention(
        num_attention_heads=layer.num_attention_heads,
        num_key_value_heads=layer.num_attention_heads,
        head_dim=layer.qk_nope_head_dim + layer.qk_rope_head_dim,
        v_head_dim=layer.v_head_dim,
        extras=layer.extras,
    )
