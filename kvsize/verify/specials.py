"""What single model types need before a toy of them can be built.

Each entry: what its class demands beyond the common fields (lists of one entry per layer, sums
that must agree, a key without a default), as changes to the toy's section.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvsize.verify.toys import Dims

Special = Callable[["Dims"], dict[str, Any]]


def rope(**parts: Any) -> dict[str, Any]:
    """Default rotary parameters, with `parts`."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **parts}}


def sections(dims: Dims, share: int = 2) -> dict[str, Any]:
    """Multi-axis rotary parameters: three sections that fill head_dim / `share`."""
    head_dim = dims.head_dim or (dims.hidden or 64) // (dims.heads or 4)
    total = head_dim // share
    return rope(mrope_section=[total - 2 * (total // 3), total // 3, total // 3])


def own_head_dim(dims: Dims) -> dict[str, Any]:
    """Classes whose head_dim has no default and no fallback."""
    return {"head_dim": dims.head_dim or (dims.hidden or 64) // (dims.heads or 4)}


def kinds(dims: Dims, *cycle: str, default: int = 4) -> list[str]:
    """One layer type for each layer, in turn."""
    return [cycle[i % len(cycle)] for i in range(dims.layers or default)]


def per_layer_rope(*layer_types: str) -> dict[str, Any]:
    """Rotary parameters by layer type."""
    one = {"rope_type": "default", "rope_theta": 10000.0}
    return {"rope_parameters": {kind: dict(one) for kind in layer_types}}


def mamba_heads(dims: Dims, heads: str, head_dim: str, expand: int = 2) -> dict[str, Any]:
    """Mamba heads whose product is the expanded width."""
    return {heads: 4, head_dim: expand * (dims.hidden or 64) // 4}


def token_map(image: int = 100) -> dict[str, Any]:
    """A vocabulary of two entries."""
    return {"vocabulary_map": {"<image>": image, "<s>": 1}}


# A tower's width, and heads that divide it.
NARROW = {"hidden_size": 32, "num_attention_heads": 2}
LINEAR, FULL = "linear_attention", "full_attention"

SPECIAL: dict[str, Special] = {
    "apertus1p5": lambda _: {
        "vision_config": {"codebook_size": 10},
        "audio_config": {"codebook_dim": 32, "codebook_size": 30},
        "audio_token_offset": 90,
        "image_token_offset": 80,
    },
    "bailing_hybrid": lambda _: {"layer_group_size": 3},
    "bamba": lambda d: {
        "attn_layer_indices": [1],
        **mamba_heads(d, "mamba_n_heads", "mamba_d_head"),
    },
    "blt": lambda _: {"encoder_hash_byte_group_vocab": 100},
    "chameleon": lambda _: token_map(),
    "codegen": lambda _: {"rotary_dim": 8},
    "cohere_compass_text": lambda _: per_layer_rope("sliding_attention", FULL),
    "cosmos3_edge_text": sections,
    "dbrx": lambda d: {
        "attn_config": {"rope_theta": 10000.0, "clip_qkv": 8, "kv_n_heads": d.kv_heads}
    },
    "deepseek_ocr2_text": lambda d: {"mlp_layer_types": kinds(d, "dense", "sparse")},
    "dia": lambda _: {
        "decoder_config": {
            "cross_hidden_size": 32,
            "cross_num_attention_heads": 4,
            "cross_num_key_value_heads": 2,
            "cross_head_dim": 8,
        }
    },
    "dory": lambda d: {
        "n_input_layers": 1,
        "n_output_layers": 1,
        "num_hidden_layers": d.layers or 4,
    },
    "dots3_note_text": lambda d: {
        "num_key_value_heads": d.heads,
        "swa_num_attention_heads": 2,
        "swa_num_key_value_heads": 2,
        "swa_q_lora_rank": 16,
        "swa_kv_lora_rank": 28,
        "swa_head_dim": 22,
        "swa_qk_nope_head_dim": 16,
        "swa_v_head_dim": 18,
    },
    "dots3_note": lambda d: {
        "vision_config": {**NARROW, "adapter_in_dim": 32, "adapter_out_dim": d.hidden or 5120},
        "audio_config": {**NARROW, "adapter_input_size": 32, "adapter_out_dim": d.hidden or 5120},
    },
    "dots3_note_audio_encoder": lambda _: {"per_layer_config": {}},
    "dots3_note_vision_encoder": lambda _: {"per_layer_config": {}},
    "emu3": lambda _: token_map(),
    "emu3_text_model": lambda _: {"pad_token_id": 0},
    "encoder-decoder": lambda _: {"decoder": {"is_decoder": True, "add_cross_attention": True}},
    "ernie4_5_vl_moe_text": lambda _: {
        "moe_intermediate_size": [32, 16],
        **rope(mrope_section=[3, 3, 2]),
    },
    "fun_asr_nano": lambda d: {
        "adaptor_config": {"hidden_size": d.hidden, "intermediate_size": (d.hidden or 64) // 4}
    },
    "gemma3n_text": lambda d: {
        "num_kv_shared_layers": (d.layers or 35) // 2 if d.layers else ...,
        "altup_num_inputs": 2,
        "hidden_size_per_layer_input": 8,
        "intermediate_size": d.ffn,
        "laurel_rank": 4,
    },
    "glm4v_moe_text": lambda d: sections(d, 4),
    "glm4v_text": sections,
    "glm5_next_text": lambda _: {"index_kpool": 4, "qk_rope_head_dim": 0, "head_dim": 0},
    "glm_ocr_text": sections,
    "gpt_neo": lambda d: {
        "attention_types": [[["global", "local"], (d.layers or 24) // 2]],
        "num_layers": 2 * ((d.layers or 24) // 2),
        "window_size": d.window or 256,
    },
    "gptj": lambda _: {"rotary_dim": 8},
    "granite4_vision": lambda _: {
        "deepstack_layer_map": [],
        "spatial_target_layers": [],
        "vision_config": {"hidden_size": 64},
        "downsample_rate": "1/2",
    },
    "granite_docling": lambda d: {"vision_config": {"out_hidden_size": d.hidden or 64}},
    "granitemoehybrid": lambda d: {
        "layer_types": kinds(d, "mamba", "attention", default=32),
        **mamba_heads(d, "mamba_n_heads", "mamba_d_head"),
    },
    "hunyuan_v1_dense": own_head_dim,
    "hunyuan_v1_moe": own_head_dim,
    "hunyuan_vl_text": lambda d: {**own_head_dim(d), **sections(d)},
    "hy_v4_vl_text": lambda _: rope(mrope_section=[2, 1, 1]),
    "inkling2": lambda d: {"vision_config": {"text_hidden_size": d.hidden}},
    "inkling2_loop": lambda d: {"vision_config": {"text_hidden_size": d.hidden}},
    "inkling_mm_model": lambda d: {
        "vision_config": {"text_hidden_size": d.hidden},
        "audio_config": {"text_hidden_size": d.hidden},
    },
    "jamba": lambda _: {"attn_layer_period": 3, "attn_layer_offset": 1},
    "kimi_linear": lambda d: (
        {"layer_types": kinds(d, LINEAR, FULL)} if d.layers and d.layers < 5 else {}
    ),
    "lfm2_moe": lambda d: {"layer_types": kinds(d, "conv", FULL, default=32)},
    "mamba2": lambda d: {**mamba_heads(d, "num_heads", "head_dim"), "n_groups": 2},
    "ministral": own_head_dim,
    "molmo2": lambda _: {
        "vision_config": {"image_size": [32, 32], "num_hidden_layers": 2},
        "adapter_config": {"vision_feature_layer": [1, 0]},
    },
    "moonshine_streaming": lambda d: {
        "num_key_value_heads": d.heads,
        "encoder_config": {"hidden_size": d.hidden, "num_attention_heads": d.heads},
    },
    "muse_spark": lambda d: {"audio_config": {"out_hidden_size": d.hidden}},
    "nemotron_h": lambda d: {
        "num_hidden_layers": ...,
        **mamba_heads(d, "mamba_num_heads", "mamba_head_dim"),
        "layers_block_type": kinds(d, "mamba", "moe", "attention", "mlp"),
        "n_groups": 2,
    },
    "nemotron_h_omni": lambda _: {"vision_config": {"video_temporal_patch_size": 2}},
    "paddleocr_vl_text": sections,
    "qwen2_5_omni_text": sections,
    "qwen2_5_vl_text": sections,
    "qwen2_vl_text": sections,
    "qwen4_exp_text": lambda _: {
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
        "ple_layer_ids": [],
        "ple_embed_dim": 16,
    },
    "reformer": lambda d: {"is_decoder": True, "axial_pos_embds_dim": [16, (d.hidden or 64) - 16]},
    "speech-encoder-decoder": lambda _: {
        "encoder": {"num_conv_pos_embedding_groups": 1},
        "decoder": {"is_decoder": True, "add_cross_attention": True},
    },
    "speecht5": lambda _: {"num_conv_pos_embedding_groups": 1},
    "step3p7_text": lambda d: {
        "sliding_window": d.window,
        **per_layer_rope("sliding_attention", FULL),
    },
    "step3p5": lambda d: {"sliding_window": d.window, **per_layer_rope("sliding_attention", FULL)},
    "vision-encoder-decoder": lambda _: {
        "decoder": {"is_decoder": True, "add_cross_attention": True}
    },
    # Its query width is rounded up to 64 in the cache alone.
    "xlstm": lambda d: {"hidden_size": 128 * (d.heads or 8)},
    "xmod": lambda _: {"languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": lambda d: {
        "mamba_dt_rank": 4,
        "n_mamba_heads": 2,
        "num_hidden_layers": max(d.layers, 5) if d.layers else ...,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
    },
    "zamba2": lambda d: {
        "layers_block_type": kinds(d, "mamba", "hybrid", default=54),
        "mamba_headdim": 2 * (d.hidden or 64) // 8,
        "n_mamba_heads": 8,
    },
    "zaya": lambda _: {"num_experts_per_tok": 1},
}
