"""From a question about fitting to its answer, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.capacity import emit
from kvsize.capacity.holding import check_legal, fits, held, needed_bytes
from kvsize.capacity.inverse import capacity, longest
from kvsize.capacity.machine import stand_in_note
from kvsize.capacity.question import SHORT_CONTEXT, asks_length, choose, contexts_of
from kvsize.capacity.remedies import Unmet, remedies
from kvsize.capacity.rules import default_fraction
from kvsize.capacity.traffic import traffic
from kvsize.engines import engine
from kvsize.errors import UsageError
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from kvsize.capacity.budget import Budget
    from kvsize.capacity.inverse import Capacity, Longest
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.layouts import Laid, Plan
    from kvsize.capacity.question import Question
    from kvsize.capacity.remedies import Remedy
    from kvsize.capacity.traffic import Traffic
    from kvsize.results import Fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether so many sequences of one length fit, with both figures; bytes are per GPU.

    `sure`: whether the answer is the same at both ends of the estimated memory.
    """

    context: int
    sequences: int
    fits: bool
    sure: bool
    needed_bytes: int | None
    left_bytes: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything `kvsize fit` says."""

    model: str
    engine: str
    engine_version: str
    kv_dtype: str
    gpu: str | None
    gpus: int
    layout: Layout
    reason: str | None
    budget: Budget
    verdicts: tuple[Verdict, ...]
    capacities: tuple[Capacity, ...]
    longest: Longest | None
    layouts: tuple[Laid, ...]
    traffic: Traffic | None
    remedies: tuple[Remedy, ...]
    command: str | None
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the answer is yes: what was asked fits, or at least one sequence does."""
        if self.verdicts:
            return all(verdict.fits for verdict in self.verdicts)
        counts = [each.sequences.best for each in self.capacities]
        if self.longest is not None and not counts:
            return self.longest.context.best > 0
        return all(counts)


def answer(question: Question) -> Answer:
    """The answer; EngineRefuses where the engine does not run the model so at all."""
    plan = question.plan
    contexts = contexts_of(question)
    chosen, reason, found = choose(question, max(contexts))
    setup, budget = plan.setup(chosen), plan.budget(chosen)
    check_legal(setup, max(contexts))
    asked = () if asks_length(question) else contexts
    wanted = question.sequences
    load = _traffic(question, chosen, budget)
    verdicts = tuple(_verdict(question, chosen, budget, context) for context in asked if wanted)
    if wanted and load is not None:
        verdicts = (_shared_verdict(wanted, load, budget),)
    capacities = tuple(capacity(setup, context, budget) for context in asked)
    most = longest(setup, wanted or 1, budget)
    own = held(setup, max(contexts), budget.best_bytes).fit
    return Answer(
        model=plan.model.name,
        engine=plan.engine,
        engine_version=own.engine_version if own else _version(plan),
        kv_dtype=own.kv_dtype if own else plan.kv_dtype,
        gpu=plan.machine.gpu.title if plan.machine.gpu else None,
        gpus=chosen.gpus,
        layout=chosen,
        reason=reason,
        budget=budget,
        verdicts=verdicts,
        capacities=capacities,
        longest=most,
        layouts=tuple(found),
        traffic=load,
        remedies=tuple(_ways_out(question, chosen, _unmet(verdicts, capacities, most))),
        command=_command(question, chosen, (capacities, most, load), budget),
        notes=_notes(question, chosen, own),
    )


def _verdict(question: Question, layout: Layout, budget: Budget, context: int) -> Verdict:
    setup, count = question.plan.setup(layout), question.sequences or 1
    left = budget.best_bytes
    ok = fits(setup, context, count, left)
    ends = {fits(setup, context, count, size) for size in budget.range_bytes}
    needed = needed_bytes(setup, context, count)
    what = f"{count:,} sequences × {format_tokens(context)} tokens"
    where = "on each GPU" if layout.gpus > 1 else "for the cache"
    if needed is None:
        bound = held(setup, context, left).binding.name
        sentence = f"does not fit: {what} are more than {bound} allows."
    else:
        start = "fits" if ok else "does not fit"
        sentence = (
            f"{start}: {what} need {format_bytes(needed)}; {format_bytes(left)} are left {where}."
            f"{_unless(ok, ends)}"
        )
    return Verdict(
        context=context,
        sequences=count,
        fits=ok,
        sure=ends == {ok},
        needed_bytes=needed,
        left_bytes=left,
        sentence=sentence,
    )


