"""The tensors one cache layer holds: shapes, bytes, and the bytes of the storages behind them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from kvsize.dtypes import KVDtype, torch_dtype
from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.versions import CachedLayer, ReturnedWindow
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    RecurrentState,
    ReferenceAttention,
    SlidingAttention,
    TokenTensor,
)
from kvsize.record import Record


class CacheTensor(Record, kw_only=True):
    """One tensor of the cache.

    `total_bytes`: its elements. `storage_bytes`: the buffer behind it, larger where the tensor is
    a view. `prefill_bytes`: the same right after a first forward pass over all tokens.
    `growth`: how the next token gets in: `append` (a longer copy), `window` (a longer copy, of
    keys and values at once), `roll` (a copy of the same size), `shift` (one of a column more), or
    `fixed` (written in place).
    """

    name: str
    shape: tuple[int, ...]
    axes: str
    dtype: str
    total_bytes: int
    storage_bytes: int
    prefill_bytes: int
    growth: str = "fixed"

    def described(self) -> str:
        """`keys [batch, 8, seq_len, 128] bfloat16`."""
        return f"{self.name} {self.axes} {self.dtype}"


def plain_tensor(
    name: str, shape: tuple[int, ...], dtype: KVDtype, growth: str = "fixed"
) -> CacheTensor:
    """A tensor with a storage of its own size."""
    size_bytes = prod(shape) * dtype.block_bytes
    return CacheTensor(
        name=name,
        shape=shape,
        axes=f"[{', '.join(map(str, shape))}]",
        dtype=dtype.name,
        total_bytes=size_bytes,
        storage_bytes=size_bytes,
        prefill_bytes=size_bytes,
        growth=growth,
    )


class Span(Record):
    """Tokens along one axis: in the tensor, in its storage, in the storage after a prefill."""

    held: int
    stored: int
    prefilled: int
    growth: str = "fixed"


def layer_tensors(layer: CachedLayer, form: Form) -> Iterator[CacheTensor]:
    """Every tensor of `layer`, in the order the class creates them."""
    match layer:
        case HybridLayer():
            yield from layer_tensors(layer.attention, form)
            yield from layer_tensors(layer.recurrent, form)
        case RecurrentState():
            yield from _states(layer, form)
        case CrossAttention():
            span = _cross_span(layer.sliding_window, form)
            heads, dim = layer.num_key_value_heads, layer.head_dim
            yield _kv("keys", heads, span, dim, form)
            yield _kv("values", heads, span, dim, form)
        case LatentAttention():
            yield from _latent(layer, form)
        case CompressedAttention():
            from kvsize.engines.transformers.compressed import compressed_tensors

            yield from compressed_tensors(layer, form)
        case ReferenceAttention() if form.cache == "static":
            yield from _reference_static(layer, form)
        case ReferenceAttention():
            yield from _reference_dynamic(layer, form)
        case ReturnedWindow(attention=attention):
            yield from _returned(attention, form)
        case FullAttention():
            span = _span(_window(layer), form)
            yield _kv("keys", layer.num_key_value_heads, span, layer.head_dim, form)
            yield _kv("values", layer.num_key_value_heads, span, layer.v_head_dim, form)
            yield from _extras(layer.extras, span, form)
        case _:
            return


def _window(layer: FullAttention) -> int | None:
    match layer:
        case SlidingAttention():
            return layer.sliding_window
        case ChunkedAttention():
            return layer.attention_chunk_size
        case _:
            return None


def _span(window: int | None, form: Form) -> Span:
    """Tokens of a layer with `window` (None: all of them).

    DynamicSlidingWindowLayer keeps a view of the last window - 1 tokens, `full[:, :, 1 - w:]`:
    the storage behind it holds the prompt until the next token, then `window` tokens. For a
    window of 1 that slice is `[0:]`, so everything stays. StaticSlidingWindowLayer allocates
    min(window, max_cache_len).
    """
    tokens = form.tokens
    if form.cache == "static":
        length = form.max_cache_len if window is None else min(window, form.max_cache_len)
        full = window is not None and tokens > length
        return Span(length, length, length, "roll" if full else "fixed")
    if window is None:
        return Span(tokens, tokens, tokens, "append")
    if window == 1:
        return Span(tokens, tokens, tokens, "window")
    stored = min(tokens, window) if form.decoded else tokens
    return Span(min(tokens, window - 1), stored, tokens, "window")


def _cross_span(window: int | None, form: Form) -> Span:
    """The encoder's tokens, which come at once and never grow: a dynamic window stays a view."""
    tokens = form.encoder_tokens
    if form.cache == "static":
        tokens = tokens if window is None else min(window, tokens)
        return Span(tokens, tokens, tokens)
    kept = tokens if window in {None, 1} else min(tokens, (window or 1) - 1)
    return Span(kept, tokens, tokens)


def _kv(name: str, heads: int, span: Span, width: int, form: Form) -> CacheTensor:
    per_token = form.sequences * heads * width * form.dtype.block_bytes
    return CacheTensor(
        name=name,
        shape=(form.sequences, heads, span.held, width),
        axes=f"[batch, {heads}, seq_len, {width}]",
        dtype=form.dtype.name,
        total_bytes=span.held * per_token,
        storage_bytes=span.stored * per_token,
        prefill_bytes=span.prefilled * per_token,
        growth=span.growth,
    )


