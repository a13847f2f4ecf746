"""Which of MLX-LM's model files make which caches: data read in mlx_lm 0.32.2, models/*.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvsize.model import Model

# utils.py, MODEL_REMAPPING.
_REMAPPED = {
    "falcon_mamba": "mamba",
    "gemma4_unified": "gemma4",
    "iquestcoder": "llama",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "minimax_m2": "minimax",
    "mistral": "llama",
    "xverse": "llama",
}
# Model files whose sliding layers are RotatingKVCaches; everywhere else they are KVCaches.
_ROTATES = frozenset(
    [
        "afmoe",
        "baichuan_m1",
        "cohere2",
        "exaone4",
        "exaone_moe",
        "gear",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_text",
        "gemma4_unified_text",
        "gpt_oss",
        "iquestloopcoder",
        "laguna",
        "mellum",
        "mimo_v2_flash",
        "muse_glimmer",
        "muse_spark",
        "olmo3",
        "plamo3",
        "recurrent_gemma",
        "spark2_5",
        "step3p5",
        "gemma3",
        "gemma3n",
        "gemma4",
    ]
)
# Model files that slide only where the file itself lists `layer_types`.
_ROTATES_WHERE_LISTED = frozenset({"llama", "ministral3"})
# Model files with a make_cache of their own, which ignores max_kv_size.
_MAKES_CACHE = _ROTATES | frozenset(
    [
        "afm7",
        "bailing_hybrid",
        "bailing_moe_linear",
        "bailing_moe_v3",
        "deepseek_v32",
        "deepseek_v41",
        "falcon_h1",
        "granitemoehybrid",
        "jamba",
        "kimi_k3",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "llama",
        "llama4",
        "longcat_flash",
        "mamba",
        "mamba2",
        "minimax_m3_vl",
        "ministral3",
        "nanbeige",
        "nemotron-nas",
        "nemotron_h",
        "olmo_hybrid",
        "plamo2",
        "qwen3_5",
        "qwen3_next",
        "rwkv7",
        "glm_moe_dsa",
        "llama4_text",
        "qwen3_5_text",
        "qwen3_5_moe_text",
    ]
)
# Model files that expand a latent and cache keys and values per head.
_EXPANDS_LATENT = frozenset({"deepseek_v2", "minicpm3", "youtu_llm"})


def _files(model: Model) -> set[str]:
    """The files MLX-LM loads for the model: its own, and its text decoder's."""
    return {_REMAPPED.get(kind, kind) for kind in (model.model_type, model.config.model_type)}


def rotates(model: Model) -> bool:
    """Whether the model's sliding layers get a RotatingKVCache."""
    files = _files(model)
    listed = bool(files & _ROTATES_WHERE_LISTED) and model.config.has("layer_types")
    return bool(files & _ROTATES) or listed


def makes_cache(model: Model) -> bool:
    """Whether the model file makes its caches itself, so that max_kv_size has no effect."""
    return bool(_files(model) & _MAKES_CACHE)


def expands_latent(model: Model) -> bool:
    """Whether a latent is cached as keys and values per head."""
    return bool(_files(model) & _EXPANDS_LATENT)
