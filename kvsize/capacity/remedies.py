"""When something does not fit: each way out, computed, those that suffice first.

In the order in which they cost: the cache's dtype (some accuracy, no speed), another layout of
the same GPUs, a shorter context, fewer sequences, smaller weights, more GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.capacity.holding import held, needed_bytes, reason_refused
from kvsize.capacity.inverse import max_context
from kvsize.capacity.layouts import legal, recommended, smallest
from kvsize.capacity.weights import in_dtype
from kvsize.errors import KvsizeError
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.layouts import Plan

# Smaller dtypes of the cache, by the engine's own names, the largest first.
_SMALLER = {
    "vllm": ("fp8",),
    "sglang": ("fp8_e4m3", "fp4_mx_block16"),
    "tensorrt-llm": ("fp8", "nvfp4"),
    "llama.cpp": ("q8_0", "q4_0"),
    "lmdeploy-turbomind": ("int8", "int4"),
    "lmdeploy-pytorch": ("int8", "int4"),
}
_SMALLER_WEIGHTS = ("fp8", "int4")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way out: what to type, whether it suffices by itself, and what it does."""

    flags: str
    enough: bool
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """What was asked and does not fit in `layout`."""

    plan: Plan
    layout: Layout
    context: int
    sequences: int

    @property
    def memory(self) -> int:
        """What is left for the cache on a rank, by the best estimate."""
        return self.plan.budget(self.layout).best_bytes


def remedies(unmet: Unmet) -> list[Remedy]:
    """The ways out, those that suffice first, each group in the order of their cost."""
    ways = (_dtypes, _layout, _shorter, _fewer, _lighter, _more)
    found = [remedy for way in ways for remedy in way(unmet)]
    return sorted(found, key=lambda remedy: not remedy.enough)


def _dtypes(unmet: Unmet) -> Iterator[Remedy]:
    setup = unmet.plan.setup(unmet.layout)
    now = needed_bytes(setup, unmet.context, unmet.sequences)
    for dtype in _SMALLER.get(unmet.plan.engine, ()):
        smaller = replace(setup, kv_dtype=dtype)
        if setup.kv_dtype == dtype or reason_refused(smaller, unmet.context) is not None:
            continue
        then = needed_bytes(smaller, unmet.context, unmet.sequences)
        if now is None or then is None or then >= now:
            continue
        saved = float(100 * (1 - Fraction(then, now)))
        effect = (
            f"saves {saved:.0f} % of this model's cache: {format_bytes(then)} instead of "
            f"{format_bytes(now)} per GPU"
        )
        yield Remedy(f"--kv-dtype {dtype}", then <= unmet.memory, effect)


def _layout(unmet: Unmet) -> Iterator[Remedy]:
    if not unmet.plan.machine.estimates:
        return
    found = recommended(legal(unmet.plan, unmet.layout.gpus, unmet.context), unmet.sequences)
    if found is None or found[0].layout == unmet.layout or not found[0].sequences:
        return
    laid = found[0]
    effect = f"holds {laid.sequences:,} sequences on the same GPUs"
    yield Remedy(flags_of(laid.layout), laid.sequences >= unmet.sequences, effect)


def _shorter(unmet: Unmet) -> Iterator[Remedy]:
    setup = unmet.plan.setup(unmet.layout)
    longest = max_context(setup, unmet.sequences, unmet.memory, unmet.context)
    if longest:
        effect = f"the longest context with which {unmet.sequences:,} sequences fit"
        yield Remedy(f"--ctx {longest}", True, effect)


def _fewer(unmet: Unmet) -> Iterator[Remedy]:
    most = held(unmet.plan.setup(unmet.layout), unmet.context, unmet.memory).sequences
    if most:
        effect = f"all that fit with {format_tokens(unmet.context)} tokens each"
        yield Remedy(f"--sequences {most}", True, effect)


def _lighter(unmet: Unmet) -> Iterator[Remedy]:
    weights = unmet.plan.machine.weights
    if weights is None:
        return
    for dtype in _SMALLER_WEIGHTS:
        lighter = in_dtype(unmet.plan.model, dtype)
        if lighter is None or lighter.total_bytes * 10 >= weights.total_bytes * 9:
            continue
        plan = replace(unmet.plan, machine=replace(unmet.plan.machine, weights=lighter))
        memory = plan.budget(unmet.layout).best_bytes
        count = held(plan.setup(unmet.layout), unmet.context, memory).sequences
        effect = f"a checkpoint in {dtype} leaves {format_bytes(memory)}, {count:,} sequences"
        yield Remedy(f"--weights {dtype}", count >= unmet.sequences, effect)


def _more(unmet: Unmet) -> Iterator[Remedy]:
    if not unmet.plan.machine.estimates:
        return
    try:
        found = smallest(unmet.plan, unmet.context, unmet.sequences)
    except KvsizeError:
        return
    if found is not None and found.layout.gpus > unmet.layout.gpus:
        effect = f"{found.layout.label} holds {found.sequences:,} sequences"
        flags = f"--gpus {found.layout.gpus} {flags_of(found.layout)}".strip()
        yield Remedy(flags, True, effect)


def flags_of(layout: Layout) -> str:
    """The layout as options of `kvsize fit`."""
    sizes = (
        ("--tp", layout.tensor_parallel_size),
        ("--pp", layout.pipeline_parallel_size),
        ("--dp", layout.data_parallel_size),
        ("--dcp", layout.decode_context_parallel_size),
    )
    return " ".join(f"{flag} {size}" for flag, size in sizes if size > 1)
