"""A config.json sized for llama.cpp: the same figure as its GGUF's metadata gives."""

import pytest

import kvsize
from kvsize.engines.llama_cpp.conversion import PLAIN, SPECIAL, metadata
from kvsize.gguf.architectures import architecture
from kvsize.units import MIB

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 5376,
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
}
DEEPSEEK3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
QWEN35 = {
    "model_type": "qwen3_5_text",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
}
FALCON_40B = {
    "model_type": "falcon",
    "hidden_size": 8192,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "new_decoder_architecture": True,
}
JAMBA = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attn_layer_offset": 4,
    "attn_layer_period": 8,
}
KIMI = {
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 128,
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}
GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 2560,
    "num_hidden_layers": 42,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 512,
    "num_kv_shared_layers": 18,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7,
}


def size(config, context=4096, **options):
    return kvsize.size(kvsize.load(config), context=context, engine="llama.cpp", options=options)


def test_metadata_of_a_plain_decoder():
    assert metadata(kvsize.load(LLAMA)) == {
        "general.architecture": "llama",
        "llama.block_count": 32,
        "llama.context_length": 8192,
        "llama.embedding_length": 4096,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": [8] * 32,
        "llama.attention.key_length": 128,
        "llama.attention.value_length": 128,
    }


@pytest.mark.parametrize(
    ("config", "cache", "total_bytes"),
    [
        (LLAMA, "kv", 512 * MIB),
        # ten layers of 62 are full, the others keep 1,536 cells
        (GEMMA3, "base + swa", (10 * 4096 + 52 * 1536) * 2 * 16 * 128 * 2),
        (DEEPSEEK3, "kv", 61 * 4096 * 576 * 2),
        (QWEN35, "kv + recurrent", 16 * 4096 * 2 * 4 * 256 * 2 + 156_893_184),
        # the KV heads of the file, which transformers spreads over 128
        (FALCON_40B, "kv", 60 * 4096 * 2 * 8 * 64 * 2),
        (JAMBA, "kv + recurrent", 4096 * 2 * 1024 * 2 + 7 * 4 * (3 * 8192 + 16 * 8192)),
        (KIMI, "kv + recurrent", 4096 * 576 * 2 + 3 * 4 * (9 * 4096 + 128 * 4096)),
        # qualcomm/GenieX#1346: 64 MiB for 4 full layers, 40 MiB for 1,024 cells of 20 others
        (GEMMA4, "base + swa", 64 * MIB + 20 * 1024 * 2 * 2 * 256 * 2),
    ],
)
def test_sizes(config, cache, total_bytes):
    found = size(config)
    assert found.cache == cache
    assert found.total_bytes == total_bytes


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({"model_type": "mistral", "sliding_window": 512}, "kv"),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True}, "kv"),
        ({"model_type": "phi3", "sliding_window": 512}, "kv"),
        ({"model_type": "gemma2", "sliding_window": 512, "head_dim": 128}, "base + swa"),
        ({"model_type": "cohere2", "sliding_window": 512}, "base + swa"),
        ({"model_type": "olmo2"}, "kv"),
        ({"model_type": "olmo3", "sliding_window": 512}, "base + swa"),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128},
            "base + swa",
        ),
        ({"model_type": "granitemoehybrid", "layer_types": ["attention"] * 32}, "kv"),
    ],
)
def test_windows_that_llama_cpp_uses_and_those_it_ignores(changes, cache):
    assert size(LLAMA | changes).cache == cache


def test_lfm2_states():
    kinds = ["conv", "conv", "full_attention", "conv"]
    config = LLAMA | {
        "model_type": "lfm2",
        "num_hidden_layers": 4,
        "layer_types": kinds,
        "conv_L_cache": 3,
    }
    found = size(config)
    assert found.layer_bytes == (4096 * 2 * 4, 4096 * 2 * 4, 16 * MIB, 4096 * 2 * 4)


def test_nemotron_h_blocks():
    config = LLAMA | {
        "model_type": "nemotron_h",
        "num_hidden_layers": 4,
        "hybrid_override_pattern": "M-*-",
        "head_dim": 128,
        "mamba_num_heads": 8,
        "mamba_head_dim": 64,
        "ssm_state_size": 16,
        "n_groups": 1,
        "conv_kernel": 4,
        "intermediate_size": 1024,
    }
    state = 4 * (3 * (512 + 32) + 512 * 16)
    assert size(config).layer_bytes == (state, 0, 16 * MIB, 0)


def test_mamba_2_reads_the_file_without_class_defaults():
    """Its class would fill in Codestral's eight groups; the converter takes one."""
    config = {
        "model_type": "mamba2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_heads": 2,
        "head_dim": 64,
    }
    keys = metadata(kvsize.load(config))
    assert keys["mamba2.ssm.group_count"] == 1
    assert keys["mamba2.ssm.inner_size"] == 128


@pytest.mark.parametrize("config", [{**LLAMA, "model_type": "opt", "ffn_dim": 1024}])
def test_unknown_conversions_are_told(config):
    with pytest.raises(
        kvsize.ConfigError, match="converts model type 'opt' is not known"
    ) as caught:
        size(config)
    assert caught.value.hint == ("give the model's .gguf file; its metadata says what is needed.")


def test_every_conversion_ends_in_an_architecture():
    for arch in (*PLAIN, *(arch for arch, _ in SPECIAL.values())):
        assert architecture(arch) is not None, arch


def test_no_model_type_has_two_conversions():
    plain = " ".join(PLAIN.values()).split()
    assert len(plain) == len(set(plain))
    assert not set(plain) & set(SPECIAL)
