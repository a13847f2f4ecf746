"""From a question about fitting to its answer, as data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.capacity import emit, layouts
from kvsize.capacity.holding import fits, held, needed_bytes, reason_refused
from kvsize.capacity.inverse import capacity, longest
from kvsize.capacity.layout import Layout
from kvsize.capacity.remedies import Unmet, remedies
from kvsize.capacity.rules import default_fraction
from kvsize.capacity.traffic import traffic
from kvsize.engines import engine
from kvsize.errors import EngineRefuses, UsageError
from kvsize.units import ceil_div, format_bytes, format_tokens

if TYPE_CHECKING:
    from kvsize.capacity.budget import Budget
    from kvsize.capacity.inverse import Capacity, Longest
    from kvsize.capacity.layouts import Laid, Plan
    from kvsize.capacity.lengths import Lengths
    from kvsize.capacity.remedies import Remedy
    from kvsize.capacity.traffic import Traffic

# What is asked about a model that states no limit, and where not even one token fits.
_SHORT_CONTEXT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a plan.

    `layout`: stated by the user; `gpus`: how many there are, None to find out. Without `contexts`
    the longest one is asked for where `sequences` are given, else the model's own length.
    """

    plan: Plan
    contexts: tuple[int, ...] = ()
    sequences: int | None = None
    gpus: int | None = None
    layout: Layout | None = None
    longest: bool = False
    lengths: Lengths | None = None
    overflow: Fraction = Fraction(1, 100)
    emit: str | None = None


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
    contexts = _contexts(question)
    chosen, reason, found = _choose(question, max(contexts))
    setup, budget = plan.setup(chosen), plan.budget(chosen)
    refused = reason_refused(setup, max(contexts))
    if refused is not None:
        raise EngineRefuses(refused, "choose another context, dtype or layout.")
    asked = () if _asks_length(question) else contexts
    wanted = question.sequences
    verdicts = tuple(_verdict(question, chosen, budget, context) for context in asked if wanted)
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
        traffic=_traffic(question, chosen, budget),
        remedies=tuple(_ways_out(question, chosen, _unmet(verdicts, capacities, most))),
        command=_command(question, chosen, capacities, most, budget),
        notes=_notes(question, chosen, own.notes if own else ()),
    )


def _contexts(question: Question) -> tuple[int, ...]:
    """The lengths asked about; the model's own where none is."""
    limit = question.plan.model.context_limit or _SHORT_CONTEXT
    if question.lengths is not None and not question.contexts:
        return (question.lengths.longest,)
    return question.contexts or (limit,)


def _asks_length(question: Question) -> bool:
    if question.longest:
        return True
    return question.sequences is not None and not question.contexts and question.lengths is None


def _choose(question: Question, context: int) -> tuple[Layout, str | None, list[Laid]]:
    """The layout, why it, and all of them."""
    plan = question.plan
    if question.layout is not None:
        return question.layout, None, []
    if plan.machine.gpu is None:
        return Layout(), None, []
    if question.gpus is None and question.sequences and question.contexts:
        return _fewest(plan, context, question.sequences)
    gpus = question.gpus or 1
    reference = min(context, plan.model.context_limit or context)
    found = layouts.legal(plan, gpus, reference)
    best = layouts.recommended(found, question.sequences)
    if best is None:
        setup = plan.setup(next(iter(layouts.candidates(plan, gpus))))
        refused = reason_refused(setup, context) or f"{plan.engine} has no layout of {gpus} GPUs."
        raise EngineRefuses(refused, "choose another number of GPUs.")
    laid, why = best
    return laid.layout, why if len(found) > 1 else None, found if gpus > 1 else []


def _fewest(plan: Plan, context: int, sequences: int) -> tuple[Layout, str | None, list[Laid]]:
    """The smallest number of GPUs; where none will do, one GPU, which then does not."""
    best = layouts.smallest(plan, context, sequences)
    if best is None:
        return Layout(), None, []
    why = f"no fewer than {best.layout.gpus} GPUs hold {sequences:,} sequences"
    found = [best]
    if best.layout.pipeline_parallel_size > 1:
        plain = layouts.smallest(plan, context, sequences, stages=False)
        found += [plain] if plain is not None else []
    return best.layout, why, found


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
    return None if most.context.best else (_SHORT_CONTEXT, most.sequences)


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
    capacities: tuple[Capacity, ...],
    most: Longest,
    budget: Budget,
) -> str | None:
    """The serve command for the last context asked about, or for the longest one."""
    if question.emit is None:
        return None
    if capacities:
        context, count = capacities[-1].context, question.sequences or capacities[-1].sequences.best
    else:
        context, count = most.context.best, most.sequences
    if not context or not count:
        msg = f"--emit {question.emit}: there is nothing to serve, because nothing fits."
        raise UsageError(msg, "see the ways out without --emit.")
    plan, setup = question.plan, question.plan.setup(layout)
    found = held(setup, context, budget.best_bytes)
    each = needed_bytes(setup, context, count)
    machine = plan.machine
    share = machine.fraction or default_fraction(plan.engine, plan.engine_version)
    serve = emit.Serve(
        model=plan.model,
        layout=layout,
        context=context,
        sequences=count,
        sequence_bytes=ceil_div(each or 0, ceil_div(count, layout.data_parallel_size)),
        kv_dtype=plan.kv_dtype,
        fraction=share if machine.kv_memory is None else None,
        kv_memory=machine.kv_memory,
        tokens=found.fit.tokens if found.fit else None,
    )
    return emit.command(question.emit, serve)


def _version(plan: Plan) -> str:
    return plan.engine_version or engine(plan.engine).VERSIONS[0]


def _notes(question: Question, layout: Layout, own: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own notes, and what the figures rest on."""
    notes = list(own)
    weights = question.plan.machine.weights
    if weights is not None and weights.estimated:
        notes.append(f"The weights are an estimate ({weights.source}); state them with --weights.")
    gpu = question.plan.machine.gpu
    if gpu is not None and gpu.memory == "nominal":
        notes.append(f"The memory of {gpu.title} is nominal: its driver reports less.")
    if question.plan.engine == "vllm":
        notes.append(
            "vLLM holds one block back (the null block) that its logged concurrency counts."
        )
    if layout.pipeline_parallel_size > 1:
        notes.append("Every pipeline stage is taken to have what the fullest one has left.")
    return tuple(notes)
