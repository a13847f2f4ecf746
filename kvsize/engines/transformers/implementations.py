"""The `cache_implementation` names that transformers' `generate` takes, and what each now makes.

Read in generation/utils.py and generation/configuration_utils.py of 4.57.6, 5.0.0, 5.5.0, 5.9.0,
5.10.4 to 5.14.1, 5.19.0 and 5.24.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kvsize.engines.transformers.versions import CachedLayer, Rules
from kvsize.errors import EngineRefuses
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    RecurrentState,
    ReferenceAttention,
    SlidingAttention,
)
from kvsize.record import Record, replace


class Implementation(Record):
    """What one name makes: the kind of cache, and whether its layers move to the CPU.

    `ignores_windows`: the cache is built without the config, so every layer keeps all tokens.
    """

    cache: str
    offloaded: bool = False
    ignores_windows: bool = False
    note: str = ""


_DEPRECATED = "cache_implementation '{}' is deprecated and makes a StaticCache{}."
IMPLEMENTATIONS = {
    "dynamic": Implementation("dynamic"),
    "static": Implementation("static"),
    "quantized": Implementation("quantized"),
    "offloaded": Implementation("dynamic", offloaded=True),
    "offloaded_static": Implementation("static", offloaded=True),
    "dynamic_full": Implementation("dynamic", ignores_windows=True),
    "sliding_window": Implementation(
        "static",
        note=_DEPRECATED.format("sliding_window", "")
        + " SlidingWindowCache is another name of StaticCache: a model without windows gets a "
        "cache of full length from it.",
    ),
    "hybrid": Implementation(
        "dynamic",
        note="generate() silently resets cache_implementation 'hybrid', so what it makes is a "
        "DynamicCache, not a static one.",
    ),
    "hybrid_chunked": Implementation("static", note=_DEPRECATED.format("hybrid_chunked", "")),
    "offloaded_hybrid": Implementation(
        "static", offloaded=True, note=_DEPRECATED.format("offloaded_hybrid", " that is offloaded")
    ),
    "offloaded_hybrid_chunked": Implementation(
        "static",
        offloaded=True,
        note=_DEPRECATED.format("offloaded_hybrid_chunked", " that is offloaded"),
    ),
    "paged": Implementation("paged"),
}


def implementation(name: str, rules: Rules) -> Implementation:
    """What `name` makes in the version of `rules`; EngineRefuses where generate() refuses it."""
    found = IMPLEMENTATIONS[name]
    if found.cache == "paged":
        message = "cache_implementation 'paged' switches generate() to continuous batching."
        raise EngineRefuses(
            message, "its blocks are not a transformers cache; size for engine vllm."
        )
    if name == "dynamic_full":
        return _dynamic_full(rules)
    return found


def _dynamic_full(rules: Rules) -> Implementation:
    """4.57 to 5.11 built the cache without the config; 5.12 and 5.13 with it, like `dynamic`."""
    if rules.number >= (5, 15):
        message = f"transformers {rules.version} has no cache_implementation 'dynamic_full'."
        raise EngineRefuses(message, "use dynamic, or --engine-version 5.14.1.")
    if (5, 12) <= rules.number < (5, 14):
        note = (
            f"transformers {rules.version} accepts 'dynamic_full' and still applies the windows: "
            "it makes the same cache as 'dynamic'."
        )
        return Implementation("dynamic", note=note)
    return IMPLEMENTATIONS["dynamic_full"]


def cached_layers(
    layers: Sequence[CachedLayer], made: Implementation, rules: Rules
) -> Sequence[CachedLayer]:
    """The layers as the implementation caches them.

    From 5.5 to 5.11 a model with linear layers got its config, and so its windows, all the same.
    """
    linear = any(isinstance(layer, RecurrentState) for layer in layers)
    if not made.ignores_windows or (linear and rules.number < (5, 12)):
        return layers
    return [without_window(layer) for layer in layers]


def without_window(layer: CachedLayer) -> CachedLayer:
    """The same layer, keeping every token."""
    match layer:
        case HybridLayer(attention=attention):
            return replace(layer, attention=cast("FullAttention", without_window(attention)))
        case LatentAttention():
            return replace(layer, sliding_window=None)
        case SlidingAttention() | ChunkedAttention() | ReferenceAttention():
            return FullAttention(
                num_attention_heads=layer.num_attention_heads,
                num_key_value_heads=layer.num_key_value_heads,
                head_dim=layer.head_dim,
                v_head_dim=layer.v_head_dim,
                extras=layer.extras,
            )
        case _:
            return layer
