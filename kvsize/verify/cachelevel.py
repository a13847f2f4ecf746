"""Level `cache`: transformers' own cache object for a model's config, filled and measured."""

from __future__ import annotations

from typing import Any

from kvsize.engines.options import Request
from kvsize.errors import UsageError
from kvsize.model import Model
from kvsize.record import replace
from kvsize.verify import caches, devices, room
from kvsize.verify.checks import check_gpu, check_watched
from kvsize.verify.evidence import Evidence, rows, versions
from kvsize.verify.filling import check_fillable
from kvsize.verify.installed import installed_rules, note_on
from kvsize.verify.measuring import Figures, Step, fill, fill_gpu, quiet
from kvsize.verify.peaks import exactly, peaks
from kvsize.verify.plan import Plan, plan_of
from kvsize.verify.reading import read_cache, storage_by_device
from kvsize.verify.records import first_difference


def verify_cache(  # noqa: PLR0913 - all but the question is by name
    model: Model,
    request: Request,
    *,
    device: str,
    steps: int,
    gpu: devices.Gpu,
    step: Step = quiet,
) -> Evidence:
    """Fill the real cache with `request.context` tokens, the last `steps` of them one by one.

    `step` is called after the prompt and after each of them.

    Raises UsageError where the cache cannot be filled here, ConfigError where transformers has no
    class for the model, EngineRefuses where it refuses the settings.
    """
    check_fillable(model)
    request = replace(request, engine_version=request.engine_version or installed_rules())
    plan = plan_of(model, request, steps)
    most = peaks(plan, exactly)
    chosen = devices.choose(device, max(most.prefill, most.growth), gpu)
    figures: Figures = {}
    notes = [note for note in [note_on(versions()["transformers"])] if note]
    if chosen == "cuda":
        plan, figures, more = room.fitting(plan, gpu)
        notes += more
    elif plan.form.made.offloaded:
        message = "an offloaded cache moves its layers between a GPU and the CPU, and needs both."
        hint = "verify the cache it holds: --cache dynamic, or --cache static."
        raise UsageError(message, hint)
    cache = caches.make_cache(
        caches.config_of(model),
        plan.form,
        encoder_decoder=bool(model.root.flag("is_encoder_decoder")),
    )
    if chosen == "cuda":
        figures |= fill_gpu(cache, plan, gpu, step)
        placed = storage_by_device(cache)
        figures |= {"cpu_bytes": placed.pop("cpu", 0), "device_bytes": sum(placed.values())}
    else:
        figures |= fill(cache, plan, chosen, step)
    about = {"kind": chosen} | (gpu.describe() if chosen == "cuda" else {})
    evidence = _compared(cache, plan, about)
    evidence.figures |= figures
    evidence.notes += [*notes, *(guess.message for guess in model.guesses)]
    if chosen == "cuda":
        check_gpu(evidence, plan, about)
    else:
        check_watched(evidence, plan)
    return evidence


def _compared(cache: Any, plan: Plan, about: dict[str, object]) -> Evidence:
    """Every tensor of the filled layers beside its prediction."""
    real = read_cache(cache)
    predicted = plan.at_end()
    everything = plan.whole()
    filled = real[: plan.count]
    difference = first_difference(predicted, filled)
    if difference is None and len(real) != len(everything):
        difference = first_difference(everything, real)
    return Evidence(
        level="cache",
        model=plan.model.name,
        cache=type(cache).__name__,
        context=plan.form.tokens - plan.model.prompt_tokens,
        sequences=plan.form.sequences,
        dtype=plan.form.dtype.name,
        device=about,
        predicted_bytes=sum(t.total_bytes for layer in predicted for t in layer),
        real_bytes=sum(layer.total_bytes for layer in filled),
        predicted_storage_bytes=sum(t.storage_bytes for layer in predicted for t in layer),
        real_storage_bytes=sum(layer.storage_bytes for layer in filled),
        rows=rows(predicted, filled),
        difference=difference,
        compared_layers=plan.count,
        all_layers=len(everything),
    )
