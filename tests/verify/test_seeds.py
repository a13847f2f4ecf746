"""Behaviour that the figures rest on, shown on real layers, real attention and a real model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kvsize
from kvsize.engines.options import Request
from kvsize.explain import query_rows

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]


def test_a_layer_refuses_tokens_on_the_axis_of_the_heads() -> None:
    import torch
    from transformers.cache_utils import DynamicLayer

    layer = DynamicLayer()
    layer.update(torch.zeros(2, 8, 5, 16), torch.zeros(2, 8, 5, 16))
    swapped = torch.zeros(2, 1, 8, 16)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 2"):
        layer.update(swapped, swapped)


def appending(axis: int) -> Callable[[Any, Any, Any], Any]:
    import torch

    def update(layer: Any, keys: Any, values: Any, *_: Any) -> Any:
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        layer.keys = torch.cat([layer.keys, keys], dim=axis)
        layer.values = torch.cat([layer.values, values], dim=axis)
        return layer.keys, layer.values

    return update


def verified(context: int, steps: int) -> Any:
    from kvsize.verify.cachelevel import verify_cache
    from kvsize.verify.devices import Cuda

    model, request = kvsize.load("llama-2-7b"), Request(context=context)
    return verify_cache(model, request, device="meta", steps=steps, gpu=Cuda())


def test_a_class_that_appends_on_another_axis_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.cache_utils import DynamicLayer

    monkeypatch.setattr(DynamicLayer, "update", appending(-3))
    with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 1"):
        verified(6, 1)


def test_where_it_cannot_raise_the_verdict_names_the_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.cache_utils import DynamicLayer

    monkeypatch.setattr(DynamicLayer, "update", appending(-3))
    # One token and one more: the sizes agree on every other axis.
    told = "differs: layer 0, keys: shape predicted (1, 32, 2, 128), real (1, 64, 1, 128)"
    assert verified(2, 1).verdict == told
    monkeypatch.setattr(DynamicLayer, "update", appending(-2))
    assert verified(2, 1).verdict == "exact"


@pytest.mark.parametrize(("cached_heads", "equal"), [(2, False), (8, True), (1, True)])
def test_expanding_heads_by_interleaving_changes_grouped_attention_alone(
    monkeypatch: pytest.MonkeyPatch, cached_heads: int, *, equal: bool
) -> None:
    """GQA reads other heads; MHA has nothing to expand, and MQA one head for all."""
    import torch
    from transformers.models.llama import modeling_llama

    class Attention:
        num_key_value_groups = 8 // cached_heads
        training = False

    torch.manual_seed(0)
    query = torch.randn(2, 8, 5, 16, dtype=torch.float64)
    keys, values = torch.randn(2, 2, cached_heads, 5, 16, dtype=torch.float64)

    def attended() -> Any:
        run = modeling_llama.eager_attention_forward
        return run(Attention(), query, keys, values, None, scaling=0.25)[0]

    grouped = attended()
    by_hand = keys.repeat_interleave(8 // cached_heads, dim=1)
    assert torch.equal(modeling_llama.repeat_kv(keys, 8 // cached_heads), by_hand)
    monkeypatch.setattr(modeling_llama, "repeat_kv", lambda x, n: x.repeat(1, n, 1, 1))
    # Equal but for the order of sums in a product of matrices.
    assert torch.allclose(attended(), grouped, rtol=0, atol=1e-12) is equal


@pytest.fixture(scope="module")
def small() -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def counted(small: Any) -> Iterator[list[int]]:
    """Rows of every query projection: sequences × tokens × heads."""
    rows: list[int] = []

    def count(_: Any, __: Any, projected: Any) -> None:
        batch, tokens, _ = projected.shape
        rows.append(batch * tokens * small.config.num_attention_heads)

    handle = small.model.layers[0].self_attn.q_proj.register_forward_hook(count)
    yield rows
    handle.remove()


@pytest.mark.parametrize(("use_cache", "rows"), [(False, 3440), (True, 248)])
def test_query_rows_of_a_real_generation(
    small: Any, counted: list[int], use_cache: bool, rows: int
) -> None:
    import torch

    prompt = torch.ones(2, 12, dtype=torch.long)
    small.generate(prompt, max_new_tokens=20, min_new_tokens=20, use_cache=use_cache)
    predicted = query_rows(12, 20, 2, 4)
    assert sum(counted) == rows == (predicted.with_cache if use_cache else predicted.without_cache)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_what_a_generation_leaves_cached(small: Any, cache: str) -> None:
    """Prompt + N - 1 tokens: the last sampled one is never fed back."""
    import torch

    prompt = torch.ones(2, 12, dtype=torch.long)
    made = small.generate(
        prompt,
        max_new_tokens=20,
        min_new_tokens=20,
        cache_implementation=None if cache == "dynamic" else cache,
        return_dict_in_generate=True,
        disable_compile=True,
    )
    kept = getattr(made, "cache", None) or made.past_key_values
    layer = kept.layers[0]
    config = {**small.config.to_dict(), "torch_dtype": "float32"}
    options = {"cache": cache, "prompt": 12, "new_tokens": 20}
    found = kvsize.size(kvsize.load(config), context=31, sequences=2, options=options)
    assert layer.keys.shape[-2] == 31
    assert found.total_bytes == layer.keys.nbytes + layer.values.nbytes
