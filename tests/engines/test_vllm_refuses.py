"""What vLLM itself refuses, and what is no vLLM setting at all."""

from __future__ import annotations

from typing import Any

import pytest

import kvsize
from kvsize import EngineRefuses, UsageError
from tests.engines.test_vllm import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_20B,
    LLAMA_8B,
    QWEN3_NEXT,
    fit,
)

EAGLE_CHUNKS = LLAMA_8B | {"num_attention_heads": 48, "hidden_size": 6144}


@pytest.mark.parametrize(
    ("config", "context", "settings", "message"),
    [
        (LLAMA_8B, 8192, {"tensor_parallel_size": 3}, "32 attention heads must be divisible"),
        (EAGLE_CHUNKS, 8192, {"tensor_parallel_size": 6}, "8 KV heads can be neither split nor"),
        (EAGLE_CHUNKS, 8192, {"tensor_parallel_size": 12}, "8 KV heads can be neither split nor"),
        (GPT_OSS_20B, 8192, {"tensor_parallel_size": 16}, "8 KV heads can be neither split nor"),
        (
            GEMMA_3_27B | {"num_key_value_heads": 1},
            8192,
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 2},
            "does not support sliding windows",
        ),
        (
            LLAMA_8B,
            8192,
            {"tensor_parallel_size": 8, "decode_context_parallel_size": 2},
            "decode_context_parallel_size 2 does not go with 8 KV heads on 8 ranks",
        ),
        (
            QWEN3_NEXT,
            8192,
            {"disable_hybrid_kv_cache_manager": True},
            "cannot make these layers one kind",
        ),
        (LLAMA_8B, 131072, {"memory": 10**9}, "one request of max_model_len 131,072 takes"),
        (LLAMA_8B, 8192, {"memory": 2**21}, "no memory is left"),
        (LLAMA_8B, -1, {"memory": 2**21}, "not even one token fits"),
        (LLAMA_8B, 131073, {}, "greater than the 131,072 of the model"),
        (LLAMA_8B, 8192, {"block_size": 8}, "no attention backend serves plain attention"),
        (LLAMA_8B, 8192, {"kv_dtype": "float16"}, "float16 does not go with the model's dtype"),
        (DEEPSEEK_V3, 8192, {"kv_dtype": "nvfp4"}, "nvfp4 does not fit latent attention"),
        (
            DEEPSEEK_V3,
            8192,
            {"kv_dtype": "fp8", "attention_backend": "FLASH_ATTN_MLA"},
            "attention backend FLASH_ATTN_MLA does not serve latent attention",
        ),
        (
            LLAMA_8B,
            8192,
            {"pipeline_parallel_size": 2, "VLLM_PP_LAYER_PARTITION": "16,15"},
            "16,15 is no partition of 32 layers",
        ),
        (
            LLAMA_8B | {"architectures": ["BaichuanForCausalLM"]},
            8192,
            {},
            "BaichuanForCausalLM was served until 0.23.0",
        ),
        (
            LLAMA_8B,
            8192,
            {"speculative_config": {"method": "mtp"}},
            "states no multi-token-prediction layers",
        ),
    ],
)
def test_vllm_refuses(
    config: dict[str, Any], context: int, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineRefuses, match=message):
        fit(config, context, **settings)


def test_an_older_version_serves_what_a_newer_one_dropped() -> None:
    config = LLAMA_8B | {"architectures": ["BaichuanForCausalLM"]}
    assert fit(config, 8192, engine_version="0.23.0").block_bytes == 2097152


def test_a_request_needs_one_block_more_than_its_own() -> None:
    """The null block is never given out (checked from 0.29 on)."""
    memory = 512 * 2097152
    with pytest.raises(EngineRefuses, match=r"a context of at most|takes"):
        fit(LLAMA_8B, 8192, memory=memory)
    assert fit(LLAMA_8B, 8192, memory=memory + 2097152).blocks == 513
    assert fit(LLAMA_8B, 8192, memory=memory, engine_version="0.28.0").blocks == 512


def test_a_dtype_vllm_lacks_names_those_it_has() -> None:
    with pytest.raises(UsageError, match="vllm has no KV cache dtype 'q8_0'") as raised:
        fit(LLAMA_8B, 8192, kv_dtype="q8_0")
    assert raised.value.hint.startswith("use one of auto, float16, bfloat16, fp8, fp8_e4m3,")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine_version": "0.34.0"}, "version '0.34.0' is not modelled"),
        ({"engine_version": "0.7.3"}, "version '0.7.3' is not modelled"),
        ({"engine_version": "new"}, "'new' is not a version"),
        ({"gpu": "h1000"}, "gpu cannot be 'h1000'"),
        ({"blok_size": 16}, "no option 'blok_size'"),
        ({"speculative_config": {"num_speculative_tokens": "two"}}, "needs a method and a whole"),
    ],
)
def test_what_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(LLAMA_8B, 8192, **settings)


def test_negative_memory() -> None:
    with pytest.raises(UsageError, match="kv_memory is -1"):
        kvsize.fit(kvsize.load(LLAMA_8B), engine="vllm", context=8192, kv_memory=-1)


MAMBA_2: dict[str, Any] = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "num_heads": 128,
    "head_dim": 64,
    "hidden_size": 4096,
    "state_size": 128,
    "n_groups": 8,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("ranks", [3, 16])
def test_the_groups_of_a_recurrent_state_are_split_evenly(ranks: int) -> None:
    with pytest.raises(EngineRefuses, match=f"8 groups of a Mamba-2 state cannot be .* {ranks}"):
        fit(MAMBA_2, 2048, tensor_parallel_size=ranks)
    assert fit(MAMBA_2, 2048, tensor_parallel_size=8).blocks > 0


@pytest.mark.parametrize(
    ("config", "backend"), [(DEEPSEEK_V3, "TRITON_MLA"), (GPT_OSS_20B, "TRITON_ATTN")]
)
def test_triton_has_no_fp8_before_ada(config: dict[str, Any], backend: str) -> None:
    with pytest.raises(EngineRefuses, match=f"{backend} has no fp8 KV cache on a100"):
        fit(config, 8192, kv_dtype="fp8", gpu="a100")
    assert fit(LLAMA_8B, 8192, kv_dtype="fp8", gpu="a100").block_bytes == 1048576


@pytest.mark.parametrize(
    ("architecture", "model_type", "message"),
    [
        ("FooForCausalLM", "foo", "not among the architectures that 0.33.0 serves"),
        ("BartForConditionalGeneration", "bart", "is not served by 0.33.0 itself"),
    ],
)
def test_an_architecture_vllm_has_no_class_for(
    architecture: str, model_type: str, message: str
) -> None:
    named = {"architectures": [architecture], "model_type": model_type}
    with pytest.raises(EngineRefuses, match=message):
        fit(LLAMA_8B | named, 1024)


def test_transformers_classes_are_run_too() -> None:
    named = {"architectures": ["PersimmonForCausalLM"], "model_type": "persimmon"}
    assert fit(LLAMA_8B | named, 8192).block_bytes > 0


def test_an_encoder_keeps_no_cache() -> None:
    """One block of no bytes, as vLLM gives a model without attention caches."""
    counted = fit({"architectures": ["BertModel"], "model_type": "bert"}, 512)
    assert (counted.blocks, counted.block_bytes, counted.tokens) == (1, 0, 0)


def test_a_cache_that_is_not_modelled_is_never_guessed() -> None:
    config = {"architectures": ["InklingForCausalLM"], "model_type": "inkling_text"}
    with pytest.raises(UsageError, match="does not model vLLM's cache of model type 'inkling_text"):
        fit(config, 2048)
