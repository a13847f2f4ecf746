"""transformers' own cache objects for a config, as `generate` makes them."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Mapping
from typing import Any

import transformers
from transformers import cache_utils
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvsize.engines.transformers.form import Form
from kvsize.errors import ConfigError, MissingExtra
from kvsize.model import Model


def config_of(model: Model) -> Any:
    """The transformers config built from the model's own file.

    Raises ConfigError where transformers has no class for it, or its class refuses the file.
    """
    raw = dict(model.root.raw)
    model_type = str(raw.get("model_type") or "")
    if model_type not in CONFIG_MAPPING:
        message = f"transformers {transformers.__version__} has no class for '{model_type}'."
        raise ConfigError(message, "verify works for the model types that transformers knows.")
    failure = ""
    for attempt in (raw, _without_positions(raw)):
        try:
            return CONFIG_MAPPING[model_type].from_dict(attempt)
        except Exception as error:  # noqa: BLE001 - each class validates in its own way
            lines = str(error).strip().splitlines()
            failure = failure or (lines[-1].strip() if lines else type(error).__name__)
    message = f"{model.where}: transformers' own class refuses this file: {failure}"
    raise ConfigError(message, "the figure follows the file; there is no cache to compare.")


def _without_positions(section: Mapping[str, Any]) -> dict[str, Any]:
    """The file without rotary settings, which some classes find incomplete and no cache needs."""
    return {
        key: _without_positions(value) if isinstance(value, Mapping) else value
        for key, value in section.items()
        if key not in {"rope_scaling", "rope_parameters"}
    }


def make_cache(config: Any, form: Form, *, encoder_decoder: bool) -> Any:
    """The cache of the kind that `form` asks for, empty."""
    own = _one(config, form, form.max_cache_len)
    if not encoder_decoder:
        return own
    cross = _one(_cross_config(config), form, form.encoder_tokens)
    return cache_utils.EncoderDecoderCache(own, cross)


def _cross_config(config: Any) -> Any:
    """The decoder's config for its cross-attention: T5Gemma's classes take the windows out."""
    decoder = config.get_text_config(decoder=True)
    if not config.model_type.startswith("t5gemma"):
        return decoder
    decoder = copy.deepcopy(decoder)
    decoder.sliding_window = None
    decoder.layer_types = ["full_attention"] * decoder.num_hidden_layers
    return decoder


def _one(config: Any, form: Form, length: int) -> Any:
    decoder = config.get_text_config(decoder=True)
    # Cache layers that live in a modeling file register when it is imported.
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(type(decoder).__module__.replace(".configuration_", ".modeling_"))
    offloading: dict[str, bool] = {}
    if form.made.offloaded:
        only = form.offload_only_non_sliding
        offloading = {"offloading": True, "offload_only_non_sliding": only}
    match form.cache:
        case "static":
            return cache_utils.StaticCache(config=decoder, max_cache_len=length, **offloading)
        case "quantized":
            settings = dict(vars(form.quantization))
            backend = settings.pop("backend")
            if backend == "fp8":
                settings = {}
            return _quantized(backend, decoder, settings)
        case _ if form.made.ignores_windows:
            return cache_utils.DynamicCache()
        case _:
            return cache_utils.DynamicCache(config=decoder, **offloading)


def _quantized(backend: str, decoder: Any, settings: dict[str, Any]) -> Any:
    """A QuantizedCache; MissingExtra where its backend is not installed."""
    try:
        return cache_utils.QuantizedCache(backend, decoder, **settings)
    except ImportError as error:
        package = {"quanto": "optimum-quanto"}.get(backend, backend)
        message = f"the backend {backend} needs {package}, which is not installed."
        raise MissingExtra(message, f"pip install {package}, or use -o backend=fp8.") from error


def plain_cache(config: Any, kind: str, length: int) -> Any:
    """A DynamicCache, or a StaticCache of `length` tokens, for a config."""
    decoder = config.get_text_config(decoder=True)
    if kind == "static":
        return cache_utils.StaticCache(config=decoder, max_cache_len=length)
    return cache_utils.DynamicCache(config=decoder)
