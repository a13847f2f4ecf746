"""Formats: what they escape, what can be read back, and how a terminal gets its table."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report import ASK

import kvsize
from kvsize import report
from kvsize.commands._asking import look
from kvsize.errors import UsageError
from kvsize.record import as_dict, replace
from kvsize.render import Look, formats, text, writer
from kvsize.render.markdown import escape
from kvsize.units import UNITS

NAMES = ["llama-3.1-70b", "gemma-3-27b"]
FOUND = report.build(map(kvsize.load, NAMES), ASK, (1024, 32768), (1, 2))


def drawn(format_name: str, found: report.Report = FOUND, **look: object) -> str:
    return text(writer(format_name), found, Look(**look))


def test_formats_are_the_modules():
    assert formats() == ["csv", "html", "json", "latex", "markdown", "rst", "table", "tsv"]


def test_an_unknown_format():
    with pytest.raises(UsageError, match=r"^no output format named 'svg'\.$"):
        writer("svg")


def test_json_is_the_report():
    assert json.loads(drawn("json")) == as_dict(FOUND)


def test_csv_reads_back():
    printed = drawn("csv")
    assert printed.count("\r\n") == printed.count("\n") == 1 + len(FOUND.rows)
    read = list(csv.DictReader(io.StringIO(printed, newline="")))
    assert [int(row["total_bytes"]) for row in read] == [row.total_bytes for row in FOUND.rows]
    assert [row["warnings"] for row in read] == [
        ";".join(warning.code for warning in row.warnings) for row in FOUND.rows
    ]
    assert read[-1]["groups"] == ("sliding window:52:871563264;full attention:10:5368709120")
    assert (read[0]["kv_dtype_assumed"], read[0]["revision"]) == ("false", "")


def test_csv_quotes_what_must_be_quoted():
    odd = replace(FOUND.rows[0], model='a "b",\nc')
    printed = drawn("csv", report.Report(1, (odd,)))
    assert next(csv.DictReader(io.StringIO(printed, newline="")))["model"] == 'a "b",\nc'


def test_csv_writes_engine_options():
    odd = replace(FOUND.rows[0], options={"cache": "static", "max_cache_len": "8"})
    read = next(csv.DictReader(io.StringIO(drawn("csv", report.Report(1, (odd,))))))
    assert read["options"] == "cache=static;max_cache_len=8"


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("head_dim", "head_dim"),
        ("_x_ *y* `z`", r"\_x\_ \*y\* \`z\`"),
        ("[a](b) <c> \\", r"\[a\](b) \<c\> \\"),
    ],
)
def test_markdown_escapes(plain, escaped):
    assert escape(plain) == escaped


def test_markdown_keeps_a_name_in_its_cell():
    odd = (replace(FOUND.rows[0], model="a|b"), FOUND.rows[1])
    printed = drawn("markdown", report.Report(1, odd)).splitlines()
    table = [line for line in printed if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in table} == {table[0].count("|")}
    assert r"| a\|b |" in table[2]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("format_name", ["table", "markdown", "html", "latex", "rst"])
def test_a_unit_holds_for_every_figure(format_name, unit):
    body = drawn(format_name, unit=unit).split("warning")[0]
    others = [other for other in UNITS if other not in {unit, "B"}]
    assert [other for other in others if f" {other}" in body] == []
    assert body.count(f" {unit}") >= 3 * len(FOUND.rows)


@pytest.mark.parametrize("format_name", ["csv", "json"])
def test_programs_always_get_bytes(format_name):
    assert drawn(format_name, unit="GiB", width=10, terminal=True) == drawn(format_name)


def test_a_shared_fact_stands_in_the_heading_once():
    printed = drawn("table", width=120)
    assert printed.count("bfloat16") == 1
    assert printed.count("DynamicCache") == 1


def test_facts_that_differ_are_columns():
    mixed = (FOUND.rows[0], replace(FOUND.rows[1], kv_dtype="float16", kv_dtype_assumed=True))
    table = drawn("table", report.Report(1, mixed), width=120).split("\n\n")[1]
    header, *lines = table.splitlines()
    assert re.split(r" {2,}", header) == [
        *("dtype", "context", "batch", "per token", "per sequence", "whole batch", "as MHA")
    ]
    assert [line.split("  ")[0] for line in lines] == ["bfloat16", "float16 (assumed)"]


def test_each_warning_is_given_once_for_its_largest_figure():
    printed = drawn("table", width=1000)
    assert printed.count("warning KV001: llama-3.1-70b: ") == 1
    assert "160.00 GiB against 20.00 GiB at 32,768 tokens." in printed


def test_notes_of_the_engine_are_told():
    noted = replace(FOUND.rows[0], notes=("Blocks of 16 tokens.",))
    assert "\nnote: Blocks of 16 tokens.\n" in drawn("table", report.Report(1, (noted,)))


@given(st.integers(1, 200))
def test_lines_have_no_trailing_spaces(width):
    assert [
        line for line in drawn("table", width=width).splitlines() if line != line.rstrip()
    ] == []


# -- on a terminal -----------------------------------------------------------------------------
@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("_terminal")
def test_a_terminal_gets_styles():
    assert "\x1b[1;32m" in drawn("table", terminal=True)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("name", "value", "styles"),
    [
        ("NO_COLOR", "1", False),
        ("NO_COLOR", "", True),  # https://no-color.org: "when present and not an empty string"
        ("TERM", "dumb", False),
        ("TERM", "xterm", True),
    ],
)
def test_what_a_terminal_says_of_styles(monkeypatch, name, value, styles):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv(name, value)
    assert look("", "").terminal is styles
    assert look("", "a-file").terminal is False


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_never_cuts_a_figure(monkeypatch, width):
    monkeypatch.setenv("TERM", "dumb")
    long = replace(FOUND.rows[0], model="organisation/a-model-with-a-very-long-name-indeed")
    found = report.Report(1, (long, *FOUND.rows[1:]))
    printed = drawn("table", found, width=width, terminal=True)
    assert "…" not in printed
    if width >= 80:
        assert max(map(len, printed.splitlines())) <= width
    for row in FOUND.rows:
        assert f"{row.context:,}" in printed


@pytest.mark.parametrize(
    ("settings", "styles"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_real_terminal(settings, styles):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kvsize", "llama-3.1-70b", "--ctx", "32k"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    env |= settings
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False, env=env)
    os.close(theirs)
    printed = os.read(ours, 100_000).decode()
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")
    assert ("\x1b[1;32m" in printed) is styles
    assert ("\x1b" in printed) is styles
    assert "10.00 GiB" in printed
