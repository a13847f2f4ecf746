"""SGLang 0.5.23: cells, pools, states and ranks, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import MODELS, load, replay

import kvsize
from kvsize.engines.sglang import cells, deepseek_v4, mamba, memory, pools
from kvsize.engines.sglang.cells import DTYPES

GIB = 2**30


def fit(model: str, budget: int, **asked: Any) -> kvsize.Fit:
    options = asked.pop("options", {})
    config = asked.pop("config", None) or MODELS[model]
    context = asked.pop("context", config["max_position_embeddings"])
    return kvsize.fit(
        load(config),
        engine="sglang",
        context=context,
        kv_memory=budget,
        options=options,
        **asked,
    )


def size(model: str, context: int, **asked: Any) -> kvsize.Size:
    config = asked.pop("config", None) or MODELS[model]
    return kvsize.size(load(config), context=context, engine="sglang", **asked)


# -- the reference rows ---------------------------------------------------------------------
OPTIONS_OF_ROW = (
    "page_size",
    "max_running_requests",
    "max_mamba_cache_size",
    "mamba_full_memory_ratio",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "chunked_prefill_size",
    "swa_full_tokens_ratio",
    "disable_hybrid_swa_memory",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "eagle_draft_num_layers",
    "dsa_prefill_backend",
    "dsa_decode_backend",
)


def fit_of_row(row: dict[str, Any]) -> kvsize.Fit:
    """The row's start-up: a static fraction of 0.85 of what was free before the weights."""
    inputs = row["inputs"]
    options = {name: inputs[name] for name in OPTIONS_OF_ROW if inputs.get(name) is not None}
    options["mem_fraction_static"] = inputs.get("mem_fraction_static", 0.85)
    options["pre_model_load_memory"] = int(inputs["pre_model_load_memory_gib"] * GIB)
    if "max_total_tokens" in inputs:
        options["max_total_tokens"] = inputs["max_total_tokens"]
    if "fp4_backends" in inputs:
        prefill, decode = inputs["fp4_backends"]
        options |= {"prefill_attention_backend": prefill, "decode_attention_backend": decode}
    if "attn_dp_size" in inputs:
        options |= {"enable_dp_attention": True, "dp_size": inputs["attn_dp_size"]}
    return fit(
        row["model"],
        round(inputs["free_after_load_gib"] * GIB),
        options=options,
        kv_dtype=inputs.get("kv_cache_dtype", "auto"),
        tensor_parallel_size=inputs.get("tp_size", 1),
    )


@replay("sglang")
def test_reference_row(row: dict[str, Any]) -> None:
    found = fit_of_row(row)
    details = found.details
    assert found.tokens == row["max_total_num_tokens"]
    assert details["cell_size"] == pytest.approx(row["cell_size_bytes"], rel=1e-12)
    assert details["max_running_requests"] == row["max_running_requests"]
    assert details["kv_alloc_bytes"] == row["kv_alloc_bytes"]
    assert details["kv_pool_all_tensor_bytes"] == row["kv_pool_all_tensor_bytes"]
    assert details["req_to_token_bytes"] == row["req_to_token_bytes"]
    assert details.get("full_tokens") == row["full_tokens"]
    assert details.get("swa_tokens") == row["swa_tokens"]
    if "mamba_pool_bytes" in row:
        assert details["mamba_cache_per_req"] == row["mamba_cache_per_req_bytes"]
        assert details["max_mamba_cache_size"] == row["max_mamba_cache_size"]
        assert details["mamba_pool_bytes"] == row["mamba_pool_bytes"]


