"""Which GGUF metadata a config.json becomes: the part of llama.cpp's converter that sizes caches.

Source: the classes in `conversion/*.py` (convert_hf_to_gguf.py) of llama.cpp 0c1e57098, by model
type. Multi-token-prediction layers take nothing in the main context and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.engines.llama_cpp.conversion import attention, latent, recurrent
from kvsize.engines.llama_cpp.conversion.common import (
    Metadata,
    Rule,
    has_attention,
    has_states,
    unknown,
)
from kvsize.errors import ConfigError
from kvsize.gguf.hparams import ARCHITECTURE
from kvsize.model import Model

# Architectures whose layers are all alike to llama.cpp, with the model types that become them.
PLAIN = {
    "apertus": "apertus",
    "arcee": "arcee",
    "baichuan": "baichuan",
    "bailingmoe": "bailing_moe",
    "bitnet": "bitnet",
    "bloom": "bloom",
    "chatglm": "chatglm glm",
    "codeshell": "codeshell",
    "command-r": "cohere",
    "dbrx": "dbrx",
    "deci": "deci_lm nemotron-nas",
    "deepseek": "deepseek",
    "dots1": "dots1",
    "ernie4_5": "ernie4_5",
    "ernie4_5-moe": "ernie4_5_moe",
    "exaone": "exaone",
    "gemma": "gemma",
    "glm4": "glm4 glm4v_text glm_ocr_text",
    "glm4moe": "glm4_moe glm4v_moe_text solar_open",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
    "granite": "granite",
    "granitemoe": "granitemoe granitemoeshared",
    "grok": "grok-1",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan hunyuan_v1_moe",
    "hy_v3": "hy_v3",
    "internlm2": "internlm2",
    "jais2": "jais2",
    "llama": "internlm3 iquestcoder llama mistral mixtral",
    "minicpm": "minicpm",
    "minimax-m2": "minimax_m2",
    "mistral3": "ministral3",
    "nemotron": "nemotron",
    "olmo": "olmo",
    "olmoe": "olmoe",
    "openelm": "openelm",
    "orion": "orion",
    "paddleocr": "paddleocr_vl_text",
    "phi2": "phi",
    "phi3": "phi3",
    "phimoe": "phimoe",
    "qwen": "qwen",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "qwen3vl": "qwen3_vl_text",
    "qwen3vlmoe": "qwen3_vl_moe_text qwen3_omni_moe_text",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "xverse": "xverse",
}

# The others: their architecture, and the rules that add to or replace the plain keys.
SPECIAL: dict[str, tuple[str, tuple[Rule, ...]]] = {
    # one head count for all, by keys of their own
    "falcon": ("falcon", (attention.falcon_heads,)),
    "gpt_bigcode": ("starcoder", (attention.one_kv_head,)),
    "mpt": ("mpt", (attention.mpt_heads,)),
    "minicpm3": ("minicpm3", (attention.expanded_latent,)),
    "t5": ("t5", (attention.t5,)),
    # sliding windows
    "gemma2": ("gemma2", (attention.window,)),
    "gemma3_text": ("gemma3", (attention.window,)),
    "gemma3n_text": ("gemma3n", (attention.window, attention.gemma3n)),
    "gemma4_text": ("gemma4", (attention.window, attention.gemma4)),
    "gemma4_unified_text": ("gemma4", (attention.window, attention.gemma4)),
    "gpt_oss": ("gpt-oss", (attention.window,)),
    "cohere2": ("cohere2", (attention.window,)),
    "cohere2_moe": ("cohere2moe", (attention.window, attention.sliding_layers)),
    **dict.fromkeys(
        ("exaone4", "exaone4_5_text"), ("exaone4", (attention.window, attention.sliding_layers))
    ),
    "exaone_moe": ("exaone-moe", (attention.window, attention.sliding_layers)),
    "llama4_text": ("llama4", (attention.llama4,)),
    "olmo2": ("olmo2", (attention.window, attention.sliding_layers)),
    "olmo3": ("olmo2", (attention.window, attention.sliding_layers)),
    "afmoe": ("afmoe", (attention.window,)),
    "laguna": ("laguna", (attention.window,)),
    "mellum": ("mellum", (attention.window, attention.sliding_layers)),
    "mimo_v2_flash": ("mimo2", (attention.window, attention.sliding_layers)),
    "muse_glimmer_text": ("muse-glimmer", (attention.window, attention.sliding_layers)),
    "step3p5": ("step35", (attention.window, attention.sliding_layers)),
    "granite_swa": ("granite_swa", (attention.window, attention.sliding_layers)),
    "granitemoe_swa": ("granite_swa", (attention.window, attention.sliding_layers)),
    # latent and sparse attention
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu"), ("deepseek2", (latent.latent,))
    ),
    "mistral4": ("mistral4", (latent.latent,)),
    "deepseek_v32": ("deepseek32", (latent.latent, latent.indexer)),
    "glm_moe_dsa": ("glm-dsa", (latent.latent, latent.indexer, latent.indexer_layers)),
    "hy_v4": ("hy_v4", (latent.latent, latent.indexer, latent.indexer_layers)),
    "dots3_note_text": (
        "dots3note",
        (
            latent.latent,
            latent.latent_window,
            attention.sliding_layers,
            latent.indexer,
            latent.not_sliding,
        ),
    ),
    "deepseek_v4": ("deepseek4", (latent.deepseek_v4, latent.indexer)),
    "minimax_m3_vl_text": ("minimax-m3", (latent.minimax_m3,)),
    "minimax_m3": ("minimax-m3", (latent.minimax_m3,)),
    # recurrent and hybrid
    "mamba": ("mamba", (recurrent.mamba,)),
    "falcon_mamba": ("mamba", (recurrent.mamba,)),
    "mamba2": ("mamba2", (recurrent.mamba2,)),
    "falcon_h1": ("falcon-h1", (recurrent.falcon_h1,)),
    "jamba": ("jamba", (recurrent.jamba,)),
    "bamba": ("granitehybrid", (recurrent.granite_hybrid,)),
    "granitemoehybrid": ("granitehybrid", (recurrent.granite_hybrid,)),
    "nemotron_h": ("nemotron_h", (recurrent.nemotron_h,)),
    "lfm2": ("lfm2", (recurrent.short_conv,)),
    "lfm2_moe": ("lfm2moe", (recurrent.short_conv,)),
    "qwen3_next": ("qwen3next", (recurrent.delta_net,)),
    "qwen3_5_text": ("qwen35", (recurrent.delta_net,)),
    "qwen3_5_moe_text": ("qwen35moe", (recurrent.delta_net,)),
    "qwen4_exp_text": ("qwen4exp", (recurrent.delta_net, recurrent.qwen4_exp)),
    "kimi_linear": ("kimi-linear", (latent.latent, recurrent.kimi_delta)),
    "kimi_k3": ("kimi-k3", (latent.latent, recurrent.kimi_delta)),
    "glm5_next_text": (
        "glm5-next",
        (latent.latent, recurrent.kimi_delta, latent.indexer, latent.pooled_indexer),
    ),
}
_PLAIN_TYPES = {kind: arch for arch, kinds in PLAIN.items() for kind in kinds.split()}


def metadata(model: Model) -> Mapping[str, object]:
    """The GGUF metadata that llama.cpp's converter writes for `model`, as far as it sizes caches.

    Raises ConfigError for a model type whose conversion is not known here.
    """
    arch, extra = _conversion(model)
    found: Metadata = attention.plain(model)
    for rule in extra:
        found |= rule(model)
    if has_attention(model) and "attention.key_length" not in found:
        raise unknown(model, "its layers have heads of different lengths")
    if arch == "granitehybrid" and not has_states(model):
        arch = "granite"
    return {ARCHITECTURE: arch, **{f"{arch}.{key}": value for key, value in found.items()}}


def _conversion(model: Model) -> tuple[str, tuple[Rule, ...]]:
    """By the file's own model type, else by that of its text section."""
    for kind in (model.model_type, model.config.model_type):
        if kind in SPECIAL:
            return SPECIAL[kind]
        if kind in _PLAIN_TYPES:
            return _PLAIN_TYPES[kind], ()
    name = model.config.model_type or model.model_type
    msg = f"{model.where}: how llama.cpp converts model type '{name}' is not known here."
    raise ConfigError(msg, "give the model's .gguf file; its metadata says what is needed.")
