"""What the rules of the converter share."""

from __future__ import annotations

from collections.abc import Callable

from kvsize.config import Config
from kvsize.errors import ConfigError
from kvsize.layers import (
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    RecurrentState,
    SlidingAttention,
)
from kvsize.model import Model

Metadata = dict[str, object]
Rule = Callable[[Model], Metadata]


def has_attention(model: Model) -> bool:
    """Whether any layer has keys and values of its own."""
    return any(attention_of(layer) for layer in model.layers)


def has_states(model: Model) -> bool:
    """Whether any layer keeps a recurrent state alone."""
    return any(isinstance(layer, RecurrentState) for layer in model.layers)


def unknown(model: Model, reason: str) -> ConfigError:
    """The error for a model that the rules here do not cover."""
    msg = f"{model.where}: how llama.cpp converts this model is not known here: {reason}."
    return ConfigError(msg, "give the model's .gguf file; its metadata says what is needed.")


def attention_of(layer: Layer) -> FullAttention | None:
    """The layer's keys and values, where it has any of its own."""
    if isinstance(layer, HybridLayer):
        return layer.attention
    return layer if isinstance(layer, FullAttention) else None


def slides(layer: Layer) -> bool:
    """Whether the layer has a sliding window."""
    if isinstance(layer, LatentAttention):
        return layer.sliding_window is not None
    return isinstance(layer, SlidingAttention)


def same(values: list[int]) -> int | list[int]:
    """One number for all layers where they agree."""
    return values[0] if len(set(values)) == 1 else values


def stated(config: Config, key: str, default: int) -> int:
    """The file's own value, never the class's default."""
    return config.count_or(key, default) if config.has(key) else default
