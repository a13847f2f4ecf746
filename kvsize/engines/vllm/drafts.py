"""Layers that speculative decoding adds, all on the last pipeline stage.

MTP heads and draft models register their layers beside the model's (vllm/v1/worker/gpu/
spec_decode, 0.33.0); n-gram and suffix methods have none.
"""

from __future__ import annotations

from dataclasses import replace

from kvsize.engines.vllm.blocks import Blocks
from kvsize.engines.vllm.grouping import CacheLayer
from kvsize.engines.vllm.settings import Settings
from kvsize.engines.vllm.states import States
from kvsize.layers import FullAttention, LatentAttention


def entries(settings: Settings, blocks: Blocks, states: States | None) -> list[CacheLayer]:
    return []
