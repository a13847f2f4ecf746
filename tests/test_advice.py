"""Each warning: when it is given, when it is silent, and its exact words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reference import FOLDER
from test_report import ASK

import kvsize
from kvsize import report
from kvsize.advice import ADVICE, refuse_guesses, times
from kvsize.errors import GuessRefused

if TYPE_CHECKING:
    from kvsize.advice import Advice

PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
VIBEVOICE = {
    "model_type": "vibevoice",
    "decoder_config": {**PLAIN, "model_type": "qwen2", "num_key_value_heads": 4},
}
CODES = sorted(ADVICE)


def advised(source: str | dict[str, Any], context: int = 1024, **ask: Any) -> dict[str, Advice]:
    """The warnings about a figure, by code."""
    found = report.build([kvsize.load(source)], {**ASK, **ask}, (context,)).rows[0]
    assert len({warning.code for warning in found.warnings}) == len(found.warnings)
    return {warning.code: warning for warning in found.warnings}


def message(source: str | dict[str, Any], code: str, context: int = 1024, **ask: Any) -> str:
    return advised(source, context, **ask)[code].message


def test_a_plain_mha_model_has_no_warning():
    assert advised(PLAIN) == {}
    assert advised("llama-2-7b", 4096) == {}


# -- KV001 -------------------------------------------------------------------------------------
def test_kv001_gqa():
    assert advised("llama-3.1-70b", 32768)["KV001"] == report.Advice(
        "KV001",
        "the MHA formula 2 · layers · heads · head_dim · bytes overcounts this model 8×: "
        "80.00 GiB against 10.00 GiB at 32,768 tokens.",
        8.0,
    )


def test_kv001_undercounts_cross_attention():
    found = advised("bart-large", 1024)["KV001"]
    assert found.ratio == 0.5
    assert found.message == (
        "the MHA formula 2 · layers · heads · head_dim · bytes undercounts this model: "
        "48.00 MiB against 96.00 MiB at 1,024 tokens."
    )


def test_kv001_is_silent_without_attention():
    assert "KV001" not in advised("falcon-mamba-7b")
    assert report.build([kvsize.load("falcon-mamba-7b")], ASK).rows[0].mha_bytes is None


def test_kv001_is_silent_for_a_dtype_that_packs_blocks():
    assert advised("llama-3.1-70b", engine="llama.cpp", kv_dtype="q8_0") == {}


def test_kv001_takes_the_dtype_of_the_figure():
    assert advised("llama-3.1-70b", kv_dtype="float32")["KV001"].ratio == 8.0


def reference_ratios() -> list[Any]:
    path = FOLDER / "transformers_real.jsonl"
    if not path.exists():
        return [
            pytest.param(None, marks=pytest.mark.skip("no reference rows beside this checkout"))
        ]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row["hub_id"]) for row in rows]


@pytest.mark.parametrize("row", reference_ratios())
def test_kv001_is_the_reference_ratio(row):
    model = kvsize.load(str(FOLDER.parent / "configs" / row["config_file"]))
    found = report.build([model], {**ASK, "kv_dtype": "bfloat16"}, (32768,)).rows[0]
    assert found.mha_overcount == row["mha_overcount_at_32768"]


@pytest.mark.parametrize(
    ("ratio", "text"), [(8.0, "8×"), (24.8889, "24.89×"), (1582.5947, "1,582.59×"), (100.0, "100×")]
)
def test_factors_as_text(ratio, text):
    assert times(ratio) == text


# -- KV002 -------------------------------------------------------------------------------------
def test_kv002_a_head_dim_of_its_own():
    stated = {**PLAIN, "head_dim": 32}
    assert message(stated, "KV002") == (
        "head_dim is 32, not hidden_size / num_attention_heads = 16."
    )


def test_kv002_a_quotient_that_is_no_whole_number():
    assert message({**PLAIN, "hidden_size": 66, "head_dim": 16}, "KV002") == (
        "head_dim is 16, not hidden_size / num_attention_heads = 16.5."
    )


def test_kv002_two_widths():
    assert message("gemma-4-26b-a4b", "KV002") == (
        "head_dim is 256 and 512, not hidden_size / num_attention_heads = 176."
    )


def test_kv002_is_silent_for_a_latent():
    assert "KV002" not in advised("deepseek-v3")


# -- KV003 -------------------------------------------------------------------------------------
def test_kv003_windows():
    found = advised("gemma-3-27b", 32768)["KV003"]
    assert found.ratio == 5.3341
    assert found.message == (
        "52 of 62 layers look back 1,024 tokens at most; counting them in full gives 15.50 GiB, "
        "5.33× this figure."
    )


def test_kv003_chunks():
    assert message("llama-4-scout", "KV003", 32768) == (
        "36 of 48 layers look back 8,192 tokens at most; counting them in full gives 6.00 GiB, "
        "2.29× this figure."
    )


def test_kv003_windows_of_hybrid_layers_and_latents():
    layers = ["hybrid_sliding", "hybrid"]
    zaya = {
        **PLAIN,
        "model_type": "zaya",
        "layer_types": layers,
        "sliding_window": 16,
        "num_key_value_heads": 2,
        "cca_time0": 2,
        "cca_time1": 2,
    }
    assert message(zaya, "KV003").startswith("1 of 2 layers look back 16 tokens at most; ")


def test_kv003_is_silent_for_a_dtype_that_packs_blocks():
    assert "KV003" not in advised("gemma-3-27b", 32768, engine="llama.cpp", kv_dtype="q8_0")


def test_kv003_is_silent_within_the_window():
    assert "KV003" not in advised("gemma-3-27b", 1023)
    assert "KV003" not in advised("gemma-3-27b", 1024)  # one token more is no shortcut's fault
    assert "KV003" in advised("gemma-3-27b", 1100)
    assert "KV003" not in advised("gemma-3-27b", 1024, options={"cache": "static"})


# -- KV004 -------------------------------------------------------------------------------------
def test_kv004_a_latent():
    found = advised("deepseek-v3", 32768)["KV004"]
    assert found.ratio == 71.1111
    assert found.message == (
        "one latent of 512 + 64 serves all 128 heads; keys and values for each head would take "
        "152.50 GiB, 71.11× this figure."
    )


def test_kv004_is_silent_where_the_engine_expands_the_latent():
    assert "KV004" not in advised("deepseek-v3", 32768, engine_version="5.13.1")


# -- KV005 -------------------------------------------------------------------------------------
def test_kv005_beyond_the_limit():
    assert message(PLAIN, "KV005", 4097) == "4,097 tokens are beyond the model's limit of 4,096."
    assert "KV005" not in advised(PLAIN, 4096)


# -- KV006 and KV008: guesses ------------------------------------------------------------------
def test_kv006_no_dtype():
    without = {key: value for key, value in PLAIN.items() if key != "torch_dtype"}
    assert message(without, "KV006") == "the config states no dtype; bfloat16 is assumed."
    assert "KV006" not in advised(without, kv_dtype="bfloat16")
    found = report.build([kvsize.load(without)], ASK).rows[0]
    assert found.kv_dtype_assumed is True


def test_kv008_an_unknown_model_type():
    assert message({**PLAIN, "model_type": "frob"}, "KV008") == (
        "model type 'frob' is not one kvsize knows; sized by the generic rule."
    )


def test_strict_refuses_every_guess():
    for source, code in (
        ({**PLAIN, "model_type": "frob"}, "KV008"),
        (VIBEVOICE, "KV010"),
    ):
        with pytest.raises(GuessRefused, match=rf"^the mapping: {code}: "):
            refuse_guesses(kvsize.load(source), {**ASK, "kv_dtype": "bfloat16"})


# -- KV007 -------------------------------------------------------------------------------------
def test_kv007_class_defaults():
    gemma = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 2, "hidden_size": 64}}
    assert message({**gemma, "torch_dtype": "bfloat16"}, "KV007") == (
        "not in config.json, so as in Gemma3TextConfig: num_attention_heads 8, "
        "num_key_value_heads 4, head_dim 256, sliding_window 4096."
    )


def test_kv007_is_silent_about_windows_that_are_off():
    qwen = {**PLAIN, "model_type": "qwen3", "num_key_value_heads": 4, "head_dim": 16}
    assert advised(qwen) == {}


def test_kv007_is_silent_about_context_limits():
    without = {key: value for key, value in PLAIN.items() if key != "max_position_embeddings"}
    assert advised(without) == {}


# -- KV009 -------------------------------------------------------------------------------------
def test_kv009_a_prompt_longer_than_the_window():
    assert message("gemma-3-27b", "KV009", 32768) == (
        "after a prompt of 32,768 tokens the storage holds 15.50 GiB, 5.33× this figure, until "
        "the next token is added."
    )
    assert "KV009" not in advised("gemma-3-27b", 1024)
    assert "KV009" not in advised("gemma-3-27b", 32768, options={"cache": "static"})


# -- KV010 -------------------------------------------------------------------------------------
def test_kv010_a_file_the_loader_misreads():
    assert message(VIBEVOICE, "KV010") == (
        "transformers' class for 'vibevoice' does not read `decoder_config`, where this file "
        "describes its decoder; the figure follows the file."
    )


# -- all of them -------------------------------------------------------------------------------
@pytest.mark.parametrize("code", CODES)
def test_each_code_is_one_function_that_names_it(code):
    assert (ADVICE[code].__doc__ or "").startswith(f"{code}: ")


@pytest.mark.parametrize("code", CODES)
def test_each_code_is_documented(code):
    text = (Path(__file__).resolve().parents[1] / "docs" / "warnings.md").read_text("utf-8")
    assert f"\n## {code}: " in text
