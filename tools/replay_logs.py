"""Replay public engine logs: what kvsize predicts against what the engines printed.

Usage: python tools/replay_logs.py [--write | --check] [--logs FILE]

The facts are tests/golden/engine_logs.csv (memory printed, tokens printed) and
tests/golden/engine_budgets.csv (GPU, share and weights known, memory printed). `--write` puts both
tables into docs/fit.md, `--check` says whether they are current. `--logs` names a file of log rows
in JSON lines; the facts of rows that both have must agree, and rows left out are listed.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import kvsize
from kvsize.capacity.gpus import gpu
from kvsize.capacity.layout import Layout
from kvsize.capacity.machine import Machine, budget_of
from kvsize.capacity.sharding import Shares
from kvsize.capacity.weights import Weights
from kvsize.units import GIB

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests/golden/engine_logs.csv"
BUDGETS = ROOT / "tests/golden/engine_budgets.csv"
DOCS = ROOT / "docs/fit.md"
SHARED = ROOT / "../shared/oracles/engine_logs.jsonl"
START, END = "<!-- replay: start -->", "<!-- replay: end -->"
PLENTY = 2**50
TOKENS = {"tokens", "kv_tokens", "max_tokens", "max_total_num_tokens"}


@dataclass(frozen=True)
class Replay:
    """A row's prediction as a range, which the rounding of the printed figure leaves open."""

    row: dict[str, str]
    low: Fraction
    high: Fraction
    observed: Fraction

    @property
    def agrees(self) -> bool:
        """Whether what was printed lies in the range."""
        return self.low <= self.observed <= self.high


def facts(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rounding(printed: str) -> Fraction:
    """Half of the last digit printed."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def printed_range(printed: str) -> tuple[Fraction, Fraction]:
    """The GiB that `8.23+8.23` can stand for."""
    parts = printed.split("+")
    total = sum(map(Fraction, parts), start=Fraction(0))
    half = sum(map(rounding, parts), start=Fraction(0))
    return total - half, total + half


def replay_tokens(row: dict[str, str]) -> Replay:
    """The tokens of the memory printed, at both ends of its rounding."""
    model = kvsize.load(json.loads(row["model"]) if row["model"].startswith("{") else row["model"])
    settings: dict[str, Any] = json.loads(row["settings"])
    ask = {"engine": row["engine"], "engine_version": row["engine_version"] or None, **settings}
    low, high = printed_range(row["printed_gib"])
    observed = Fraction(row["tokens"])
    if row["engine"] == "sglang":
        # The log prints what the pools take, a spare page included.
        found = kvsize.fit(model, kv_memory=PLENTY, **ask)
        cell = Fraction(str(found.details["cell_size"]))
        page = Fraction(found.block_bytes) / cell
        return Replay(row, low * GIB / cell - page, high * GIB / cell, observed)
    ends = [kvsize.fit(model, kv_memory=int(end * GIB), **ask).tokens for end in (low, high)]
    return Replay(row, Fraction(ends[0]), Fraction(ends[1]), observed)


def replay_budget(row: dict[str, str]) -> Replay:
    """The memory left for the cache, from the high to the low reserve, in GiB."""
    machine = Machine(
        gpu=gpu(row["gpu"]),
        weights=Weights(total_bytes=int(Fraction(row["weights_gib"]) * GIB), source="the log"),
        shares=Shares(None, 1, 1),
        fraction=Fraction(row["fraction"]),
    )
    layout = Layout(tensor_parallel_size=int(row["tensor_parallel_size"]))
    model = kvsize.load("llama-3.1-8b")  # only its weights would matter, and they are stated
    found = budget_of(machine, model, row["engine"], row["engine_version"] or None, layout)
    least, most = (Fraction(size, GIB) for size in found.range_bytes)
    return Replay(row, least, most, Fraction(row["observed_gib"]))


def token_table(found: list[Replay]) -> list[str]:
    lines = [
        "| row | engine | model | memory printed | tokens printed | tokens predicted | agrees | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        row = each.row
        model = "a config" if row["model"].startswith("{") else row["model"]
        engine = f"{row['engine']} {row['engine_version']}".strip()
        low, high = int(each.low) + (each.low % 1 > 0), int(each.high)
        lines.append(
            f"| {row['id']} | {engine} | {model} | {row['printed_gib']} GiB | "
            f"{int(row['tokens']):,} | {low:,} to {high:,} | {_agrees(each)} | {row['source']} |"
        )
    return lines


def budget_table(found: list[Replay]) -> list[str]:
    lines = [
        "| row | engine | GPU | TP | share | weights | printed | predicted | agrees | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in found:
        row = each.row
        lines.append(
            f"| {row['id'] or '–'} | {row['engine']} | {row['gpu']} | "
            f"{row['tensor_parallel_size']} | {row['fraction']} | {row['weights_gib']} GiB | "
            f"{row['observed_gib']} GiB | {float(each.low):.2f} to {float(each.high):.2f} GiB | "
            f"{_agrees(each)} | {row['source']} |"
        )
    return lines


def _agrees(each: Replay) -> str:
    return "yes" if each.agrees else "**no**"


def block() -> str:
    """Both tables, their counts, and what is to be said about misses."""
    tokens = [replay_tokens(row) for row in facts(LOGS)]
    budgets = [replay_budget(row) for row in facts(BUDGETS)]
    lines = [
        f"Tokens: {sum(each.agrees for each in tokens)} of {len(tokens)} rows agree.",
        "",
        *token_table(tokens),
        "",
        *(f"{each.row['id']}: {each.row['note']}." for each in tokens if not each.agrees),
        "",
        f"Budgets: {sum(each.agrees for each in budgets)} of {len(budgets)} rows lie in the range.",
        "",
        *budget_table(budgets),
    ]
    return "\n".join(lines)


def with_block(text: str, new: str) -> str:
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{new}\n\n{END}{after}"


def compare(path: Path) -> int:
    """Facts that differ from a file of log rows, and its rows that are not replayed."""
    rows = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}
    own = {row["id"]: row for row in facts(LOGS)}
    wrong = 0
    for name, row in own.items():
        observed = rows.get(name, {}).get("observed", {})
        printed = {observed.get(key) for key in TOKENS}
        if name in rows and int(row["tokens"]) not in printed:
            wrong += 1
            print(f"{name}: {row['tokens']} tokens here, {printed - {None}} there")
    for name, row in rows.items():
        engine, observed = row["engine"], row["observed"]
        logged = TOKENS & set(observed)
        known = engine.startswith(("vllm", "sglang", "tensorrt")) and row.get("explained")
        if known and logged and name not in own:
            print(f"{name}: not replayed ({row['model']})")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--logs", type=Path, default=SHARED)
    args = parser.parse_args()
    new = block()
    wrong = compare(args.logs) if args.logs.exists() else 0
    if not (args.write or args.check):
        print(new)
        return int(bool(wrong))
    text = DOCS.read_text(encoding="utf-8")
    if args.write:
        DOCS.write_text(with_block(text, new), encoding="utf-8")
    return int(bool(wrong) or (args.check and text != with_block(text, new)))


if __name__ == "__main__":
    sys.exit(main())
