"""LMDeploy's two engines: TurboMind's slabs and the PyTorch engine's aligned blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MODELS, load, replay

import kvsize
from kvsize.engines import lmdeploy_turbomind as turbomind
from kvsize.engines.lmdeploy_pytorch import blocks

MIB, GIB = 2**20, 2**30
TURBOMIND, PYTORCH = "lmdeploy-turbomind", "lmdeploy-pytorch"


def size(engine: str, model: str, context: int, **asked: Any) -> kvsize.Size:
    config = asked.pop("config", None) or MODELS[model]
    return kvsize.size(load(config), context=context, engine=engine, **asked)


def fit(engine: str, model: str, memory: int, **asked: Any) -> kvsize.Fit:
    config = asked.pop("config", None) or MODELS[model]
    context = asked.pop("context", 64)
    return kvsize.fit(load(config), engine=engine, context=context, kv_memory=memory, **asked)


# -- TurboMind ------------------------------------------------------------------------------
@replay("lmdeploy_turbomind")
def test_turbomind_row(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    packing = {16: "auto", 8: "int8", 4: "int4"}[inputs["kv_bits"]]
    layer = turbomind.layer_block_bytes(
        inputs["kv_heads_local"],
        inputs["head_dim"],
        turbomind.DTYPES[packing],
        block_len=inputs["block_len"],
        tensors=1 if row["case"].startswith("mla") else 2,
    )
    assert layer == row["layer_bytes"]
    block = layer * inputs["layers"]
    region = turbomind.region_bytes(inputs["free_bytes"], inputs["ratio"])
    assert (block, region) == (row["block_bytes"], inputs["region_bytes"])
    found = turbomind.slabs(region, block)
    assert found == turbomind.Slabs(
        pages=row["pages"],
        slab_bytes=row["slab_bytes"],
        blocks_per_slab=row["blocks_per_slab"],
        usable_blocks=row["usable_blocks"],
        free_pages_left=row["free_pages_left"],
    )
    assert region // block == row["naive_blocks"]
    assert found.usable_blocks * inputs["block_len"] == row["usable_tokens"]
    assert block / inputs["block_len"] == row["bytes_per_token"]
    used = found.usable_blocks * block / (found.pages * turbomind.PAGE_BYTES)
    assert round(used, 4) == row["utilisation"]


@pytest.mark.parametrize(
    ("model", "dtype", "per_token", "blocks_"),
    [
        ("llama3_8b", "int8", 67584, 9600),  # llama3_8b_int8
        ("llama3_8b", "int4", 34816, 19200),  # llama3_8b_int4
        ("llama2_7b", "auto", 524288, 1280),  # llama2_7b
        ("llama3_70b", "auto", 327680, 2000),  # llama3_70b
        ("qwen3_30b_a3b", "auto", 98304, 6720),  # qwen3_30b_a3b
        ("deepseek_v3", "auto", 70272, 9280),  # mla_deepseek_v3
        ("gpt_oss_20b", "auto", 49152, 13440),  # gpt_oss_20b
    ],
)
def test_turbomind_models(model: str, dtype: str, per_token: int, blocks_: int) -> None:
    options = {"cache_max_entry_count": 0.8}
    found = fit(TURBOMIND, model, 53687103545, kv_dtype=dtype, options=options)
    assert found.block_bytes == 64 * per_token
    assert found.blocks == blocks_
    assert found.tokens == 64 * blocks_


def test_turbomind_before_the_object_cache() -> None:
    found = fit(TURBOMIND, "llama3_70b", 40 * GIB, engine_version="0.14.0")
    assert found.blocks == 40 * GIB // 20971520
    assert "slab_bytes" not in found.details


def test_slabs_never_pass_one_gibibyte() -> None:
    # 700 MiB fill 68 % of a slab of 1 GiB, which is not doubled again.
    found = turbomind.slabs(10 * GIB, 700 * MIB)
    assert (found.slab_bytes, found.blocks_per_slab, found.usable_blocks) == (GIB, 1, 10)
    assert turbomind.slabs(10 * GIB, 1500 * MIB).slab_bytes == 2 * GIB


def test_turbomind_shards() -> None:
    found = size(TURBOMIND, "llama3_70b", 65, tensor_parallel_size=16)
    assert found.rank_bytes == (2 * 64 * 40960,) * 16
    assert found.notes[0].startswith("8 KV heads over 16 tensor-parallel ranks")
    with pytest.raises(kvsize.EngineRefuses, match="8 KV heads cannot be cut over 3"):
        size(TURBOMIND, "llama3_70b", 1, tensor_parallel_size=3)


def test_turbomind_refusals() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="refuses quant_policy 16"):
        size(TURBOMIND, "llama3_8b", 1, options={"quant_policy": 16})
    with pytest.raises(kvsize.UsageError, match="has no KV dtype 'fp8'") as error:
        size(TURBOMIND, "llama3_8b", 1, kv_dtype="fp8")
    assert error.value.hint == "it has auto, bfloat16, float16, int8, int4."
    with pytest.raises(kvsize.EngineRefuses, match="must lie between 0 and 1"):
        fit(TURBOMIND, "llama3_8b", GIB, options={"cache_max_entry_count": 1.0})
    with pytest.raises(kvsize.UsageError, match="has no pipeline parallelism"):
        size(TURBOMIND, "llama3_8b", 1, pipeline_parallel_size=2)


def test_turbomind_says_what_it_leaves_out() -> None:
    found = size(TURBOMIND, "qwen3_next_80b", 64)
    assert found.total_bytes == 64 * 24576
    assert found.notes == (
        "The recurrent states of its linear layers come from the same region and are not counted.",
    )


@settings(deadline=None, max_examples=40)
@given(region=st.integers(0, 10**12), block=st.integers(1, 2 * GIB))
def test_slabs_hold_less_than_the_region(region: int, block: int) -> None:
    found = turbomind.slabs(region, block)
    assert found.usable_blocks * block <= region
    assert found.blocks_per_slab * block <= found.slab_bytes
    assert found.pages * turbomind.PAGE_BYTES <= region


# -- PyTorch engine -------------------------------------------------------------------------
def row_of(row: dict[str, Any]) -> blocks.Row:
    inputs = row["inputs"]
    indexed = "v32" in row["case"]
    return blocks.Row(
        kv_heads=inputs["kv_heads"] // inputs["tp"],
        k_head_dim=inputs["k_head_dim"],
        v_head_dim=inputs["v_head_dim"],
        index_head_dim=128 if indexed else 0,
        ds_mla="dsmla" in row["case"],
    )


@replay("lmdeploy_pytorch")
def test_pytorch_row(row: dict[str, Any]) -> None:
    inputs = row["inputs"]
    packing = blocks.DTYPES[blocks.POLICY_DTYPES[inputs["quant_policy"]]]
    layer = blocks.layer_block_bytes(
        row_of(row), packing, block_size=row["block_size"], model_itemsize=2
    )
    block = inputs["layers"] * layer
    assert block == row["block_bytes"]
    assert 5 * block == row["alloc_5_blocks_bytes"]
    assert block / row["block_size"] == row["bytes_per_token"]
    slot = 0
    if "state_slot_bytes" in row:  # 36 layers of Qwen3-Next, recurrences in float32
        slot = blocks.state_slot_bytes([((36, 8192, 4), 2), ((36, 32, 128, 128), 4)])
        assert slot == row["state_slot_bytes"]
        assert blocks.state_slots(inputs["max_batches"]) == row["num_state_caches"]
    free = inputs["free_bytes"] - slot * blocks.state_slots(inputs["max_batches"])
    asked = {
        "ratio": inputs["cache_max_entry_count"],
        "max_prefill_token_num": inputs["max_prefill_token_num"],
        "max_batches": inputs["max_batches"],
        "vocab_size": inputs["vocab"],
        "workspace_bytes": blocks.DSA_WORKSPACE_BYTES if "v32" in row["case"] else 0,
    }
    if "error" in row:
        with pytest.raises(kvsize.EngineRefuses, match="three or more"):
            blocks.capacity(free, block, blocks.Startup(**asked))
        return
    found = blocks.capacity(free, block, blocks.Startup(**asked))
    assert found.blocks == row["num_gpu_blocks"]
    assert found.max_prefill_token_num == row["max_prefill_token_num_after"]
    assert found.blocks * block == row["kv_bytes"]


@pytest.mark.parametrize(
    ("policy", "per_token"),
    [(0, 131072), (8, 67584), (4, 34816), (16, 65536), (17, 65536), (42, 26112)],
)
def test_pytorch_policies(policy: int, per_token: int) -> None:
    found = size(PYTORCH, "llama3_8b", 64, options={"quant_policy": policy})
    assert found.total_bytes == 64 * per_token


@pytest.mark.parametrize(
    ("model", "options", "num_gpu_blocks"),
    [
        ("llama3_8b", {}, 4913),  # llama3_8b
        ("llama3_8b", {"quant_policy": 17}, 9826),  # llama3_8b_fp8_e5m2
        ("llama3_8b", {"block_size": 16}, 19653),  # llama3_8b_block16
        ("llama3_8b", {"max_prefill_token_num": 4096, "max_batch_size": 512}, 4994),
        ("deepseek_v3", {"use_flash_mla": False}, 18322),  # deepseek_v3_mla_noflash_block32
        ("deepseek_v32", {}, 8133),  # deepseek_v32_bf16
        ("deepseek_v32", {"quant_policy": 16}, 13253),  # deepseek_v32_fp8_dsmla
        ("qwen3_next_80b", {"fp32_mamba_ssm_dtype": True}, 20852),  # qwen3_next_state
    ],
)
def test_pytorch_models(model: str, options: dict[str, Any], num_gpu_blocks: int) -> None:
    options = options | {"cache_max_entry_count": 0.8}
    assert fit(PYTORCH, model, 50 * GIB, options=options).blocks == num_gpu_blocks


def test_pytorch_latent_is_on_every_rank() -> None:  # deepseek_v3_flashmla_tp8
    options = {"cache_max_entry_count": 0.8}
    found = fit(PYTORCH, "deepseek_v3", 50 * GIB, options=options, tensor_parallel_size=8)
    assert (found.blocks, found.block_bytes) == (9161, 4497408)


def test_tensors_are_aligned() -> None:  # qwen2_0.5b_int4_block16_align, oddhd_80_int8_block16
    small = blocks.Row(kv_heads=2, k_head_dim=64, v_head_dim=64)
    int4 = blocks.layer_block_bytes(small, blocks.DTYPES["int4"], block_size=16, model_itemsize=2)
    assert 24 * int4 == 61440
    odd = blocks.Row(kv_heads=1, k_head_dim=80, v_head_dim=80)
    int8 = blocks.layer_block_bytes(odd, blocks.DTYPES["int8"], block_size=16, model_itemsize=2)
    assert 32 * int8 == 98304


def test_states_come_before_blocks() -> None:
    found = size(PYTORCH, "qwen3_next_80b", 64, options={"max_batch_size": 1})
    slot = 36 * (8192 * 4 * 2 + 32 * 128 * 128 * 2)
    assert found.details["state_slot_bytes"] == slot
    assert found.total_bytes == found.allocated_bytes == 64 * 24576 + 3 * slot
    ten = size(PYTORCH, "qwen3_next_80b", 64, options={"max_batch_size": 10})
    assert (ten.total_bytes, ten.allocated_bytes) == (
        64 * 24576 + 3 * slot,
        64 * 24576 + 12 * slot,
    )


def test_prefill_steps_are_halved_to_fit() -> None:
    startup = blocks.Startup(ratio=0.8, max_prefill_token_num=16000, max_batches=1, vocab_size=1000)
    found = blocks.capacity(40 * 10**6, 10**6, startup)
    assert found == blocks.Capacity(blocks=19, max_prefill_token_num=8000)


def test_state_slots_must_fit() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="130 state slots take"):
        fit(PYTORCH, "qwen3_next_80b", 10**9)


def test_no_step_leaves_sixteen_blocks() -> None:
    startup = blocks.Startup(ratio=1.0, max_prefill_token_num=8, max_batches=1, vocab_size=1)
    with pytest.raises(kvsize.EngineRefuses, match="no prefill step leaves 16 blocks"):
        blocks.capacity(10 * 10**6, 10**6, startup)


def test_too_little_memory() -> None:  # llama3_8b_tiny_free
    options = {"cache_max_entry_count": 0.8}
    with pytest.raises(kvsize.EngineRefuses, match="0 blocks fit"):
        fit(PYTORCH, "llama3_8b", 2 * GIB, options=options)


def test_flash_mla_needs_its_page() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="flash_mla needs block_size 64, not 32"):
        size(PYTORCH, "deepseek_v3", 1, options={"block_size": 32})


def test_pytorch_refusals() -> None:
    with pytest.raises(kvsize.UsageError, match="has no KV dtype 'nvfp4'"):
        size(PYTORCH, "llama3_8b", 1, kv_dtype="nvfp4")
    with pytest.raises(kvsize.EngineRefuses, match="cannot be cut over 3 ranks"):
        size(PYTORCH, "llama3_8b", 1, tensor_parallel_size=3)


@settings(deadline=None, max_examples=40)
@given(memory=st.integers(10**8, 10**12), policy=st.sampled_from([0, 4, 8, 16, 42]))
def test_capacity_is_tight(memory: int, policy: int) -> None:
    found = fit(PYTORCH, "llama3_8b", memory, options={"quant_policy": policy})
    assert found.blocks * found.block_bytes <= memory < (found.blocks + 1) * found.block_bytes


@settings(deadline=None, max_examples=40)
@given(
    context=st.integers(1, 10**5),
    sequences=st.integers(1, 9),
    engine=st.sampled_from([TURBOMIND, PYTORCH]),
)
def test_size_laws(context: int, sequences: int, engine: str) -> None:
    found = size(engine, "llama3_8b", context, sequences=sequences)
    assert found.total_bytes == sequences * size(engine, "llama3_8b", context).total_bytes
    assert (
        found.total_bytes <= size(engine, "llama3_8b", context + 1, sequences=sequences).total_bytes
    )
    assert sum(found.rank_bytes) == sum(found.layer_bytes) == found.total_bytes


def test_turbomind_public_log() -> None:
    # Course notes on internlm-chat-7b (32 layers, 32 heads of 128): blocks of 64 MB for 128 tokens
    options = {"cache_block_seq_len": 128}
    found = fit(TURBOMIND, "llama2_7b", 159 * 64 * MIB, options=options, engine_version="0.14.0")
    assert (found.block_bytes, found.blocks) == (64 * MIB, 159)
