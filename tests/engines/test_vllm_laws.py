"""Laws of vLLM's pool, for any memory and length."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize import EngineRefuses
from tests.engines.test_vllm import DEEPSEEK_V3, GEMMA_3_27B, GPT_OSS_20B, LLAMA_8B, QWEN3_NEXT

MODELS = st.sampled_from(
    [kvsize.load(c) for c in (LLAMA_8B, GEMMA_3_27B, GPT_OSS_20B, DEEPSEEK_V3, QWEN3_NEXT)]
)
CONTEXTS = st.integers(1, 131072)


def _fit(model: kvsize.Model, context: int, memory: int, **options: Any) -> kvsize.Fit:
    return kvsize.fit(model, engine="vllm", context=context, kv_memory=memory, options=options)


@given(MODELS, st.integers(10**10, 10**12), st.integers(0, 10**11))
@settings(deadline=None, max_examples=40)
def test_more_memory_never_holds_less(model: kvsize.Model, memory: int, more: int) -> None:
    small, large = _fit(model, 1024, memory), _fit(model, 1024, memory + more)
    assert small.blocks <= large.blocks
    assert small.blocks * small.block_bytes <= memory < (small.blocks + 1) * small.block_bytes


@given(MODELS, CONTEXTS)
@settings(deadline=None, max_examples=40)
def test_a_request_fits_exactly_from_its_own_bytes_on(model: kvsize.Model, context: int) -> None:
    size = kvsize.size(model, context=context, engine="vllm")
    block_bytes = size.details["bytes_per_block"]
    assert isinstance(block_bytes, tuple)
    enough = size.allocated_bytes + block_bytes[0]
    assert _fit(model, context, enough).concurrency >= 1
    with pytest.raises(EngineRefuses, match="takes"):
        _fit(model, context, enough - 1)


@given(MODELS, st.integers(3 * 10**9, 4 * 10**10))
@settings(deadline=None, max_examples=25)
def test_the_longest_length_is_tight(model: kvsize.Model, memory: int) -> None:
    longest = _fit(model, -1, memory).context
    assert _fit(model, longest, memory).concurrency >= 1
    if longest < (model.context_limit or 0):
        with pytest.raises(EngineRefuses, match="takes"):
            _fit(model, longest + 1, memory)


@given(MODELS, CONTEXTS, st.integers(1, 64))
@settings(deadline=None, max_examples=40)
def test_bytes_are_linear_in_sequences(model: kvsize.Model, context: int, sequences: int) -> None:
    one = kvsize.size(model, context=context, engine="vllm")
    many = kvsize.size(model, context=context, engine="vllm", sequences=sequences)
    assert many.total_bytes == sequences * one.total_bytes
    assert sum(one.layer_bytes) == one.total_bytes == sum(one.rank_bytes)
    assert one.total_bytes <= one.allocated_bytes


@given(MODELS, CONTEXTS)
@settings(deadline=None, max_examples=40)
def test_never_less_than_the_tokens_need(model: kvsize.Model, context: int) -> None:
    shorter = kvsize.size(model, context=context, engine="vllm").total_bytes
    longer = kvsize.size(model, context=min(context + 1, 131072), engine="vllm").total_bytes
    assert shorter <= longer
