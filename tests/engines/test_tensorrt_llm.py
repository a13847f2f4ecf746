"""TensorRT-LLM: bytes of a token, blocks, windows and states, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MODELS, load, replay

import kvsize
from kvsize.engines.tensorrt_llm import blocks, windows

GIB = 2**30
BUDGET = 45 * GIB  # 0.9 of the rows' 50 GiB
DTYPES = {"bf16": "bfloat16"}
PREFIX = {"deepseek_v3_mla": "deepseek_v3", "deepseek_v32_dsa": "deepseek_v32"}


def fit(model: str, memory: int, **asked: Any) -> kvsize.Fit:
    config = asked.pop("config", None) or MODELS[model]
    context = asked.pop("context", config["max_position_embeddings"])
    return kvsize.fit(
        load(config),
        engine="tensorrt-llm",
        context=context,
        kv_memory=memory,
        **asked,
    )


def size(model: str, context: int, **asked: Any) -> kvsize.Size:
    config = asked.pop("config", None) or MODELS[model]
    return kvsize.size(load(config), context=context, engine="tensorrt-llm", **asked)


# -- the reference rows ---------------------------------------------------------------------
@replay("tensorrt_llm")
def test_reference_row(row: dict[str, Any]) -> None:
    kinds = {
        "vswa_adjust": check_windows,
        "blocks_per_sequence": check_blocks_per_sequence,
        "gpt_oss_20b_vswa_equal_split": check_equal_split,
        "qwen3_next_80b_hybrid": check_hybrid,
        "deepseek_v3_mla": check_latent,
        "deepseek_v32_dsa": check_latent,
    }
    if row["source"] == "golden-log":
        check_log(row)
    else:
        kinds.get(row["case"], check_capacity)(row)


def check_windows(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    asked = {int(window): layers for window, layers in inputs["windows"].items()}
    layers = sum(map(len, asked.values()))
    found = windows.fitted_windows(
        asked,
        [inputs["bytes_per_token_per_layer"]] * layers,
        inputs["pool_bytes"],
        inputs["max_tokens"],
    )
    assert found == {int(window): layers for window, layers in row["result"].items()}


def check_blocks_per_sequence(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    tokens, tpb = inputs["tokens"], inputs["tpb"]
    assert blocks.blocks_per_sequence(tokens, tpb) == row["full"]
    assert blocks.blocks_per_sequence(tokens, tpb, inputs["window"]) == row["swa"]


def check_equal_split(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    options = {"tokens_per_block": inputs["tpb"]}
    found = fit("gpt_oss_20b", inputs["pool"], options=options)
    expected = {int(window): count for window, count in row["blocks"].items()}
    assert found.details["blocks_per_window"] == expected
    per_layer = blocks.layer_token_bytes(8, 64, DTYPES.get(inputs.get("dtype", "bf16"), "fp8"))
    assert per_layer == row["bytes_per_token_per_layer"]


def check_hybrid(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    options = {
        "max_batch_size": inputs["max_batch"],
        "mamba_state_cache_interval": inputs["interval"],
        "enable_block_reuse": inputs["reuse"],
    }
    found = fit("qwen3_next_80b", inputs["budget"], options=options)
    assert found.details["max_tokens"] == row["max_tokens"]
    assert found.blocks == row["kv_blocks"]
    assert found.details["state_slots"] == row["state_slots"]
    states = row["state_slots"] * int(str(found.details["state_bytes"]))
    assert found.blocks * found.block_bytes + states == row["bytes"]


def check_latent(row: dict[str, Any]) -> None:
    dtype = DTYPES.get(row["inputs"]["dtype"], row["inputs"]["dtype"])
    found = fit(PREFIX[row["case"]], BUDGET, kv_dtype=dtype)
    assert found.details["bytes_per_token"] == row["bytes_per_token"]
    assert found.details["max_tokens"] == row["max_tokens"]
    assert found.blocks == row["blocks"]
    assert found.blocks * found.block_bytes == row["alloc_bytes"]


def check_capacity(row: dict[str, Any]) -> None:
    """The rows take the profiling run's peak as 2 % of what is free when the manager is made."""
    inputs = row["inputs"]
    free = inputs["available"]
    found = fit(
        row["case"],
        free * 98 // 100,
        kv_dtype=DTYPES.get(inputs["dtype"], inputs["dtype"]),
        tensor_parallel_size=inputs["tp"],
        options={
            "free_gpu_memory_fraction": inputs["fraction"],
            "free_memory": free,
            "tokens_per_block": inputs["tokens_per_block"],
        },
    )
    assert found.details["bytes_per_token"] == row["bytes_per_token"]
    assert found.block_bytes == row["block_bytes"]
    assert found.details["estimate_bytes_per_token"] == row["estimate_bytes_per_token"]
    assert found.blocks == row["blocks"]
    assert found.blocks * found.block_bytes == row["alloc_bytes"]


