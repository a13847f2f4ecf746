"""exllamav3 1.4.1: pages, bits, rings and states, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MODELS, load, replay

import kvsize
from kvsize.engines.exllamav3 import layers


def size(model: str, context: int, **asked: Any) -> kvsize.Size:
    config = asked.pop("config", None) or MODELS[model]
    return kvsize.size(load(config), context=context, engine="exllamav3", **asked)


def fit(model: str, memory: int, **asked: Any) -> kvsize.Fit:
    config = MODELS[model]
    return kvsize.fit(load(config), engine="exllamav3", context=256, kv_memory=memory, **asked)


# -- the reference rows ---------------------------------------------------------------------
@replay("exllamav3")
def test_reference_row(row: dict[str, Any]) -> None:
    case = row["case"]
    if "error" in row:
        check_refused(case)
    elif case.startswith("mla"):
        check_latent(row)
    elif case.startswith("dsv4"):
        check_compressed(row)
    elif case.startswith("gdn"):
        check_delta(row)
    elif case.startswith(("swa", "ring")):
        check_ring(row)
    else:
        check_heads(row)


def bits_of(case: str) -> tuple[int, int]:
    k, v = case.removeprefix("quant_k").split("_v")
    return int(k), int(v)


def check_refused(case: str) -> None:
    with pytest.raises(kvsize.EngineRefuses, match="a quantized cache has 2 to 8 bits"):
        layers.check_bits(*bits_of(case))


def check_heads(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    heads, head_dim, tokens = inputs["kv_heads"], inputs["head_dim"], inputs["tokens"]
    if row["case"].startswith("fp16"):
        assert layers.fp16_bytes(heads, head_dim, tokens) == row["bytes_per_layer"]
        return
    found = layers.quantized_bytes(heads, head_dim, tokens, *bits_of(row["case"]))
    assert found == row["bytes_per_layer"]
    assert layers.overhead_bytes(heads, head_dim) == row["overhead_size"]


def check_latent(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    rank, rope, tokens = inputs["kv_lora_rank"], inputs["qk_rope_head_dim"], inputs["tokens"]
    if row["case"] == "mla_fp16":
        assert layers.latent_bytes(rank, rope, tokens) == row["bytes_per_layer"]
        return
    bits = int(row["case"].removeprefix("mla_q"))
    assert layers.latent_quantized_bytes(rank, rope, tokens, bits) == row["bytes_per_layer"]
    assert layers.latent_overhead_bytes(rank, bits) == row["overhead_size"]


def check_compressed(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    rate = int(row["case"].split("_m")[1])
    index = inputs.get("index", 0) if "csa" in row["case"] else 0
    found = layers.compressed_pool_bytes(inputs["head_dim"], rate, index, inputs["tokens"])
    assert found == row["bytes_per_layer"]


def check_delta(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    found = layers.delta_bytes(
        8192,
        4,
        (32, 128, 128),
        max_batch_size=inputs["max_batch"],
        max_history=inputs["max_history"],
    )
    assert found == row["bytes_per_layer"]


def check_ring(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    found = layers.ring_bytes(
        inputs["kv_heads"],
        inputs["head_dim"],
        inputs.get("window", inputs.get("sliding_window")),
        inputs.get("max_batch", 16),
    )
    assert found == row["bytes_per_layer"]


# -- figures of the rows named --------------------------------------------------------------
@pytest.mark.parametrize(
    ("k_bits", "v_bits", "layer_bytes"),
    [(2, 2, 1310720), (5, 5, 2883584), (8, 4, 3407872), (4, 8, 3407872), (6, 5, 3145728)],
)
def test_bits(k_bits: int, v_bits: int, layer_bytes: int) -> None:  # quant_k2_v2 and on
    assert layers.quantized_bytes(8, 128, 2048, k_bits, v_bits) == layer_bytes


def test_heads_that_groups_do_not_divide_lose_the_rest() -> None:  # quant_k4_v4, head_dim 80
    assert layers.quantized_bytes(1, 80, 2048, 4, 4) == 2048 * 72


@pytest.mark.parametrize(("bits", "row"), [(2, 288), (3, 352), (4, 416), (6, 544), (8, 672)])
def test_latent_rows(bits: int, row: int) -> None:
    assert layers.latent_quantized_bytes(512, 64, 1, bits) == row


def test_deepseek_v4() -> None:  # dsv4_csa_m4
    assert layers.compressed_pool_bytes(512, 4, 128, 8192) == 2621440
    assert layers.compressed_pool_bytes(512, 128, 0, 8192) == 8192 * 8
    ring = 768 * 512 * 2
    assert layers.compressed_state_bytes(512, 128, None, 0, 1) == ring
    assert layers.compressed_state_bytes(512, 128, 128, 0, 1) == ring + 2 * 384 * 512 * 2
    overlap = 66 * 2 * 4 * (512 + 128) * 4
    rows = 2 * 260 * 2 * (512 + 128) * 2
    assert layers.compressed_state_bytes(512, 128, 4, 128, 1) == ring + rows + overlap


def test_delta_state() -> None:  # gdn_qwen3next_B1_hist0
    state = (32, 128, 128)
    assert layers.delta_bytes(8192, 4, state, max_batch_size=1, max_history=0) == 2162688
    more = layers.delta_bytes(8192, 4, state, max_batch_size=1, max_history=2)
    assert more == 8192 * 6 * 2 + 3 * 2097152


def test_gpt_oss_rings() -> None:
    found = size("gpt_oss_20b", 8192)
    assert found.layer_bytes == (25165824, 8192 * 2048) * 12
    assert found.notes == (
        "Sliding layers keep fp16 rings for max_batch_size slots, whatever the cache's tokens.",
    )
    paged = size("gpt_oss_20b", 8192, options={"swa_full": True})
    assert paged.layer_bytes == (8192 * 2048,) * 24


def test_gemma3_has_pages_for_every_layer() -> None:
    assert size("gemma3_12b", 1024).total_bytes == 1024 * 393216


def test_quantized_model() -> None:
    found = size("llama3_8b", 2048, kv_dtype="q4")
    assert found.total_bytes == 32 * 2048 * 1152
    assert found.kv_dtype == "q4"
    mixed = size("llama3_8b", 2048, options={"k_bits": 8, "v_bits": 4})
    assert mixed.total_bytes == 32 * 3407872
    assert mixed.kv_dtype == "k8v4"


def test_quantized_latent() -> None:
    assert size("deepseek_v3", 256, kv_dtype="q4").layer_bytes == (256 * 416,) * 61


def test_pages() -> None:
    assert size("llama3_8b", 1000).total_bytes == 1024 * 131072
    assert size("llama3_8b", 1, options={"max_num_tokens": 512}).total_bytes == 512 * 131072
    with pytest.raises(kvsize.EngineRefuses, match="1,000 is not a multiple of 256") as error:
        size("llama3_8b", 1, options={"max_num_tokens": 1000})
    assert error.value.hint == "use 768 or 1,024."
    with pytest.raises(kvsize.EngineRefuses, match="2 to 8 bits, not 9 and 9"):
        size("llama3_8b", 1, options={"k_bits": 9})


def test_tensor_parallel() -> None:
    found = size("llama3_8b", 256, tensor_parallel_size=3)
    assert found.rank_bytes == (3 * 32 * 131072, 3 * 32 * 131072, 2 * 32 * 131072)
    none_left = size("qwen2_5_0_5b", 256, tensor_parallel_size=4)
    assert none_left.rank_bytes[2:] == (0, 0)
    assert none_left.notes[0] == "2 KV heads are fewer than the 4 devices: some hold none of them."
    latent = size("deepseek_v3", 256, tensor_parallel_size=2)
    assert latent.rank_bytes == (256 * 70272,) * 2


def test_states_and_pages() -> None:  # gdn_qwen3next_B16_hist0
    states = 36 * 34603008
    found = fit("qwen3_next_80b", states + 5 * 256 * 24576 + 1)
    assert found.details["slot_bytes"] == states
    assert (found.blocks, found.block_bytes) == (5, 256 * 24576)


def test_slots_must_fit() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="slots of states alone take 1,245,708,288"):
        fit("qwen3_next_80b", 10**9)


def test_a_model_without_pages() -> None:
    config = MODELS["gpt_oss_20b"] | {"layer_types": ["sliding_attention"] * 24}
    with pytest.raises(kvsize.EngineRefuses, match="no layer of config has pages"):
        kvsize.fit(load(config), engine="exllamav3", context=256, kv_memory=10**9)


def test_no_such_dtype() -> None:
    with pytest.raises(kvsize.UsageError, match="exllamav3 has no KV dtype 'fp8'"):
        size("llama3_8b", 1, kv_dtype="fp8")


@settings(deadline=None, max_examples=40)
@given(memory=st.integers(10**8, 10**12), bits=st.integers(2, 8))
def test_capacity_is_tight(memory: int, bits: int) -> None:
    found = fit("llama3_8b", memory, kv_dtype=f"q{bits}")
    assert found.blocks * found.block_bytes <= memory < (found.blocks + 1) * found.block_bytes


@settings(deadline=None, max_examples=40)
@given(context=st.integers(1, 10**5), sequences=st.integers(1, 9), bits=st.integers(2, 7))
def test_size_laws(context: int, sequences: int, bits: int) -> None:
    found = size("llama3_8b", context, sequences=sequences, kv_dtype=f"q{bits}")
    assert (
        found.total_bytes == sequences * size("llama3_8b", context, kv_dtype=f"q{bits}").total_bytes
    )
    more_bits = size("llama3_8b", context, sequences=sequences, kv_dtype=f"q{bits + 1}")
    assert found.total_bytes < more_bits.total_bytes
