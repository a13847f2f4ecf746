"""All reference rows of transformers, where they lie beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvsize

FOLDER = Path(__file__).resolve().parents[3] / "shared"
FILES = ("transformers", "transformers_5.13.1", "transformers_4.57.6")
# A static cache of Unlimited-OCR depends on how many of the tokens were the prompt.
PROMPT_MATTERS = {("unlimited_ocr", "static")}

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no reference rows beside this checkout"
)


def rows(name: str) -> list[dict[str, Any]]:
    text = (FOLDER / "oracles" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def wrong(row: dict[str, Any], run: dict[str, Any], model: kvsize.Model) -> bool:
    options = {"cache": row["cache"]}
    options |= {key: run[key] for key in ("max_cache_len", "encoder_tokens") if run.get(key)}
    if (row["model_type"], row["cache"]) in PROMPT_MATTERS:
        options["prompt"] = run["prompt"]
    found = kvsize.size(
        model,
        context=run["prompt"] + run["new"],
        sequences=run["batch"],
        kv_dtype=run["dtype"],
        engine_version=row["transformers"],
        options=options,
    )
    held = run["decode"]
    got = (list(found.layer_bytes), found.total_bytes, found.allocated_bytes)
    return got != (held["layer_bytes"], held["total_bytes"], held["storage_bytes"])


@pytest.mark.parametrize("name", FILES)
def test_toy_models(name: str) -> None:
    differ = [
        f"{row['model_type']}:{row['variant']} {row['cache']} {run['dtype']} B{run['batch']}"
        for row in rows(name)
        for model in (kvsize.load(row["config"]),)
        for run in row["runs"]
        if wrong(row, run, model)
    ]
    assert differ == []


def test_published_configs() -> None:
    differ = []
    for row in rows("transformers_real"):
        model = kvsize.load(FOLDER / "configs" / row["config_file"])
        for context, batches in row["dynamic"].items():
            for batch, expected in batches.items():
                found = kvsize.size(
                    model, context=int(context), sequences=int(batch), kv_dtype="bfloat16"
                )
                if any(getattr(found, key) != value for key, value in expected.items()):
                    differ.append(f"{row['hub_id']} {context}x{batch}")
    assert differ == []
