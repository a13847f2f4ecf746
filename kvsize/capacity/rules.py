"""Which share of which memory each engine gives to its cache, and how it can be laid out.

Bases: "total", the device's memory as CUDA reports it; "before", what is free before the weights
are loaded; "after", what is free after weights and activations; "left", all that is left.

Sources: vLLM 0.33.0 (requested memory in vllm/v1/worker/utils.py; the default became 0.92 in
0.20), SGLang 0.5.23 (srt/model_executor/kv_cache_configurator.py), TensorRT-LLM 1.3
(_torch/pyexecutor/_util.py), LMDeploy 0.18 (PyTorch) and 0.16 (TurboMind: cache_max_entry_count).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvsize.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One engine's way with memory and GPUs.

    `fraction_option` is the engine's name of the share; `fraction` its default, None where the
    engine works it out. `tensor`, `pipeline`: whether it can cut a model that way. `replicas`:
    whether `data_parallel_size` is its own option. `attention_dp` and `decode_context` name the
    options for those. `pooled`: the memory of several GPUs is one budget.
    """

    base: str
    fraction_option: str | None = None
    fraction: Fraction | None = None
    tensor: bool = True
    pipeline: bool = True
    attention_dp: str | None = None
    decode_context: str | None = None
    shared_experts: bool = False
    pooled: bool = False


RULES = {
    "vllm": Rules(
        base="total",
        fraction_option="gpu_memory_utilization",
        fraction=Fraction(92, 100),
        decode_context="decode_context_parallel_size",
        shared_experts=True,
    ),
    "sglang": Rules(
        base="before", fraction_option="mem_fraction_static", attention_dp="enable_dp_attention"
    ),
    "tensorrt-llm": Rules(
        base="after",
        fraction_option="free_gpu_memory_fraction",
        fraction=Fraction(9, 10),
        attention_dp="enable_attention_dp",
    ),
    "lmdeploy-turbomind": Rules(
        base="after",
        fraction_option="cache_max_entry_count",
        fraction=Fraction(8, 10),
        pipeline=False,
    ),
    "lmdeploy-pytorch": Rules(
        base="after",
        fraction_option="cache_max_entry_count",
        fraction=Fraction(8, 10),
        pipeline=False,
    ),
    "llama.cpp": Rules(base="left", tensor=False, pipeline=False, pooled=True),
    "exllamav3": Rules(base="left", pipeline=False),
    "mlx-lm": Rules(base="left", tensor=False, pipeline=False),
    "transformers": Rules(base="left", tensor=False, pipeline=False),
}
VLLM_FRACTION_BEFORE_0_20 = Fraction(9, 10)


def rules_for(engine: str) -> Rules:
    """The rules of an engine by the name kvsize shows; UsageError for one without any."""
    if engine not in RULES:
        msg = f"engine {engine} has no memory budget that kvsize knows."
        raise UsageError(msg, f"budgets are known for {', '.join(RULES)}.")
    return RULES[engine]


def default_fraction(engine: str, engine_version: str | None) -> Fraction | None:
    """The engine's default share in a version (None: the newest)."""
    if engine == "vllm" and engine_version is not None:
        from kvsize.engines.vllm.versions import release

        if release(engine_version) < (0, 20):
            return VLLM_FRACTION_BEFORE_0_20
    return rules_for(engine).fraction


def parse_fraction(text: str) -> Fraction:
    """A share such as `0.9`; UsageError for one that does not lie between 0 and 1."""
    try:
        share = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        msg = f"'{text}' is not a share."
        raise UsageError(msg, "write a number between 0 and 1, such as 0.9.")
    return share
