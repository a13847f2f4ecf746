"""What the serving engines share: every kind of layer, every rank, and the errors."""

from __future__ import annotations

from typing import Any

import pytest
from reference import MODELS, load

import kvsize
from kvsize import parallel
from kvsize.engines import engine, engines

ENGINES = [
    "exllamav3",
    "lmdeploy-pytorch",
    "lmdeploy-turbomind",
    "mlx-lm",
    "sglang",
    "tensorrt-llm",
]
BASE = {"torch_dtype": "bfloat16", "hidden_size": 1024, "vocab_size": 1000}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128}
FALCON_H1 = (
    BASE
    | HEADS
    | {
        "model_type": "falcon_h1",
        "num_hidden_layers": 2,
        "mamba_d_ssm": 1024,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
        "mamba_n_heads": 16,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
    }
)
LFM2 = (
    BASE
    | HEADS
    | {
        "model_type": "lfm2",
        "num_hidden_layers": 2,
        "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3,
    }
)
NEMOTRON_H = (
    BASE
    | HEADS
    | {
        "model_type": "nemotron_h",
        "num_hidden_layers": 4,
        "hybrid_override_pattern": "M-*E",
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 2,
        "conv_kernel": 4,
    }
)
LLAMA4 = (
    BASE
    | HEADS
    | {
        "model_type": "llama4_text",
        "architectures": ["Llama4ForConditionalGeneration"],
        "num_hidden_layers": 4,
        "attention_chunk_size": 8192,
        "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
    }
)
MINICPM3 = BASE | {
    "model_type": "minicpm3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 128,
}
BART = {
    "model_type": "bart",
    "torch_dtype": "float32",
    "d_model": 64,
    "decoder_layers": 2,
    "encoder_layers": 2,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
    "max_position_embeddings": 128,
    "vocab_size": 100,
}


def size(name: str, config: dict[str, Any] | str, context: int = 512, **asked: Any) -> kvsize.Size:
    return kvsize.size(load(config), context=context, engine=name, **asked)


@pytest.mark.parametrize("name", ENGINES)
def test_is_an_engine(name: str) -> None:
    assert name in engines()
    found = engine(name.replace("-", "_").upper())
    assert name == found.NAME
    assert found.VERSIONS
    assert all(sentence.endswith(".") for sentence in found.NOT_MODELLED)
    assert all(option.help for option in found.OPTIONS)


@pytest.mark.parametrize("name", ENGINES)
def test_plain_decoders_agree(name: str) -> None:
    dtype = "float16" if name == "exllamav3" else "bfloat16"
    found = size(name, "llama3_8b", context=512)
    assert found.total_bytes == 512 * 131072
    assert found.rank_bytes == (512 * 131072,)
    (group,) = found.groups
    assert (group.kind, group.layers) == ("full attention", 32)
    assert group.tensors == (f"keys [tokens, 8, 128] {dtype}", f"values [tokens, 8, 128] {dtype}")


@pytest.mark.parametrize("name", ENGINES)
def test_a_context_of_zero_is_the_models(name: str) -> None:
    assert size(name, "llama3_8b", context=0).context == 8192
    with pytest.raises(kvsize.UsageError, match="states no context limit"):
        size(name, FALCON_H1 | {"max_position_embeddings": None}, context=0)


@pytest.mark.parametrize(
    ("name", "layer_bytes"),
    [
        # conv (1024 + 2 × 64) × 3 columns, state 16 × 64 × 64 in float32, 512 tokens of 1024 B
        ("mlx-lm", 1152 * 3 * 2 + 65536 * 4 + 512 * 1024),
        ("tensorrt-llm", 1152 * 3 * 2 + 65536 * 4 + 512 * 1024),
        ("sglang", 3 * (1152 * 3 * 2 + 65536 * 4) + 512 * 1024),
        # 16 slots, four columns
        ("exllamav3", 16 * (1152 * 4 * 2 + 65536 * 4) + 512 * 1024),
        # three slots of both layers' 16-bit tensors
        ("lmdeploy-pytorch", 3 * (1152 * 4 * 2 + 65536 * 2) + 512 * 1024),
        ("lmdeploy-turbomind", 512 * 1024),
    ],
)
def test_attention_beside_a_state(name: str, layer_bytes: int) -> None:
    found = size(name, FALCON_H1)
    assert found.layer_bytes == (layer_bytes, layer_bytes)
    assert found.groups[0].kind == "full attention and recurrent state"


@pytest.mark.parametrize(
    ("name", "conv_bytes"),
    [
        ("mlx-lm", 1024 * 2 * 2),
        ("tensorrt-llm", 1024 * 2 * 2),
        ("sglang", 3 * 1024 * 2 * 2),
        ("exllamav3", 16 * 1024 * 3 * 2),
        ("lmdeploy-pytorch", 3 * 1024 * 3 * 2),
    ],
)
def test_short_convolutions(name: str, conv_bytes: int) -> None:
    assert size(name, LFM2).layer_bytes == (conv_bytes, 512 * 1024)


@pytest.mark.parametrize("name", ENGINES)
def test_blocks_without_memory(name: str) -> None:
    found = size(name, NEMOTRON_H)
    assert (found.layer_bytes[1], found.layer_bytes[3]) == (0, 0)
    assert found.layer_bytes[2] == 512 * 1024


