"""The report as data: its rows, its schema, and what reads it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st

import kvsize
from kvsize import cli, report
from kvsize.engines import engines
from kvsize.errors import EngineRefuses
from kvsize.listing import SCHEMA
from kvsize.record import fields

if TYPE_CHECKING:
    from kvsize.advice import Ask

ASK: Ask = {
    "kv_dtype": "auto",
    "engine": "transformers",
    "engine_version": None,
    "options": {},
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
}


def row(name: str, context: int, sequences: int = 1, **ask: object) -> report.Row:
    found = report.build([kvsize.load(name)], {**ASK, **ask}, (context,), (sequences,))
    return found.rows[0]


# -- rows --------------------------------------------------------------------------------------
def test_llama_3_1_70b_at_32k():
    found = row("llama-3.1-70b", 32768, 4)
    assert found.token_bytes == 2 * 80 * 8 * 128 * 2 == 327_680
    assert found.sequence_bytes == 10 * 2**30
    assert found.total_bytes == found.allocated_bytes == found.prefill_bytes == 40 * 2**30
    assert (found.mha_bytes, found.mha_overcount) == (320 * 2**30, 8.0)
    assert (found.attention, found.layers, found.context_limit) == ("GQA", 80, 131072)
    assert (found.num_attention_heads, found.num_key_value_heads, found.head_dim) == (64, 8, 128)
    assert [(group.kind, group.layers) for group in found.groups] == [("full attention", 80)]


def test_llama_2_7b_is_two_gib_at_4096_and_has_no_warning():
    found = row("llama-2-7b", 4096)
    assert (found.total_bytes, found.mha_bytes, found.mha_overcount) == (2 * 2**30, 2 * 2**30, 1.0)
    assert (found.attention, found.warnings) == ("MHA", ())


def test_gemma_3_27b_is_split_by_kind():
    found = row("gemma-3-27b", 32768)
    parts = {group.kind: (group.layers, group.total_bytes) for group in found.groups}
    assert parts == {
        "sliding window": (52, 52 * 2 * 16 * 128 * 1023 * 2),
        "full attention": (10, 10 * 2 * 16 * 128 * 32768 * 2),
    }
    assert sum(size for _, size in parts.values()) == found.total_bytes == 3_120_136_192


def test_a_full_window_adds_nothing_per_token():
    assert row("gemma-3-27b", 512).token_bytes == 62 * 2 * 16 * 128 * 2
    assert row("gemma-3-27b", 1024).token_bytes == 10 * 2 * 16 * 128 * 2


def test_a_recurrent_model_adds_nothing_per_token():
    assert row("falcon-mamba-7b", 4096).token_bytes == 0


@pytest.mark.parametrize(("limit", "per_token"), [(1000, 327_680), (1, 0)])
def test_per_token_where_the_engine_refuses_more(monkeypatch, limit, per_token):
    def limited(model, *, context, **_):
        if context > limit:
            raise EngineRefuses("too long.", "less.")
        return kvsize.size(model, context=context)

    monkeypatch.setattr(report, "size_of", limited)
    model = kvsize.load("llama-3.1-70b")
    held = limited(model, context=limit).total_bytes
    assert report.token_bytes(model, limit, ASK, held) == per_token


def test_heads_that_differ_between_layers_are_null_and_told():
    found = row("gemma-4-26b-a4b", 1024)
    assert (found.num_attention_heads, found.num_key_value_heads, found.head_dim) == (
        16,
        None,
        None,
    )
    assert found.attention_detail == (
        "16 query heads : 8 KV heads, head_dim 256 (25 layers); "
        "16 query heads : 2 KV heads, head_dim 512 (5 layers)"
    )


@pytest.mark.parametrize(
    ("name", "attention", "detail"),
    [
        ("llama-2-7b", "MHA", "32 query heads : 32 KV heads, head_dim 128"),
        ("falcon-7b", "MQA", "71 query heads : 1 KV head, head_dim 64"),
        ("deepseek-v3", "MLA", "128 query heads : one latent of 512 + 64"),
        ("falcon-mamba-7b", "recurrent", ""),
        (
            "qwen3-next-80b-a3b",
            "hybrid GQA + recurrent",
            "16 query heads : 2 KV heads, head_dim 256",
        ),
        (
            "mimo-v2-flash",
            "GQA",
            "64 query heads : 4 KV heads, head_dim 192 (values 128) (9 layers); "
            "64 query heads : 8 KV heads, head_dim 192 (values 128) (39 layers)",
        ),
    ],
)
def test_names_of_attention(name, attention, detail):
    found = row(name, 1024)
    assert (found.attention, found.attention_detail) == (attention, detail)


@pytest.mark.parametrize(
    ("limit", "contexts"),
    [
        (None, (1024, 4096, 16384, 65536)),
        (512, (512,)),
        (1024, (1024,)),
        (2048, (1024, 2048)),
        (131072, (1024, 4096, 16384, 65536, 131072)),
        (10485760, (1024, 4096, 16384, 65536, 262144, 1048576, 10485760)),
    ],
)
def test_default_contexts(limit, contexts):
    assert report.default_contexts(limit) == contexts


@given(st.integers(1, 10**7))
def test_default_contexts_grow_and_end_at_the_limit(limit):
    found = report.default_contexts(limit)
    assert found == tuple(sorted(set(found)))
    assert found[-1] == limit


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_a_batch_is_so_many_sequences(context, sequences):
    found = row("gemma-3-27b", context, sequences)
    assert found.total_bytes == sequences * found.sequence_bytes
    assert found.total_bytes == sum(group.total_bytes for group in found.groups)
    assert found.allocated_bytes >= found.total_bytes


# -- JSON and its schema -----------------------------------------------------------------------
def test_the_schema_is_generated_from_the_type():
    pytest.importorskip("pydantic")
    tools = Path(__file__).resolve().parents[1] / "tools"
    sys.path.insert(0, str(tools))
    try:
        import generate_schema
    finally:
        sys.path.remove(str(tools))
    assert generate_schema.generated() == SCHEMA.read_text(encoding="utf-8")


def test_every_field_is_described():
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    described = schema["$defs"]["Row"]["properties"]
    assert list(described) == list(fields(report.Row))
    assert {name for name in described if "description" not in described[name]} == {
        "tensor_parallel_size",
        "pipeline_parallel_size",
    }


MODELS = ["llama-3.1-70b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", "whisper-large-v3"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", engines())
def test_output_follows_the_schema(capsys, model, engine):
    said = run(capsys, model, "--json", "--ctx", "4k", "--engine", engine)
    if said.code:
        assert (said.out, said.err.count("\n")) == ("", 2)
        return
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = json.loads(said.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    assert list(found["rows"][0]) == list(fields(report.Row))


def test_the_documented_shape(capsys):
    found = json.loads(run(capsys, "llama-3.1-70b", "--ctx", "32k", "--json").out)
    assert found["schema_version"] == 1
    assert found["rows"][0]["warnings"] == [
        {
            "code": "KV001",
            "message": "the MHA formula 2 · layers · heads · head_dim · bytes overcounts this model "
            "8×: 80.00 GiB against 10.00 GiB at 32,768 tokens.",
            "ratio": 8.0,
        }
    ]


def test_the_fullest_rank_is_named_where_ranks_differ(capsys):
    asked = ["llama-3.1-8b", "--ctx", "8k", "--engine", "vllm"]
    assert cli.run([*asked, "--pp", "3"]) == 0
    # 32 layers over 3 stages are 11, 11 and 10: 11 · 2 · 8 · 128 · 2 B · 8,192 tokens.
    assert "  352.00 MiB (rank 0)  " in capsys.readouterr().out
    assert cli.run([*asked, "--tp", "2"]) == 0
    assert "  512.00 MiB  " in capsys.readouterr().out


@pytest.mark.parametrize("engine", engines())
@pytest.mark.parametrize("name", ["deepseek-v4-flash", "glm-5.2", "minimax-m3", "gemma-3-27b"])
def test_the_parts_of_a_split_have_names_of_their_own(name, engine):
    try:
        groups = kvsize.size(kvsize.load(name), context=32768, engine=engine).groups
    except kvsize.KvsizeError:
        pytest.skip(f"{engine} does not run it")
    kinds = [group.kind for group in groups]
    assert len(set(kinds)) == len(kinds)


def test_latent_layers_with_and_without_an_indexer_are_told_apart():
    groups = kvsize.size(kvsize.load("glm-5.2"), context=32768).groups
    assert [(group.layers, group.kind) for group in groups] == [
        (21, "latent (MLA) with indexer"),
        (57, "latent (MLA)"),
    ]
