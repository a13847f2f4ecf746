"""Checks are asked, one after the other; what each finds is held against what it expects."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

from kvsize.advice import refuse_guesses
from kvsize.checks.keys import BY_NAME, FIGURES, shown
from kvsize.checks.records import Assertion, Outcome
from kvsize.errors import KvsizeError
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvsize.advice import Ask
    from kvsize.capacity.answer import Answer
    from kvsize.capacity.question import Question
    from kvsize.checks.lock import Models
    from kvsize.checks.records import Check
    from kvsize.model import Model
    from kvsize.report import Row

# What a model without a limit of its own is asked about, as in `kvsize fit`.
_SHORT_CONTEXT = 4096


def run(checks: Iterable[Check], models: Models) -> tuple[Outcome, ...]:
    """What came of each check; a failure of one is its own outcome and stops no other."""
    return tuple(_run(check, models) for check in checks)


def _run(check: Check, models: Models) -> Outcome:
    try:
        model, notes = models.load(str(check.asked["model"]))
        return _held(check, model, notes)
    except KvsizeError as error:
        return Outcome(check, error=error)


def _held(check: Check, model: Model, notes: tuple[str, ...]) -> Outcome:
    answer = _answer(check, model) if check.has_memory else None
    row = _row(check, model, answer)
    found = {**_figures(row), **(_capacity(check, answer) if answer else {})}
    assertions = [
        _assertion(check, key, wanted, found, answer) for key, wanted in check.expect.items()
    ]
    return Outcome(check, _subject(check, row, answer), tuple(assertions), notes=notes)


def figures(check: Check, model: Model) -> dict[str, object]:
    """The figures that a check can pin, under their names."""
    return _figures(_row(check, model, _answer(check, model) if check.has_memory else None))


def context_of(check: Check, model: Model) -> int:
    """The context a check asks about: its own, else the model's limit."""
    return int(check.asked.get("ctx") or model.context_limit or _SHORT_CONTEXT)


def _answer(check: Check, model: Model) -> Answer:
    """What `kvsize fit` says to the check's question."""
    from kvsize.capacity import asked as typed
    from kvsize.capacity.answer import answer

    text = {name: str(value) for name, value in check.asked.items()}
    machine = typed.machine(
        model,
        text.get("gpu", ""),
        text.get("gpu_memory", ""),
        text.get("kv_memory", ""),
        text.get("weights", ""),
        text.get("reserve", ""),
        text.get("memory_fraction", ""),
    )
    question = typed.question(
        model,
        machine,
        typed.spelled(text.get("engine", "vllm")),
        text.get("engine_version", ""),
        text.get("kv_dtype", "auto"),
        dict(check.asked.get("options", {})),
    )
    context, sequences = str(context_of(check, model)), text.get("sequences", "1")
    question = typed.with_lengths(question, context, sequences, "", "0.01", "", max_ctx=False)
    return answer(_laid_out(check, question))


def _laid_out(check: Check, question: Question) -> Question:
    """The question with its layout; one GPU where nothing is said about that, not the fewest."""
    from kvsize.capacity import asked as typed

    sizes = [str(check.asked.get(name, "")) for name in ("tp", "pp", "dp", "dcp")]
    count = str(check.asked.get("gpus", "" if any(sizes) else "1"))
    tensor, pipeline, data, shards = sizes
    return typed.laid_out(question, count, (tensor, pipeline, data, shards))


def _row(check: Check, model: Model, answer: Answer | None) -> Row:
    """The sizes, as `kvsize size` has them, in the layout that was asked or chosen."""
    from kvsize import report

    asked = check.asked
    layout = answer.layout if answer else None
    ask: Ask = {
        "kv_dtype": asked.get("kv_dtype", "auto"),
        "engine": asked.get("engine", answer.engine if answer else ""),
        "engine_version": asked.get("engine_version"),
        "options": _options(check, answer),
        "tensor_parallel_size": layout.tensor_parallel_size if layout else asked.get("tp", 1),
        "pipeline_parallel_size": layout.pipeline_parallel_size if layout else asked.get("pp", 1),
    }
    if asked.get("strict"):
        refuse_guesses(model, ask)
    sequences = asked.get("sequences", 1)
    return report.build([model], ask, (context_of(check, model),), (sequences,)).rows[0]


def _options(check: Check, answer: Answer | None) -> dict[str, Any]:
    """The engine's options; vLLM's defaults depend on the GPU, so sizes are for the same one."""
    options = dict(check.asked.get("options", {}))
    gpu = str(check.asked.get("gpu", ""))
    if answer is not None and answer.engine == "vllm" and gpu and gpu.strip().lower() != "local":
        from kvsize.capacity.gpus import gpu as gpu_called
        from kvsize.capacity.machine import vllm_gpu

        options.setdefault("gpu", vllm_gpu(gpu_called(gpu)))
    return options


