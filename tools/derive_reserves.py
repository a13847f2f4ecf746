"""Derive low, best and high runtime reserves from the public measurements beside them.

Usage: python tools/derive_reserves.py [--check]

Reads `measurements` of kvsize/data/runtime_reserve.json and writes its `reserves`. A measurement
gives one reserve, in the words of its log:

    driver            total_gib - cuda_total_gib
    runtime (vllm)    base_gib * fraction - weights_gib - available_gib
    others            total_gib - weights_gib - free_gib

Per kind of reserve, best is the median, low four fifths of the smallest and high five fourths of
the largest: a handful of figures does not show the extremes. vLLM's are kept apart at 70 GiB of
GPU memory, where its default step grows from 2,048 to 8,192 tokens.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "kvsize/data/runtime_reserve.json"
SPLIT_GIB = 70
GIB = 2**30


def reserve_bytes(row: dict[str, Any]) -> int:
    """What one measurement leaves unexplained, in bytes."""

    def gib(key: str) -> Decimal:
        return Decimal(str(row.get(key, 0)))

    if row["of"] == "driver":
        left = gib("total_gib") - gib("cuda_total_gib")
    elif "base_gib" in row:
        left = gib("base_gib") * gib("fraction") - gib("weights_gib") - gib("available_gib")
    else:
        left = gib("total_gib") - gib("weights_gib") - gib("free_gib")
    return int(left * GIB)


def split(row: dict[str, Any]) -> int:
    """The least GPU memory, in GiB, of the class a measurement belongs to."""
    large = row["of"] == "runtime" and "base_gib" in row and row["base_gib"] >= SPLIT_GIB
    return SPLIT_GIB if large else 0


def derived(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One reserve per engine, kind and class of GPU."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["engine"], row["of"], split(row)), []).append(row)
    return [summary(*key, members) for key, members in groups.items()]


def summary(engine: str, of: str, least_gib: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    values = sorted(reserve_bytes(row) for row in rows)
    middle = len(values) // 2
    best = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
    return {
        "engine": engine,
        "of": of,
        "least_gpu_gib": least_gib,
        "low_bytes": values[0] * 4 // 5,
        "best_bytes": best,
        "high_bytes": values[-1] * 5 // 4,
        "measurements": len(rows),
        "sources": sorted({row["source"] for row in rows}),
    }


def text(data: dict[str, Any]) -> str:
    """The file: one measurement a line, so that a new one is one line of a diff."""
    lines = ",\n".join(json.dumps(row) for row in data["measurements"])
    reserves = json.dumps(derived(data["measurements"]), indent=1)
    assumed = json.dumps(data["assumed"], indent=1)
    return f'{{"measurements": [\n{lines}\n],\n"reserves": {reserves},\n"assumed": {assumed}}}\n'


def main() -> int:
    found = DATA.read_text(encoding="utf-8")
    wanted = text(json.loads(found))
    if "--check" in sys.argv[1:]:
        return int(found != wanted)
    DATA.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
