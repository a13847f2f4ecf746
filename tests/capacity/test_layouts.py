"""Layouts: the legal ones, what each holds, the recommended one, and the fewest GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from deployments import GIB, plan

import kvsize
from kvsize.capacity.layout import Layout
from kvsize.capacity.layouts import Plan, candidates, copies, legal, recommended, smallest
from kvsize.capacity.weights import weights_of


def labels(found: Any) -> list[str]:
    return [laid.layout.label for laid in found]


def test_all_legal_layouts_of_eight_gpus() -> None:
    found = legal(plan("llama-3.1-70b"), 8, 32768)
    assert set(labels(found)) == {
        *("TP 8", "PP 8", "DP 8", "TP 4 × PP 2", "TP 2 × PP 4", "TP 4 × DP 2", "TP 2 × DP 4"),
        *("PP 4 × DP 2", "PP 2 × DP 4", "TP 2 × PP 2 × DP 2"),
    }
    assert all(laid.layout.gpus == 8 for laid in found)
    counts = [laid.sequences for laid in found]
    assert counts == sorted(counts, reverse=True)


def test_what_each_rank_has() -> None:
    found = {laid.layout.label: laid for laid in legal(plan("llama-3.1-70b"), 8, 32768)}
    weights = weights_of(kvsize.load("llama-3.1-70b")).total_bytes
    tp8 = found["TP 8"]
    assert tp8.weights_bytes == -(-weights // 8)
    requested = -(-81_559 * 2**20 * 92 // 100)
    assert tp8.kv_bytes == requested - tp8.weights_bytes - 4 * GIB
    # 80 layers × 2 × 1 head × 128 × 2 bytes for each of 32,768 tokens, in blocks, less one block.
    assert tp8.sequences == (tp8.kv_bytes // (655_360) - 1) // 2048
    assert found["DP 8"].sequences == 0


def test_heads_that_do_not_divide_are_no_layout() -> None:
    assert labels(legal(plan("llama-3.1-8b"), 3, 8192)) == ["PP 3", "DP 3"]


def test_attention_dp_and_decode_context_are_layouts_too() -> None:
    sglang = labels(legal(plan("deepseek-v3", "h200", "sglang"), 8, 16384))
    assert {f"TP 8 × DP attention {size}" for size in (2, 4, 8)} <= set(sglang)
    trtllm = labels(legal(plan("deepseek-v3", "h200", "tensorrt-llm"), 8, 16384))
    assert [label for label in trtllm if label.startswith("TP 8")] == [
        "TP 8 × DP attention 8",
        "TP 8",
    ]
    vllm = labels(legal(plan("deepseek-v3", "h200"), 8, 16384))
    assert vllm[0] == "TP 8 × DCP 8"
    # Grouped heads are sharded over tokens only beyond their number.
    assert not any("DCP" in label for label in labels(legal(plan("llama-3.1-70b"), 8, 8192)))


def test_gpus_of_llama_cpp_are_one_pool() -> None:
    found = legal(plan("llama-3.1-70b", engine="llama.cpp"), 4, 8192)
    assert labels(found) == ["layer split 4"]
    assert found[0].layout.gpus == 4


@pytest.mark.parametrize(
    ("name", "layout", "times"),
    [
        ("llama-3.1-70b", Layout(tensor_parallel_size=8), 1),
        ("llama-3.1-70b", Layout(tensor_parallel_size=16), 2),
        ("deepseek-v3", Layout(tensor_parallel_size=8), 8),
        ("deepseek-v4-flash", Layout(tensor_parallel_size=4), 4),
        ("deepseek-v3", Layout(tensor_parallel_size=8, decode_context_parallel_size=4), 2),
        ("deepseek-v3", Layout(tensor_parallel_size=8, data_parallel_size=8, attention_dp=True), 1),
    ],
)
def test_how_often_a_token_is_stored(name: str, layout: Layout, times: int) -> None:
    assert copies(kvsize.load(name), layout) == times


def test_recommended_is_the_smallest_replica_that_will_do() -> None:
    found = legal(plan("llama-3.1-8b"), 8, 32768)
    chosen = recommended(found, 100)
    assert chosen is not None
    assert (chosen[0].layout.label, chosen[1]) == (
        "DP 8",
        "the smallest replica that holds 100 sequences without pipeline stages",
    )


def test_without_a_number_most_sequences_are_recommended() -> None:
    chosen = recommended(legal(plan("llama-3.1-70b"), 8, 32768), None)
    assert chosen is not None
    assert (chosen[0].layout.label, chosen[1]) == (
        "TP 8",
        "it holds the most sequences without pipeline stages",
    )


def test_stages_come_where_nothing_else_will_do() -> None:
    found = legal(plan("llama-3.1-70b", "rtx4090", reserve_bytes=2 * GIB), 8, 4096)
    assert recommended([laid for laid in found if "PP" in laid.layout.label], None) is not None
    assert recommended([], None) is None


def test_where_nothing_fits_the_layout_with_most_left_is_shown() -> None:
    found = legal(plan("llama-3.1-405b", "rtx4090"), 8, 8192)
    chosen = recommended(found, None)
    assert chosen is not None
    assert (chosen[0].layout.label, chosen[1]) == ("TP 8", "no layout holds a sequence")


def exhaustive(deployment: Plan, context: int, sequences: int, most: int) -> int | None:
    """The fewest GPUs by trying every layout of every number of them."""
    for gpus in range(1, most + 1):
        if any(laid.sequences >= sequences for laid in legal(deployment, gpus, context)):
            return gpus
    return None


@pytest.mark.parametrize(
    ("name", "gpu", "engine", "sequences"),
    [
        ("llama-3.1-8b", "rtx4090", "vllm", 9),
        ("llama-3.1-70b", "h100", "vllm", 50),
        ("qwen3-30b-a3b", "a100-40gb", "vllm", 30),
        ("gemma-3-27b", "l40s", "sglang", 12),
        ("llama-3.1-70b", "rtx3090", "llama.cpp", 3),
    ],
)
def test_fewer_gpus_do_not_hold_them(name: str, gpu: str, engine: str, sequences: int) -> None:
    deployment = plan(name, gpu, engine, reserve_bytes=2 * GIB)
    found = smallest(deployment, 8192, sequences)
    assert found is not None
    assert found.sequences >= sequences
    assert exhaustive(deployment, 8192, sequences, found.layout.gpus) == found.layout.gpus


def test_a_model_that_fits_no_replica_has_no_answer() -> None:
    deployment = plan("llama-3.1-8b", "h100", "mlx-lm", reserve_bytes=79 * GIB)
    assert smallest(deployment, 8192, 1) is None


def test_stages_can_be_left_out() -> None:
    found = smallest(plan("llama-3.1-70b"), 32768, 50, stages=False)
    assert found is not None
    assert found.layout.pipeline_parallel_size == 1
    staged = smallest(plan("llama-3.1-70b"), 32768, 50)
    assert staged is not None
    assert staged.layout.gpus <= found.layout.gpus


def test_layouts_use_exactly_the_gpus_given() -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "exllamav3", "mlx-lm"):
        found = list(candidates(plan("llama-3.1-8b", engine=engine), 6))
        assert found
        assert all(layout.gpus == 6 for layout in found)
        assert len(found) == len(set(found))
