"""`--columns`: names, order, what each says, and the table that stands alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from command import run
from test_report import ASK

import kvsize
from kvsize import report
from kvsize.errors import UsageError
from kvsize.record import fields, replace
from kvsize.render import Look, formats, text, writer
from kvsize.render._columns import COLUMNS, chosen

PEOPLE = ["html", "latex", "markdown", "rst", "table"]
LEFT_OUT = {"details", "notes", "other_engines"}
FOUND = report.build(map(kvsize.load, ["llama-3.1-70b", "gemma-3-27b"]), ASK, (32768,), (2,))


def cells(names: str, row: report.Row = FOUND.rows[0], unit: str | None = None) -> list[str]:
    return [column.text(row, unit) for column in chosen(names)]


def drawn(format_name: str, names: str, **look: object) -> str:
    return text(writer(format_name), FOUND, Look(columns=chosen(names), **look))


def test_every_field_that_fits_a_cell_has_a_column():
    assert {column.field for column in COLUMNS} - {""} == set(fields(report.Row)) - LEFT_OUT
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)


def test_no_name_means_two_columns():
    named = {column.name: column for column in COLUMNS}
    for column in COLUMNS:
        field = column.field.replace("_", "-")
        assert field not in named or named[field] is column


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model", "llama-3.1-70b"),
        ("hub-id", "meta-llama/Llama-3.1-70B"),
        ("attention", "GQA 64:8"),
        ("attention-detail", "64 query heads : 8 KV heads, head_dim 128"),
        ("heads", "64"),
        ("kv-heads", "8"),
        ("head-dim", "128"),
        ("layers", "80"),
        ("engine", "transformers 5.24.0"),
        ("engine-version", "5.24.0"),
        ("cache", "DynamicCache"),
        ("setup", "transformers 5.24.0 DynamicCache"),
        ("dtype", "bfloat16"),
        ("dtype-assumed", "no"),
        ("context", "32,768"),
        ("batch", "2"),
        ("token", "320.00 KiB"),
        ("sequence", "10.00 GiB"),
        ("total", "20.00 GiB"),
        ("allocated", "20.00 GiB"),
        ("prefill", "20.00 GiB"),
        ("rank", "20.00 GiB"),
        ("mha", "160.00 GiB"),
        ("mha-overcount", "8×"),
        ("groups", "80 × full attention 20.00 GiB"),
        ("context-limit", "131,072"),
        ("model-type", "llama"),
        ("source", "preset"),
        ("revision", ""),
        ("options", ""),
        ("parallel", ""),
        ("tp", "1"),
        ("pp", "1"),
        ("warnings", "KV001"),
    ],
)
def test_what_a_column_says(name, said):
    assert cells(name) == [said]


def test_what_is_not_known_is_empty():
    bare = replace(FOUND.rows[0], mha_bytes=None, mha_overcount=None, num_key_value_heads=None)
    assert cells("mha,mha-overcount,kv-heads", bare) == ["", "", ""]


def test_engine_options_are_told():
    odd = replace(FOUND.rows[0], options={"cache": "static", "max_cache_len": "8"})
    assert cells("cache,options", odd) == [
        "DynamicCache, max_cache_len 8",
        "cache static, max_cache_len 8",
    ]


@pytest.mark.parametrize(
    "names", ["total,kv-heads", "total_bytes,num_key_value_heads", " TOTAL , kv_heads "]
)
def test_spellings(names):
    assert [column.name for column in chosen(names)] == ["total", "kv-heads"]


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        ("model,modle", "no column named 'modle'.", "did you mean model"),
        ("kv-head", "no column named 'kv-head'.", "did you mean kv-heads"),
        ("xyzzy", "no column named 'xyzzy'.", "the columns are auto, model, "),
        (",", "no column named ''.", "the columns are auto, model, "),
        ("model,auto", "no column named 'auto'.", "the columns are auto, model, "),
        ("total,total_bytes", "the column 'total' is chosen twice.", "name each column once."),
    ],
)
def test_names_that_are_none(names, message, hint):
    with pytest.raises(UsageError) as raised:
        chosen(names)
    assert raised.value.message == message
    assert raised.value.hint.startswith(hint)


def test_a_wrong_name_is_told_before_anything_is_loaded(capsys):
    said = run(capsys, "no-such-model", "--columns", "nope")
    assert (said.code, said.err.splitlines()[0]) == (2, "error: no column named 'nope'.")


# -- the table alone ---------------------------------------------------------------------------
def test_chosen_and_ordered():
    assert drawn("table", "total,model,kv-heads") == (
        "whole batch  model          KV heads\n"
        "  20.00 GiB  llama-3.1-70b         8\n"
        "   5.81 GiB  gemma-3-27b          16\n"
    )
    assert drawn("markdown", "total,model") == (
        "| whole batch | model |\n"
        "| ---: | :--- |\n"
        "| 20.00 GiB | llama-3.1-70b |\n"
        "| 5.81 GiB | gemma-3-27b |\n"
    )


def test_a_terminal_gets_the_same_columns(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    printed = drawn("table", "model,kv-heads", terminal=True)
    assert printed.count("\n") == 4
    assert "llama-3.1-70b" in printed
    assert "bfloat16" not in printed


@pytest.mark.parametrize("format_name", PEOPLE)
def test_nothing_but_the_table(format_name):
    printed = drawn(format_name, "model,total")
    for left_out in ("KV001", "bfloat16", "sliding window", "in other engines"):
        assert left_out not in printed


def test_auto_is_the_model_what_differs_and_the_figures():
    assert drawn("markdown", "auto").splitlines()[0] == (
        "| model | attention | context | batch | per token | per sequence | whole batch | as MHA |"
    )
    assert drawn("markdown", "auto").count("\n") == 4


def test_columns_of_data(capsys):
    said = run(
        capsys, "llama-3.1-70b", "--ctx", "32k", "--format", "csv", "--columns", "total,model,setup"
    )
    assert list(csv.reader(io.StringIO(said.out))) == [
        ["total_bytes", "model", "setup"],
        ["10737418240", "llama-3.1-70b", "transformers 5.24.0 DynamicCache"],
    ]


def test_json_has_no_columns(capsys):
    said = run(capsys, "llama-3.1-70b", "--json", "--columns", "model")
    assert (said.code, said.out, said.err.splitlines()[0]) == (
        *(2, ""),
        "error: JSON has every field, and no columns to choose.",
    )


@pytest.mark.parametrize("format_name", set(formats()) - {"json"})
def test_every_column_in_every_format(format_name):
    names = ",".join(column.name for column in COLUMNS)
    assert "llama-3.1-70b" in drawn(format_name, names)


def test_every_column_is_documented():
    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text("utf-8")
    assert [column.name for column in COLUMNS if f"`{column.name}`" not in page] == []


def test_rows_that_would_look_alike_are_told_apart(capsys):
    asked = ("llama-3.1-8b", "--ctx", "8k,32k", "--batch", "1,2", "--columns", "model,total")
    assert run(capsys, *asked).out.splitlines() == [
        "model         context  batch  whole batch",
        "llama-3.1-8b    8,192      1     1.00 GiB",
        "llama-3.1-8b    8,192      2     2.00 GiB",
        "llama-3.1-8b   32,768      1     4.00 GiB",
        "llama-3.1-8b   32,768      2     8.00 GiB",
    ]
    assert run(capsys, *asked, "--format", "csv").out.splitlines()[0] == "model,total_bytes"
