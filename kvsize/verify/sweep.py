"""Every model type of the installed transformers, each in a process of its own, resumable."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from kvsize.units import GIB
from kvsize.verify import forward
from kvsize.verify.trial import trial
from kvsize.verify.variants import VARIANTS, Variant
from kvsize.verify.workers import Limits, in_processes

# One type's limits: seconds for all of its variants, and memory its process may map as data.
LIMITS = Limits(seconds=180, memory_bytes=6 * GIB)
# Imported before the processes fork, so that each does not load them anew.
SHARED_MODULES = (
    "torch._dynamo",
    "transformers.modeling_utils",
    "transformers.masking_utils",
    "transformers.generation",
    "transformers.models.llama.modeling_llama",
    "transformers.models.llava.modeling_llava",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one model type, by variant and case.

    `status`: exact, differs, or not built. `exact` counts the comparisons that were, by the kind
    of cache: dynamic, static, and greedy for the decoding. `cases` lists the others: a case that
    transformers itself cannot run, or that kvsize refuses as transformers does, decides nothing.
    """

    model_type: str
    status: str
    exact: dict[str, int]
    cases: list[dict[str, str]] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """The first difference, or why nothing was built, or why one kind of cache was not run."""
        if self.status != "exact":
            return next((c["detail"] for c in self.cases if c["status"] == self.status), "")
        lacking = [kind for kind in ("dynamic", "static") if kind not in self.exact]
        told = (c["detail"] for c in self.cases if lacking and lacking[0] in c["case"])
        return f"no {lacking[0]} cache: {next(told, '')}" if lacking else ""


def sweep(
    model_types: Iterable[str],
    known: Mapping[str, Result],
    variants: Mapping[str, Variant] = VARIANTS,
    limits: Limits = LIMITS,
) -> Iterator[Result]:
    """The result of each type as it comes: first what is `known` already, which is not run again.

    Two types run at a time where there are two processors.
    """
    model_types = list(model_types)
    yield from (known[name] for name in model_types if name in known)
    _import_shared()

    def work(model_type: str, send: Callable[[Any], None]) -> None:
        _quiet()
        for name, variant in variants.items():
            for outcome in variant.outcomes(model_type, trial):
                send(_case(name, outcome.status, outcome.case, outcome.detail))

    jobs = min(os.cpu_count() or 1, 2)
    missing = (name for name in model_types if name not in known)
    for job in in_processes(missing, work, limits, jobs):
        failed = [_case("", "not built", "", job.ended)] if job.ended else []
        yield judged(job.name, job.found + failed)


def judged(model_type: str, cases: list[dict[str, str]]) -> Result:
    """One status for all cases: a difference decides, then anything exact."""
    exact: dict[str, int] = {}
    for case in cases:
        if case["status"] == "exact":
            kind = next(k for k in ("dynamic", "static", "greedy") if k in case["case"])
            exact[kind] = exact.get(kind, 0) + 1
    differs = any(case["status"] == "differs" for case in cases)
    compared = exact.keys() & {"dynamic", "static"}
    status = "differs" if differs else "exact" if compared else "not built"
    return Result(model_type, status, exact, [c for c in cases if c["status"] != "exact"])


def _case(variant: str, status: str, case: str, detail: str) -> dict[str, str]:
    return {"variant": variant, "status": status, "case": case, "detail": detail}


def _import_shared() -> None:
    for name in SHARED_MODULES:
        importlib.import_module(name)


def _quiet() -> None:
    """One thread for each process, and no warnings from models that are not for use."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)


def selected(only: str) -> list[str]:
    """The model types whose name contains `only`; all, where it is empty."""
    return [name for name in forward.model_types() if only in name]
