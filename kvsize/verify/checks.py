"""Holds what a device measured against what was predicted; what does not hold becomes a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvsize.engines.transformers.offloading import offloading_details
from kvsize.verify import allocator
from kvsize.verify.allocator import Allocated, block_bytes
from kvsize.verify.evidence import Evidence
from kvsize.verify.peaks import SCALAR_BYTES, exactly, peaks, temporary_bytes
from kvsize.verify.plan import Plan


def check_watched(evidence: Evidence, plan: Plan) -> None:
    """On the CPU and on meta: the storages alive in the prompt's pass, and while the cache grew.

    A dynamic cache's peaks are the same to the byte; a static one also holds the positions it
    writes to. Windows lie on the CPU as scalars, and are copied to where the keys are.
    """
    peak_bytes = plan.peak_bytes()
    if peak_bytes is None:
        return
    scalars = _scalars(plan) * SCALAR_BYTES if evidence.device["kind"] == "meta" else 0
    prefilled = sum(t.prefill_bytes for layer in plan.after(plan.prompt) for t in layer)
    expected = {"prefill_peak_bytes": ("in the prompt's pass", prefilled)}
    if plan.steps:
        expected["growth_peak_bytes"] = ("while it grew", peak_bytes)
    for name, (when, predicted) in expected.items():
        least = predicted + scalars
        held = Allocated(least, least + temporary_bytes(plan))
        _within(evidence, name, held, f"{when} the cache and its copies held")


def check_gpu(evidence: Evidence, plan: Plan, device: Mapping[str, object]) -> None:
    """On a GPU: what the allocator counts for the cache, and its peaks."""
    unsplit = allocator.unsplit_bytes(
        str(device.get("allocator")), str(device.get("allocator_settings"))
    )
    sizes = [t.storage_bytes for layer in plan.at_end() for t in layer]
    sizes += [SCALAR_BYTES] * _scalars(plan)
    if plan.form.made.offloaded:
        _check_offloaded(evidence, plan)
        return
    if plan.form.cache == "quantized" and plan.form.quantization.backend != "fp8":
        evidence.notes.append(
            "What the quantizer's own library keeps beside its tensors was measured, and held "
            "against nothing."
        )
        return
    _equal(evidence, "requested_bytes", sum(sizes), "torch was asked for")
    if unsplit is None:
        evidence.notes.append(
            "PYTORCH_ALLOC_CONF changes how blocks are rounded: what the allocator adds to the "
            "tensors was measured, and held against nothing."
        )
    else:
        held = allocator.allocated(sizes, unsplit)
        _within(evidence, "allocated_bytes", held, "torch's allocator holds")
    if plan.peak_bytes() is not None:
        _check_peaks(evidence, plan, unsplit)


def _check_peaks(evidence: Evidence, plan: Plan, unsplit: int | None) -> None:
    """Exactly as asked for, but for a static cache's positions; in blocks, within the spare."""
    temporary = temporary_bytes(plan)
    asked, in_blocks = peaks(plan, exactly), peaks(plan, block_bytes)
    largest = sum(t.storage_bytes > allocator.SMALL_BYTES for x in plan.at_end() for t in x)
    for phase in ("prefill", "growth"):
        if phase == "growth" and not plan.steps:
            continue
        least = getattr(asked, phase)
        name = f"{phase}_peak_requested_bytes"
        expected = Allocated(least, least + temporary)
        _within(evidence, name, expected, f"in its {phase} torch was asked for at most")
        if unsplit is None:
            continue
        least = getattr(in_blocks, phase)
        # All large tensors, and the few that are copied or handed over.
        expected = Allocated(least, least + temporary + (largest + SPARE_TENSORS) * unsplit)
        name = f"{phase}_peak_bytes"
        _within(evidence, name, expected, f"in its {phase} torch's allocator held at most")


# Copies and what is handed over, at the worst moment of one layer.
SPARE_TENSORS = 4


def _check_offloaded(evidence: Evidence, plan: Plan) -> None:
    """Where the tensors lie between forward passes."""
    details: Mapping[str, Any] = offloading_details(plan.layers, plan.whole(), plan.form)
    evidence.figures["predicted_device_peak_bytes"] = details["device_peak_bytes"]
    if evidence.compared_layers < evidence.all_layers:
        return
    _equal(evidence, "device_bytes", details["device_bytes"], "the GPU holds")
    _equal(evidence, "cpu_bytes", details["cpu_bytes"], "the CPU holds")


def _equal(evidence: Evidence, name: str, predicted: int, words: str) -> None:
    _within(evidence, name, Allocated(predicted, predicted), words)


def _within(evidence: Evidence, name: str, expected: Allocated, words: str) -> None:
    """Record the prediction beside the measured figure, and a failure where it does not hold."""
    evidence.figures[f"predicted_{name}"] = expected.least
    told = f"{expected.least:,} B"
    if expected.most > expected.least:
        evidence.figures[f"predicted_{name}_at_most"] = expected.most
        told = f"{expected.least:,} to {expected.most:,} B"
    measured = evidence.figures[name]
    if not isinstance(measured, int) or not expected.holds(measured):
        evidence.failures.append(f"{words} {measured:,} B, predicted {told}.")


def _scalars(plan: Plan) -> int:
    layers = plan.layers[: plan.count]
    return sum(allocator.bookkeeping_tensors(layer, plan.form) for layer in layers)
