"""Which models vLLM serves, and which of their traits decide how it caches them.

Read in vllm/model_executor/models/registry.py and vllm/transformers_utils/
model_arch_config_convertor.py (0.33.0).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from kvsize.engines.vllm.versions import LATEST, release
from kvsize.errors import EngineRefuses, UsageError
from kvsize.model import Model

# The last version that served an architecture (_PREVIOUSLY_SUPPORTED_MODELS).
_LAST_VERSION = {
    "0.9.2": "Phi3SmallForCausalLM",
    "0.10.2": """
        DonutForConditionalGeneration MllamaForConditionalGeneration MotifForCausalLM
        Phi4FlashForCausalLM
    """,
    "0.12.0": "Phi4MultimodalForCausalLM",
    "0.22.0": "JAISLMHeadModel",
    "0.23.0": """
        BaiChuanForCausalLM BaichuanForCausalLM BambaForCausalLM Dots1ForCausalLM
        InternLM2VEForCausalLM InternLMForCausalLM MiniMaxForCausalLM MiniMaxM1ForCausalLM
        MiniMaxText01ForCausalLM MiniMaxVL01ForConditionalGeneration QWenLMHeadModel
        QwenVLForConditionalGeneration Tarsier2ForConditionalGeneration XverseForCausalLM
    """,
    "0.24.0": """
        AquilaForCausalLM AquilaModel AyaVisionForConditionalGeneration Grok1ForCausalLM
        Grok1ModelForCausalLM MantisForConditionalGeneration
        MusicFlamingoForConditionalGeneration TarsierForConditionalGeneration
    """,
    "0.25.0": "FuyuForCausalLM PersimmonForCausalLM TeleChatForCausalLM",
    "0.26.0": "OuroForCausalLM Plamo2ForCausalLM",
    "0.28.0": """
        ArcticForCausalLM ChameleonForConditionalGeneration Cheers
        CheersForConditionalGeneration Fairseq2LlamaForCausalLM
        FireRedLIDForConditionalGeneration GritLM HCXVisionForCausalLM MPTForCausalLM
        MptForCausalLM RWForCausalLM StableLMEpochForCausalLM
    """,
}
# Of these, transformers' own class serves now.
_BY_TRANSFORMERS = {"dots1", "persimmon", "phi4_multimodal"}
# transformers' classes that vLLM cannot run: their attention or signature is their own.
_UNLIKE = {
    "bamba",
    "big_bird",
    "codegen",
    "cpmant",
    "diffllama",
    "git",
    "gpt_neo",
    "gpt_neox_japanese",
    "megatron-bert",
    "minimax",
    "mpt",
    "mvp",
    "openai-gpt",
    "prophetnet",
    "recurrent_gemma",
    "reformer",
    "rembert",
    "roformer",
    "rwkv",
}
# Their caches have parts of their own in vLLM that are not modelled here.
NOT_MODELLED = {
    "dots3_note_text",
    "glm5_next_text",
    "inkling2_loop_text",
    "inkling2_text",
    "inkling_text",
    "qwen4_exp_text",
}
# Served by a plugin only (_OOT_SUPPORTED_MODELS).
_PLUGINS = {
    "BartForConditionalGeneration",
    "BartModel",
    "Florence2ForConditionalGeneration",
    "MBartForConditionalGeneration",
}
# Encoder-decoders that vLLM serves itself; its transformers backend takes none.
_ENCODER_DECODERS = {"whisper", "cohere_asr", "fireredasr2", "nemotron_parse"}
# Model types whose latent attention vLLM caches as latents (is_deepseek_mla); the others'
# (MiniCPM3) is stored as padded heads.
_LATENT = {
    "axk1",
    "bailing_hybrid",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "dots3_note",
    "dots3_note_text",
    "glm4_moe_lite",
    "glm5_next",
    "glm5_next_text",
    "glm_moe_dsa",
    "hy_v4",
    "kimi_k2",
    "kimi_linear",
    "longcat_flash",
    "pangu_ultra_moe",
}
# Encoders that transformers also offers as decoders, with `is_decoder`.
_ENCODERS = {
    "bert",
    "bert-generation",
    "camembert",
    "data2vec-text",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}
# Models that attend both ways inside an image (is_mm_prefix_lm).
_PREFIX = {"bagel", "gemma3", "molmo2", "moondream3", "paligemma"}


@cache
def served() -> frozenset[str]:
    """Every architecture vLLM has a class for; it serves others through transformers' classes."""
    text = files("kvsize").joinpath("data/vllm_architectures.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["architectures"])


def name(model: Model) -> str:
    """The first architecture the file names, empty where it names none."""
    return next(iter(model.root.texts("architectures") or ()), "")


def check(model: Model, version: str) -> None:
    """Raise EngineRefuses where vLLM `version` does not serve the model's architecture."""
    architecture = name(model)
    kinds = {model.root.model_type, model.config.model_type}
    for last, gone in _LAST_VERSION.items():
        if kinds & _BY_TRANSFORMERS:
            break
        if architecture in gone.split() and release(version) > release(last):
            msg = f"vllm: {architecture} was served until {last}, and is not in {version}."
            raise EngineRefuses(msg, f"use --engine-version {last}, or another engine.")
    runs = model.root.known and not kinds & _UNLIKE
    if architecture and not runs and architecture not in served():
        msg = f"vllm: {architecture} is not among the architectures that {LATEST} serves."
        raise EngineRefuses(msg, "use another engine, or vLLM with a plugin for it.")
    if kinds & NOT_MODELLED:
        msg = f"kvsize does not model vLLM's cache of model type '{model.config.model_type}'."
        raise UsageError(msg, "use another engine, such as transformers.")
    encoder_decoder = model.root.flag("is_encoder_decoder")
    if architecture in _PLUGINS or (encoder_decoder and not kinds & _ENCODER_DECODERS):
        msg = f"vllm: {architecture or model.model_type} is not served by {LATEST} itself."
        raise EngineRefuses(msg, "use another engine, or vLLM with a plugin for it.")


def is_latent(model: Model) -> bool:
    """Whether vLLM caches the model's latent attention as latents."""
    config = model.config
    stated = config.optional_count("kv_lora_rank") is not None
    if config.model_type == "deepseek_v4":
        return True
    # transformers' classes are run as latent wherever the file has a latent.
    by_transformers = name(model) != "" and name(model) not in served()
    return stated and (by_transformers or config.model_type in _LATENT) and causal(model)


def causal(model: Model) -> bool:
    """Whether the model generates: encoders and bidirectional embedding models keep no cache."""
    if model.config.model_type in _ENCODERS and not model.config.flag("is_decoder"):
        return False
    return all(section.value("is_causal") is not False for section in (model.config, model.root))


def multimodal_prefix(model: Model) -> bool:
    """Whether tokens of one image attend to each other both ways."""
    stated = model.root.value("is_mm_prefix_lm")
    if stated is not None:
        return bool(stated)
    if model.root.model_type.startswith(("gemma4", "diffusion_gemma")):
        return model.config.value("use_bidirectional_attention") == "vision"
    return model.root.model_type in _PREFIX


def multimodal(model: Model) -> bool:
    """Whether the file describes more than a text model."""
    return model.config is not model.root and "ForCausalLM" not in name(model)
