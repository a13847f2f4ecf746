"""Dialects of config.json: a raw mapping in, a Model out.

`READERS` says which class of which module reads which model types, so that only the module in use
is imported. Every other type that transformers knows is a plain decoder.
"""

from __future__ import annotations

import importlib

from kvsize.config import LARGEST_COUNT, Config, without_cache
from kvsize.dtypes import TORCH_DTYPES, canonical
from kvsize.errors import ConfigError
from kvsize.families import nesting
from kvsize.families.decoder import Decoder
from kvsize.layers import CrossAttention, FullAttention, Layer
from kvsize.model import Guess, Model, Raw

READERS = {
    "compressed.DeepseekV4": "deepseek_v4",
    "compressed.Qwen4Exp": "qwen4_exp_text",
    "gemma.EmbeddingGemma2": "embedding_gemma2_text",
    "gemma.Gemma4": "diffusion_gemma_text gemma4_text gemma4_unified_text",
    "gemma.SharedLayers": "gemma3n_text",
    "heads.CpmAnt": "cpmant",
    "heads.Dbrx": "dbrx",
    "heads.Falcon": "falcon",
    "heads.GPTBigCode": "gpt_bigcode",
    "heads.HiddenStates": "xlnet",
    "heads.JetMoe": "jetmoe",
    "heads.MiMoV2Flash": "mimo_v2_flash",
    "heads.MiniMaxM3": "minimax_m3_vl_text",
    "heads.Mllama": "mllama_text_model",
    "heads.PerLayerHeads": "laguna",
    "heads.Step3p5": "step3p5",
    "heads.UnlimitedOcr": "unlimited_ocr_text",
    "heads.WithoutUsableCache": "openai-gpt xlm",
    "latent.BailingHybrid": "bailing_hybrid",
    "latent.Dots3Note": "dots3_note_text",
    "latent.Glm5Next": "glm5_next_text",
    "latent.HunyuanV4": "hy_v4 hy_v4_vl_text",
    "latent.Indexed": "axk2 deepseek_v32",
    "latent.KimiLinear": "kimi_linear",
    "latent.Latent": """
        axk1 deepseek_v2 deepseek_v3 glm4_moe_lite minicpm3 mistral4 sarvam_mla youtu
    """,
    "latent.LongcatFlash": "longcat_flash",
    "latent.MistralLarge4": "mistral_large4_text",
    "latent.SharedIndexer": "glm_moe_dsa",
    "loops.Dory": "dory",
    "loops.HrmText": "hrm_text",
    "loops.Inkling": "inkling2_text inkling_text",
    "loops.Inkling2Loop": "inkling2_loop_text",
    "recurrent.Bamba": "bamba falcon_h1 granitemoehybrid",
    "recurrent.GatedDeltaNet": """
        lara_mini olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next
    """,
    "recurrent.Jamba": "jamba",
    "recurrent.Mamba": "falcon_mamba mamba",
    "recurrent.Mamba2": "mamba2",
    "recurrent.MiniMaxText": "minimax",
    "recurrent.MiniMaxText01": "minimax_m1 minimax_text_01",
    "recurrent.NemotronH": "nemotron_h",
    "recurrent.RecurrentGemma": "recurrent_gemma",
    "recurrent.ShortConv": "lfm2 lfm2_moe lfm3",
    "recurrent.Rwkv": "rwkv",
    "recurrent.XLstm": "xlstm",
    "recurrent.Zamba": "zamba",
    "recurrent.Zamba2": "zamba2",
    "recurrent.Zaya": "zaya",
    "remote.ChatGLM": "chatglm",
    "remote.Generic": """
        aquila baichuan bailing_moe bunny-phi deepseek falcon_perception grok-1 internlm
        internlm2 llava_llama minicpm minicpmv molmo orion phi-msft phi3small qwen step1
        step3_text telechat xverse yi
    """,
    "remote.Hunyuan": "hunyuan",
    "remote.NemotronNas": "deci deci_lm nemotron-nas",
    "remote.OpenELM": "openelm",
    "seq2seq.FlatSeq2Seq": """
        bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian
        mbart moonshine mt5 mvp nllb-moe pegasus pegasus_x pix2struct_text_model plbart
        pop2piano prophetnet seamless_m4t seamless_m4t_v2 speech_to_text speecht5
        switch_transformers t5 trocr udop umt5 whisper
    """,
    "windowed.Gemma3": "gemma3_text",
    "windowed.ModernBertDecoder": "modernbert-decoder",
    "windowed.QwenWindow": """
        qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_moe
    """,
}

