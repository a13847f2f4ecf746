"""Every model type of the installed transformers, each in a process of its own, resumable."""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import transformers

from kvsize.units import GIB
from kvsize.verify import forward
from kvsize.verify.variants import VARIANTS, Variant

# One type's limits: seconds for all of its variants, and memory its process may map as data.
TIMEOUT_S = 180
MEMORY_BYTES = 6 * GIB
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

    `status`: exact, differs, or not built. A case that transformers itself cannot run, or that
    kvsize refuses as transformers does, is listed and decides nothing.
    """

    model_type: str
    status: str
    exact: int
    cases: list[dict[str, str]]

    @property
    def reason(self) -> str:
        """The first difference, or why nothing was built."""
        decisive = "differs" if self.status == "differs" else "not built"
        return next((c["detail"] for c in self.cases if c["status"] == decisive), "")


def sweep(
    model_types: Iterable[str],
    state: Path | None,
    progress: Callable[[str], None],
    variants: Mapping[str, Variant] = VARIANTS,
) -> Iterator[Result]:
    """The result of each type; those that `state` holds already are not run again.

    `state` is a JSON-lines file, written as results come, with the version of transformers.
    """
    known = _resumed(state)
    _import_shared()
    for model_type in model_types:
        progress(model_type)
        if model_type in known:
            yield known[model_type]
            continue
        result = in_process(model_type, variants)
        if state is not None:
            with state.open("a", encoding="utf-8") as out:
                out.write(
                    json.dumps({"transformers": transformers.__version__, **asdict(result)}) + "\n"
                )
        yield result


def _resumed(state: Path | None) -> dict[str, Result]:
    """What an earlier, interrupted run found with the same transformers."""
    if state is None or not state.exists():
        return {}
    found = {}
    for line in state.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.pop("transformers") == transformers.__version__:
            found[row["model_type"]] = Result(**row)
    return found


def _import_shared() -> None:
    import importlib

    for name in SHARED_MODULES:
        importlib.import_module(name)


def in_process(model_type: str, variants: Mapping[str, Variant]) -> Result:
    """Run one type's variants in a forked process, within the limits."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(model_type, variants, sender), daemon=True)
    process.start()
    sender.close()
    cases: list[dict[str, str]] = []
    try:
        while receiver.poll(TIMEOUT_S):
            cases.append(receiver.recv())
        cases.append(_case("", "not built", "", f"took longer than {TIMEOUT_S} s"))
    except EOFError:
        pass
    process.kill()
    process.join()
    if not cases:
        cases.append(_case("", "not built", "", f"its process ended with {process.exitcode}"))
    return judged(model_type, cases)


def judged(model_type: str, cases: list[dict[str, str]]) -> Result:
    """One status for all cases: a difference decides, then anything exact."""
    statuses = [case["status"] for case in cases]
    exact = statuses.count("exact")
    status = "differs" if "differs" in statuses else "exact" if exact else "not built"
    return Result(model_type, status, exact, [c for c in cases if c["status"] != "exact"])


def _case(variant: str, status: str, case: str, detail: str) -> dict[str, str]:
    return {"variant": variant, "status": status, "case": case, "detail": detail}


def _work(model_type: str, variants: Mapping[str, Variant], sender: Connection) -> None:
    """What a process does: every variant's trial, sent as it comes."""
    import torch

    from kvsize.verify.trial import trial

    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for name, variant in variants.items():
        for outcome in variant.outcomes(model_type, trial):
            sender.send(_case(name, outcome.status, outcome.case, outcome.detail))
    sender.close()


def selected(only: str | None) -> list[str]:
    """The model types to run: all, or those whose name contains `only`."""
    names: list[Any] = list(forward.model_types())
    return [name for name in names if only is None or only in name]
