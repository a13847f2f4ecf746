"""vLLM's pool: exact blocks, tokens and concurrency, as vLLM 0.33.0's own code gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import kvsize
from kvsize import Fit

MEMORY = 40 * 10**9

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
GEMMA_3_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 62,
    "hidden_size": 5376,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
}
DEEPSEEK_V32 = DEEPSEEK_V3 | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_topk": 2048,
    "index_n_heads": 64,
    "index_head_dim": 128,
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
WHISPER: dict[str, Any] = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "is_encoder_decoder": True,
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "torch_dtype": "float16",
}
MAMBA2: dict[str, Any] = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "num_hidden_layers": 64,
    "hidden_size": 4096,
    "expand": 2,
    "num_heads": 128,
    "head_dim": 64,
    "n_groups": 8,
    "state_size": 128,
    "conv_kernel": 4,
    "torch_dtype": "bfloat16",
}


def fit(config: Mapping[str, object], context: int, **settings: Any) -> Fit:
    """What 40 GB per rank hold, on an H100 unless `gpu` says otherwise."""
    known = {
        name: settings.pop(name)
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "kv_dtype", "engine_version")
        if name in settings
    }
    memory = settings.pop("memory", MEMORY)
    model = kvsize.load(config)
    return kvsize.fit(
        model, engine="vllm", kv_memory=memory, context=context, options=settings, **known
    )


# name, config, context, settings, (blocks, bytes per block, tokens, concurrency)
GOLDEN: list[tuple[str, dict[str, Any], int, dict[str, Any], tuple[int, int, int, float]]] = [
    ("plain", LLAMA_8B, 8192, {}, (19073, 2097152, 305168, 37.251953125)),
    ("fp8", LLAMA_8B, 8192, {"kv_dtype": "fp8"}, (38146, 1048576, 610336, 74.50390625)),
    (
        "TP replicates beyond the KV heads",
        LLAMA_8B,
        8192,
        {"tensor_parallel_size": 16},
        (152587, 262144, 2441392, 298.021484375),
    ),
    (
        "pipeline of two",
        LLAMA_8B,
        8192,
        {"pipeline_parallel_size": 2},
        (38146, 1048576, 610336, 74.50390625),
    ),
    (
        "stated partition: the larger stage limits",
        LLAMA_8B,
        8192,
        {"pipeline_parallel_size": 2, "VLLM_PP_LAYER_PARTITION": "10,22"},
        (27743, 1441792, 443888, 54.185546875),
    ),
    (
        "TurboQuant keeps four layers in bfloat16",
        LLAMA_8B,
        8192,
        {"kv_dtype": "turboquant_k8v4"},
        (20733, 1929216, 663456, 80.98828125),
    ),
    (
        "memory replaced",
        LLAMA_8B,
        8192,
        {"kv_cache_memory_bytes": 10737418240},
        (5120, 2097152, 81920, 10.0),
    ),
    (
        "blocks fixed",
        LLAMA_8B,
        8192,
        {"num_gpu_blocks_override": 1024},
        (1024, 2097152, 16384, 2.0),
    ),
    (
        "windows of gpt-oss",
        GPT_OSS_20B,
        131072,
        {},
        (101725, 393216, 1445344, 11.02710027100271),
    ),
    (
        "the LLM class batches more tokens, so windows keep more",
        GPT_OSS_20B,
        131072,
        {"usage_context": "llm"},
        (101725, 393216, 1300936, 9.925358571567958),
    ),
    (
        "windows without overlap",
        GPT_OSS_20B,
        131072,
        {"max_num_batched_tokens": 2048, "async_scheduling": False},
        (101725, 393216, 1600828, 12.213350942490095),
    ),
    (
        "hybrid manager off",
        GPT_OSS_20B,
        131072,
        {"disable_hybrid_kv_cache_manager": True},
        (50862, 786432, 813792, 6.208740234375),
    ),
    (
        "groups of gemma-3 in two stages",
        GEMMA_3_27B,
        131072,
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        (122070, 327680, 898975, 6.85863580177548),
    ),
    (
        "latents are the same on every rank",
        DEEPSEEK_V3,
        163840,
        {"tensor_parallel_size": 8},
        (35576, 1124352, 569216, 3.47421875),
    ),
    (
        "one MTP layer more",
        DEEPSEEK_V3,
        163840,
        {
            "tensor_parallel_size": 8,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
        },
        (35002, 1142784, 560032, 3.41816406),
    ),
    ("latents", DEEPSEEK_V2_LITE, 8192, {}, (80375, 497664, 1286000, 156.982421875)),
    (
        "latents as padded heads",
        DEEPSEEK_V2_LITE,
        8192,
        {"VLLM_MLA_DISABLE": True},
        (7535, 5308416, 120560, 14.716796875),
    ),
    (
        "indexer keys beside latents",
        DEEPSEEK_V32,
        163840,
        {"tensor_parallel_size": 8},
        (7979, 5012736, 510656, 3.116796875),
    ),
    (
        "recurrent states checkpointed",
        QWEN3_NEXT,
        262144,
        {},
        (2825, 14155776, 1592595, 6.075268817204301),
    ),
    (
        "no kernel exports checkpoints on an A100",
        QWEN3_NEXT,
        262144,
        {"gpu": "a100"},
        (2991, 13369344, 1606706, 6.129098360655738),
    ),
    (
        "cross-attention: as many encoder tokens as a step holds",
        WHISPER,
        448,
        {"max_num_batched_tokens": 1500},
        (15258, 2621440, 56029, 125.06557377049181),
    ),
    ("states alone", MAMBA2, 2048, {}, (289, 138149888, 591872, 289.0)),
]


@pytest.mark.parametrize(
    ("config", "context", "settings", "expected"),
    [case[1:] for case in GOLDEN],
    ids=[case[0] for case in GOLDEN],
)
def test_blocks_tokens_and_concurrency(
    config: dict[str, Any],
    context: int,
    settings: dict[str, Any],
    expected: tuple[int, int, int, float],
) -> None:
    found = fit(config, context, **settings)
    assert (found.blocks, found.block_bytes, found.tokens) == expected[:3]
    assert round(found.concurrency, 8) == round(expected[3], 8)


def test_groups_of_a_model_with_windows() -> None:
    found = fit(GEMMA_3_27B, 131072)
    groups = found.details["groups"]
    assert isinstance(groups, tuple)
    assert [(g["type"], g["n_layers"]) for g in groups] == [
        ("SlidingWindowSpec", 9),
        ("SlidingWindowSpec", 9),
        ("SlidingWindowSpec", 9),
        ("SlidingWindowSpec", 9),
        ("SlidingWindowSpec", 8),
        ("SlidingWindowSpec", 8),
        ("FullAttentionSpec", 10),
    ]
    assert found.details["blocks_per_request"] == (1089, 1089, 1089, 1089, 1089, 1089, 8192)
    assert found.details["max_in_flight_tokens"] == 16384


def test_the_longest_length_that_fits() -> None:
    found = fit(LLAMA_8B, -1, memory=8 * 10**9)
    assert (found.context, found.blocks) == (61008, 3814)


def test_context_zero_is_the_models_own() -> None:
    assert fit(LLAMA_8B, 0).context == 131072


def test_an_older_version_counts_otherwise() -> None:
    """Before 0.21 the tokens were the blocks of one group; before 0.28 states were not kept."""
    old = fit(QWEN3_NEXT, 262144, engine_version="0.19.1")
    assert (old.blocks, old.tokens) == (2991, 2991 // 4 * 544)
    assert old.concurrency == 2991 / (482 + 3)


def test_latent_checkpoint_scales_decide_auto() -> None:
    quantized = LLAMA_8B | {
        "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    }
    assert fit(quantized, 8192).kv_dtype == "fp8_e4m3"
    assert fit(quantized, 8192).block_bytes == 1048576


def test_notes_tell_where_ranks_save_nothing() -> None:
    assert fit(LLAMA_8B, 8192, tensor_parallel_size=16).notes == (
        "tensor_parallel_size 16 over 8 KV heads saves nothing over 8: each head is kept on 2 "
        "ranks.",
    )
    assert fit(DEEPSEEK_V3, 8192, tensor_parallel_size=8).notes == (
        "The latent is the same on all 8 tensor-parallel ranks, so more of them save no cache; "
        "data-parallel attention or decode_context_parallel_size does.",
    )


class TestSize:
    """What given sequences take of the pool."""

    def test_whole_blocks(self) -> None:
        size = kvsize.size(kvsize.load(LLAMA_8B), context=8193, engine="vllm", sequences=3)
        assert size.total_bytes == 3 * 513 * 2097152
        assert size.layer_bytes == (3 * 513 * 65536,) * 32
        assert size.allocated_bytes == size.prefill_bytes == size.total_bytes

    def test_ranks(self) -> None:
        size = kvsize.size(
            kvsize.load(LLAMA_8B),
            context=8192,
            engine="vllm",
            tensor_parallel_size=2,
            pipeline_parallel_size=3,
        )
        assert size.rank_bytes == tuple(512 * 32768 * n for n in (11, 11, 11, 11, 10, 10))
        assert size.total_bytes == sum(size.rank_bytes) == sum(size.layer_bytes)

    def test_places_no_layer_uses_are_allocated_all_the_same(self) -> None:
        size = kvsize.size(kvsize.load(GEMMA_3_27B), context=131072, engine="vllm")
        blocks = 6 * 1089 + 8192
        assert size.allocated_bytes == blocks * 10 * 131072
        assert size.total_bytes == (52 * 1089 + 10 * 8192) * 131072
        assert (
            "8 of 70 layer places in the groups' blocks are padding, which the pool pays for."
            in size.notes
        )

    def test_indexer_keys_belong_to_their_layer(self) -> None:
        size = kvsize.size(kvsize.load(DEEPSEEK_V32), context=64, engine="vllm")
        assert size.layer_bytes == (64 * (576 * 2 + 132),) * 61