# -- cells: figures of the rows named, and of the engine's documentation of its rules ---------
@pytest.mark.parametrize(
    ("dtype", "layer_bytes"),
    [
        ("auto", 131072 // 32),  # mha_bf16
        ("fp8_e4m3", 65536 // 32),  # mha_fp8
        ("mxfp8", 67584 // 32),  # mha_mxfp8_page1
        ("nvfp4", 36864 // 32),  # mha_nvfp4_native
        ("fp4_mx_block16", 36864 // 32),
    ],
)
def test_llama3_8b_layer(dtype: str, layer_bytes: int) -> None:
    assert cells.mha_layer_bytes(8, 128, 128, DTYPES[dtype].resolved(2)) == layer_bytes


def test_flashinfer_prefill_adds_one_shared_row() -> None:  # mha_nvfp4_fi_prefill
    scales = cells.nvfp4_scales("flashinfer", "trtllm_mha")
    assert scales == cells.Scales(linear=True, native=False, workspace=True)
    assert 36864 + cells.workspace_bytes(8, 128, scales) == 38912


def test_both_scale_layouts_on_sm100() -> None:
    scales = cells.nvfp4_scales("flashinfer", "trtllm_mha", sm100=True)
    assert scales.layouts == 2
    assert cells.mha_layer_bytes(8, 128, 128, DTYPES["nvfp4"].resolved(2, 2)) == 1024 + 2 * 128


@pytest.mark.parametrize(
    ("dtype", "cell"), [("auto", 70272), ("fp8_e4m3", 35136), ("fp4_mx_block16", 19764)]
)
def test_deepseek_v3_cell(dtype: str, cell: int) -> None:  # mla_bf16, mla_fp8_page64, mla_fp4
    assert 61 * cells.latent_layer_bytes(512, 64, DTYPES[dtype].resolved(2)) == cell


@pytest.mark.parametrize(
    ("dtype", "scaled", "cell"),
    [("auto", True, 78324), ("fp8_e4m3", True, 48068), ("fp8_e4m3", False, 43188)],
)
def test_deepseek_v32_cell(dtype: str, scaled: bool, cell: int) -> None:
    row = cells.latent_layer_bytes(512, 64, DTYPES[dtype].resolved(2), scaled_rows=scaled)
    assert 61 * (row + cells.index_row_bytes(128)) == cell


def test_drafts() -> None:  # mha_eagle1, mla_mtp1
    assert cells.with_draft(131072, 1, 32) == 135168
    assert cells.with_draft(70272, 1, 61) == 71424


def test_spare_page() -> None:
    assert cells.pool_rows(2048, 1) * 131072 == 268566528  # mha_bf16
    assert cells.pool_rows(2048, 64) * 131072 == 276824064
    assert cells.index_rows(3392, 64) == 54 * 64  # dsa_bf16


# -- pools ----------------------------------------------------------------------------------
def test_budget_of_the_rows() -> None:
    rest = pools.rest_memory_gib(0.4, 1.0, 0.85)
    assert pools.budget_bytes(rest) == 268435456
    with pytest.raises(kvsize.EngineRefuses, match="leave no memory"):
        pools.budget_bytes(-0.1)


def test_gpt_oss_pools_are_nearly_equal() -> None:  # swa_gptoss
    found = fit("gpt_oss_20b", 268435456)
    assert (found.tokens, found.details["swa_tokens"]) == (6068, 4854)
    assert found.details["cell_size"] == 44236.8


def test_request_cap_sizes_the_sliding_pool() -> None:
    options = {"disable_radix_cache": True, "max_running_requests": 8}
    found = fit("gpt_oss_20b", int(0.45 * GIB), options=options)
    assert (found.details["swa_tokens"], found.details["full_tokens"]) == (18449, 1211)


def test_gemma3_has_one_pool() -> None:
    found = fit("gemma3_12b", GIB)
    assert found.details["cell_size"] == 393216
    assert found.details.get("swa_tokens") is None
    assert found.notes[0] == (
        "SGLang keeps every token of this model's sliding layers: it has no second pool for it."
    )


def test_sliding_pool_must_hold_a_window() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="cannot hold one window of 128"):
        fit("gpt_oss_20b", 130 * 44237)


def test_token_limit() -> None:
    found = fit("llama3_8b", GIB, options={"max_total_tokens": 1000, "page_size": 64})
    assert found.tokens == 960


def test_static_fraction_needs_both_options() -> None:
    with pytest.raises(kvsize.UsageError, match="go together"):
        fit("llama3_8b", GIB, options={"mem_fraction_static": 0.9})


@settings(deadline=None, max_examples=40)
@given(budget=st.integers(10**8, 10**12), page=st.sampled_from([1, 16, 64]))
def test_capacity_is_tight(budget: int, page: int) -> None:
    tokens = pools.plain_pool(budget, 131072, page).max_total_num_tokens
    assert tokens * 131072 <= budget < (tokens + page) * 131072


@settings(deadline=None, max_examples=40)
@given(budget=st.integers(10**9, 10**12))
def test_more_memory_never_holds_less(budget: int) -> None:
    cells_ = pools.HybridCells(full_bytes=24576, swa_bytes=24576)
    small, large = (
        pools.hybrid_pools(bytes_, cells_, pools.SlidingRule(page_size=64, window=128))
        for bytes_ in (budget, budget + 10**7)
    )
    assert small.max_total_num_tokens <= large.max_total_num_tokens


RULE = pools.SlidingRule(page_size=1, window=128)
GPT_OSS = pools.HybridCells(full_bytes=24576, swa_bytes=24576)


def test_hybrid_token_limit() -> None:
    assert pools.hybrid_pools(10**9, GPT_OSS, RULE, 1000).swa_tokens == 800


def test_a_model_that_only_slides() -> None:
    only = pools.HybridCells(full_bytes=0, swa_bytes=1000)
    found = pools.hybrid_pools(10**6, only, RULE)
    assert found == pools.Pools(max_total_num_tokens=1000, full_tokens=0, swa_tokens=1000)


def test_request_cap_with_drafts() -> None:
    base = {"chunked_prefill_size": 8192, "draft_tokens": 4, "steps": 3}
    overlapped = pools.swa_request_cap(8, RULE, pools.Scheduling(**base))
    assert overlapped == 8 * (128 + 128 * 4 + 1 + 2 * 4) + 2 * 8192 + 1
    turns = pools.Scheduling(**base, overlap=False)
    assert pools.swa_request_cap(8, RULE, turns) == 8 * (128 + 128 * 4 + 1 + 4) + 8192 + 1
    tree = pools.Scheduling(**base, overlap=False, topk=2)
    paged = pools.SlidingRule(page_size=64, window=128)
    assert pools.swa_request_cap(1, paged, tree) == 128 + 512 + 64 + 2 * 128 + 8192 + 64


def test_request_cap_leaves_the_rest() -> None:
    assert pools.capped_pools(2 * 10**9, GPT_OSS, 1, 18449, 100) == pools.Pools(
        max_total_num_tokens=100, full_tokens=100, swa_tokens=100
    )
    with pytest.raises(kvsize.EngineRefuses, match="leaves no room for the full pool"):
        pools.capped_pools(10**8, GPT_OSS, 1, 18449)


def test_no_page_fits() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="not enough memory for one page"):
        pools.plain_pool(63 * 131072, 131072, 64)


def test_requests() -> None:
    assert pools.max_num_reqs(10**7, 8192) == 4096
    assert pools.max_num_reqs(10**6, 8192, max_running_requests=7) == 7
    with pytest.raises(kvsize.EngineRefuses, match="2 recurrent states serve no request"):
        pools.max_num_reqs(10**6, 8192, state_slots=2, slots_per_request=3)


def test_table_columns_for_drafts() -> None:
    assert cells.req_to_token_extra(1, 4, 3, 1) == 8
    assert cells.req_to_token_extra(64, 4, 3, 1) == 2 * 4 + 63
    assert cells.decode_alloc(64, 4, 3, 2) == 2 * 64 * 2  # two pages for each of two branches


def test_states_alone_count_one_context() -> None:
    config = {
        "model_type": "mamba2",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "state_size": 16,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 1,
        "conv_kernel": 4,
        "expand": 2,
        "max_position_embeddings": 4096,
    }
    found = fit("", GIB, config=config)
    assert (found.tokens, found.block_bytes) == (4096, 0)
    assert size("", 8, config=config).details == {"page_size": 1}


# -- states ---------------------------------------------------------------------------------
QWEN3_NEXT = mamba.StateShape(channels=8192, kernel=4, recurrent=(32, 128, 128))


def test_qwen3_next_state() -> None:  # gdn_qwen3next_mtp
    assert 36 * QWEN3_NEXT.bytes == 77266944
    assert mamba.pool_bytes([QWEN3_NEXT] * 36, 6) == 540868608
    assert mamba.pool_bytes([QWEN3_NEXT] * 36, 4, requests=1, draft_tokens=4) == 997392384


@pytest.mark.parametrize(
    ("radix", "strategy", "overlap", "slots"),
    [
        (False, "no_buffer", True, 1),
        (True, "no_buffer", True, 3),
        (True, "extra_buffer", True, 5),
        (True, "extra_buffer", False, 4),
        (True, "extra_buffer_lazy", True, 4),
    ],
)
def test_slots_per_request(radix: bool, strategy: str, overlap: bool, slots: int) -> None:
    found = mamba.slots_per_request(radix_cache=radix, strategy=strategy, overlap=overlap)
    assert found == slots


def test_states_take_their_share_of_the_memory() -> None:
    found = fit("qwen3_next_80b", 10 * GIB)
    slots = found.details["max_mamba_cache_size"]
    assert slots == int((10 * 0.9 / 1.9 * GIB - 77266944) // 77266944)
    assert found.details["max_running_requests"] == slots // 3  # type: ignore[operator]


def test_explicit_states() -> None:
    found = fit("qwen3_next_80b", 10 * GIB, options={"max_mamba_cache_size": 6})
    assert found.details["mamba_pool_bytes"] == 540868608
    assert found.tokens == (10 * GIB - 540868608) // 24576


def test_groups_that_do_not_divide_are_replicated() -> None:
    # Nemotron-H: 8 groups of 128 over 16 ranks
    assert mamba.sharded_channels(4096 + 2 * 8 * 128, 8, 128, 16) == (4096 + 2 * 16 * 128) // 16
    with pytest.raises(kvsize.EngineRefuses, match="do not divide over 3"):
        mamba.sharded_channels(8192, 3, 128, 3)


def test_no_state_fits() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="one recurrent state of 77,266,944 bytes"):
        fit("qwen3_next_80b", 10**8)


def test_states_follow_the_requests_without_a_radix_cache() -> None:
    options = {"disable_radix_cache": True, "max_running_requests": 12}
    found = fit("qwen3_next_80b", 10 * GIB, options=options)
    assert found.details["max_mamba_cache_size"] == 12
    wanted = mamba.Wanted(max_running_requests=12, radix_cache=False, slots_per_request=1)
    assert mamba.intermediate_requests(12, wanted) == 12


def test_windows_of_draft_trees_are_not_shared() -> None:
    tree = QWEN3_NEXT.draft_bytes(4, topk=2) - QWEN3_NEXT.draft_bytes(4)
    assert tree == 8192 * (4 * 3 - 6) * 2
    assert mamba.StateShape(channels=8, kernel=3).bytes == 8 * 2 * 2


# -- a size and its ranks -------------------------------------------------------------------
def test_size_of_one_sequence() -> None:
    found = size("llama3_8b", 2048)
    assert found.total_bytes == 2048 * 131072
    assert found.allocated_bytes == 268566528
    assert found.layer_bytes == (2048 * 4096,) * 32


def test_replicated_heads() -> None:
    found = size("llama3_8b", 2048, tensor_parallel_size=16)
    assert found.rank_bytes == (2048 * 16384,) * 16
    assert " ".join(found.notes) == (
        "8 KV heads over 16 tensor-parallel ranks: each head is stored 2 times, and a rank holds "
        "as much as with 8 ranks."
    )


def test_latent_is_on_every_rank() -> None:
    found = size("deepseek_v3", 1024, tensor_parallel_size=8)
    assert found.rank_bytes == (1024 * 70272,) * 8
    assert " ".join(found.notes) == (
        "The MLA latent cannot be split by heads: all 8 tensor-parallel ranks store it whole; "
        "enable_dp_attention splits the requests instead."
    )


def test_dp_attention_splits_requests() -> None:  # mha_dp_attn
    options = {"enable_dp_attention": True, "dp_size": 4}
    found = size("llama3_8b", 1024, sequences=5, tensor_parallel_size=8, options=options)
    one = 1024 * 65536
    assert found.rank_bytes == (2 * one, 2 * one, one, one, one, one, one, one)
    assert found.notes == (
        f"Rank 0 of 8 is the fullest, with {2 * one:,} bytes; the emptiest holds {one:,}.",
    )
    with pytest.raises(kvsize.EngineRefuses, match="dp_size 3 does not divide 8 ranks"):
        size("llama3_8b", 1, tensor_parallel_size=8, options={**options, "dp_size": 3})


def test_pipeline_stages() -> None:
    found = size("deepseek_v3", 1000, pipeline_parallel_size=4)
    assert found.rank_bytes == tuple(1000 * 1152 * n for n in (15, 15, 15, 16))
    assert sum(found.layer_bytes) == found.total_bytes


@settings(deadline=None, max_examples=40)
@given(
    context=st.integers(1, 10**6),
    sequences=st.integers(1, 64),
    page=st.sampled_from([1, 64]),
    ranks=st.sampled_from([1, 2, 8, 16]),
)
def test_size_laws(context: int, sequences: int, page: int, ranks: int) -> None:
    asked = {"sequences": sequences, "options": {"page_size": page}}
    found = size("gpt_oss_20b", context, tensor_parallel_size=ranks, **asked)
    more = size("gpt_oss_20b", context + 1, tensor_parallel_size=ranks, **asked)
    whole = size("gpt_oss_20b", context, **asked)
    assert found.total_bytes <= more.total_bytes
    assert found.total_bytes <= found.allocated_bytes
    assert found.total_bytes >= whole.total_bytes
    assert sum(found.rank_bytes) == sum(found.layer_bytes) == found.total_bytes


def test_draft_layers_of_the_config() -> None:
    found = size("deepseek_v3", 64, options={"speculative_algorithm": "EAGLE"})
    assert found.layer_bytes == (64 * 1152,) * 62


def test_drafts_have_rows_and_states() -> None:
    options = {"speculative_algorithm": "EAGLE", "eagle_draft_num_layers": 1}
    found = size("qwen3_next_80b", 1000, options=options)
    state = 3 * QWEN3_NEXT.bytes + 2 * QWEN3_NEXT.draft_bytes(4)
    assert found.layer_bytes[0] == state
    assert found.layer_bytes[48:] == (1000 * 2048,)
    assert found.groups[-1].kind == "draft layers"
    with pytest.raises(kvsize.UsageError, match="names no draft layers"):
        size("llama3_8b", 1, options={"speculative_algorithm": "EAGLE"})


def test_the_shared_row_of_flashinfer() -> None:
    options = {"prefill_attention_backend": "flashinfer", "page_size": 64}
    found = size("llama3_8b", 64, kv_dtype="nvfp4", options=options)
    assert found.total_bytes == 64 * 38912
    assert found.groups[-1].kind == "dequantized row"


def test_unknown_dtype_names_those_there_are() -> None:
    with pytest.raises(kvsize.UsageError, match="sglang has no KV dtype 'int8'") as error:
        size("llama3_8b", 1, kv_dtype="int8")
    assert error.value.hint == (
        "it has auto, bfloat16, fp8_e4m3, fp8_e5m2, mxfp8, nvfp4, fp4_mx_block16."
    )


def test_version_that_is_not_modelled() -> None:
    with pytest.raises(kvsize.UsageError, match=r"sglang 0\.4\.0 is not modelled"):
        size("llama3_8b", 1, engine_version="0.4.0")


# -- the static fraction --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("gpu_mib", "ranks", "expected"),
    [
        (16384, 1, memory.Graphs(chunked_prefill_size=2048, decode_max_bs=8)),
        (24564, 1, memory.Graphs(chunked_prefill_size=4096, decode_max_bs=48)),
        (24564, 4, memory.Graphs(chunked_prefill_size=4096, decode_max_bs=160)),
        (46068, 1, memory.Graphs(chunked_prefill_size=4096, decode_max_bs=32)),
        (81559, 8, memory.Graphs(chunked_prefill_size=8192, decode_max_bs=512)),
        (183359, 1, memory.Graphs(chunked_prefill_size=16384, decode_max_bs=512)),
    ],
)
def test_graph_defaults(gpu_mib: int, ranks: int, expected: memory.Graphs) -> None:
    assert memory.graphs(gpu_mib, ranks) == expected


def test_default_fraction_of_an_h100() -> None:
    # 512 + 8192 × 1.5 + 128 + 2 × 256 + 8 × 58 graphs = 13,904 MiB reserved
    assert memory.prefill_graph_sizes(8192) == 58
    few = memory.Launch(attn_dp_size=2)
    reserved = 512 + 8192 * 1.5 + 128 + 256 * 2 + 256 * 2 * 3 + 58 * 8
    assert memory.default_mem_fraction_static(81559, few) == round((81559 - reserved) / 81559, 3)
    small = memory.default_mem_fraction_static(16384, memory.Launch())
    assert small == round((16384 - 512 - 3072 - 128 - 16 - 8 * 42) / 16384, 3)
    many = memory.Launch(tensor_parallel_size=8, attn_dp_size=8, latent=True)
    reserved = 512 + 8192 * 1.5 + 1024 + 512 * 2 + 512 * 8 * 4.5 + 1536
    assert memory.default_mem_fraction_static(81559, many) == round((81559 - reserved) / 81559, 3)
    assert memory.default_mem_fraction_static(81559, memory.Launch()) == round(
        (81559 - 13904) / 81559, 3
    )


# -- DeepSeek-V4 ----------------------------------------------------------------------------
V4 = deepseek_v4.Shape(
    rates=(128, 4),
    head_dim=512,
    qk_rope_head_dim=64,
    index_head_dim=128,
    sliding_window=128,
)


def test_deepseek_v4_rows() -> None:
    assert V4.row_bytes == 584
    assert deepseek_v4.page_bytes(V4, 256) == 149760
    assert deepseek_v4.paged_row_bytes(V4, 4) == 585
    assert deepseek_v4.paged_row_bytes(V4, 128) == 864
    ring = 8 / 256 * 4 * 640 * 4
    assert deepseek_v4.swa_token_bytes(V4) == 2 * 585 + ring
    full = 0.1 * (2 * 585 + ring) + 585 / 4 + 132 / 4 + 864 / 128
    assert deepseek_v4.full_token_bytes(V4) == pytest.approx(full, rel=1e-12)


def test_deepseek_v4_layers() -> None:
    found = size("", 25600, config=MODELS["deepseek_v4"])
    pages, swa_pages = 100, 10
    window = swa_pages * 149760
    csa = window + pages * 37440 + 6400 * 132 + swa_pages * 8 * 4 * 640 * 4
    hca = window + pages * 1728 + 512 * 2 * 512 * 4
    assert found.layer_bytes == (window, csa, hca, csa)


def test_deepseek_v4_needs_room_for_a_window() -> None:
    with pytest.raises(kvsize.EngineRefuses, match="a sliding pool of 0 tokens"):
        fit("", 10**8, config=MODELS["deepseek_v4"], context=8192)
    with pytest.raises(kvsize.UsageError, match="compression other than by 4 and 128"):
        size("", 1, config=MODELS["deepseek_v4"] | {"compress_rate_hca": 64})


def test_deepseek_v4_with_a_request_limit() -> None:
    options = {"max_running_requests": 16}
    found = fit("", 10**9, config=MODELS["deepseek_v4"], context=8192, options=options)
    assert found.details["max_running_requests"] == 16


def test_deepseek_v4_tokens() -> None:
    found = fit("", 10**10, config=MODELS["deepseek_v4"], context=8192)
    shape = deepseek_v4.Shape(
        rates=(None, 4, 128, 4),
        head_dim=512,
        qk_rope_head_dim=64,
        index_head_dim=128,
        sliding_window=128,
    )
    per_token = deepseek_v4.full_token_bytes(shape)
    requests = min(4096, int(10**10 / per_token) // 2)
    left = 10**10 - deepseek_v4.request_state_bytes(shape, requests)
    assert found.tokens == int(left / per_token) // 256 * 256
    assert found.details["swa_tokens"] == int(found.tokens * 0.1) // 256 * 256


# -- checkpoints ----------------------------------------------------------------------------
def test_a_modelopt_checkpoint_decides_auto() -> None:
    scheme = {"dynamic": False, "num_bits": 8, "type": "float"}
    quantization = {"quant_method": "modelopt", "kv_cache_scheme": scheme}
    config = MODELS["llama3_8b"] | {"quantization_config": quantization}
    found = size("", 1024, config=config)
    assert (found.kv_dtype, found.total_bytes) == ("fp8_e4m3", 1024 * 65536)
    assert size("", 1024, config=config, kv_dtype="bf16").total_bytes == 1024 * 131072
    named = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    assert size("", 1, config=config | {"quantization_config": named}).kv_dtype == "fp8_e4m3"


def test_a_float32_checkpoint_runs_in_float16() -> None:
    config = MODELS["llama3_8b"] | {"torch_dtype": "float32"}
    found = size("", 1024, config=config)
    assert (found.kv_dtype, found.total_bytes) == ("float16", 1024 * 131072)


def test_falcon_40b_stores_its_kv_heads_once() -> None:
    config = {
        "model_type": "falcon",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 60,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "hidden_size": 8192,
        "new_decoder_architecture": True,
    }
    assert size("", 1024, config=config).total_bytes == 1024 * 60 * 2 * 8 * 64 * 2


# -- public logs (GB are GiB; two digits) ---------------------------------------------------
@pytest.mark.parametrize(
    ("model", "ranks", "dtype", "tokens", "half_gib"),
    [
        # vllm-project/vllm#21348: Qwen3-235B-A22B-FP8 on four H100
        ({"num_hidden_layers": 94, "num_key_value_heads": 4}, 4, "auto", 367404, 8.23),
        # a notebook of SGLang's documentation: Llama-3.1-8B with max_total_tokens 20480
        ({"num_hidden_layers": 32, "num_key_value_heads": 8}, 1, "auto", 20480, 1.25),
        # a public GB10 log: Qwen2.5-1.5B with an FP8 cache
        ({"num_hidden_layers": 28, "num_key_value_heads": 2}, 1, "fp8_e4m3", 3113713, 20.79),
        # a public log of Qwen3-0.6B
        ({"num_hidden_layers": 28, "num_key_value_heads": 8}, 1, "auto", 104273, 5.57),
    ],
)
def test_public_log(
    model: dict[str, int], ranks: int, dtype: str, tokens: int, half_gib: float
) -> None:
    config = MODELS["llama3_8b"] | model | {"head_dim": 128}
    found = size("", tokens, config=config, kv_dtype=dtype, tensor_parallel_size=ranks)
    assert round(found.allocated_bytes / ranks / 2 / GIB, 2) == half_gib


def test_public_log_of_two_pools() -> None:
    # a public experiment with Gemma-4-26B-A4B: 3.18 GB, swa size 29664, full size 37081
    found = pools.hybrid_split(37081, GPT_OSS, pools.SlidingRule(page_size=1, window=1024))
    assert (found.full_tokens, found.swa_tokens) == (37081, 29664)
    swa = 25 * cells.mha_layer_bytes(8, 256, 256, DTYPES["fp8_e4m3"])
    full = 5 * cells.mha_layer_bytes(2, 512, 512, DTYPES["fp8_e4m3"])
    assert round((29665 * swa + 37082 * full) / GIB, 2) == 3.18


@pytest.mark.parametrize(
    ("dtype", "tokens", "gib"),
    [
        ("auto", 209413, 13.71),  # notes on Kimi-K2.6, 61 layers
        ("fp8_e4m3", 524288, 17.16),  # a parser's sample of DeepSeek-V3
    ],
)
def test_public_logs_of_latents(dtype: str, tokens: int, gib: float) -> None:
    found = size("deepseek_v3", tokens, kv_dtype=dtype)
    assert round(found.allocated_bytes / GIB, 2) == gib


def test_public_log_of_sparse_attention() -> None:
    # sgl-project/sglang#11309: DeepSeek-V3.2 with an FP8 cache, 975424 tokens, 43.67 GB
    found = size("deepseek_v32", 975424, kv_dtype="fp8_e4m3")
    assert round(found.allocated_bytes / GIB, 2) == 43.67


@pytest.mark.parametrize(
    ("slots", "layers", "state", "ssm_gib"),
    [
        # Nemotron-3-Nano-Omni on four ranks: 2211 slots
        (2211, 23, mamba.StateShape(channels=1536, kernel=4, recurrent=(16, 64, 128)), 24.84),
        # granite-4.0-h-micro: 38 slots
        (38, 36, mamba.StateShape(channels=4352, kernel=4, recurrent=(64, 64, 128)), 2.74),
        # Qwen3.5-9B on two ranks: 186 slots
        (186, 24, mamba.StateShape(channels=4096, kernel=4, recurrent=(16, 128, 128)), 4.38),
    ],
)
def test_public_logs_of_states(
    slots: int, layers: int, state: mamba.StateShape, ssm_gib: float
) -> None:
    assert round((slots + 1) * layers * state.recurrent_bytes / GIB, 2) == ssm_gib