def _figures(row: Row) -> dict[str, object]:
    """What the size says, under the names that limits and pins have."""
    names = [key.name for key in BY_NAME.values() if key.role == "pin"]
    found: dict[str, object] = {name: getattr(row, name) for name in names}
    return {**found, **{limit: found[figure] for limit, figure in FIGURES.items()}}


def _capacity(check: Check, answer: Answer) -> dict[str, object]:
    """What certainly fits: where the memory is an estimate, at its low end."""
    verdict, low = answer.verdicts[0], answer.budget.range_bytes[0]
    needed = verdict.needed_bytes
    left: object = None if needed is None else low - needed
    percent = str(check.expect.get("min_headroom", "")).endswith("%")
    if percent and isinstance(left, int):
        # Of no memory at all, nothing is left, and all of it is missing.
        left = Fraction(left * 100, low) if low else Fraction(-100)
    return {
        "fits": verdict.fits if verdict.sure else None,
        "min_headroom": left,
        "min_sequences": answer.capacities[0].sequences.least,
        "min_context": answer.longest.context.least if answer.longest else 0,
    }


def _assertion(
    check: Check, name: str, wanted: Any, found: dict[str, object], answer: Answer | None
) -> Assertion:
    key, value = BY_NAME[name], found[name]
    holds, reason = _compared(name, wanted, value)
    if not holds and answer is not None and key.role == "needs memory":
        reason = _why(name, reason, answer)
    text = _found_text(name, value)
    line = check.lines.get(name, 0)
    plain = float(value) if isinstance(value, Fraction) else value
    return Assertion(name, shown(key, wanted), text, holds, reason, line, wanted, plain)


def _compared(name: str, wanted: Any, found: Any) -> tuple[bool, str]:
    """Whether the figure is as it was expected, and by how much it is not."""
    if name == "fits":
        return found is wanted, ""
    if found is None:
        return False, "There is no such figure for this model and deployment."
    if name == "min_headroom" and isinstance(wanted, str):
        return found >= Fraction(wanted[:-1].strip()), ""
    if name.startswith("max_"):
        return found <= wanted, f"{format_bytes(max(0, found - wanted))} too much."
    if name.startswith("min_"):
        short = wanted - found
        size = format_bytes(short) if name == "min_headroom" else format_tokens(short)
        return found >= wanted, f"{size} too few." if name != "min_headroom" else f"{size} short."
    return found == wanted, f"The figure is pinned, and has changed{_by(wanted, found)}."


def _by(wanted: Any, found: Any) -> str:
    if not isinstance(wanted, int) or not isinstance(found, int) or not wanted:
        return ""
    ratio = f"{found / wanted:.4g}"
    return f", to {ratio}× what it was" if ratio != "1" else ""


def _why(name: str, reason: str, answer: Answer) -> str:
    """The reason with the figures behind it, and the nearest way out."""
    verdict = answer.verdicts[0]
    if name == "min_sequences":
        return f"{reason} Bound by {answer.capacities[0].binding}.{_at_worst(answer)}"
    if name == "min_context" and answer.longest:
        return f"{reason} Bound by {answer.longest.binding}.{_at_worst(answer)}"
    sentence = verdict.sentence[:1].upper() + verdict.sentence[1:]
    return " ".join(part for part in (reason, f"{sentence}{_at_worst(answer)}") if part)


def _at_worst(answer: Answer) -> str:
    ends = answer.budget.range_bytes
    if ends[0] == ends[1]:
        return ""
    low, high = (format_bytes(size) for size in ends)
    return (
        f" The memory is an estimate, {low} to {high}, and a check holds only where it would at "
        "both ends; kv_memory or reserve states it."
    )


def _found_text(name: str, value: object) -> str:
    if name == "fits" and value is None:
        return "not sure"
    if isinstance(value, Fraction):
        # Rounded down: what falls short of 10 % must not be shown as 10 %.
        return f"{float(floor(value * 100) / 100):.2f}%"
    return shown(BY_NAME[name], value)


def _subject(check: Check, row: Row, answer: Answer | None) -> str:
    """`llama-3.1-8b, vllm 0.33.0, fp8, 32 × 32,768 tokens, 1 × NVIDIA H100`."""
    parts = [
        str(check.asked["model"]),
        f"{row.engine} {row.engine_version}",
        row.kv_dtype,
        f"{row.sequences:,} × {format_tokens(row.context)} tokens",
    ]
    if answer is not None and answer.gpu:
        parts.append(f"{answer.gpus} × {answer.gpu}")
    elif answer is not None:
        parts.append(f"{format_bytes(answer.budget.best_bytes)} for the cache")
    return ", ".join(parts)
