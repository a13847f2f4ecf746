"""Level `cache`: transformers' own cache object for a model's config, filled and measured."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from kvsize.engines.options import Request
from kvsize.engines.transformers import cached, size, tensors
from kvsize.engines.transformers.form import Form, form_of
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.engines.transformers.versions import CachedLayer
from kvsize.errors import UsageError
from kvsize.model import Model
from kvsize.record import replace
from kvsize.results import Size
from kvsize.units import format_bytes
from kvsize.verify import allocator, caches, devices
from kvsize.verify.evidence import Evidence, rows
from kvsize.verify.filling import Filler, check_fillable
from kvsize.verify.reading import read_cache
from kvsize.verify.records import first_difference
from kvsize.verify.tracing import StorageTracker

# Kept free on a GPU for the context, kernels and fragmentation.
SPARE_GPU_BYTES = 512 * 2**20


def verify_cache(
    model: Model, request: Request, *, device: str, steps: int, gpu: devices.Gpu
) -> Evidence:
    """Fill the real cache with `request.context` tokens, the last `steps` of them one by one.

    Raises UsageError where the cache cannot be filled here, ConfigError where transformers has no
    class for the model, EngineRefuses where it refuses the settings.
    """
    check_fillable(model)
    request = with_prompt(model, request, steps)
    form = form_of(model, request)
    needed = size(model, request)
    if form.made.offloaded:
        message = "an offloaded cache lies on two devices."
        raise UsageError(message, "verify the cache it holds: --cache dynamic, or --cache static.")
    chosen = devices.choose(device, (needed.peak_bytes or needed.total_bytes), gpu)
    predicted = tensors(model, request)
    layers, notes = _fitting(model, request, form, chosen, gpu)
    cache = caches.make_cache(
        caches.config_of(model), form, encoder_decoder=bool(model.root.flag("is_encoder_decoder"))
    )
    figures = _fill(cache, model, request, form, chosen, gpu, layers)
    real = read_cache(cache)
    evidence = Evidence(
        level="cache",
        model=model.name,
        cache=type(cache).__name__,
        context=needed.context,
        sequences=request.sequences,
        dtype=form.dtype.name,
        device={"kind": chosen} | (gpu.describe() if chosen == "cuda" else {}),
        predicted_bytes=sum(t.total_bytes for layer in predicted[:layers] for t in layer),
        real_bytes=sum(layer.total_bytes for layer in real[:layers]),
        predicted_storage_bytes=_storages(predicted[:layers]),
        real_storage_bytes=sum(layer.storage_bytes for layer in real[:layers]),
        rows=rows(predicted[:layers], real[:layers]),
        difference=first_difference(predicted[:layers], real[:layers])
        or (None if len(predicted) == len(real) else first_difference(predicted, real)),
        compared_layers=layers,
        all_layers=len(predicted),
        figures=figures,
        notes=notes,
    )
    notes += [guess.message for guess in model.guesses]
    _check_peak(evidence, needed, cached(model, form), form)
    if chosen == "cuda":
        _check_allocator(evidence, predicted[:layers], cached(model, form)[:layers], form)
    return evidence


def with_prompt(model: Model, request: Request, steps: int) -> Request:
    """The request with its prompt stated: all of the context but the last `steps` tokens."""
    if "prompt" in request.options or "new_tokens" in request.options:
        return request
    if any(shape == "CrossAttention" for shape in {type(x).__name__ for x in model.layers}):
        return request
    prompt = max(request.context - steps, 1)
    return replace(request, options={**request.options, "prompt": prompt})


def _fitting(
    model: Model, request: Request, form: Form, device: str, gpu: devices.Gpu
) -> tuple[int, list[str]]:
    """How many layers are filled: all, or as many of the first as a GPU has room for."""
    predicted = tensors(model, request)
    if device != "cuda":
        return len(predicted), []
    prompt = tensors(model, replace(request, context=form.prompt or form.tokens))
    sizes = [
        max(sum(t.storage_bytes for t in now), sum(t.prefill_bytes for t in then))
        for now, then in zip(predicted, prompt, strict=True)
    ]
    free = gpu.free_bytes() - SPARE_GPU_BYTES
    # The keys and values of one layer are handed over while it is copied.
    count = allocator.layers_that_fit(sizes, 2 * max(sizes, default=0), free)
    if count == len(sizes):
        return count, []
    if count == 0:
        message = (
            f"one layer needs {format_bytes(3 * max(sizes))} with its copies, and "
            f"{format_bytes(max(free, 0))} of the GPU are free."
        )
        raise UsageError(message, "use a shorter --ctx, or --device meta.")
    note = (
        f"The whole cache needs {format_bytes(sum(sizes))} and its copies, and "
        f"{format_bytes(free)} of the GPU are free: only the first {count} of {len(sizes)} layers "
        "were filled, and every figure here is theirs."
    )
    return count, [note]


def _fill(  # noqa: PLR0913, PLR0917 - what a run is made of
    cache: Any,
    model: Model,
    request: Request,
    form: Form,
    device: str,
    gpu: devices.Gpu,
    layers: int,
) -> dict[str, object]:
    """Prompt, then tokens; with what the device reports before, between and after."""
    shapes = tensors(model, replace(request, context=1, options={"cache": "dynamic"}))
    tracker = StorageTracker()
    filler = Filler(
        cache, model, shapes, device, layers, random=form.cache == "quantized", aside=tracker.aside
    )
    prompt = form.prompt if form.prompt is not None else 1 + model.prompt_tokens
    gc.collect()
    if device == "cuda":
        return _measured_fill(filler, form, prompt, gpu)
    with tracker:
        filler.feed(prompt, form.encoder_tokens)
        prefill_peak = tracker.peak_bytes
        tracker.restart()
        for _ in range(form.tokens - prompt):
            filler.feed(1)
    figures: dict[str, object] = {
        "prefill_peak_bytes": prefill_peak,
        "growth_peak_bytes": tracker.peak_bytes,
        "steps": form.tokens - prompt,
    }
    return figures | ({"peak_rss_bytes": devices.peak_rss_bytes()} if device == "cpu" else {})


def _measured_fill(filler: Filler, form: Form, prompt: int, gpu: devices.Gpu) -> dict[str, object]:
    """The same on a GPU, with the allocator's counters."""
    gpu.restart(empty=True)
    before = gpu.memory()
    filler.feed(prompt, form.encoder_tokens)
    prefilled = gpu.memory()
    gpu.restart(empty=False)
    for _ in range(form.tokens - prompt):
        filler.feed(1)
    after = gpu.memory()
    return {
        "allocated_bytes": after.allocated_bytes - before.allocated_bytes,
        "requested_bytes": after.requested_bytes - before.requested_bytes,
        "reserved_bytes": after.reserved_bytes,
        "fragmented_bytes": after.reserved_bytes - after.allocated_bytes,
        "prefill_peak_bytes": prefilled.peak_bytes - before.allocated_bytes,
        "growth_peak_bytes": after.peak_bytes - before.allocated_bytes,
        "steps": form.tokens - prompt,
    }


