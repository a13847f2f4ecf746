"""Deployments for the tests of this folder; only what a test is about differs from these."""

from __future__ import annotations

from typing import Any

import kvsize
from kvsize.capacity.gpus import Gpu, gpu
from kvsize.capacity.layout import Layout
from kvsize.capacity.layouts import Plan
from kvsize.capacity.machine import Machine
from kvsize.capacity.setup import Setup
from kvsize.capacity.sharding import shares
from kvsize.capacity.weights import weights_of

GIB = 2**30
TINY: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
"""256 bytes per layer and token, 512 in all."""


def setup(engine: str, source: Any = None, layout: Layout | None = None, **changes: Any) -> Setup:
    model = kvsize.load(TINY if source is None else source)
    return Setup(model=model, engine=engine, layout=layout or Layout(), **changes)


def machine(source: Any, name: str | Gpu = "h100", **changes: Any) -> Machine:
    model = kvsize.load(source)
    card = gpu(name) if isinstance(name, str) else name
    stated = {"weights": weights_of(model), "shares": shares(model), "reserve_bytes": 4 * GIB}
    return Machine(gpu=card, **{**stated, **changes})


def plan(source: Any, name: str | Gpu = "h100", engine: str = "vllm", **changes: Any) -> Plan:
    stated = {key: changes.pop(key) for key in list(changes) if key in Machine.__slots__}
    options = changes.pop("options", {})
    return Plan(
        model=kvsize.load(source),
        machine=machine(source, name, **stated),
        engine=engine,
        options=options,
        **changes,
    )
