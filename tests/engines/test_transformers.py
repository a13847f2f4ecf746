"""The transformers engine's rules, each on numbers that can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import kvsize

PLAIN = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
}
# Keys and values of one token in one layer: 2 · 2 heads · 16 · 2 B.
TOKEN = 128
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "hidden_size": 64,
    "torch_dtype": "bfloat16",
}


def size(config: dict[str, Any], context: int, **asked: Any) -> kvsize.Size:
    return kvsize.size(kvsize.load(config), context=context, **asked)


def test_a_dynamic_cache_holds_every_token() -> None:
    found = size(PLAIN, 100, sequences=5)
    assert found.layer_bytes == (5 * 100 * TOKEN,) * 3
    assert found.total_bytes == found.allocated_bytes == found.prefill_bytes == 3 * 5 * 100 * TOKEN
    assert (found.engine, found.engine_version, found.cache) == (
        "transformers",
        "5.24.0",
        "DynamicCache",
    )


def test_famous_figures() -> None:
    assert size_of_preset("llama-3.1-70b", 32768).total_bytes == 10 * 2**30
    assert size_of_preset("llama-2-7b", 4096).total_bytes == 2 * 2**30
    assert size_of_preset("deepseek-v3", 1).total_bytes == 61 * (512 + 64) * 2
    expanded = 61 * 128 * (128 + 64 + 128) * 2
    assert size_of_preset("deepseek-v3", 1, engine_version="5.13.1").total_bytes == expanded
    assert size_of_preset("falcon-7b", 1).total_bytes == 32 * 2 * 64 * 2
    assert size_of_preset("falcon-40b", 1).total_bytes == 60 * 2 * 128 * 64 * 2


def size_of_preset(name: str, context: int, **asked: Any) -> kvsize.Size:
    return kvsize.size(kvsize.load(name), context=context, **asked)


@pytest.mark.parametrize(
    ("window", "tokens", "held", "stored", "prefilled"),
    [
        (8, 5, 5, 5, 5),
        (8, 7, 7, 7, 7),
        (8, 8, 7, 8, 8),  # a dynamic layer keeps window - 1 tokens, of a storage of window
        (8, 50, 7, 8, 50),  # and after a prefill the storage is the whole prompt
        (2, 50, 1, 2, 50),
        (1, 50, 50, 50, 50),  # the slice [-0:] keeps everything
    ],
)
def test_a_window_is_a_view(
    window: int, tokens: int, held: int, stored: int, prefilled: int
) -> None:
    found = size(PLAIN | {"model_type": "mistral", "sliding_window": window}, tokens)
    assert found.total_bytes == 3 * held * TOKEN
    assert found.allocated_bytes == 3 * stored * TOKEN
    assert found.prefill_bytes == 3 * prefilled * TOKEN


def test_a_static_window_keeps_one_token_more() -> None:
    config = PLAIN | {"model_type": "mistral", "sliding_window": 8}
    static = {"cache": "static", "max_cache_len": 100}
    assert size(config, 50, options=static).total_bytes == 3 * 8 * TOKEN
    short = {"cache": "static", "max_cache_len": 5}
    assert size(config, 5, options=short).total_bytes == 3 * 5 * TOKEN


def test_a_static_cache_is_allocated_at_once() -> None:
    found = size(PLAIN, 10, options={"cache": "static", "max_cache_len": 64})
    assert found.total_bytes == 3 * 64 * TOKEN
    assert found.cache == "StaticCache"
    assert size(PLAIN, 10, options={"cache": "static"}).total_bytes == 3 * 10 * TOKEN


def test_a_static_cache_that_is_too_short_is_refused() -> None:
    with pytest.raises(
        kvsize.EngineRefuses, match=r"a StaticCache of max_cache_len 9 cannot hold 10 tokens"
    ):
        size(PLAIN, 10, options={"cache": "static", "max_cache_len": 9})


def test_deepseek_v4_has_no_static_cache() -> None:
    with pytest.raises(kvsize.EngineRefuses, match=r"deepseek-v4-pro has no StaticCache"):
        size_of_preset("deepseek-v4-pro", 100, options={"cache": "static"})


def test_latents_are_cached_from_5_15_on() -> None:
    assert size(DEEPSEEK, 10).total_bytes == 2 * 10 * (32 + 8) * 2
    expanded = 2 * 10 * 8 * (16 + 8 + 12) * 2
    for version in ("5.14.1", "5.13.1", "5.0.0", "4.57.6"):
        assert size(DEEPSEEK, 10, engine_version=version).total_bytes == expanded
    assert size(DEEPSEEK, 10, engine_version="5.15.0").total_bytes == 2 * 10 * 40 * 2


def test_states_keep_their_own_dtype_from_5_14_on() -> None:
    config = {
        "model_type": "mamba",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "expand": 2,
        "conv_kernel": 4,
        "state_size": 3,
        "torch_dtype": "bfloat16",
    }
    assert size(config, 1000).total_bytes == 16 * 4 * 2 + 16 * 3 * 4
    assert size(config, 1000, engine_version="5.13.1").total_bytes == 16 * 4 * 2 + 16 * 3 * 2
    with pytest.raises(kvsize.EngineRefuses, match=r"in a cache class of its own"):
        size(config, 1000, engine_version="4.57.6")


def test_the_dtype_is_the_models_or_the_one_asked_for() -> None:
    assert size(PLAIN, 10, kv_dtype="float32").total_bytes == 2 * 3 * 10 * TOKEN
    assert size(PLAIN, 10, kv_dtype="FP16").kv_dtype == "float16"
    with pytest.raises(kvsize.UsageError, match=r"'q4_0' is not a dtype that a plain tensor"):
        size(PLAIN, 10, kv_dtype="q4_0")


def test_cross_attention_holds_the_encoder_once() -> None:
    whisper = kvsize.load("whisper-tiny")
    layers, heads, head_dim = 4, 6, 64
    token = 2 * heads * head_dim * 2
    found = kvsize.size(whisper, context=100, kv_dtype="float16")
    assert found.layer_bytes == (100 * token,) * layers + (1500 * token,) * layers
    short = kvsize.size(whisper, context=100, kv_dtype="float16", options={"encoder_tokens": 30})
    assert short.layer_bytes == (100 * token,) * layers + (30 * token,) * layers


def test_tensor_parallelism_splits_the_heads() -> None:
    assert size(PLAIN, 10, tensor_parallel_size=2).rank_bytes == (3 * 10 * TOKEN // 2,) * 2
    with pytest.raises(kvsize.EngineRefuses, match=r"tensor_parallel_size 4 does not split"):
        size(PLAIN, 10, tensor_parallel_size=4)


@pytest.mark.parametrize("version", ["6.0.0", "4.56.0", "5.25.0"])
def test_a_version_that_is_not_modelled_is_refused(version: str) -> None:
    with pytest.raises(kvsize.UsageError, match=r"is outside the versions kvsize models"):
        size(PLAIN, 10, engine_version=version)


def test_options_are_checked() -> None:
    with pytest.raises(kvsize.UsageError, match=r"engine transformers has no option 'max_len'"):
        size(PLAIN, 10, options={"max_len": 5})
    with pytest.raises(kvsize.UsageError, match=r"max_cache_len cannot be 0"):
        size(PLAIN, 10, options={"max_cache_len": 0})
    with pytest.raises(kvsize.UsageError, match=r"context of at least 1 token"):
        size(PLAIN, 0)