def _check_peak(
    evidence: Evidence, needed: Size, layers: Sequence[CachedLayer], form: Form
) -> None:
    """Hold the peak while the cache grew against the predicted one.

    A static cache also holds the positions it writes to, and a GPU rounds up to blocks, so only a
    dynamic cache's peak elsewhere is the same to the byte. Windows lie on the CPU as scalars, and
    are copied to where the keys are.
    """
    figures = evidence.figures
    if needed.peak_bytes is None or evidence.compared_layers < evidence.all_layers:
        return
    figures["predicted_growth_peak_bytes"] = needed.peak_bytes
    measured = figures["growth_peak_bytes"]
    comparable = form.cache == "dynamic" and evidence.device["kind"] != "cuda" and figures["steps"]
    scalars = 0
    if evidence.device["kind"] == "meta":
        scalars = 8 * sum(allocator.bookkeeping_tensors(layer, form) for layer in layers)
    if comparable and measured != needed.peak_bytes + scalars:
        evidence.failures.append(
            f"while it grew the cache and its copies held {measured:,} B, predicted "
            f"{needed.peak_bytes + scalars:,} B."
        )


def _check_allocator(
    evidence: Evidence,
    predicted: Sequence[tuple[CacheTensor, ...]],
    layers: Sequence[Any],
    form: Form,
) -> None:
    """Hold the allocator's counters against whole blocks of the predicted storages."""
    sizes = [t.storage_bytes for layer in predicted for t in layer]
    scalars = [8] * sum(allocator.bookkeeping_tensors(layer, form) for layer in layers)
    expected = allocator.allocated([*sizes, *scalars])
    figures = evidence.figures
    figures["predicted_requested_bytes"] = sum(sizes) + sum(scalars)
    figures["predicted_allocated_bytes"] = expected.least
    figures["predicted_allocated_at_most_bytes"] = expected.most
    measured, requested = figures["allocated_bytes"], figures["requested_bytes"]
    if isinstance(measured, int) and not expected.holds(measured):
        evidence.failures.append(
            f"torch's allocator holds {measured:,} B, predicted {expected.least:,} to "
            f"{expected.most:,} B."
        )
    if requested and requested != figures["predicted_requested_bytes"]:
        evidence.failures.append(
            f"torch was asked for {requested:,} B, predicted "
            f"{figures['predicted_requested_bytes']:,} B."
        )


def _storages(predicted: Sequence[tuple[CacheTensor, ...]]) -> int:
    return sum(t.storage_bytes for layer in predicted for t in layer)