def test_groups_that_do_not_divide_are_replicated() -> None:
    # two groups over four ranks: each rank keeps a whole one of 2 × 128 channels
    found = size("sglang", NEMOTRON_H, tensor_parallel_size=4)
    state = (1024 // 4 + 2 * 128) * 3 * 2 + 4 * 64 * 128 * 4
    assert found.layer_bytes[0] == 4 * 3 * state


@pytest.mark.parametrize(
    ("name", "chunked"),
    [
        ("sglang", 409 * 1024),  # 0.8 of 512 tokens
        ("tensorrt-llm", 512 * 1024),
        ("mlx-lm", 512 * 1024),
        ("exllamav3", 512 * 1024),
        ("lmdeploy-pytorch", 512 * 1024),
        ("lmdeploy-turbomind", 512 * 1024),
    ],
)
def test_chunked_layers(name: str, chunked: int) -> None:
    assert size(name, LLAMA4).layer_bytes == (*[chunked] * 3, 512 * 1024)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("sglang", 288 * 2),
        ("tensorrt-llm", 288 * 2),
        ("exllamav3", 288 * 2),
        ("lmdeploy-turbomind", 288 * 2),
        ("lmdeploy-pytorch", 8 * 2 * 96 * 2),
        ("mlx-lm", 8 * (96 + 128) * 2),
    ],
)
def test_a_latent_may_be_expanded(name: str, row: int) -> None:
    assert size(name, MINICPM3).layer_bytes == (512 * row,) * 2


def test_cross_attention() -> None:
    found = size("tensorrt-llm", BART, context=64, options={"tokens_per_block": 32})
    assert found.layer_bytes == (64 * 256,) * 2 + (128 * 256,) * 2
    with pytest.raises(kvsize.UsageError, match="cross-attention is not modelled"):
        size("mlx-lm", BART, context=64)
    for name in ("sglang", "exllamav3", "lmdeploy-pytorch", "lmdeploy-turbomind"):
        found = size(name, BART, context=64)
        assert found.layer_bytes[2:] == (0, 0)
        assert found.notes == ("The keys and values of encoder or image tokens are not counted.",)


def test_cross_attention_takes_its_share_of_the_memory() -> None:
    found = kvsize.fit(load(BART), engine="tensorrt-llm", context=64, kv_memory=2**20)
    assert found.blocks == 2**19 // (2 * 256 * 32)


@pytest.mark.parametrize("name", ["tensorrt-llm", "lmdeploy-turbomind", "lmdeploy-pytorch"])
def test_blocks_need_attention(name: str) -> None:
    config = NEMOTRON_H | {"hybrid_override_pattern": "M-ME"}
    with pytest.raises(kvsize.EngineRefuses, match="keeps no keys and values"):
        kvsize.fit(load(config), engine=name, context=512, kv_memory=10**9)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("sglang", "SGLang starts, and cuts longer requests."),
        ("tensorrt-llm", "the engine cuts max_seq_len to what fits."),
        ("lmdeploy-turbomind", "TurboMind cuts longer requests."),
        ("lmdeploy-pytorch", "the engine starts, and rejects longer requests."),
        ("exllamav3", "longer jobs are refused."),
    ],
)
def test_too_little_for_one_sequence(name: str, note: str) -> None:
    found = kvsize.fit(load("llama3_8b"), engine=name, context=8192, kv_memory=2**29)
    assert found.concurrency < 1
    assert found.notes[-1].endswith(note)


@pytest.mark.parametrize("name", ["tensorrt-llm", "mlx-lm", "lmdeploy-pytorch"])
def test_deepseek_v4_is_not_modelled_everywhere(name: str) -> None:
    with pytest.raises(kvsize.UsageError, match=r"DeepSeek-V4's cache is not modelled"):
        size(name, "deepseek_v4")


def test_turbomind_does_not_run_deepseek_v4() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="does not run DeepSeek-V4"):
        size("lmdeploy-turbomind", "deepseek_v4")


def test_deepseek_v4_in_exllamav3() -> None:
    ring = 16 * 768 * 512 * 2
    found = size("exllamav3", "deepseek_v4", context=8192, options={"max_num_tokens": 8192})
    assert found.layer_bytes[0] == ring
    assert found.layer_bytes[2] == ring + 16 * 2 * 384 * 512 * 2 + 8192 * 8
    overlap = 66 * 2 * 4 * (512 + 128) * 4
    rows = 2 * 260 * 2 * (512 + 128) * 2
    assert found.layer_bytes[1] == ring + 16 * (rows + overlap) + 2621440


# -- spreading over ranks -------------------------------------------------------------------
def test_stages() -> None:
    assert parallel.stages(7, 3, extra="last") == (range(2), range(2, 4), range(4, 7))
    assert parallel.stages(7, 3, extra="first") == (range(3), range(3, 5), range(5, 7))


def test_heads() -> None:
    assert [parallel.heads_per_rank(8, ranks) for ranks in (1, 3, 8, 16)] == [8, 2, 1, 1]
    assert [parallel.heads_per_rank_ceil(8, ranks) for ranks in (1, 3, 8, 16)] == [8, 3, 1, 1]
    assert parallel.spread(7, 3) == (3, 2, 2)


def test_notes_only_where_there_is_something_to_say() -> None:
    assert parallel.replication_note(8, 8) is None
    assert parallel.latent_note(1, "nothing to do") is None
    assert parallel.fullest_rank_note((5, 5)) is None
    assert parallel.fullest_rank_note((1, 5)) == (
        "Rank 1 of 2 is the fullest, with 5 bytes; the emptiest holds 1."
    )


def test_models_named_in_rows_load() -> None:
    assert {load(name).dtype for name in MODELS} == {"bfloat16", "float16"}