def check_log(row: dict[str, Any]) -> None:
    """What public logs print, within the rounding of their digits."""
    if "available_gib" in row:
        check_log_range(row)
        return
    inputs = row["inputs"]
    dtype = DTYPES.get(inputs.get("dtype", "bf16"), inputs.get("dtype", "bf16"))
    layer = blocks.layer_token_bytes(inputs["heads"], inputs["hd"], dtype)
    assert inputs["layers"] * layer == row["bytes_per_token"]
    allocated = row["log_tokens"] * row["bytes_per_token"]
    assert allocated == row["alloc_bytes"]
    assert round(allocated / GIB, 2) == row["log_gib"]


def check_log_range(row: dict[str, Any]) -> None:
    bounds = [int((row["available_gib"] + slack) * GIB) for slack in (-0.005, 0.005)]
    if "log_blocks" in row:
        found = [blocks.cpp_blocks(free, row["fraction"], 65536) for free in bounds]
        assert found == row["range"]
        assert found[0] <= row["log_blocks"] <= found[1]
        return
    memories = [
        blocks.Memory(
            available_bytes=free, free_bytes=free, free_gpu_memory_fraction=row["fraction"]
        )
        for free in bounds
    ]
    found = [blocks.max_tokens(memory, 28672, 28672) // 32 * 32 for memory in memories]
    assert found == row["range"]
    assert found[0] <= row["log_tokens"] <= found[1]


# -- figures of the rows named --------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "dtype", "ranks", "token_bytes"),
    [
        ("llama3_8b", "fp8", 4, 16384),
        ("llama3_8b", "nvfp4", 4, 9216),
        ("llama3_70b", "fp8", 16, 20480),
        ("qwen3_30b_a3b", "nvfp4", 16, 6912),
        ("qwen2_5_0_5b", "bfloat16", 4, 6144),
        ("llama2_7b", "fp8", 1, 262144),
        ("deepseek_v3", "fp8", 8, 35136),
        ("deepseek_v32", "fp8", 8, 43188),
    ],
)
def test_bytes_per_token(model: str, dtype: str, ranks: int, token_bytes: int) -> None:
    found = size(model, 64, kv_dtype=dtype, tensor_parallel_size=ranks)
    assert found.details["bytes_per_token"] == token_bytes
    assert found.rank_bytes == (64 * token_bytes,) * ranks


def test_estimate_floors_what_the_manager_rounds_up() -> None:  # llama3_70b, tp 16, fp8
    assert blocks.estimate_token_bytes(80, 8, 128, "fp8", 16) == 10240
    assert 80 * blocks.layer_token_bytes(8, 128, "fp8", tensor_parallel_size=16) == 20480
    options = {"free_gpu_memory_fraction": 0.9, "free_memory": 50 * GIB}
    found = fit(
        "llama3_70b",
        49 * GIB,
        kv_dtype="fp8",
        tensor_parallel_size=16,
        options=options,
    )
    assert found.blocks == 73728


def test_windows_that_one_sequence_cannot_fill() -> None:  # vswa_adjust
    asked = {100: [0, 1, 2, 3], 200: [4, 5, 6], 7000: [7, 8]}
    fit_in = windows.fitted_windows(asked, [32] * 9, 489402)
    assert fit_in == asked
    assert windows.fitted_windows(asked, [32] * 9, 14689) == {51: list(range(9))}
    limited = windows.fitted_windows(asked, [32] * 9, 34244, 134)
    assert limited == {100: [0, 1, 2, 3], 134: [4, 5, 6, 7, 8]}
    assert windows.fitted_windows(asked, [32] * 9, 32 * 1050 + 4) == {
        100: [0, 1, 2, 3],
        130: [4, 5, 6, 7, 8],
    }


def test_shares_override_the_equal_split() -> None:
    options = {"window_size_shares": "0.25,0.75"}
    found = fit("gpt_oss_20b", 40 * GIB, options=options)
    assert found.details["blocks_per_window"] == {128: 13653, 131072: 40960}
    with pytest.raises(kvsize.UsageError, match=r"3 shares that sum to 1\.0"):
        fit("gpt_oss_20b", 40 * GIB, options={"window_size_shares": "0.5,0.25,0.25"})
    with pytest.raises(kvsize.UsageError, match="window_size_shares cannot be 'half'"):
        fit("gpt_oss_20b", 40 * GIB, options={"window_size_shares": "half"})


