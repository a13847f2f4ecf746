"""Every reference row of vLLM's own code, where the reference files lie beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kvsize

SHARED = Path(__file__).resolve().parents[3] / "shared"
ROWS = SHARED / "oracles" / "vllm.jsonl"
# Settings of these rows that their engine arguments do not carry: environment and usage.
UNSTATED: dict[str, dict[str, object]] = {
    "F22": {"usage_context": "llm"},
    "K01": {"VLLM_KV_CACHE_LAYOUT": "BLHNC"},
    "K03": {"VLLM_KV_CACHE_LAYOUT": "BLHNC"},
    "K04": {"VLLM_MLA_DISABLE": True},
    "K05": {"VLLM_PP_LAYER_PARTITION": "10,22"},
    "K06": {"VLLM_PP_LAYER_PARTITION": "30,32"},
}


def _rows() -> Iterator[dict[str, Any]]:
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _source(row: dict[str, Any]) -> Any:
    return row["config"] if "config" in row else SHARED / "configs" / row["config_file"]


def _expected(row: dict[str, Any]) -> object:
    expected = row["expected"]
    if expected.get("refused"):
        return "refused"
    return (
        expected["num_gpu_blocks"],
        max(expected["bytes_per_block"]),
        expected["kv_cache_size_tokens"],
        round(expected["max_concurrency"], 6),
    )


def _found(row: dict[str, Any]) -> object:
    args = dict(row["engine_args"])
    resolved = row["expected"].get("resolved", {})
    context = args.pop("max_model_len", None) or resolved.get("max_model_len_final")
    known = {
        "tensor_parallel_size": args.pop("tensor_parallel_size", 1),
        "pipeline_parallel_size": args.pop("pipeline_parallel_size", 1),
        "kv_dtype": args.pop("kv_cache_dtype", "auto"),
    }
    options = {**args, "gpu": row["gpu"], **UNSTATED.get(row["name"].split()[0], {})}
    try:
        fit = kvsize.fit(
            kvsize.load(_source(row)),
            engine="vllm",
            engine_version=row["vllm"],
            context=context,
            kv_memory=row["available_bytes"],
            options=options,
            **known,
        )
    except kvsize.EngineRefuses:
        return "refused"
    return fit.blocks, fit.block_bytes, fit.tokens, round(fit.concurrency, 6)


@pytest.mark.skipif(not ROWS.exists(), reason="the reference rows are not beside this checkout")
def test_agrees_with_every_reference_row() -> None:
    wrong = {
        row["name"]: (found, expected)
        for row in _rows()
        if (found := _found(row)) != (expected := _expected(row))
    }
    assert wrong == {}
