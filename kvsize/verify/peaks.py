"""The most that a GPU holds while a cache is filled: the cache, its copies, what is handed over.

`size` counts the cache and its copies. On a GPU the keys and values that a layer is given stand in
the same memory, whole while the prompt is stored, so what is measured there is more by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kvsize.engines.transformers.peak import layer_step
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.layers import CrossAttention
from kvsize.record import replace
from kvsize.verify.allocator import BLOCK_BYTES, block_bytes, bookkeeping_tensors
from kvsize.verify.plan import Layers, Plan

SCALAR_BYTES = 8
Rounding = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Predicted peaks of the two phases, in bytes."""

    prefill: int
    growth: int


def exactly(size_bytes: int) -> int:
    """No rounding: bytes as they were asked for."""
    return size_bytes


def peaks(plan: Plan, rounding: Rounding) -> Peaks:
    """The peaks with every storage rounded by `rounding`: `exactly`, or `block_bytes`."""
    prompt = plan.prompt
    scalars = [
        bookkeeping_tensors(layer, plan.form) * rounding(SCALAR_BYTES)
        for layer in plan.layers[: plan.count]
    ]
    first = [
        tuple(replace(t, storage_bytes=t.prefill_bytes) for t in layer)
        for layer in plan.after(prompt)
    ]
    prefill = _pass(None, first, _first_given(plan, rounding), (scalars, rounding))
    growth = prefill_end = _held_bytes(first, rounding) + sum(scalars)
    for step in sorted({prompt + 1, plan.form.tokens}) if plan.steps else ():
        before = first if step == prompt + 1 else plan.after(step - 1)
        one = _next_given(plan, rounding)
        growth = max(growth, _pass(before, plan.after(step), one, (scalars, rounding)))
    return Peaks(prefill, max(growth, prefill_end))


def temporary_bytes(plan: Plan) -> int:
    """Positions that a static layer counts while it writes: two rows of int64, and an index."""
    if plan.form.cache != "static":
        return 0
    crossed = any(isinstance(layer, CrossAttention) for layer in plan.layers)
    longest = max(plan.prompt, plan.form.encoder_tokens if crossed else 0)
    return 2 * block_bytes(SCALAR_BYTES * longest) + BLOCK_BYTES


def _held_bytes(layers: Layers, rounding: Rounding) -> int:
    return sum(rounding(tensor.storage_bytes) for layer in layers for tensor in layer)


def _first_given(plan: Plan, rounding: Rounding) -> list[dict[str, int]]:
    """By layer, the bytes of each tensor that is handed over for the whole prompt."""
    return [
        {
            tensor.name: rounding(tensor.total_bytes * (plan.prompt if _by_token(tensor) else 1))
            for tensor in layer
        }
        for layer in plan.handed_over()
    ]


def _next_given(plan: Plan, rounding: Rounding) -> list[dict[str, int]]:
    """The same for one token: one column of a convolution, nothing of an encoder."""
    return [
        {}
        if isinstance(layer, CrossAttention)
        else {
            tensor.name: rounding(
                tensor.total_bytes // (tensor.shape[-1] if tensor.growth == "shift" else 1)
            )
            for tensor in tensors
        }
        for layer, tensors in zip(plan.layers, plan.handed_over(), strict=True)
    ]


def _by_token(tensor: CacheTensor) -> bool:
    return tensor.growth not in {"fixed", "shift"}


def _pass(
    before: Layers | None,
    after: Layers,
    given: Sequence[dict[str, int]],
    kept: tuple[Sequence[int], Rounding],
) -> int:
    """The peak of one forward pass; `before` None is the first, into an empty cache."""
    scalars, rounding = kept
    held = 0 if before is None else _held_bytes(before, rounding) + sum(scalars)
    peak = held
    for index, new in enumerate(after):
        if before is None:
            held += scalars[index]
        for part in _parts(new):
            handed = sum(given[index].get(tensor.name, 0) for tensor in part)
            now = _round_all(part, rounding)
            if before is None:
                held += sum(tensor.storage_bytes for tensor in now)
                peak = max(peak, held + handed)
                continue
            was = {tensor.name: tensor for tensor in before[index]}
            # A compressed row is not there before its tokens are.
            old = tuple(was.get(t.name, replace(t, storage_bytes=0)) for t in part)
            extra, change = layer_step(_round_all(old, rounding), now)
            peak = max(peak, held + extra + handed)
            held += change
    return peak


def _parts(layer: Sequence[CacheTensor]) -> Iterator[tuple[CacheTensor, ...]]:
    """Keys and values are handed over together, every other tensor by itself."""
    pair = tuple(tensor for tensor in layer if tensor.name in {"keys", "values"})
    if pair:
        yield pair
    yield from ((tensor,) for tensor in layer if tensor not in pair)


def _round_all(part: Sequence[CacheTensor], rounding: Rounding) -> tuple[CacheTensor, ...]:
    return tuple(replace(tensor, storage_bytes=rounding(tensor.storage_bytes)) for tensor in part)
