"""What a QuantizedCache layer holds: packed elements, scales, zero points, newest tokens.

Held against optimum-quanto 0.2.7 and hqq 0.2.8 under transformers 5.24.0; the layer classes are
in cache_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from kvsize.dtypes import torch_dtype
from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.implementations import without_window
from kvsize.engines.transformers.tensors import CacheTensor, plain_tensor
from kvsize.engines.transformers.versions import CachedLayer, Rules
from kvsize.errors import EngineRefuses
from kvsize.layers import CrossAttention, FullAttention, LatentAttention, NoCache
from kvsize.model import Model
from kvsize.record import Record
from kvsize.units import ceil_div

# hqq packs 10 elements of 3 bits into one int32 (hqq 0.2.8, core/bitpack.py).
THREE_BIT_ELEMENTS = 10


class Axis(Record):
    """The keys or the values of one layer, for the tokens that are quantized."""

    name: str
    heads: int
    width: int
    axis: int


def quantized_layers(
    model: Model, layers: Sequence[CachedLayer], rules: Rules
) -> Sequence[CachedLayer]:
    """The layers as a QuantizedCache holds them; EngineRefuses where it cannot.

    From 5.14 the class refuses other layer types than full attention; before, it quantized every
    layer in full, whatever its window.
    """
    if any(isinstance(layer, CrossAttention) for layer in layers) or model.cache_class:
        message = f"generate() makes no quantized cache for {model.name}."
        raise EngineRefuses(message, "use the dynamic cache.")
    if rules.number < (5, 14):
        layers = [without_window(layer) for layer in layers]
    for layer in layers:
        if not _full(layer):
            message = (
                f"a quantized cache holds full attention only, and {model.name} has layers of "
                "another kind."
            )
            raise EngineRefuses(message, "use the dynamic cache: its windows and states are small.")
    return layers


def _full(layer: CachedLayer) -> bool:
    match layer:
        case NoCache():
            return True
        case LatentAttention():
            return layer.sliding_window is None and not layer.extras
        case FullAttention():
            return type(layer) is FullAttention and not layer.extras
        case _:
            return False


def split(form: Form) -> tuple[range, int]:
    """How many tokens were quantized, each time, and how many newest ones are not yet.

    The first forward pass is quantized whole; later everything is quantized anew when the tokens
    since reach residual_length. Up to 5.19 that never happened at the first of them.
    """
    prompt = form.tokens if form.prompt is None else form.prompt
    least = 1 if form.rules.number >= (5, 20) else 2
    period = max(form.quantization.residual_length, least)
    turns, newest = divmod(form.tokens - prompt, period)
    return range(prompt, prompt + turns * period + 1, period), newest


def quantized_tensors(layer: CachedLayer, form: Form) -> Iterator[CacheTensor]:
    """Every tensor of one layer. Raises EngineRefuses where the backend cannot group them."""
    match layer:
        case LatentAttention() if form.rules.latent_cache:
            parts = ((1, layer.kv_lora_rank), (1, layer.qk_rope_head_dim))
        case LatentAttention():
            heads = layer.num_attention_heads
            key = layer.qk_nope_head_dim + layer.qk_rope_head_dim
            parts = ((heads, key), (heads, layer.v_head_dim))
        case FullAttention():
            heads = layer.num_key_value_heads
            parts = ((heads, layer.head_dim), (heads, layer.v_head_dim))
        case _:
            return
    quantization = form.quantization
    axes = (quantization.axis_key, quantization.axis_value)
    sides = [
        Axis(name, heads, width, axis)
        for name, (heads, width), axis in zip(("keys", "values"), parts, axes, strict=True)
    ]
    newest = 0 if quantization.backend == "fp8" else split(form)[1]
    for side in sides:
        yield from _fp8(side, form) if quantization.backend == "fp8" else _grouped(side, form)
        if newest:
            shape = (form.sequences, side.heads, newest, side.width)
            yield plain_tensor(side.name, shape, form.dtype)


def _fp8(side: Axis, form: Form) -> Iterator[CacheTensor]:
    """One byte per element and one float32 scale per tensor; nothing waits unquantized."""
    shape = (form.sequences, side.heads, form.tokens, side.width)
    name = f"_quantized_{side.name}"
    yield plain_tensor(name, shape, torch_dtype("float8_e4m3fn"))
    yield plain_tensor(f"{name} scale", (), torch_dtype("float32"))


def _grouped(side: Axis, form: Form) -> Iterator[CacheTensor]:
    """Packed groups of q_group_size elements, each with a scale and a zero point (shift)."""
    quantization = form.quantization
    turns, _ = split(form)
    for tokens in turns[:2]:
        # What two turns in a row can divide, all can: the tokens between them are the same.
        _check_groups(side, form, tokens)
    size = quantization.q_group_size
    groups = form.sequences * side.heads * turns[-1] * side.width // size
    name = f"_quantized_{side.name}"
    if quantization.backend == "quanto":
        rows, columns = (groups, size) if side.axis == 0 else (size, groups)
        # quanto pads the last row of packed elements (tensor/packed.py).
        packed = (ceil_div(rows * quantization.nbits, 8), columns)
        scale, zero = ((groups, 1) if side.axis == 0 else (1, groups)), "shift"
    else:
        rows, columns = (size, groups) if side.axis == 0 else (groups, size)
        packed = (rows * quantization.nbits // 8, columns)
        if quantization.nbits == 3:
            packed = (ceil_div(rows, THREE_BIT_ELEMENTS), columns)
        scale, zero = ((1, groups) if side.axis == 0 else (groups, 1)), "zero"
    yield plain_tensor(name, packed, torch_dtype("int32" if quantization.nbits == 3 else "uint8"))
    yield plain_tensor(f"{name} scale", scale, form.dtype)
    yield plain_tensor(f"{name} {zero}", scale, form.dtype)


def _check_groups(side: Axis, form: Form, tokens: int) -> None:
    """The divisibility that quanto (tensor/grouped.py) and hqq (core/quantize.py) demand."""
    quantization = form.quantization
    size, backend = quantization.q_group_size, quantization.backend
    elements = prod((form.sequences, side.heads, tokens, side.width))
    whole = elements
    if backend == "quanto":
        # Groups stay within one sequence (axis 0) or one element of the head (axis -1).
        whole = elements // (form.sequences if side.axis == 0 else side.width)
    if not elements or whole % size:
        message = f"{backend} cannot put {whole} elements of the {side.name} in groups of {size}."
        raise EngineRefuses(message, f"use a q_group_size that divides {whole}.")
    if backend == "hqq":
        _check_packing(side, form, elements // size)


def _check_packing(side: Axis, form: Form, groups: int) -> None:
    """Rows are what hqq packs: the group's elements (axis 0) or the groups (axis 1)."""
    quantization = form.quantization
    rows = quantization.q_group_size if side.axis == 0 else groups
    if quantization.nbits == 3:
        if side.axis == 1:
            message = "hqq cannot read back what it packed with 3 bits along axis 1."
            raise EngineRefuses(message, "use axis 0, or 4 bits.")
    elif rows * quantization.nbits % 8:
        message = f"hqq cannot pack {rows} rows of {quantization.nbits} bits into bytes."
        raise EngineRefuses(message, "use axis 0 and a q_group_size that is a multiple of 8.")
