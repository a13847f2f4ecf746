"""What each format prints, whole: `pytest tests/test_snapshots.py --update` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import program

FOLDER = Path(__file__).parent / "snapshots"
ONE = ["gemma-3-27b", "--ctx", "32k", "--batch", "1,16"]
SEVERAL = ["llama-3.1-70b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", "--ctx", "8k,128k"]
CASES = {
    "one.txt": (*ONE, "--format", "table"),
    "one.md": (*ONE, "--format", "markdown"),
    "one.csv": (*ONE, "--format", "csv"),
    "one.json": (*ONE, "--format", "json"),
    "several.txt": (*SEVERAL, "--format", "table"),
    "several.md": (*SEVERAL, "--format", "markdown"),
    "several.csv": (*SEVERAL, "--format", "csv"),
    "static.txt": ("gemma-3-27b", "--ctx", "32k", "--cache", "static", "--unit", "MiB"),
    "split.txt": ("llama-3.1-70b", "--ctx", "32k", "--tp", "8", "--kv-dtype", "float32"),
    "explain.txt": ("explain", "deepseek-v3", "--ctx", "32k"),
    "explain.md": ("explain", "deepseek-v3", "--ctx", "32k", "--format", "markdown"),
    "explain.json": ("explain", "deepseek-v3", "--ctx", "32k", "--json"),
}


@pytest.mark.parametrize("name", CASES)
def test_snapshot(name, request):
    said = program(*CASES[name])
    assert (said.code, said.err) == (0, "")
    file = FOLDER / name
    if request.config.getoption("--update"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(said.out, encoding="utf-8", newline="")
    with file.open(encoding="utf-8", newline="") as stored:
        assert said.out == stored.read()


def test_every_snapshot_is_compared():
    assert {file.name for file in FOLDER.iterdir()} == set(CASES)


def test_output_does_not_depend_on_the_terminal():
    wanted = (FOLDER / "one.txt").read_text(encoding="utf-8")
    assert program(*ONE, TERM="xterm-256color", NO_COLOR="", COLORTERM="truecolor").out == wanted


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_sentences_are_as_wide_as_columns_says(width):
    lines = program(*ONE, COLUMNS=width).out.splitlines()
    remarks = lines[[line.startswith("warning ") for line in lines].index(True) :]
    assert max(map(len, remarks)) <= int(width)