def _returned(layer: SlidingAttention, form: Form) -> Iterator[CacheTensor]:
    """Nothing while the window is not full: then the returned tensors are the cached ones."""
    if form.tokens < layer.sliding_window:
        return
    span = Span(layer.sliding_window, 0, 0)
    yield _kv("returned keys", layer.num_key_value_heads, span, layer.head_dim, form)
    yield _kv("returned values", layer.num_key_value_heads, span, layer.v_head_dim, form)


def _extras(extras: tuple[TokenTensor, ...], span: Span, form: Form) -> Iterator[CacheTensor]:
    for extra in extras:
        dtype = form.dtype if extra.dtype is None else torch_dtype(extra.dtype)
        per_token = form.sequences * extra.width * dtype.block_bytes
        # Positions grow with the tokens seen in any cache, and one forward pass expands a
        # single row of them over the sequences and axes: a view until the next token.
        held = form.tokens if extra.positions else span.held
        first = dtype.block_bytes if extra.positions else per_token
        axes = extra.shape.format(width=extra.width)
        yield CacheTensor(
            name=extra.name,
            shape=_shape(axes, form.sequences, held),
            axes=axes,
            dtype=dtype.name,
            total_bytes=held * per_token,
            storage_bytes=(held if extra.positions else span.stored)
            * (per_token if form.decoded else first),
            prefill_bytes=(held if extra.positions else span.prefilled) * first,
            growth="append" if extra.positions else span.growth,
        )


def _shape(axes: str, batch: int, tokens: int) -> tuple[int, ...]:
    """`[batch, seq_len, 64]` with the numbers in place."""
    numbers = {"batch": batch, "seq_len": tokens}
    return tuple(
        numbers[axis] if axis in numbers else int(axis) for axis in axes.strip("[]").split(", ")
    )


def _latent(layer: LatentAttention, form: Form) -> Iterator[CacheTensor]:
    """The latent and the rotary key; up to 5.14 the keys and values they expand to."""
    span = _span(layer.sliding_window, form)
    if form.rules.latent_cache:
        if layer.kv_lora_rank:
            yield _kv("keys", 1, span, layer.kv_lora_rank, form)
            yield _kv("values", 1, span, layer.qk_rope_head_dim, form)
    else:
        heads = layer.num_attention_heads
        yield _kv("keys", heads, span, layer.qk_nope_head_dim + layer.qk_rope_head_dim, form)
        yield _kv("values", heads, span, layer.v_head_dim, form)
    yield from _extras(layer.extras, span, form)


def _states(layer: RecurrentState, form: Form) -> Iterator[CacheTensor]:
    for state in layer.states:
        dtype = form.dtype if state.dtype is None else torch_dtype(state.dtype)
        if not form.rules.own_state_dtype and dtype.name == "float32":
            dtype = form.dtype  # up to 5.13 states were cast to the convolution's dtype
        size_bytes = form.sequences * prod(state.shape) * dtype.block_bytes
        shape = (form.sequences, *state.shape)
        yield CacheTensor(
            name=state.name,
            shape=shape,
            axes=f"[batch, {', '.join(map(str, state.shape))}]",
            dtype=dtype.name,
            total_bytes=size_bytes,
            storage_bytes=size_bytes,
            prefill_bytes=size_bytes,
            growth="shift" if state.name.startswith("conv_states") else "fixed",
        )


def _reference_static(layer: ReferenceAttention, form: Form) -> Iterator[CacheTensor]:
    """One buffer of the prompt and the window; `keys` and `prefill_keys` are views of it."""
    window = min(layer.sliding_window, form.max_cache_len)
    seen = form.tokens if form.prompt is None else form.prompt
    prompt = min(form.max_cache_len - window, seen)
    length = prompt + window
    for name, width in (("keys", layer.head_dim), ("values", layer.v_head_dim)):
        heads = layer.num_key_value_heads
        yield _kv(f"all_{name}", heads, Span(length, length, length), width, form)
        for part, tokens in ((f"prefill_{name}", prompt), (name, window)):
            yield _kv(part, heads, Span(tokens, 0, 0), width, form)


def _reference_dynamic(layer: ReferenceAttention, form: Form) -> Iterator[CacheTensor]:
    """The prompt for ever, and a window over what came after it.

    Without a stated prompt, all of the context is taken to be the prompt.
    """
    prompt = form.tokens if form.prompt is None else form.prompt
    generated = form.tokens - prompt
    kept = min(generated, max(layer.sliding_window - 1, 1))
    if layer.sliding_window == 1:
        kept = generated
    spans = {
        "": Span(kept, min(generated, max(layer.sliding_window, kept)), 0),
        "prefill_": Span(prompt, prompt, form.tokens),
    }
    for part, span in spans.items():
        for name, width in (("keys", layer.head_dim), ("values", layer.v_head_dim)):
            yield _kv(f"{part}{name}", layer.num_key_value_heads, span, width, form)
