"""Every public reference row that llama.cpp's own code produced, cache by cache."""

import json
from pathlib import Path

import pytest

import kvsize
from tests.gguf_files import write

ROWS = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "llama_cpp.jsonl"
FLASH_ATTN = {-1: "auto", 0: "off", 1: "on"}
FIGURES = {"tag": "cache", "n_stream": "streams", "n_layers": "layers"}


def rows():
    if not ROWS.is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason="no ../shared/oracles here"))]
    lines = ROWS.read_text(encoding="utf-8").splitlines()
    return [pytest.param(row, id=row["model"]) for row in map(json.loads, lines)]


@pytest.mark.parametrize("row", rows())
def test_rows_agree(row, tmp_path):
    model = kvsize.load(write(tmp_path / "model.gguf", row["metadata"]))
    for case in row["cases"]:
        options = dict(case["params"])
        context = options.pop("n_ctx")
        options["flash_attn"] = FLASH_ATTN[options["flash_attn"]]
        options["swa_full"] = bool(options["swa_full"])
        options["kv_unified"] = bool(options["kv_unified"])
        try:
            found = kvsize.size(model, context=context, engine="llama.cpp", options=options)
        except kvsize.EngineRefuses:
            assert case["expected"] == {"refused": True}
            continue
        assert found.total_bytes == case["expected"]["total_bytes"]
        assert found.details["n_ctx"] == case["expected"]["n_ctx"]
        got = found.details["caches"]
        for cache, expected in zip(got, case["expected"]["caches"], strict=True):
            stated = {FIGURES.get(key, key): figure for key, figure in expected.items()}
            assert {key: cache[key] for key in stated} == stated
