"""What is asked about fitting, and which lengths and which layout that means."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.capacity import layouts
from kvsize.capacity.holding import check_legal
from kvsize.capacity.layout import Layout
from kvsize.errors import EngineRefuses

if TYPE_CHECKING:
    from kvsize.capacity.layouts import Laid, Plan
    from kvsize.capacity.lengths import Lengths

# What is asked about a model that states no limit, and where not even one token fits.
SHORT_CONTEXT = 4096


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


def contexts_of(question: Question) -> tuple[int, ...]:
    """The lengths asked about; the model's own where none is."""
    limit = question.plan.model.context_limit or SHORT_CONTEXT
    if question.lengths is not None and not question.contexts:
        return (question.lengths.longest,)
    return question.contexts or (limit,)


def asks_length(question: Question) -> bool:
    """Whether only the longest context is asked for."""
    if question.longest:
        return True
    return question.sequences is not None and not question.contexts and question.lengths is None


def choose(question: Question, context: int) -> tuple[Layout, str | None, list[Laid]]:
    """The layout, why it, and all of them."""
    plan = question.plan
    if question.layout is not None:
        return question.layout, None, []
    if not plan.machine.estimates:
        # A log's figure is one rank's: what another layout would leave is not known.
        return Layout(tensor_parallel_size=question.gpus or 1), None, []
    if question.gpus is None and question.sequences and question.contexts:
        return _fewest(plan, context, question.sequences)
    gpus = question.gpus or 1
    reference = min(context, plan.model.context_limit or context)
    found = layouts.legal(plan, gpus, reference)
    best = layouts.recommended(found, question.sequences)
    if best is None:
        check_legal(plan.setup(next(iter(layouts.candidates(plan, gpus)))), reference)
        msg = f"{plan.model.name} has no layout of {gpus} GPUs in {plan.engine}."
        raise EngineRefuses(msg, "choose another number of GPUs.")
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
