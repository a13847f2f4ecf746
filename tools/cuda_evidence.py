"""Run `kvsize verify --level cache` on a GPU over eight models, and keep what it measured.

Usage: python tools/cuda_evidence.py [--seconds 450] [--each 30] [--device cuda] [--out DIR]

Dynamic and static caches, batches of 1 and 4, contexts of 1k, 8k and 32k whose last 8 tokens come
one by one, and 512 single tokens at 8k. One JSON per model goes to docs/evidence, with what it ran
on; the Markdown table goes to standard output. No case is left out silently: what does not fit, is
refused, takes longer than --each or comes after --seconds is in the table with its reason. Exit 0
where everything that ran is exact, else 1.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvsize
from kvsize.engines.options import Request
from kvsize.errors import KvsizeError
from kvsize.units import format_bytes
from kvsize.verify import devices
from kvsize.verify.cachelevel import verify_cache
from kvsize.verify.evidence import Evidence, versions

MODELS = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "gemma-3-27b",
    "qwen3-next-80b",
    "deepseek-v3",
    "gpt-oss-120b",
    "mistral-nemo",
    "falcon-7b",
)
EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
STEPS, GROWTH_STEPS = 8, 512


@dataclass(frozen=True, slots=True)
class Case:
    """One cache to fill."""

    model: str
    cache: str
    batch: int
    context: int
    steps: int


class TimeIsUp(Exception):
    """A case took longer than it may."""


def cases(models: Sequence[str]) -> list[Case]:
    """Short contexts first, then growth, so that a spent budget costs the largest alone."""

    def filled(context: int, batches: Sequence[int] = (1, 4), steps: int = STEPS) -> list[Case]:
        return [
            Case(model, cache, batch, context, steps)
            for model in models
            for cache in ("dynamic", "static")
            for batch in batches
        ]

    growth = filled(8192, (1,), GROWTH_STEPS)
    return [*filled(1024), *growth, *filled(8192), *filled(32768)]


def run(
    wanted: Sequence[Case], device: str, gpu: devices.Gpu, seconds: float, each: float
) -> Iterator[tuple[Case, Evidence | str]]:
    """Every case with its evidence, or with why there is none."""
    end = time.monotonic() + seconds
    for case in wanted:
        left = end - time.monotonic()
        if left <= 0:
            yield case, f"not run: the {seconds:g} s were spent"
            continue
        try:
            with _limit(min(each, left)):
                yield case, _verified(case, device, gpu)
        except TimeIsUp:
            yield case, f"not finished in {min(each, left):.0f} s"
        except KvsizeError as error:
            yield case, f"refused: {error.message}"


def _verified(case: Case, device: str, gpu: devices.Gpu) -> Evidence:
    options = {"cache": case.cache}
    request = Request(context=case.context, sequences=case.batch, options=options)
    model = kvsize.load(case.model)
    return verify_cache(model, request, device=device, steps=case.steps, gpu=gpu)


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp after some seconds, where the system has alarms."""

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def write(found: Sequence[tuple[Case, Evidence | str]], folder: Path) -> None:
    """One JSON per model: the versions, and every case with its evidence or its reason."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in dict.fromkeys(case.model for case, _ in found):
        made = [_plain(case, told) for case, told in found if case.model == model]
        text = json.dumps({"versions": versions(), "model": model, "cases": made}, indent=1)
        (folder / f"{model}.json").write_text(text + "\n", encoding="utf-8")


def _plain(case: Case, told: Evidence | str) -> dict[str, Any]:
    asked = {"cache": case.cache, "batch": case.batch, "context": case.context}
    asked |= {"steps": case.steps}
    if isinstance(told, str):
        return {"asked": asked, "not_measured": told}
    return {"asked": asked, "evidence": told.as_json()}


COLUMNS = (
    "model", "cache", "batch", "context", "steps", "layers", "cache bytes", "allocated",
    "peak", "reserved", "verdict",
)  # fmt: skip


def table(found: Sequence[tuple[Case, Evidence | str]]) -> str:
    """The Markdown table of all cases."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(_cells(case, told) for case, told in found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _cells(case: Case, told: Evidence | str) -> list[str]:
    cells = [case.model, case.cache, str(case.batch), f"{case.context:,}", str(case.steps)]
    if isinstance(told, str):
        return [*cells, "", "", "", "", "", told]
    figures = told.figures
    peaks = [figures[f"{phase}_peak_bytes"] for phase in ("prefill", "growth")]
    return [
        *cells,
        f"{told.compared_layers} of {told.all_layers}",
        f"{told.real_bytes:,}",
        *(
            format_bytes(value) if isinstance(value, int) else "-"
            for value in (
                figures.get("allocated_bytes"),
                max(peak for peak in peaks if isinstance(peak, int)),
                figures.get("reserved_bytes"),
            )
        ),
        told.verdict,
    ]


def main(arguments: Sequence[str] | None = None, gpu: devices.Gpu | None = None) -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--each", type=float, default=30)
    parser.add_argument("--device", choices=("cuda", "cpu", "meta"), default="cuda")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--contexts", nargs="+", type=int, default=(1024, 8192, 32768))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    if asked.device != "cuda" and asked.out is None:
        parser.error("evidence in docs/ is from CUDA; give --out for another device")
    gpu = gpu or devices.Cuda()
    if asked.device == "cuda" and not gpu.available():
        parser.error("torch sees no CUDA device")
    found: list[tuple[Case, Evidence | str]] = []
    wanted = [case for case in cases(asked.models) if case.context in asked.contexts]
    for case, told in run(wanted, asked.device, gpu, asked.seconds, asked.each):
        verdict = told if isinstance(told, str) else told.verdict
        print(f"{len(found) + 1}/{len(wanted)} {case}: {verdict}", file=sys.stderr)
        found.append((case, told))
        write(found, asked.out or EVIDENCE)
    print(table(found), end="")
    measured = [told for _, told in found if not isinstance(told, str)]
    return 0 if measured and all(told.exact for told in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