# Keys that hold the longest sequence a model is made for; none of them sizes a cache.
CONTEXT_LIMITS = (
    "max_position_embeddings",
    "max_target_positions",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "model_max_length",
)


def family(model_type: str) -> type[Decoder]:
    """The class that reads `model_type`; the plain decoder where no other claims it."""
    for name, types in READERS.items():
        if model_type in types.split():
            module, reader = name.split(".")
            found: type[Decoder] = getattr(
                importlib.import_module(f"kvsize.families.{module}"), reader
            )
            return found
    return Decoder


def build(raw: Raw) -> Model:
    """The model that `raw` describes. Raises ConfigError where it describes no decoder."""
    guesses: list[Guess] = []
    stated = Config(raw.config, raw.where).text("model_type") or ""
    if stated in without_cache():
        message = f"{raw.where}: model type '{stated}' does not generate text."
        raise ConfigError(message, "give a decoder's config.json; this model has no KV cache.")
    root = Config(raw.config, raw.where, stated)
    config = nesting.text_decoder(root, guesses)
    decoder = _reader(config, guesses)(config, root)
    layers = decoder.layers()
    guesses += decoder.guesses
    encoder_tokens = None
    if root.flag("is_encoder_decoder"):
        from kvsize.families import seq2seq

        layers += seq2seq.cross_layers(layers, config)
        encoder_tokens = seq2seq.encoder_tokens(root, config)
    _check_heads(layers, config)
    dtype, assumed = _dtype(config, root)
    return Model(
        name=raw.name,
        source=raw.source,
        where=raw.where,
        model_type=stated,
        config=config,
        root=root,
        layers=layers,
        dtype=dtype,
        dtype_assumed=assumed,
        context_limit=_context_limit(config, root),
        hub_id=raw.hub_id,
        revision=raw.revision,
        weight_bytes=raw.weight_bytes,
        encoder_tokens=encoder_tokens,
        prompt_tokens=decoder.prompt_tokens,
        cache_class=decoder.cache_class,
        no_static_cache=decoder.no_static_cache,
        guesses=tuple(guesses),
    )


def _reader(config: Config, guesses: list[Guess]) -> type[Decoder]:
    """The class that reads the section; the generic rule for an unknown type is a guess."""
    reader = family(config.model_type)
    if reader is not Decoder or config.known:
        return reader
    from kvsize.families import remote

    name = f"model type '{config.model_type}'" if config.model_type else "a file without model_type"
    guesses.append(Guess("KV008", f"{name} is not one kvsize knows; sized by the generic rule."))
    return remote.Unknown


def _check_heads(layers: tuple[Layer, ...], config: Config) -> None:
    """Query heads share KV heads in equal groups; a file where they cannot is wrong."""
    for layer in set(layers):
        if not isinstance(layer, FullAttention | CrossAttention):
            continue
        heads, kv_heads = layer.num_attention_heads, layer.num_key_value_heads
        if kv_heads == 0 or heads % kv_heads:
            message = (
                f"`num_key_value_heads` {kv_heads} does not divide `num_attention_heads` {heads}."
            )
            raise config.contradiction(message)


def _dtype(config: Config, root: Config) -> tuple[str, bool]:
    """The model's own dtype and whether bfloat16 had to be assumed; the decoder's comes first."""
    for section in (config, root):
        for key in ("dtype", "torch_dtype"):
            name = section.text(key)
            if name is not None and canonical(name) in TORCH_DTYPES:
                return canonical(name), False
    return "bfloat16", True


def _context_limit(config: Config, root: Config) -> int | None:
    """The longest sequence the model is made for; a limit no model has (-1, 1e30) says nothing."""
    for section in (config, root):
        for key in CONTEXT_LIMITS:
            found = section.value(key)
            if isinstance(found, float) and found.is_integer():
                found = int(found)
            if isinstance(found, int) and 1 < found <= LARGEST_COUNT:
                return found
    return None
