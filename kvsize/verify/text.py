"""What a verification says to people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvsize.units import format_bytes, format_exact, format_tokens
from kvsize.verify.evidence import Evidence, versions
from kvsize.verify.sweep import Result

# The most that torch held from the driver is what a user must budget for.
FIGURES = {
    "prefill_peak_bytes": "prompt    ",
    "growth_peak_bytes": "peak      ",
    "device_bytes": "on device ",
    "cpu_bytes": "on CPU    ",
    "requested_bytes": "requested ",
    "allocated_bytes": "allocated ",
    "reserved_bytes": "reserved  ",
    "fragmented_bytes": "unused    ",
    "growth_peak_reserved_bytes": "budget    ",
    "peak_rss_bytes": "process   ",
}
ALWAYS = {"reserved_bytes", "fragmented_bytes", "growth_peak_reserved_bytes", "peak_rss_bytes"}


def evidence_text(found: Evidence) -> str:
    """One comparison: each kind of layer, the totals, what else was measured, the verdict."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Evidence) -> Iterator[str]:
    known = versions()
    sequences = f"{found.sequences} sequence{'s' if found.sequences > 1 else ''}"
    yield (
        f"{found.model}: {found.cache} of transformers {known['transformers']} on "
        f"{found.device['kind']}, torch {known['torch']}"
    )
    yield f"  {sequences} of {format_tokens(found.context)} tokens, {found.dtype}"
    yield ""
    for row in found.rows:
        yield f"{row.layers} × {row.class_name}"
        for tensor, nbytes, storage in row.tensors:
            real = "missing" if nbytes is None else f"{nbytes:,} B, storage {storage:,} B"
            shape = list(tensor.shape)
            yield f"  {tensor.name} {shape} {tensor.dtype}: predicted {tensor.total_bytes:,} B"
            yield f"    real {real}"
    yield ""
    yield f"predicted {format_exact(found.predicted_bytes)}"
    yield f"real      {format_exact(found.real_bytes)}"
    yield f"storage   {format_bytes(found.real_storage_bytes)}"
    yield from _measured(found)
    yield from (f"note: {note}" for note in found.notes)
    yield from found.failures
    yield found.verdict


def _measured(found: Evidence) -> Iterator[str]:
    """The figures beside the tensors, each with its prediction where there is one."""
    for name, label in FIGURES.items():
        value = found.figures.get(name)
        predicted = found.figures.get(f"predicted_{name}")
        most = found.figures.get(f"predicted_{name}_at_most")
        if isinstance(value, int) and (predicted is not None or name in ALWAYS):
            told = f", predicted {predicted:,} B" if isinstance(predicted, int) else ""
            told = told.removesuffix(" B") + f" to {most:,} B" if isinstance(most, int) else told
            yield f"{label}{format_exact(value)}{told}"


def sweep_text(results: Sequence[Result]) -> str:
    """The table of a sweep: what differs, what could not be built and why, and the counts."""
    width = max(len(result.model_type) for result in results)
    lines = [
        f"{result.model_type:{width}}  {_told(result)}"
        for result in sorted(results, key=lambda found: (found.status, found.model_type))
    ]
    counts = {
        status: sum(result.status == status for result in results)
        for status in ("exact", "differs", "not built")
    }
    total = ", ".join(f"{count} {status}" for status, count in counts.items())
    comparisons = sum(sum(result.exact.values()) for result in results)
    version = versions()["transformers"]
    lines += ["", f"{total}: {comparisons:,} exact comparisons with transformers {version}."]
    return "\n".join(lines) + "\n"


def _told(result: Result) -> str:
    if result.status != "exact":
        return f"{result.status}: {result.reason}"
    counts = ", ".join(f"{count} {kind}" for kind, count in result.exact.items())
    return f"exact: {counts}" + (f"; {result.reason}" if result.reason else "")
