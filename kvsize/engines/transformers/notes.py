"""What the reader of a figure must know about the cache that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvsize.engines.transformers.form import Form
from kvsize.layers import CrossAttention, ReferenceAttention
from kvsize.model import Model
from kvsize.units import format_bytes


def notes(model: Model, form: Form, details: Mapping[str, object]) -> tuple[str, ...]:
    """Traps of the settings, in whole sentences."""
    return tuple(_notes(model, form, details))


def _notes(model: Model, form: Form, details: Mapping[str, object]) -> Iterator[str]:
    if form.made.note:
        yield form.made.note
    if form.ignored_max_cache_len:
        yield f"max_cache_len is ignored: a {form.cache} cache grows with its tokens."
    if form.made.offloaded:
        yield (
            "Offloading changes where the cache lies, not how large it is; it needs an "
            "accelerator, and kvsize's split of it was read in the code, not measured."
        )
        yield _placed(form, details)
        if any(isinstance(layer, CrossAttention) for layer in model.layers):
            yield "Where an encoder-decoder's cross-attention lies is counted as if it moved too."
    if form.cache == "quantized":
        yield (
            "Every token rebuilds one layer's keys and values in the model's dtype, once "
            "unpacked and once with the newest tokens (dequantized_layer_bytes each)."
        )
    if form.prompt is None:
        yield from _without_prompt(model, form)


def _placed(form: Form, details: Mapping[str, object]) -> str:
    """Where an offloaded cache lies, with what decides it."""
    names = ("device_bytes", "cpu_bytes", "device_peak_bytes")
    device, cpu, most = (format_bytes(int(str(details[name]))) for name in names)
    sliding = "stay on the device" if form.offload_only_non_sliding else "move as well"
    return (
        f"Between forward passes {device} of the storages stay on the device and {cpu} lie on the CPU; during one "
        f"the device holds {most} at most. Sliding layers {sliding} "
        f"(offload_only_non_sliding is {str(form.offload_only_non_sliding).lower()})."
    )


def _without_prompt(model: Model, form: Form) -> Iterator[str]:
    """What the figure takes the prompt to be, where that decides it."""
    if form.cache == "quantized" and form.quantization.backend != "fp8":
        yield (
            "All of the context is taken to be the prompt, which is quantized whole; give "
            "prompt and new_tokens for the tokens that wait unquantized."
        )
    if any(isinstance(layer, ReferenceAttention) for layer in model.layers):
        yield (
            "All of the context is taken to be the prompt, which is kept for ever; give "
            "prompt and new_tokens for the window over what is generated."
        )
