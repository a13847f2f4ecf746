"""The derivation: keys, tensors that multiply to the figure, query rows, shared heads."""

from __future__ import annotations

import json
import math

import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st
from test_report import ASK

import kvsize
from kvsize.errors import ConfigError, UsageError
from kvsize.explain import explain, group_size, kv_head_of, query_rows
from kvsize.sources.preset import presets


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_query_rows_with_and_without_a_cache():
    found = query_rows(12, 20, 2, 4)
    assert (found.without_cache, found.with_cache) == (3440, 248)
    assert found.ratio == 13.871


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 4), st.integers(1, 8))
def test_query_rows_are_the_sum_over_steps(prompt, new, sequences, heads):
    found = query_rows(prompt, new, sequences, heads)
    steps = [prompt + step for step in range(new)]
    assert found.without_cache == sequences * heads * sum(steps)
    assert found.with_cache == sequences * heads * (prompt + len(steps[1:]))


def test_nothing_can_be_generated_from_nothing():
    with pytest.raises(UsageError, match=r"^20 new tokens after a prompt of 0 cannot be generated"):
        query_rows(0, 20, 1, 1)


def test_query_heads_share_kv_heads_in_contiguous_groups():
    assert [kv_head_of(head, 8, 2) for head in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [kv_head_of(head, 4, 4) for head in range(4)] == [0, 1, 2, 3]
    assert [kv_head_of(head, 4, 1) for head in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("heads", "cached"), [(4, 3), (4, 8), (4, 0)])
def test_heads_that_do_not_divide(heads, cached):
    expected = rf"^num_key_value_heads {cached} does not divide num_attention_heads {heads}\.$"
    with pytest.raises(ConfigError, match=expected):
        group_size(heads, cached)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", presets())
def test_the_tensors_multiply_to_the_figure(name, cache):
    model = kvsize.load(name)
    ask = {**ASK, "options": {"cache": cache}}
    try:
        size = kvsize.size(model, context=3000, sequences=2, options={"cache": cache})
    except kvsize.EngineRefuses:
        assert cache == "static"
        return
    found = explain(model, ask, 3000, 2, (12, 20))
    for term in found.terms:
        for tensor in term.tensors:
            assert math.prod(tensor.shape) * tensor.element_bytes == tensor.total_bytes
        assert term.layers * sum(each.total_bytes for each in term.tensors) == term.total_bytes
    assert sum(term.total_bytes for term in found.terms) == found.total_bytes == size.total_bytes
    assert sum(term.layers for term in found.terms) == len(size.layer_bytes)


def test_an_engine_that_does_not_tell_its_tensors():
    found = explain(kvsize.load("llama-3.1-70b"), {**ASK, "engine": "sglang"}, 1024, 1, (12, 20))
    assert [(term.layers, term.tensors) for term in found.terms] == [(80, ())]


def test_without_a_context_it_is_the_models_limit_at_most():
    assert explain(kvsize.load("llama-2-7b"), ASK, None, 1, (12, 20)).context == 4096
    assert explain(kvsize.load("llama-3.1-70b"), ASK, None, 1, (12, 20)).context == 32768


def test_where_keys_come_from():
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4}
    found = explain(kvsize.load(config), ASK, 10, 1, (12, 20))
    keys = {key.key: (key.value, key.origin, key.detail) for key in found.keys}
    assert keys["num_hidden_layers"] == (2, "config.json", "n_layer")
    assert keys["head_dim"] == (16, "rule", "hidden_size // num_attention_heads")
    assert keys["max_position_embeddings"] == (1024, "class default", "GPT2Config")


def test_keys_of_both_sections():
    found = explain(kvsize.load("gemma-3-27b"), ASK, 10, 1, (12, 20))
    keys = {key.key: key.value for key in found.keys}
    assert keys["torch_dtype"] == "bfloat16"
    assert keys["sliding_window"] == 1024


def test_a_model_without_attention_has_no_queries():
    found = explain(kvsize.load("falcon-mamba-7b"), ASK, 10, 1, (12, 20))
    assert (found.query_rows, found.sharing) == (None, ())


