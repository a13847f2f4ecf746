"""MLX-LM 0.32.2: arrays that grow in steps, rotate, or are quantized."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MODELS, load, replay

import kvsize
from kvsize.dtypes import torch_dtype
from kvsize.engines.mlx_lm import growth


def size(config: dict[str, Any], context: int, **asked: Any) -> kvsize.Size:
    return kvsize.size(load(config), context=context, engine="mlx-lm", **asked)


# -- the reference rows ---------------------------------------------------------------------
@replay("mlx_lm")
def test_reference_row(row: dict[str, Any]) -> None:
    checks = {
        "KVCache": check_growing,
        "BatchKVCache": check_batch,
        "RotatingKVCache": check_rotating,
        "QuantizedKVCache": check_quantized,
        "KVCache.to_quantized": check_converted,
        "ChunkedKVCache": check_chunked,
    }
    if row["case"].startswith("model:"):
        check_model(row)
    else:
        checks[row["case"]](row)


def steps_of(inputs: dict[str, Any]) -> list[int]:
    return growth.prompt_steps(inputs["prompt"], inputs.get("prefill_step", 2048))


def itemsize(inputs: dict[str, Any]) -> int:
    return torch_dtype(inputs.get("dtype", "bfloat16")).block_bytes


def check_growing(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    room = growth.growing(steps_of(inputs), inputs["generated"])
    assert room == row["capacity_tokens"]
    width = (inputs["k_dim"] + inputs["v_dim"]) * itemsize(inputs)
    assert inputs["batch"] * inputs["kv_heads"] * room * width == row["bytes_per_layer"]


def check_batch(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    room = growth.growing(inputs["steps"])
    assert room == row["capacity_tokens"]
    width = 2 * inputs["head_dim"] * itemsize(inputs)
    assert inputs["batch"] * inputs["kv_heads"] * room * width == row["bytes_per_layer"]


def check_rotating(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    room = growth.rotating(steps_of(inputs), inputs["generated"], inputs["window"])
    per_token = inputs["kv_heads"] * (inputs["k_dim"] + inputs["v_dim"]) * itemsize(inputs)
    assert room.tokens == row["capacity_tokens"]
    assert room.tokens * per_token == row["bytes_per_layer"]
    assert room.peak * per_token == row["peak_bytes_per_layer"]


def check_quantized(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    arguments = (inputs["head_dim"], inputs["bits"], inputs["group_size"], itemsize(inputs))
    if "error" in row:
        with pytest.raises(kvsize.EngineRefuses, match="cannot hold heads"):
            growth.fresh_quantized_row_bytes(*arguments)
        return
    room = growth.growing(steps_of(inputs), inputs["generated"])
    assert room == row["capacity_tokens"]
    per_token = 2 * inputs["kv_heads"] * growth.fresh_quantized_row_bytes(*arguments)
    assert inputs.get("batch", 1) * room * per_token == row["bytes_per_layer"]


def check_converted(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    head_dim, bits, group = inputs["head_dim"], inputs["bits"], inputs["group_size"]
    room = growth.growing(steps_of(inputs))
    assert room == row["capacity_tokens"]
    assert 2 * inputs["kv_heads"] * room * head_dim * itemsize(inputs) == row["bytes_before"]
    row_bytes = growth.quantized_row_bytes(head_dim, bits, group, itemsize(inputs))
    assert 2 * inputs["kv_heads"] * room * row_bytes == row["bytes_per_layer"]


def check_chunked(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    room = growth.chunked(steps_of(inputs), inputs["generated"], inputs["chunk_size"])
    assert room == row["capacity_tokens"]
    width = 2 * inputs["head_dim"] * itemsize(inputs)
    assert inputs["kv_heads"] * room * width == row["bytes_per_layer"]


def check_model(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    found = size(
        inputs["config"] | {"torch_dtype": inputs["weights_dtype"]},
        inputs["prompt"] + inputs["generated"],
        options={"prompt": inputs["prompt"]},
    )
    expected = [layer["nbytes"] for layer in row["per_layer"]]
    assert list(found.layer_bytes) == expected
    assert found.total_bytes == row["total_bytes"]


# -- figures of the rows named --------------------------------------------------------------
@pytest.mark.parametrize(
    ("prompt", "generated", "room"),
    [(1, 0, 256), (256, 1, 512), (257, 0, 512), (2049, 10, 2304), (3000, 300, 3328)],
)
def test_growth(prompt: int, generated: int, room: int) -> None:  # KVCache
    assert growth.growing(growth.prompt_steps(prompt), generated) == room


def test_part_filled_steps_are_cut_off() -> None:
    assert growth.growing([300, 300]) == 300 + 512
    assert growth.growing([256, 300]) == 256 + 512


@pytest.mark.parametrize(
    ("prompt", "generated", "window", "room", "peak"),
    [
        (50, 10, 128, 128, 128),
        (1000, 300, 128, 128, 999),
        (500, 100, 1024, 755, 755),
        (5000, 0, 1024, 1024, 3071),
    ],
)
def test_rotation(prompt: int, generated: int, window: int, room: int, peak: int) -> None:
    found = growth.rotating(growth.prompt_steps(prompt), generated, window)
    assert found == growth.Room(room, peak)


def test_llama4_chunks() -> None:  # ChunkedKVCache
    assert growth.chunked(growth.prompt_steps(1500), 5, 512) == 768
    assert growth.chunked(growth.prompt_steps(1500), 5000, 512) == 768


@pytest.mark.parametrize(("bits", "group", "row"), [(8, 64, 136), (8, 128, 132), (4, 64, 72)])
def test_quantized_rows(bits: int, group: int, row: int) -> None:
    assert growth.quantized_row_bytes(128, bits, group, 2) == row


def test_six_bits_cannot_start_quantized() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="6 bits cannot hold heads of 128"):
        growth.fresh_quantized_row_bytes(128, 6, 64, 2)
    with pytest.raises(kvsize.EngineRefuses, match="groups of 64 do not divide a head of 80"):
        growth.quantized_row_bytes(80, 4, 64, 2)


def test_quantization_starts_late() -> None:  # KVCache.to_quantized
    config, options = MODELS["llama3_8b"], {"kv_bits": 4}
    early = size(config, 4096, options=options)
    assert early.total_bytes == size(config, 4096).total_bytes
    assert early.notes == ("Nothing is quantized before 5,000 tokens (quantized_kv_start).",)
    late = size(config, 5001, options=options)
    assert late.layer_bytes == (5898240,) * 32
    assert late.kv_dtype == "4-bit"


def test_rotating_caches_are_not_quantized() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="a RotatingKVCache cannot be quantized"):
        size(MODELS["gpt_oss_20b"], 6000, options={"kv_bits": 8})


def test_max_kv_size_reaches_only_files_without_make_cache() -> None:
    options = {"max_kv_size": 512}
    ignored = size(MODELS["llama3_8b"], 8192, options=options)
    assert ignored.total_bytes == 8192 * 131072
    assert ignored.notes == ("max_kv_size has no effect: the file of llama makes its own caches.",)
    assert size(MODELS["qwen2_5_0_5b"], 8192, options=options).total_bytes == 512 * 12288


def test_indexer_keys_have_empty_values() -> None:  # model:deepseek_v32
    found = size(MODELS["deepseek_v32"], 256)
    assert found.layer_bytes == (256 * (576 + 2 * 128) * 2,) * 61


def test_gemma3_rotates() -> None:
    found = size(MODELS["gemma3_12b"], 8192)
    row = 8 * 2 * 256 * 2
    assert found.total_bytes == row * (40 * 1024 + 8 * 8192)
    assert found.prefill_bytes == found.total_bytes


MAMBA = {
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "state_size": 16,
    "conv_kernel": 4,
}


def test_states() -> None:
    # measured with mlx_lm 0.32.2 on MLX's CPU backend, 300 tokens of prompt and five more
    mamba1 = MAMBA | {"model_type": "mamba", "intermediate_size": 128}
    assert size(mamba1, 305).layer_bytes == (128 * (3 + 16) * 2,) * 2
    mamba2 = MAMBA | {
        "model_type": "mamba2",
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 2,
        "expand": 2,
    }
    assert size(mamba2, 305).layer_bytes == (192 * 3 * 2 + 8 * 16 * 16 * 4,) * 2


def test_prompt_within_context() -> None:
    with pytest.raises(kvsize.UsageError, match="prompt 10 is longer than the context 5"):
        size(MODELS["llama3_8b"], 5, options={"prompt": 10})


def test_shards() -> None:
    found = size(MODELS["llama3_8b"], 256, tensor_parallel_size=2)
    assert found.rank_bytes == (256 * 65536,) * 2
    with pytest.raises(kvsize.UsageError, match="mlx-lm has no pipeline parallelism"):
        size(MODELS["llama3_8b"], 256, pipeline_parallel_size=2)


@settings(deadline=None)
@given(prompt=st.integers(1, 20000), generated=st.integers(0, 3000))
def test_room_holds_every_token(prompt: int, generated: int) -> None:
    room = growth.growing(growth.prompt_steps(prompt), generated)
    assert prompt + generated <= room < prompt + generated + 2 * growth.STEP


@settings(deadline=None)
@given(prompt=st.integers(1, 9000), generated=st.integers(0, 3000), window=st.integers(1, 2000))
def test_rotation_is_bounded(prompt: int, generated: int, window: int) -> None:
    room = growth.rotating(growth.prompt_steps(prompt), generated, window)
    assert min(prompt + generated, window) <= room.tokens <= window <= max(room.peak, window)


@settings(deadline=None)
@given(prompt=st.integers(1, 4000), generated=st.integers(0, 700), chunk=st.integers(1, 600))
def test_chunks_agree_with_token_by_token(prompt: int, generated: int, chunk: int) -> None:
    steps = growth.prompt_steps(prompt)
    one_by_one = growth.chunked([*steps, *[1] * generated], 0, chunk)
    assert growth.chunked(steps, generated, chunk) == one_by_one
