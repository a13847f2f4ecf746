"""GGUF metadata as a Model: what the outputs show of its layers."""

import pytest

from kvsize.families import gguf
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
)
from kvsize.model import Raw
from tests.gguf_files import metadata

MAMBA = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 1024,
    "ssm__state_size": 16,
    "ssm__group_count": 1,
}


def build(arch="llama", **changes):
    return gguf.build(Raw(metadata(arch, **changes), "m", "m.gguf", "gguf", weight_bytes=5))


def test_what_a_model_carries():
    model = build()
    assert (model.name, model.source, model.where, model.model_type) == (
        "m",
        "gguf",
        "m.gguf",
        "llama",
    )
    assert (model.dtype, model.dtype_assumed, model.context_limit, model.weight_bytes) == (
        "float16",
        False,
        8192,
        5,
    )
    layer = FullAttention(num_attention_heads=8, num_key_value_heads=2, head_dim=64, v_head_dim=64)
    assert model.layers == (layer,) * 8


@pytest.mark.parametrize(
    ("arch", "changes", "kinds"),
    [
        ("bert", {}, [NoCache] * 8),
        ("gpt-oss", {"attention__sliding_window": 128}, [SlidingAttention, FullAttention] * 4),
        ("llama4", {}, [*[ChunkedAttention] * 3, FullAttention] * 2),
        (
            "deepseek2",
            {"attention__key_length_mla": 192, "attention__value_length_mla": 128},
            [LatentAttention] * 8,
        ),
        ("mamba2", MAMBA, [RecurrentState] * 8),
        ("falcon-h1", MAMBA, [HybridLayer] * 8),
        ("qwen35", MAMBA, [*[RecurrentState] * 3, FullAttention] * 2),
        (
            "nemotron_h",
            MAMBA
            | {
                "attention__head_count_kv": [0, 0, 2, 0] * 2,
                "feed_forward_length": [0, 9, 0, 9] * 2,
            },
            [RecurrentState, NoCache, FullAttention, NoCache] * 2,
        ),
        ("glm4moe", {"nextn_predict_layers": 1}, [*[FullAttention] * 7, NoCache]),
        ("gemma3n", {"block_count": 21, "attention__sliding_window": 8}, None),
    ],
)
def test_kinds_of_layers(arch, changes, kinds):
    layers = build(arch, **changes).layers
    if kinds is None:
        assert layers[20] == NoCache(reason="it reuses an earlier layer's keys and values")
    else:
        assert [type(layer) for layer in layers] == kinds


def test_a_latent_is_told_apart_from_its_rotary_key():
    changes = {
        "attention__key_length": 576,
        "attention__kv_lora_rank": 512,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
    }
    layer = build("deepseek2", **changes).layers[0]
    assert layer == LatentAttention(
        num_attention_heads=8,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
    )


def test_states_of_a_recurrent_layer():
    layer = build("mamba2", **MAMBA).layers[0]
    assert [(state.shape, state.dtype) for state in layer.states] == [
        ((3 * (1024 + 32),), "float32"),
        ((16 * 1024,), "float32"),
    ]
