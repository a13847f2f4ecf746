"""One filling of a cache, and what the device reports before, between and after."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from kvsize.errors import UsageError
from kvsize.verify import devices
from kvsize.verify.filling import Filler
from kvsize.verify.plan import Plan
from kvsize.verify.tracing import StorageTracker

Figures = dict[str, object]
Step = Callable[[str], None]


def quiet(_: str) -> None:
    """Where nobody waits for progress."""


def fill(cache: Any, plan: Plan, device: str, step: Step = quiet) -> Figures:
    """Prompt, then tokens, on the CPU or on meta; every storage is watched.

    `step` is called when the prompt, and when each token, is in.
    """
    tracker = StorageTracker()
    filler = Filler(cache, plan, device, tracker.aside)
    with tracker:
        filler.feed(plan.prompt)
        step(f"prompt of {plan.prompt:,} tokens")
        prefill_peak = tracker.peak_bytes
        tracker.restart()
        for _ in range(plan.steps):
            filler.feed(1)
            step("single tokens")
    figures: Figures = {
        "steps": plan.steps,
        "prefill_peak_bytes": prefill_peak,
        "growth_peak_bytes": tracker.peak_bytes,
    }
    resident = devices.peak_rss_bytes() if device == "cpu" else None
    return figures if resident is None else figures | {"peak_rss_bytes": resident}


def fill_gpu(cache: Any, plan: Plan, gpu: devices.Gpu, step: Step = quiet) -> Figures:
    """The same on a GPU, with its allocator's counters; UsageError where it runs out of memory."""
    filler = Filler(cache, plan, gpu.torch_device)
    gc.collect()
    gpu.restart(empty=True)
    before = gpu.memory()
    try:
        filler.feed(plan.prompt)
        step(f"prompt of {plan.prompt:,} tokens")
        prefilled = gpu.memory()
        gpu.restart(empty=False)
        for _ in range(plan.steps):
            filler.feed(1)
            step("single tokens")
    except torch.OutOfMemoryError as error:
        message = f"the GPU ran out of memory after {filler.seen:,} tokens."
        raise UsageError(message, "use a shorter --ctx, or --device meta.") from error
    after = gpu.memory()
    return {
        "steps": plan.steps,
        "allocated_before_bytes": before.allocated_bytes,
        "allocated_after_bytes": after.allocated_bytes,
        "allocated_bytes": after.allocated_bytes - before.allocated_bytes,
        "requested_bytes": after.requested_bytes - before.requested_bytes,
        "reserved_bytes": after.reserved_bytes - before.reserved_bytes,
        "fragmented_bytes": after.reserved_bytes - after.allocated_bytes,
        "prefill_peak_bytes": prefilled.peak_bytes - before.allocated_bytes,
        "growth_peak_bytes": after.peak_bytes - before.allocated_bytes,
        "prefill_peak_requested_bytes": prefilled.peak_requested_bytes - before.requested_bytes,
        "growth_peak_requested_bytes": after.peak_requested_bytes - before.requested_bytes,
        "prefill_peak_reserved_bytes": prefilled.peak_reserved_bytes - before.reserved_bytes,
        "growth_peak_reserved_bytes": after.peak_reserved_bytes - before.reserved_bytes,
    }
