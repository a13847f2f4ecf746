"""The same question put to the other engines people serve with, where their caches differ.

A model takes another cache in each engine, and users compare a figure with their engine's log
line: whoever asks without naming an engine is shown which figure is theirs.
"""

from __future__ import annotations

from kvsize.api import size
from kvsize.dtypes import torch_dtype
from kvsize.errors import KvsizeError
from kvsize.layers import FullAttention
from kvsize.model import Model
from kvsize.record import Record

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx-lm")
# Config words for cached heads that transformers' class overrules, so that engines disagree.
# A comparison must not take longer than the figure: no published model has more.
MOST_LAYERS = 1000
OVERRULED = ("num_kv_heads", "multi_query", "attn_config")


class OtherEngine(Record):
    """What the same sequences take in another engine, with its defaults."""

    engine: str
    engine_version: str
    cache: str
    total_bytes: int


def other_engines(model: Model, context: int, total_bytes: int) -> tuple[OtherEngine, ...]:
    """What other engines take for one sequence that takes `total_bytes` in transformers.

    Empty where none differs, and for models whose layers are all plain attention: those take
    the same bytes everywhere, which is known without asking.
    """
    if _is_plain(model) or len(model.layers) > MOST_LAYERS:
        return ()
    asked = [_asked(name, model, context) for name in ENGINES]
    found = tuple(other for other in asked if other is not None)
    return found if any(other.total_bytes != total_bytes for other in found) else ()


def _is_plain(model: Model) -> bool:
    sixteen_bits = torch_dtype(model.dtype).block_bytes == 2
    plain = all(type(layer) is FullAttention and not layer.extras for layer in set(model.layers))
    return sixteen_bits and plain and not any(model.config.has(key) for key in OVERRULED)


def _asked(name: str, model: Model, context: int) -> OtherEngine | None:
    """The figure of one engine; None where it does not run the model, or kvsize cannot tell."""
    try:
        found = size(model, context=context, engine=name)
    except KvsizeError:
        return None
    except Exception:  # noqa: BLE001 - a fault in a comparison must not cost the figure itself
        return None
    return OtherEngine(found.engine, found.engine_version, found.cache, found.total_bytes)
