"""DeepSeek-V4 models in SGLang: from the model's layers to deepseek_v4.py's pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.engines._layers import compressed_rows, served_layers
from kvsize.engines._result import Stored
from kvsize.engines._result import stored as one_layer
from kvsize.engines._settings import not_modelled
from kvsize.engines.sglang import deepseek_v4, pools
from kvsize.engines.sglang.capacity import Capacity, per_dp_rank
from kvsize.engines.sglang.cells import NAME
from kvsize.units import pad

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.engines.sglang.plan import Plan
    from kvsize.model import Model


def applies(model: Model) -> bool:
    """Whether the model's attention is compressed."""
    return bool(compressed_rows(model))


def _ratio(plan: Plan) -> float:
    stated = plan.values.number_or_none("swa_full_tokens_ratio")
    return stated or deepseek_v4.SWA_FULL_TOKENS_RATIO


def _shape(model: Model, plan: Plan, stage: range) -> deepseek_v4.Shape:
    every = compressed_rows(model)
    layers = [every[index] for index in stage]
    rates = tuple(layer.compress_rate for layer in layers)
    if set(rates) - {None, 4, 128}:
        raise not_modelled(NAME, "compression other than by 4 and 128", "use engine vllm.")
    return deepseek_v4.Shape(
        rates=rates,
        head_dim=layers[0].head_dim,
        qk_rope_head_dim=model.config.count_or("qk_rope_head_dim", 64),
        index_head_dim=max(layer.index_head_dim for layer in layers),
        sliding_window=layers[0].sliding_window,
        page_size=plan.page_size,
        ratio=_ratio(plan),
    )


def stored(model: Model, plan: Plan, request: Request, per_rank: tuple[int, ...]) -> list[Stored]:
    """What each layer's pools hold for the request, on every tensor-parallel rank."""
    result = []
    for stage in plan.stages:
        shape = _shape(model, plan, stage)
        by_rank = [_for_sequences(shape, plan, request, count) for count in per_rank]
        for position, index in enumerate(stage):
            used = [layer_bytes[position] for layer_bytes in by_rank]
            result.append(one_layer(served_layers(model)[index], plan.dtype, used))
    return result


def _for_sequences(
    shape: deepseek_v4.Shape, plan: Plan, request: Request, sequences: int
) -> list[int]:
    full = sequences * pad(request.context, plan.page_size)
    swa = pad(int(full * _ratio(plan)), plan.page_size)
    return list(deepseek_v4.layer_bytes(shape, full, swa, sequences))


def capacity(model: Model, plan: Plan, request: Request, rest_gib: float) -> Capacity:
    """Tokens that fit on the fullest stage; EngineRefuses where the engine would not start."""
    budget = pools.budget_bytes(rest_gib)
    requests = per_dp_rank(plan, "max_running_requests")
    shapes = [_shape(model, plan, stage) for stage in plan.stages]
    found = [
        (
            deepseek_v4.tokens(budget, shape, requests=requests, context=request.context),
            deepseek_v4.full_token_bytes(shape),
        )
        for shape in shapes
    ]
    tokens, cell = min(found, key=lambda pair: pair[0].full)
    running = pools.max_num_reqs(tokens.full, request.context, max_running_requests=requests)
    details: dict[str, object] = {
        "bytes_per_full_token": cell,
        "max_total_num_tokens": tokens.full,
        "full_tokens": tokens.full,
        "swa_tokens": tokens.swa,
        "max_running_requests": running,
    }
    return Capacity(tokens.full, cell, details)
