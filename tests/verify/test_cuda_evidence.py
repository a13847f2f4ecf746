"""The script that gathers evidence on a GPU, run on a fake one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]
SPARE = 512 * 2**20


def run(out: Path, *arguments: str, free: int = 2**40) -> int:
    from fake_gpu import FakeGpu

    from tools import cuda_evidence

    gpu = FakeGpu(free)
    with gpu:
        return cuda_evidence.main([*arguments, "--out", str(out)], gpu)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_every_case_is_asked_for_once() -> None:
    from tools.cuda_evidence import MODELS, cases

    found = cases(MODELS)
    assert len(found) == len(set(found)) == 8 * 2 * (2 * 3 + 1)
    assert {(case.batch, case.context) for case in found if case.steps == 8} == {
        (batch, context) for batch in (1, 4) for context in (1024, 8192, 32768)
    }
    assert {case.context for case in found if case.steps == 512} == {8192}


def test_evidence_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(tmp_path, "--models", "qwen3-next-80b", "falcon-7b", "--contexts", "1024")
    captured = capsys.readouterr()
    assert code == 0
    header, _, *lines = rows(captured.out)
    assert header[-1] == "verdict"
    assert [(line[0], line[1], line[2], line[-1]) for line in lines] == [
        (model, cache, batch, "exact")
        for model in ("qwen3-next-80b", "falcon-7b")
        for cache in ("dynamic", "static")
        for batch in ("1", "4")
    ]
    kept: dict[str, Any] = json.loads((tmp_path / "falcon-7b.json").read_text(encoding="utf-8"))
    assert kept["model"] == "falcon-7b"
    assert [case["evidence"]["verdict"] for case in kept["cases"]] == ["exact"] * 4
    figures = kept["cases"][0]["evidence"]["figures"]
    assert figures["requested_bytes"] == figures["predicted_requested_bytes"]
    assert kept["cases"][0]["evidence"]["device"]["name"] == "fake"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "falcon-7b.json",
        "qwen3-next-80b.json",
    ]


def test_what_is_not_measured_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ("--models", "falcon-7b", "--contexts", "1024")
    assert run(tmp_path, *one, "--seconds", "0") == 1
    told = rows(capsys.readouterr().out)[2:]
    assert [line[-1] for line in told] == ["not run: the 0 s were spent"] * 4
    assert run(tmp_path, *one, free=SPARE + 2**21) == 0
    told = rows(capsys.readouterr().out)[2:]
    assert told[-1][-1].startswith("refused: one layer needs ")
    assert run(tmp_path, *one, "--each", "0.0001") == 1
    told = rows(capsys.readouterr().out)[2:]
    assert {line[-1] for line in told} == {"not finished in 0 s"}
    kept = json.loads((tmp_path / "falcon-7b.json").read_text(encoding="utf-8"))
    assert kept["cases"][0]["not_measured"] == "not finished in 0 s"


def test_a_part_is_told_by_its_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(tmp_path, "--models", "llama-3.1-8b", "--contexts", "1024", free=SPARE + 60 * 2**20)
    assert code == 0
    layers = [line[5] for line in rows(capsys.readouterr().out)[2:]]
    assert layers[0] == "9 of 32"
    assert len(layers) == 4


def test_evidence_of_other_devices_stays_out_of_the_docs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tools import cuda_evidence

    with pytest.raises(SystemExit, match="2"):
        cuda_evidence.main(["--device", "meta"])
    assert "give --out for another device" in capsys.readouterr().err
