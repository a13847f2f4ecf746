"""Inverse answers are whole numbers: n fits and n + 1 does not, under the engine's own rounding."""

from __future__ import annotations

from typing import Any

import pytest
from deployments import GIB, TINY, setup
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.capacity.budget import Budget, Entry, known
from kvsize.capacity.holding import check_legal, fits, held, needed_bytes
from kvsize.capacity.inverse import CONTEXT_LIMIT, NOTHING, Span, capacity, longest, max_context
from kvsize.capacity.layout import Layout
from kvsize.capacity.limits import MEMORY
from kvsize.capacity.search import largest
from kvsize.errors import EngineRefuses

GEMMA: dict[str, Any] = {
    **TINY,
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "head_dim": 32,
    "sliding_window": 128,
    "sliding_window_pattern": 6,
}
HYBRID: dict[str, Any] = {
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 32,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "vocab_size": 1000,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
# Full attention, windows, recurrent states: linear, capped and with a constant.
CASES = [
    (engine, config)
    for config in (TINY, GEMMA, HYBRID)
    for engine in (
        *("vllm", "sglang", "tensorrt-llm", "lmdeploy-pytorch", "llama.cpp", "exllamav3"),
        *("mlx-lm", "transformers"),
    )
] + [("lmdeploy-turbomind", TINY)]
IDS = [f"{engine} {config['model_type']}" for engine, config in CASES]


def of(engine: str, config: dict[str, Any]) -> Any:
    return setup(engine, config)


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.integers(-5, 10**10))
def test_the_largest_number_below_a_threshold(most: int, spare: int, guess: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= most

    assert largest(holds, at_most=most + spare, guess=guess) == most
    assert largest(holds, at_most=max(most, 1), guess=guess) == most
    assert all(1 <= number <= most + spare for number in asked)


def test_a_good_guess_saves_calls() -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= 10**12

    assert largest(holds, at_most=2**60, guess=10**12) == 10**12
    assert len(asked) == 2


@pytest.mark.parametrize(("engine", "config"), CASES, ids=IDS)
@settings(max_examples=8, deadline=None)
@given(memory=st.integers(10**6, 10**9), context=st.integers(1, 4096))
def test_one_sequence_more_does_not_fit(
    engine: str, config: dict[str, Any], memory: int, context: int
) -> None:
    deployment = of(engine, config)
    most = held(deployment, context, memory).sequences
    assert most == 0 or fits(deployment, context, most, memory)
    assert not fits(deployment, context, most + 1, memory)


@pytest.mark.parametrize(("engine", "config"), CASES, ids=IDS)
@settings(max_examples=5, deadline=None)
@given(sequences=st.integers(1, 40), context=st.integers(1, 4096))
def test_one_byte_less_does_not_hold_them(
    engine: str, config: dict[str, Any], sequences: int, context: int
) -> None:
    deployment = of(engine, config)
    needed = needed_bytes(deployment, context, sequences)
    assert needed is not None
    assert fits(deployment, context, sequences, needed)
    assert not fits(deployment, context, sequences, needed - 1)


@pytest.mark.parametrize(("engine", "config"), CASES, ids=IDS)
@settings(max_examples=5, deadline=None)
@given(memory=st.integers(10**6, 10**9), sequences=st.integers(1, 20))
def test_one_token_more_does_not_fit(
    engine: str, config: dict[str, Any], memory: int, sequences: int
) -> None:
    deployment = of(engine, config)
    most = max_context(deployment, sequences, memory, 4096)
    assert most == 0 or fits(deployment, most, sequences, memory)
    assert most == 4096 or not fits(deployment, most + 1, sequences, memory)


def test_sequences_are_those_of_the_engine_s_log() -> None:
    model = kvsize.load("llama-3.1-8b")
    fit = kvsize.fit(model, engine="vllm", context=32768, kv_memory=40 * GIB)
    assert (fit.blocks, fit.concurrency) == (20480, 10.0)
    # One of the 20,480 blocks is the null block, so the tenth sequence lacks one.
    assert held(setup("vllm", "llama-3.1-8b"), 32768, 40 * GIB).sequences == 9
    assert held(setup("sglang", "llama-3.1-8b"), 32768, 40 * GIB).sequences == 10


def test_replicas_hold_as_many_each() -> None:
    one = held(setup("sglang", "llama-3.1-8b"), 32768, 40 * GIB)
    layout = Layout(data_parallel_size=3)
    three = held(setup("sglang", "llama-3.1-8b", layout), 32768, 40 * GIB)
    assert (three.sequences, three.tokens) == (3 * one.sequences, 3 * (one.tokens or 0))


def test_engines_have_limits_of_their_own() -> None:
    found = held(setup("vllm", TINY, options={"max_num_seqs": 7}), 16, 10**9)
    assert (found.binding.name, found.sequences) == ("max_num_seqs", 7)
    found = held(setup("tensorrt-llm", TINY, options={"max_batch_size": 5}), 16, 10**9)
    assert (found.binding.name, found.sequences) == ("max_batch_size", 5)
    found = held(setup("llama.cpp", TINY), 16, 10**12)
    assert found.sequences == 256
    assert found.binding.name == "llama.cpp: n_seq_max is 257, and must be <= 256."


def test_states_of_tensorrt_llm_are_as_many_as_the_sequences() -> None:
    chosen = held(setup("tensorrt-llm", HYBRID), 512, 10**8)
    stated = setup("tensorrt-llm", HYBRID, options={"max_batch_size": chosen.sequences})
    assert held(stated, 512, 10**8).sequences == chosen.sequences
    wasteful = setup("tensorrt-llm", HYBRID, options={"max_batch_size": 10 * chosen.sequences})
    assert held(wasteful, 512, 10**8).sequences < chosen.sequences


def test_a_model_of_states_alone_is_bound_by_its_states() -> None:
    found = held(setup("sglang", "falcon-mamba-7b"), 8192, 2**30)
    assert (found.binding.name, found.sequences) == (MEMORY, 4)
    assert longest(setup("sglang", "falcon-mamba-7b"), 1, known(2**30)).binding == NOTHING


def test_no_memory_helps_beyond_a_limit_of_the_engine() -> None:
    assert needed_bytes(setup("vllm", TINY, options={"max_num_seqs": 7}), 16, 8) is None


def test_capacity_says_what_one_more_costs() -> None:
    deployment = setup("lmdeploy-pytorch", "llama-3.1-8b")
    found = capacity(deployment, 32768, known(10 * GIB))
    assert (found.sequences, found.binding) == (Span(2, 2, 2), MEMORY)
    assert (found.needed_bytes, found.next_bytes) == (8 * GIB, 2 * GIB)
    assert found.tokens == 81_920


def test_an_estimated_memory_gives_a_range() -> None:
    spread = Budget((Entry("left", (12 * GIB, 9 * GIB, 3 * GIB), "x"),))
    deployment = setup("lmdeploy-pytorch", "llama-3.1-8b")
    assert capacity(deployment, 32768, spread).sequences == Span(0, 2, 3)
    assert longest(deployment, 2, spread).context == Span(12_288, 36_864, 49_152)


def test_the_longest_context_says_what_bounds_it() -> None:
    deployment = setup("lmdeploy-pytorch", "llama-3.1-8b")
    found = longest(deployment, 1, known(4 * GIB))
    assert (found.context.best, found.binding, found.next_bytes) == (32_768, MEMORY, 8 * 2**20)
    found = longest(deployment, 1, known(100 * GIB))
    assert (found.context.best, found.binding, found.next_bytes) == (131_072, CONTEXT_LIMIT, None)


def test_what_an_engine_refuses_is_not_a_question_of_memory() -> None:
    layout = Layout(tensor_parallel_size=3)
    with pytest.raises(EngineRefuses, match="must be divisible by tensor_parallel_size 3"):
        check_legal(setup("vllm", TINY, layout), 16)
