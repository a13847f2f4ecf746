"""How each dialect of config.json is read: which layers, which heads, whose defaults."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import kvsize
from kvsize.families import READERS, family
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
)

PLAIN = {
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def kinds(config: dict[str, Any]) -> list[str]:
    short = {
        FullAttention: "F",
        SlidingAttention: "S",
        ChunkedAttention: "C",
        LatentAttention: "L",
        RecurrentState: "R",
        HybridLayer: "H",
        NoCache: "-",
    }
    return [short[type(layer)] for layer in kvsize.load(config).layers]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, "FFFFFF"),
        # A key that no class of this type reads makes every layer of its cache slide.
        ({"model_type": "llama", "sliding_window": 4}, "SSSSSS"),
        ({"model_type": "mistral"}, "SSSSSS"),
        ({"model_type": "mistral", "sliding_window": None}, "FFFFFF"),
        ({"model_type": "gemma2"}, "SFSFSF"),
        ({"model_type": "gemma3_text"}, "SSSSSF"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, "SFSFSF"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 2}, "SSSS--"),
        ({"model_type": "gemma4_text", "num_hidden_layers": 4}, "SSSF"),
        ({"model_type": "cohere2"}, "SSSFSS"),
        ({"model_type": "gpt_oss"}, "SFSFSF"),
        ({"model_type": "qwen2", "sliding_window": 4}, "FFFFFF"),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 4,
                "use_sliding_window": True,
                "max_window_layers": 4,
            },
            "FFFFSS",
        ),
        # The same keys mean the opposite in Qwen2-MoE.
        (
            {
                "model_type": "qwen2_moe",
                "sliding_window": 4,
                "use_sliding_window": True,
                "max_window_layers": 4,
            },
            "SFSFFF",
        ),
        ({"model_type": "qwen3_moe", "sliding_window": 4, "use_sliding_window": True}, "SSSSSS"),
        ({"model_type": "llama4_text"}, "CCCFCC"),
        ({"model_type": "llama4_text", "attention_chunk_size": None}, "FFFFFF"),
        (
            {"model_type": "exaone4", "sliding_window": 4, "sliding_window_pattern": "LLLG"},
            "SSSFSS",
        ),
        ({"model_type": "modernbert-decoder"}, "FSSFSS"),
        ({"model_type": "qwen3_next"}, "RRRFRR"),
        ({"model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1}, "RFRRFR"),
        ({"model_type": "lfm2", "full_attn_idxs": [2, 5]}, "RRFRRF"),
        ({"model_type": "falcon_h1"}, "HHHHHH"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*E"}, "R-RF-"),
        ({"model_type": "olmo3", "layer_types": ["full_attention"] * 6}, "FFFFFF"),
        ({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 3}, "RFRFRF"),
        ({"model_type": "recurrent_gemma"}, "--S--S"),
        ({"model_type": "chatglm", "kv_channels": 16}, "FFFFFF"),
    ],
)
def test_layer_kinds(config: dict[str, Any], expected: str) -> None:
    assert "".join(kinds(PLAIN | config)) == expected


@pytest.mark.parametrize(
    ("config", "heads", "kv_heads", "head_dim"),
    [
        ({"model_type": "llama"}, 4, 2, 16),
        ({"model_type": "llama", "num_key_value_heads": None}, 4, 4, 16),
        ({"model_type": "llama", "head_dim": 24}, 4, 2, 24),
        ({"model_type": "qwen3"}, 4, 2, 128),  # Qwen3Config's own head_dim
        ({"model_type": "gpt2", "head_dim": 99}, 4, 4, 16),  # never reads either key
        ({"model_type": "falcon"}, 4, 1, 16),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2}, 4, 4, 16),
        ({"model_type": "gpt_bigcode"}, 4, 1, 16),
        ({"model_type": "gpt_bigcode", "multi_query": False}, 4, 4, 16),
        ({"model_type": "dbrx", "attn_config": {"kv_n_heads": 2}}, 4, 2, 16),
        ({"model_type": "mpt", "attn_config": {"kv_n_heads": 2}}, 4, 4, 16),
        ({"model_type": "jetmoe", "kv_channels": 24, "num_experts_per_tok": 2}, 4, 2, 24),
        ({"model_type": "qwen", "kv_channels": 20, "num_key_value_heads": None}, 4, 4, 20),
        (
            {
                "model_type": "chatglm",
                "kv_channels": 16,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
                "num_key_value_heads": None,
            },
            4,
            2,
            16,
        ),
    ],
)
def test_heads(config: dict[str, Any], heads: int, kv_heads: int, head_dim: int) -> None:
    layer = kvsize.load(PLAIN | config).layers[0]
    assert isinstance(layer, FullAttention)
    found = (layer.num_attention_heads, layer.num_key_value_heads, layer.head_dim)
    assert found == (heads, kv_heads, head_dim)


def test_older_key_names() -> None:
    layers = kvsize.load({"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 64}).layers
    assert len(layers) == 3
    assert layers[0].head_dim == 16


def test_an_empty_section_is_filled_by_its_class() -> None:
    model = kvsize.load({"model_type": "llava", "text_config": {}})
    assert (model.config.model_type, len(model.layers)) == ("llama", 32)
    gemma = kvsize.load(
        {"model_type": "gemma3", "text_config": {"num_hidden_layers": 34, "hidden_size": 2560}}
    )
    layer = gemma.layers[0]
    assert isinstance(layer, SlidingAttention)
    assert (layer.num_attention_heads, layer.num_key_value_heads, layer.head_dim) == (8, 4, 256)
    assert gemma.config.origins["num_key_value_heads"].kind == "class default"


def test_blocks_of_nemotron_nas() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 2}},
        {"attention": {"no_op": True}},
        {"attention": {"replace_with_linear": True}},
    ]
    config = {
        "model_type": "nemotron-nas",
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "block_configs": blocks,
    }
    layers = kvsize.load(config).layers
    assert [type(layer) for layer in layers] == [FullAttention, NoCache, NoCache]
    assert layers[0].num_key_value_heads == 2


def test_hunyuan_shares_keys_between_layers() -> None:
    config = PLAIN | {"model_type": "hunyuan", "use_cla": True, "cla_share_factor": 2}
    assert "".join(kinds(config)) == "F-F-F-"


def test_heads_per_layer_of_openelm() -> None:
    config = {
        "model_type": "openelm",
        "num_transformer_layers": 2,
        "head_dim": 16,
        "num_query_heads": [4, 6],
        "num_kv_heads": [2, 3],
    }
    assert [layer.num_key_value_heads for layer in kvsize.load(config).layers] == [2, 3]


def test_a_section_the_class_does_not_read_is_followed_and_told() -> None:
    config = {"model_type": "vibevoice", "decoder_config": PLAIN | {"model_type": "qwen2"}}
    model = kvsize.load(config)
    assert len(model.layers) == 6
    assert [guess.code for guess in model.guesses] == ["KV010"]


def test_an_unknown_type_is_a_guess() -> None:
    model = kvsize.load(PLAIN | {"model_type": "acme_lm"})
    assert Counter(kinds(PLAIN | {"model_type": "acme_lm"})) == {"F": 6}
    assert [(guess.code, guess.message) for guess in model.guesses] == [
        ("KV008", "model type 'acme_lm' is not one kvsize knows; sized by the generic rule.")
    ]
    latent = {"kv_lora_rank": 16, "qk_rope_head_dim": 8}
    assert Counter(kinds(PLAIN | {"model_type": "acme_lm"} | latent)) == {"L": 6}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "llama", "layer_types": ["full_attention"] * 5},
            r"`layer_types` lists 5 layers, `num_hidden_layers` is 6",
        ),
        (
            {"model_type": "llama", "num_key_value_heads": 3},
            r"`num_key_value_heads` 3 does not divide `num_attention_heads` 4",
        ),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "MX"},
            r"`hybrid_override_pattern` has the letter 'X'",
        ),
        (
            {"model_type": "olmo3", "sliding_window": None},
            r"there is no `sliding_window`",
        ),
        ({"model_type": "vit"}, r"model type 'vit' does not generate text"),
        (
            {"model_type": "llama", "layer_types": ["full_attention"] * 5 + ["magic"]},
            r"layer type 'magic' is not one kvsize knows",
        ),
    ],
)
def test_contradictions(config: dict[str, Any], message: str) -> None:
    with pytest.raises(kvsize.ConfigError, match=message):
        kvsize.load(PLAIN | config)


def test_every_reader_exists_and_no_type_has_two() -> None:
    types = [name for listed in READERS.values() for name in listed.split()]
    assert len(types) == len(set(types))
    for reader, listed in READERS.items():
        for model_type in listed.split():
            assert family(model_type).__name__ == reader.split(".")[1]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "exaone4", "sliding_window_pattern": ""}, r"is empty"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": ""}, r"is empty"),
        ({"model_type": "zamba2", "layers_block_type": ["hybrid"]}, r"lists 1 layers"),
        (
            {"model_type": "laguna", "num_attention_heads_per_layer": [4, 4]},
            r"`num_attention_heads_per_layer` lists 2 layers, too few",
        ),
        (
            {"model_type": "gemma3n_text", "num_kv_shared_layers": 7},
            r"`num_kv_shared_layers` 7 exceeds `num_hidden_layers` 6",
        ),
        (
            {"model_type": "deci", "num_key_value_heads_per_layer": [2]},
            r"`num_key_value_heads_per_layer` lists 1 of 6 layers",
        ),
        (
            {"model_type": "bart", "hidden_size": 2, "decoder_attention_heads": 4},
            r"`hidden_size` 2 is less than `num_attention_heads` 4",
        ),
        (
            {"model_type": "acme_lm", "hidden_size": 2},
            r"`hidden_size` 2 is less than `num_attention_heads` 4",
        ),
        # What recurrent layers of an unknown type keep cannot be guessed.
        ({"model_type": "acme_lm", "mamba_d_state": 16}, r"`mamba_d_state` tells of layers"),
    ],
)
def test_nothing_is_sized_that_cannot_be(config: dict[str, Any], message: str) -> None:
    with pytest.raises(kvsize.ConfigError, match=message):
        kvsize.load(PLAIN | config)


def test_keys_that_decide_nothing_do_no_harm() -> None:
    off = {"use_sliding_window": False, "sliding_window": -1, "max_window_layers": 20_000}
    model = kvsize.load(PLAIN | {"model_type": "qwen2", "max_position_embeddings": 1e30} | off)
    assert {type(layer) for layer in model.layers} == {FullAttention}
    assert model.context_limit is None


def test_a_nested_name_only_the_parent_knows() -> None:
    text = PLAIN | {"model_type": "exaone4_5_text", "sliding_window": 16}
    model = kvsize.load({"model_type": "exaone4_5", "text_config": text})
    assert [type(layer) for layer in model.layers[:4]] == [SlidingAttention] * 3 + [FullAttention]
    assert model.guesses == ()


def test_deepseek_without_a_latent() -> None:
    text = PLAIN | {"model_type": "deepseek_v2", "use_mla": False, "kv_lora_rank": None}
    model = kvsize.load({"model_type": "deepseek_vl_v2", "language_config": text})
    assert {type(layer) for layer in model.layers} == {FullAttention}


def test_minimax_lists_its_full_layers() -> None:
    listed = {"attn_type_list": [0, 0, 0, 0, 0, 1]}
    assert "".join(kinds(PLAIN | {"model_type": "minimax_text_01"} | listed)) == "RRRRRF"
    model = kvsize.load(PLAIN | {"model_type": "minimax"} | listed)
    assert [guess.code for guess in model.guesses] == ["KV010"]


def test_no_comparison_costs_the_figure_itself() -> None:
    from kvsize.elsewhere import other_engines

    without_attention = {"model_type": "kimi_linear", "num_hidden_layers": 4}
    model = kvsize.load(PLAIN | without_attention)
    assert all(other.total_bytes > 0 for other in other_engines(model, 1024, 0))
