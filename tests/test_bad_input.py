"""The command on bad input: two lines on stderr, nothing on stdout, an exit code for each kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import serving

from kvsize.cli import run

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contents = {
        "good.json": LLAMA,
        "heads.json": {**LLAMA, "num_key_value_heads": 3},
        "nan.json": {**LLAMA, "head_dim": float("nan")},
        "list.json": [],
        "tokenizer/tokenizer.json": {},
        "adapter/adapter_config.json": {"base_model_name_or_path": "org/base"},
        "gguf/m-Q8_0.gguf": {},
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "syntax.json").write_text('{"a" 1}', encoding="utf-8")
    (tmp_path / "empty").mkdir()


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        (["no-such-preset-x"], 2, "no preset named 'no-such-preset-x'.", None),
        ([""], 2, "the model's name is empty.", None),
        (
            ["list.json"],
            3,
            "list.json: the JSON is a list, not an object.",
            "give the config.json of a model.",
        ),
        (
            ["syntax.json"],
            3,
            "syntax.json: not JSON at line 1, column 6: expecting ':' delimiter.",
            "correct the file there, or fetch the published config.json again.",
        ),
        (
            ["heads.json"],
            3,
            "heads.json: `num_key_value_heads` 3 does not divide `num_attention_heads` 4.",
            "the file contradicts itself; correct it, or use the published one.",
        ),
        (
            ["nan.json"],
            3,
            "nan.json: `head_dim` is NaN, and must be a whole number.",
            "correct the file, or fetch the published config.json again.",
        ),
        (["./empty"], 3, "./empty is empty.", "give a folder that holds a model's config.json."),
        (
            ["./tokenizer"],
            3,
            "./tokenizer has no config.json: it holds a tokenizer only.",
            "name the model that the tokenizer belongs to.",
        ),
        (
            ["./adapter"],
            3,
            "./adapter has no config.json: it holds an adapter.",
            "the cache is its base model's: `kvsize org/base`.",
        ),
        (
            ["./gguf"],
            3,
            "./gguf has no config.json: it holds GGUF files, m-Q8_0.gguf.",
            "name one of them: `kvsize ./gguf/m-Q8_0.gguf`.",
        ),
        # One model that cannot be read is one too many: no half of a table is printed.
        (
            ["llama-3.1-70b", "good.json", "list.json", "--format", "json"],
            3,
            "list.json: the JSON is a list, not an object.",
            "give the config.json of a model.",
        ),
    ],
)
def test_two_lines_and_an_exit_code(
    arguments: list[str],
    code: int,
    error: str,
    hint: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*arguments, "--ctx", "1k"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first == f"error: {error}"
    assert second == f"hint: {hint}" if hint else second.startswith("hint: ")


def test_the_hub_says_no(tmp_path: Path) -> None:
    with serving() as hub:
        hub.add("acme/foo", {"config.json": LLAMA})
        hub.gated.add("acme/foo")
        done = subprocess.run(
            [sys.executable, "-m", "kvsize", "acme/foo", "--ctx", "1k"],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "HF_HOME": str(tmp_path / "hf"),
                "HF_ENDPOINT": hub.url,
            },
        )
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr == (
        "error: acme/foo is gated, and no access token was sent.\n"
        f"hint: accept its licence at {hub.url}/acme/foo, then log in with `hf auth login`, "
        "or set HF_TOKEN.\n"
    )