def test_stated_windows() -> None:
    found = fit("gpt_oss_20b", 40 * GIB, options={"max_attention_window": "131072"})
    assert found.blocks == 40 * GIB // (49152 * 32)
    with pytest.raises(kvsize.UsageError, match="max_attention_window cannot be 'all'"):
        fit("gpt_oss_20b", 40 * GIB, options={"max_attention_window": "all"})
    with pytest.raises(kvsize.UsageError, match="max_attention_window cannot be '0'"):
        fit("gpt_oss_20b", 40 * GIB, options={"max_attention_window": "0"})


def test_states_without_attention() -> None:  # a unit test of the engine: 4 states of 64 bytes
    found = blocks.hybrid(4096, 0, 64, blocks.StateRequest(max_batch_size=4, max_tokens=512))
    assert (found.kv_blocks, found.state_slots) == (16, 5)


def test_snapshots_cost_tokens() -> None:
    asked = blocks.StateRequest(max_batch_size=8, snapshot_interval=256, block_reuse=True)
    found = blocks.hybrid(2**30, 1024, 2**20, asked)
    assert found.max_tokens == (2**30 - 8 * 2**20) // (1024 + 4096)
    assert found.state_slots == 8 + 1 + found.max_tokens // 256


def test_sliding_layers_keep_a_spare_block() -> None:
    assert blocks.blocks_per_sequence(129, 32, 128) == 5
    found = size("gpt_oss_20b", 4096)
    assert found.total_bytes == 12 * 2048 * 32 * (128 + 5)


def test_attention_dp() -> None:
    options = {"enable_attention_dp": True}
    found = size("deepseek_v3", 64, sequences=3, tensor_parallel_size=2, options=options)
    one = 64 * 70272
    assert found.rank_bytes == (2 * one, one)


def test_pipeline_and_draft_layers() -> None:
    options = {"num_nextn_predict_layers": 1}
    found = size("deepseek_v3", 32, pipeline_parallel_size=4, options=options)
    assert found.rank_bytes == tuple(32 * 1152 * n for n in (16, 15, 15, 16))


def test_user_limits() -> None:
    assert fit("llama3_8b", BUDGET, options={"max_tokens": 1000}).blocks == 31
    assert fit("llama3_8b", BUDGET, options={"max_gpu_total_bytes": GIB}).blocks == 256


def test_short_memory_is_said() -> None:
    found = fit("llama3_8b", GIB)
    assert found.notes == ()
    assert fit("llama3_8b", 2**29).notes == (
        "One sequence needs 256 blocks, and 128 fit: the engine cuts max_seq_len to what fits.",
    )


@pytest.mark.parametrize(
    ("model", "tokens", "allocated"),
    [
        ("llama3_8b", 220480, 28898754560),  # 26.91 GiB: an example of ai-dynamo
        ("llama3_8b", 12800, 1677721600),  # 1.56 GiB: notes on a voice pipeline
        ("llama2_7b", 132608, 69524783104),  # NVIDIA/TensorRT-LLM#1400
    ],
)
def test_public_logs(model: str, tokens: int, allocated: int) -> None:
    assert size(model, tokens).total_bytes == allocated


def test_states_may_leave_no_block() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="not one block fits"):
        fit("qwen3_next_80b", 40 * GIB)


def test_refusals() -> None:
    with pytest.raises(kvsize.UsageError, match="tensorrt-llm has no KV dtype 'mxfp8'"):
        size("llama3_8b", 1, kv_dtype="mxfp8")
    with pytest.raises(kvsize.EngineRefuses, match="must lie between 0 and 1"):
        fit("llama3_8b", GIB, options={"free_gpu_memory_fraction": 1.0})


@settings(deadline=None, max_examples=40)
@given(memory=st.integers(10**9, 10**12), ranks=st.sampled_from([1, 2, 8]))
def test_capacity_is_tight(memory: int, ranks: int) -> None:
    found = fit("llama3_8b", memory, tensor_parallel_size=ranks)
    assert found.blocks * found.block_bytes <= memory < (found.blocks + 1) * found.block_bytes


@settings(deadline=None, max_examples=40)
@given(context=st.integers(1, 10**6), sequences=st.integers(1, 9))
def test_size_laws(context: int, sequences: int) -> None:
    found = size("gpt_oss_20b", context, sequences=sequences)
    assert found.total_bytes <= size("gpt_oss_20b", context + 1, sequences=sequences).total_bytes
    assert found.total_bytes == sequences * size("gpt_oss_20b", context).total_bytes
    assert sum(found.rank_bytes) == sum(found.layer_bytes) == found.total_bytes
