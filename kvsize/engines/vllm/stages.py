"""Which pipeline stage holds which layer (get_pp_indices in vllm/distributed/utils.py, 0.33.0)."""

from __future__ import annotations

from kvsize.engines.vllm.needs import Placed
from kvsize.engines.vllm.settings import Settings
from kvsize.errors import EngineRefuses
from kvsize.layers import CrossAttention


def partition(layers: int, stages: int) -> list[int]:
    """Layers per stage: even, what is left over from the last but one stage backwards."""
    counts = [layers // stages] * stages
    for extra in range(2, layers % stages + 2):
        counts[-extra] += 1
    return counts


def place(settings: Settings) -> list[Placed]:
    """Every layer with its number and stage; cross-attention lies with its decoder layer."""
    layers = settings.model.layers
    own = [layer for layer in layers if not isinstance(layer, CrossAttention)]
    cross = [layer for layer in layers if isinstance(layer, CrossAttention)]
    stage_of = _stages(settings, len(own))
    placed = [Placed(layer, i, stage_of[i]) for i, layer in enumerate(own)]
    return placed + [Placed(layer, i, stage_of[i]) for i, layer in enumerate(cross)]


def _stages(settings: Settings, layers: int) -> list[int]:
    stages = settings.pipeline_parallel_size
    stated = settings.options["VLLM_PP_LAYER_PARTITION"]
    counts = partition(layers, stages) if stated is None else _stated(str(stated), layers, stages)
    return [stage for stage, count in enumerate(counts) for _ in range(count)]


def _stated(text: str, layers: int, stages: int) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    counts = [int(part) for part in parts if part.isdigit()]
    if len(counts) != len(parts) or len(counts) != stages or sum(counts) != layers:
        msg = f"vllm: VLLM_PP_LAYER_PARTITION {text} is no partition of {layers} layers."
        raise EngineRefuses(msg, f"give {stages} counts that add up to {layers}, as in 10,22.")
    return counts