def _shared_verdict(wanted: int, load: Traffic, budget: Budget) -> Verdict:
    """Whether so many sequences of random length share the cache often enough."""
    ok = load.sequences >= wanted
    percent = f"{float(load.probability * 100):g} %"
    sentence = (
        f"{'fits' if ok else 'does not fit'}: {wanted:,} sequences of these lengths; "
        f"{load.sequences:,} overflow the cache with a probability of at most {percent}."
    )
    return Verdict(
        context=load.longest_tokens,
        sequences=wanted,
        fits=ok,
        sure=budget.exact,
        needed_bytes=None,
        left_bytes=budget.best_bytes,
        sentence=sentence,
    )


def _unless(ok: bool, ends: set[bool]) -> str:
    """What the other end of the estimated memory says, where it says otherwise."""
    if ends == {ok}:
        return ""
    return " With the high reserve they do not fit." if ok else " With the low reserve they fit."


def _unmet(
    verdicts: tuple[Verdict, ...], capacities: tuple[Capacity, ...], most: Longest
) -> tuple[int, int] | None:
    """The context and the sequences that do not fit, or None where all does."""
    for verdict in verdicts:
        if not verdict.fits:
            return verdict.context, verdict.sequences
    for each in capacities:
        if not each.sequences.best:
            return each.context, 1
    return None if most.context.best else (SHORT_CONTEXT, most.sequences)


def _ways_out(question: Question, layout: Layout, unmet: tuple[int, int] | None) -> list[Remedy]:
    if unmet is None:
        return []
    context, sequences = unmet
    return remedies(Unmet(plan=question.plan, layout=layout, context=context, sequences=sequences))


def _traffic(question: Question, layout: Layout, budget: Budget) -> Traffic | None:
    if question.lengths is None:
        return None
    setup = question.plan.setup(layout)
    return traffic(setup, question.lengths, budget.best_bytes, question.overflow)


def _command(
    question: Question,
    layout: Layout,
    found: tuple[tuple[Capacity, ...], Longest, Traffic | None],
    budget: Budget,
) -> str | None:
    """The serve command for the last context asked about, or for the longest one."""
    if question.emit is None:
        return None
    capacities, most, load = found
    context, count = most.context.best, most.sequences
    if capacities:
        context, count = capacities[-1].context, capacities[-1].sequences.best
        count = question.sequences or (load.sequences if load else count)
    if not context or not count:
        msg = f"--emit {question.emit}: there is nothing to serve, because nothing fits."
        raise UsageError(msg, "see the ways out without --emit.")
    return emit.command(question.emit, _serve(question, layout, context, count, budget))


def _serve(
    question: Question, layout: Layout, context: int, count: int, budget: Budget
) -> emit.Serve:
    plan, setup = question.plan, question.plan.setup(layout)
    found = held(setup, context, budget.best_bytes)
    machine = plan.machine
    share = machine.fraction or default_fraction(plan.engine, plan.engine_version)
    return emit.Serve(
        model=plan.model,
        layout=layout,
        context=context,
        sequences=count,
        sequence_bytes=needed_bytes(setup, context, 1) or 0,
        kv_dtype=plan.kv_dtype,
        fraction=share if machine.kv_memory is None else None,
        kv_memory=machine.kv_memory,
        tokens=found.fit.tokens if found.fit else None,
    )


def _version(plan: Plan) -> str:
    return plan.engine_version or engine(plan.engine).VERSIONS[0]


def _notes(question: Question, layout: Layout, fit: Fit | None) -> tuple[str, ...]:
    """The engine's own notes, and what the figures rest on."""
    plan = question.plan
    gpu, weights = plan.machine.gpu, plan.machine.weights
    notes: list[str | None] = list(fit.notes) if fit else []
    if weights is not None and weights.estimated:
        notes.append(f"The weights are an estimate ({weights.source}); state them with --weights.")
    if gpu is not None and gpu.memory == "nominal":
        notes.append(f"The memory of {gpu.title} is nominal: its driver reports less.")
    if plan.engine == "vllm":
        notes.append(
            "vLLM holds one block back (the null block) that its logged concurrency counts."
        )
    if plan.engine == "vllm" and gpu is not None:
        notes.append(stand_in_note(gpu, str(plan.options.get("gpu"))))
    if plan.setup(layout).chooses_batch:
        notes.append(
            "TensorRT-LLM keeps a recurrent state for each of max_batch_size sequences, which is "
            "taken to be the number of sequences here; its own default is 2,048."
        )
    if layout.pipeline_parallel_size > 1:
        notes.append("Every pipeline stage is taken to have what the fullest one has left.")
    return tuple(note for note in notes if note)
