"""Level `model`: the real architecture with random weights, run and held against the figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvsize.engines.options import Request
from kvsize.engines.transformers import tensors
from kvsize.engines.transformers.form import Form, form_of
from kvsize.errors import ConfigError, UsageError
from kvsize.layers import FullAttention, HybridLayer
from kvsize.loading import load
from kvsize.model import Model
from kvsize.record import replace
from kvsize.units import format_bytes
from kvsize.verify import devices, forward
from kvsize.verify.evidence import Evidence, rows
from kvsize.verify.reading import read_cache
from kvsize.verify.records import HeldLayer, first_difference
from kvsize.verify.shrinking import shrunk

# Tokens of the greedy decoding.
GREEDY = 4
# Float32 weights may take this share of the free RAM.
WEIGHTS_SHARE = 2


def verify_model(model: Model, request: Request, *, steps: int, full_depth: bool) -> Evidence:
    """Run the model's architecture on the CPU in float32 and compare its cache, layer by layer.

    The last `steps` tokens are fed one by one.
    Raises ConfigError where transformers has no class for the model, UsageError where its weights
    do not fit in RAM.
    """
    if request.options.get("cache", "dynamic") not in {"dynamic", "static"}:
        message = "the model level runs dynamic and static caches."
        raise UsageError(message, "use --level cache for the others.")
    if request.kv_dtype not in {"auto", "float32"}:
        message = f"the model level runs in float32, not in {request.kv_dtype}."
        raise UsageError(message, "leave out --kv-dtype, or use --level cache.")
    model_type = str(model.root.raw.get("model_type") or "")
    if model_type not in forward.model_types():
        message = f"transformers has no generating class for '{model_type}'."
        raise ConfigError(message, "use --level cache, or a model type that transformers runs.")
    transformers.logging.set_verbosity_error()
    raw, depth = shrunk(model, full_depth=full_depth)
    small = load(raw)
    runner = _runner(raw, model_type, request.sequences)
    prompt = max(request.context - steps, 1)
    request = _settled(request, small, prompt)
    form = form_of(small, request)
    real = _run(runner, form, prompt)
    predicted = tensors(small, request)
    evidence = Evidence(
        level="model",
        model=model.name,
        cache=form.cache.capitalize() + "Cache",
        context=request.context,
        sequences=request.sequences,
        dtype=form.dtype.name,
        device={"kind": "cpu"},
        predicted_bytes=sum(t.total_bytes for layer in predicted for t in layer),
        real_bytes=sum(layer.total_bytes for layer in real),
        predicted_storage_bytes=sum(t.storage_bytes for layer in predicted for t in layer),
        real_storage_bytes=sum(layer.storage_bytes for layer in real),
        rows=rows(predicted, real),
        difference=first_difference(predicted, real),
        compared_layers=depth,
        all_layers=len(model.layers),
    )
    evidence.notes += _notes(small, form, depth, len(model.layers))
    evidence.failures += _guard(small, real, form)
    evidence.failures += _decoding(runner, evidence)
    return evidence


def _notes(small: Model, form: Form, depth: int, layers: int) -> Iterator[str]:
    """What was left out, and what too short a context leaves unseen."""
    if depth < layers:
        built = "was" if depth == 1 else "were"
        kinds = "all layers are alike" if depth == 1 else "every kind of layer is among them"
        yield (
            f"{depth} of {layers} layers {built} built: {kinds}. Vocabulary, MLPs and experts are "
            "small; the cache's widths are as published."
        )
    longest = max(
        (getattr(layer, "sliding_window", None) or 0 for layer in small.layers), default=0
    )
    if form.tokens <= longest and form.cache == "dynamic":
        yield (
            f"the window of {longest} tokens was not filled by {form.tokens}: "
            f"--ctx {longest + form.tokens} does."
        )


def _runner(raw: dict[str, Any], model_type: str, batch: int) -> forward.Runner:
    """The model built, whole or its text decoder alone, and three tokens fed."""
    from kvsize.verify.trial import settled

    config = CONFIG_MAPPING[model_type].from_dict(raw)
    failure: Exception | None = None
    for _, part, name in forward.candidates(config, model_type):
        _check_ram(part, name)
        try:
            return settled(part, name, batch)
        except Exception as error:  # noqa: BLE001 - the next class may do
            failure = failure or error
    message = f"transformers cannot run this architecture here: {failure}"
    raise ConfigError(message, "use --level cache.")


def _check_ram(config: Any, name: str) -> None:
    """Raise UsageError where float32 weights would take more than half of the free RAM."""
    try:
        with torch.device("meta"):
            model = forward.build(config, name, torch.float32)
    except Exception:  # noqa: BLE001 - what cannot be built is told when it is built for real
        return
    needed = sum(p.numel() * p.element_size() for p in model.parameters())
    free = devices.free_ram_bytes()
    if needed * WEIGHTS_SHARE > free:
        message = (
            f"the weights of the layers to build take {format_bytes(needed)} in float32, and "
            f"{format_bytes(free)} of RAM are free."
        )
        raise UsageError(message, "use --level cache, which needs none.")


def _settled(request: Request, small: Model, prompt: int) -> Request:
    """Float32, as run, with the prompt stated and room for it in a static cache."""
    options = {**request.options}
    if small.root.flag("is_encoder_decoder"):
        options["encoder_tokens"] = _encoder_tokens()
    else:
        options["prompt"] = prompt
    if options.get("cache") == "static":
        options.setdefault("max_cache_len", request.context + small.prompt_tokens)
    return replace(request, kv_dtype="float32", options=options)


def _encoder_tokens() -> int:
    from kvsize.verify.trial import ENCODER_TOKENS

    return ENCODER_TOKENS


def _run(runner: forward.Runner, form: Form, prompt: int) -> list[HeldLayer]:
    """Prompt, then single tokens; the cache as it is in the end."""
    learned = getattr(runner.model.config, "prompt_length", 0)
    total = form.tokens - (learned if form.tokens > learned else 0)
    cache = runner.cache(form.cache, form.max_cache_len)
    ids = runner.ids(total)
    _, cache = runner.feed(ids[:, :prompt], 0, cache)
    for seen in range(prompt, total):
        _, cache = runner.feed(ids[:, : seen + 1], seen, cache)
    return read_cache(cache)


def _guard(model: Model, real: Sequence[HeldLayer], form: Form) -> list[str]:
    """`keys.shape == (batch, num_key_value_heads, seen, head_dim)` for every attention layer."""
    wrong = []
    for index, (layer, held) in enumerate(zip(model.layers, real, strict=False)):
        attention = layer.attention if isinstance(layer, HybridLayer) else layer
        keys = next((tensor for tensor in held.tensors if tensor.name == "keys"), None)
        if type(attention) is not FullAttention or keys is None or form.cache == "static":
            continue
        expected = (
            form.sequences,
            attention.num_key_value_heads,
            form.tokens,
            attention.head_dim,
        )
        if keys.shape != expected:
            wrong.append(f"layer {index}: keys have the shape {keys.shape}, not {expected}.")
    return wrong


def _decoding(runner: forward.Runner, evidence: Evidence) -> list[str]:
    """Greedy decoding with the cache and without must emit the same ids."""
    from kvsize.verify.trial import OWN_DECODING

    if forward.streams(runner.model) is not None:
        return []
    prompt = max(min(evidence.context - GREEDY, 32), 1)
    cached = runner.greedy(prompt, GREEDY, cached=True)
    anew = runner.greedy(prompt, GREEDY, cached=False)
    evidence.figures["greedy_ids"] = cached
    if cached == anew:
        return []
    known = OWN_DECODING.get(type(runner.model).__name__)
    if known is not None:
        evidence.notes.append(f"Its own code decodes differently with its cache: {known}")
        return []
    return [f"greedy decoding emits {cached} with the cache and {anew} without it."]