GEMMA = """\
gemma-3-27b (google/gemma-3-27b-it, preset): 2.91 GiB
  1 sequence of 32,768 tokens; transformers 5.24.0 DynamicCache, bfloat16.
  GQA, 32 query heads : 16 KV heads, head_dim 128.
"""
TENSORS = """\
52 layers: sliding window [batch, num_key_value_heads, seq_len, head_dim]
  one layer                         elements × bytes
  keys [batch, 16, seq_len, 128]    1 × 16 × 1,023 × 128 × 2 B (bfloat16)  = 4,190,208 B
  values [batch, 16, seq_len, 128]  1 × 16 × 1,023 × 128 × 2 B (bfloat16)  = 4,190,208 B
  52 × 8,380,416 B = 435,781,632 B = 415.59 MiB

10 layers: full attention [batch, num_key_value_heads, seq_len, head_dim]
  one layer                         elements × bytes
  keys [batch, 16, seq_len, 128]    1 × 16 × 32,768 × 128 × 2 B (bfloat16)  = 134,217,728 B
  values [batch, 16, seq_len, 128]  1 × 16 × 32,768 × 128 × 2 B (bfloat16)  = 134,217,728 B
  10 × 268,435,456 B = 2,684,354,560 B = 2.50 GiB

Together
  435,781,632 + 2,684,354,560 = 3,120,136,192 B = 2.91 GiB
  Each of the next 256 tokens adds 81,920 B = 80.00 KiB to a sequence.

Why queries are not cached
  A token's query is used in one step, the one that computes the token; its key and value are read
  again by every later step. So keys and values are kept.
  Without a cache each step computes the rows of all tokens again. For a prompt of 12, 20 new
  tokens, 1 sequence and 32 query heads, a layer computes 13,760 query rows without a cache against
  992 with one: 13.9×.

Which query head reads which KV head
  layers  query heads  KV heads  h //  that is
  62      32           16        2     0–1 read 0, 2–3 read 1, … 30–31 read 15
  Query head h reads KV head h // (num_attention_heads // num_key_value_heads).
"""


def test_the_text(capsys):
    said = run(capsys, "explain", "gemma-3-27b", "--ctx", "32k")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(GEMMA)
    assert said.out.endswith(TENSORS)


def test_the_example_of_query_rows_can_be_chosen(capsys):
    arguments = ["explain", "llama-3.1-70b", "--prompt", "100", "--new", "50", "--json"]
    found = json.loads(run(capsys, *arguments).out)["query_rows"]
    assert found == {
        "prompt": 100,
        "new": 50,
        "sequences": 1,
        "num_attention_heads": 64,
        "without_cache": 64 * (50 * 100 + 50 * 49 // 2),
        "with_cache": 64 * 149,
        "ratio": 41.7785,
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama-2-7b", "each its own"),
        ("falcon-7b", "0–70 all read 0"),
        ("qwen3-next-80b-a3b", "0–7 read 0, 8–15 read 1"),
        ("glm-4-9b-0414", "0–15 read 0, 16–31 read 1"),
        ("qwen3-30b-a3b", "0–7 read 0, 8–15 read 1, … 24–31 read 3"),
    ],
)
def test_which_heads_read_which(capsys, name, words):
    assert f"  {words}\n" in run(capsys, "explain", name, "--ctx", "10").out


def test_layers_that_keep_nothing_are_named(capsys):
    said = run(capsys, "explain", "nemotron-3-nano-30b-a3b", "--ctx", "10")
    assert "23 layers: no cache\n  Nothing is kept.\n" in said.out


def test_markdown_has_the_same_figures(capsys):
    said = run(capsys, "explain", "gemma-3-27b", "--ctx", "32k", "--format", "markdown")
    assert said.out.startswith("### gemma-3-27b (google/gemma-3-27b-it, preset): 2.91 GiB\n\n")
    assert "\n| sliding_window | 1024 | config.json |\n" in said.out
    assert "\n52 × 8,380,416 B = 435,781,632 B = 415.59 MiB\n".replace("×", "×") in said.out
