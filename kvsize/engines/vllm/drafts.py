"""Layers that speculative decoding adds, all on the last pipeline stage.

MTP heads and draft models register their layers beside the model's (vllm/v1/worker/gpu/
spec_decode and vllm/config/speculative.py, 0.33.0); n-gram and suffix methods have none.
"""

from __future__ import annotations

from dataclasses import replace

from kvsize.engines.vllm import architectures
from kvsize.engines.vllm.needs import Part, Placed, attention_of
from kvsize.engines.vllm.settings import Settings
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import ChunkedAttention, CompressedAttention, Layer, SlidingAttention
from kvsize.loading import load

_WITHOUT_LAYERS = {"ngram", "ngram_gpu", "suffix"}


def parts(settings: Settings) -> list[Part]:
    """The draft's layers with the settings they run under; none without a draft."""
    speculation = settings.speculation
    if speculation is None or speculation.method in _WITHOUT_LAYERS:
        return []
    if speculation.model is None:
        return [_mtp(settings)]
    model = load(speculation.model)
    ranks = speculation.tensor_parallel_size or settings.tensor_parallel_size
    own = replace(
        settings,
        model=model,
        latent=architectures.is_latent(model) and settings.latent_allowed,
        tensor_parallel_size=ranks,
        speculation=None,
    )
    return [_placed(own, model.layers, "draft.layers", 0)]


def _mtp(settings: Settings) -> Part:
    """The model's own multi-token-prediction heads, each with one attention layer."""
    config = settings.config
    heads = config.optional_count("num_nextn_predict_layers") or config.optional_count(
        "mtp_num_hidden_layers"
    )
    if heads is None:
        msg = f"vllm: {settings.model.name} states no multi-token-prediction layers."
        raise EngineRefuses(msg, "use another method, or give speculative_config a model.")
    layers = tuple(_head_layer(settings) for _ in range(heads))
    start = config.count("num_hidden_layers")
    return _placed(settings, layers, "mtp.layers", start)


def _head_layer(settings: Settings) -> Layer:
    """A head attends as the model's full layers do (DeepSeek-V4's has a window alone)."""
    layers = settings.model.layers
    windowed = (SlidingAttention, ChunkedAttention)
    for layer in layers:
        attention = attention_of(layer)
        if attention is not None and not isinstance(attention, windowed):
            return attention
    other = next((la for la in layers if not isinstance(la, CompressedAttention)), None)
    if other is None:
        msg = "vllm: the model's multi-token-prediction layer cannot be told from its layers."
        raise UsageError(msg, "leave speculative_config out.")
    return other


def _placed(settings: Settings, layers: tuple[Layer, ...], prefix: str, start: int) -> Part:
    last = settings.pipeline_parallel_size - 1
    return Part(
        settings, [Placed(layer, start + i, last, prefix) for i, layer in enumerate(layers)]
    )
