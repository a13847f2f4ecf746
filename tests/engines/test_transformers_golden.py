"""What the real caches of transformers held, for every model type it can build.

Each line of golden/transformers.jsonl states a small config (the keys that decide its cache), what
was fed through the model, and the bytes that its DynamicCache or StaticCache then held: measured
with the transformers version it names, on CPU. No figure in it comes from kvsize.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvsize

GOLDEN = Path(__file__).parents[1] / "golden" / "transformers.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def name(row: dict[str, Any]) -> str:
    variant = f":{row['variant']}" if row["variant"] else ""
    return f"{row['model_type']}{variant}-{row['cache']}-{row['transformers']}"


def sized(row: dict[str, Any], context: int) -> kvsize.Size:
    options = {"cache": row["cache"]}
    options |= {key: row[key] for key in ("max_cache_len", "encoder_tokens") if key in row}
    return kvsize.size(
        kvsize.load(row["config"]),
        context=context,
        sequences=row["sequences"],
        kv_dtype=row["dtype"],
        engine_version=row["transformers"],
        options=options,
    )


def test_the_rows_cover_every_model_type() -> None:
    assert len(ROWS) == 951
    assert len({row["model_type"] for row in ROWS if row["transformers"] == "5.24.0"}) == 305


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_every_layer_holds_what_the_real_cache_held(row: dict[str, Any]) -> None:
    found = sized(row, row["prompt"] + row["new"])
    assert list(found.layer_bytes) == row["layer_bytes"]
    assert found.total_bytes == sum(row["layer_bytes"])
    assert found.allocated_bytes == row["allocated_bytes"]
    if "prefill_bytes" in row:
        assert sized(row, row["prompt"]).prefill_bytes == row["prefill_bytes"]
