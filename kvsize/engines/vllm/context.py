"""The longest sequence a model takes in vLLM (max_model_len), and when a longer one is refused.

Rules of _get_and_verify_max_len in vllm/config/model.py (0.33.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from kvsize.config import Config
from kvsize.errors import EngineRefuses

_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_SCALED_ALREADY = {
    "su",
    "longrope",
    "llama3",
    "yarn",
    "deepseek_yarn",
    "deepseek_llama_scaling",
}
"""Rotary types whose stated length needs no further factor."""
_DEFAULT = 2048
AUTO_FIT = -1


def longest(config: Config, wanted: int) -> int:
    """max_model_len: `wanted`, or for 0 and -1 the model's own; EngineRefuses beyond it."""
    derived = _derived(config)
    rotary = list(_rotary(config))
    if derived is None:
        return wanted if wanted > 0 else _DEFAULT
    if "gemma3" not in config.model_type:
        for parameters in rotary:
            factor = parameters.get("factor")
            if _kind(parameters) not in _SCALED_ALREADY and isinstance(factor, int | float):
                derived = int(derived * factor)
                break
    if wanted <= 0:
        original = config.optional_count("original_max_position_embeddings")
        long_rope = any(_kind(parameters) in {"longrope", "su"} for parameters in rotary)
        return original if long_rope and original else derived
    stated = config.optional_count("model_max_length")
    if wanted > derived and (stated is None or wanted > stated):
        msg = f"vllm: max_model_len {wanted:,} is greater than the {derived:,} of the model."
        raise EngineRefuses(msg, f"use a context of at most {derived:,} tokens.")
    return wanted


def _derived(config: Config) -> int | None:
    stated = config.optional_count("model_max_length")
    if stated is not None:
        return stated
    found = [config.optional_count(key, least=0) for key in _LENGTH_KEYS]
    return min((length for length in found if length is not None), default=None)


def _rotary(config: Config) -> Iterator[Mapping[str, object]]:
    """Every set of rotary parameters: one, or one per kind of layer."""
    for key in ("rope_parameters", "rope_scaling"):
        stated = config.value(key)
        if not isinstance(stated, Mapping):
            continue
        parameters = cast("Mapping[str, object]", stated)
        nested = [item for item in parameters.values() if isinstance(item, Mapping)]
        yield from nested or [parameters]


def _kind(parameters: Mapping[str, object]) -> str:
    return str(parameters.get("rope_type") or parameters.get("type") or "default")
