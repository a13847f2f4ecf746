"""Laws of the transformers engine that hold for every preset."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.sources.preset import presets

MODELS = {name: kvsize.load(name) for name in presets()[::7]}
models = st.sampled_from(sorted(MODELS))
contexts = st.integers(1, 300_000)


def size(name: str, context: int, **asked: object) -> kvsize.Size:
    return kvsize.size(MODELS[name], context=context, **asked)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(models, contexts, st.integers(2, 64))
def test_sequences_scale(name: str, context: int, sequences: int) -> None:
    one, several = size(name, context), size(name, context, sequences=sequences)
    assert several.total_bytes == sequences * one.total_bytes
    assert several.layer_bytes == tuple(sequences * layer for layer in one.layer_bytes)


@settings(max_examples=150, deadline=None)
@given(models, contexts)
def test_the_parts_add_up_and_storages_hold_them(name: str, context: int) -> None:
    found = size(name, context)
    assert sum(found.layer_bytes) == found.total_bytes
    assert sum(group.total_bytes for group in found.groups) == found.total_bytes
    assert sum(group.layers for group in found.groups) == len(found.layer_bytes)
    assert found.total_bytes <= found.allocated_bytes


@settings(max_examples=150, deadline=None)
@given(models, contexts, st.integers(0, 10_000))
def test_it_grows_with_the_context(name: str, context: int, more: int) -> None:
    # DeepSeek-V4 empties its buffers when a row closes, so it alone may shrink by a few tokens.
    if MODELS[name].config.model_type != "deepseek_v4":
        assert size(name, context).total_bytes <= size(name, context + more).total_bytes


@settings(max_examples=100, deadline=None)
@given(models, contexts)
def test_a_static_cache_of_that_length_is_no_smaller(name: str, context: int) -> None:
    try:
        static = size(name, context, options={"cache": "static"})
    except kvsize.EngineRefuses:
        return
    assert static.total_bytes >= size(name, context).total_bytes
