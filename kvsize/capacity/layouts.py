"""Every legal way to lay a model out over some GPUs, what each holds, and the smallest that will do.

A layout is legal where the engine's own model accepts it. Recommended is the one that holds the
sequences asked for with the smallest replica, because fewer ranks exchange less; where none are
asked for, the one that holds most. Pipeline stages answer later, so a layout with them comes only
where no other will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.capacity.holding import held, reason_refused
from kvsize.capacity.layout import Layout
from kvsize.capacity.machine import budget_of
from kvsize.capacity.rules import rules_for
from kvsize.capacity.search import largest
from kvsize.capacity.setup import Setup
from kvsize.engines._layers import attentions
from kvsize.layers import CompressedAttention, FullAttention, LatentAttention
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from kvsize.capacity.budget import Budget
    from kvsize.capacity.machine import Machine
    from kvsize.model import Model

# A replica of more ranks spans machines; engines are run so, but capacity is then no reason to.
_LARGEST_REPLICA = 64
_MOST_REPLICAS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is laid out: a model in an engine, its options, and the machine's memory."""

    model: Model
    machine: Machine
    engine: str
    engine_version: str | None = None
    kv_dtype: str = "auto"
    options: Mapping[str, object]

    def setup(self, layout: Layout) -> Setup:
        """The deployment in `layout`."""
        return Setup(
            model=self.model,
            engine=self.engine,
            layout=layout,
            engine_version=self.engine_version,
            kv_dtype=self.kv_dtype,
            options=self.options,
        )

    def budget(self, layout: Layout) -> Budget:
        """The ledger of one rank in `layout`."""
        return budget_of(self.machine, self.model, self.engine, self.engine_version, layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What one layout gives: the rank's weights and cache, and the sequences of all replicas.

    `copies`: how many ranks store the same token.
    """

    layout: Layout
    weights_bytes: int
    kv_bytes: int
    sequences: int
    copies: int
    budget: Budget


def legal(plan: Plan, gpus: int, context: int) -> list[Laid]:
    """Every layout of exactly `gpus` GPUs that the engine accepts, most sequences first."""
    found = [_laid(plan, each, context) for each in candidates(plan, gpus)]
    return sorted((laid for laid in found if laid), key=_most)


def candidates(plan: Plan, gpus: int) -> Iterator[Layout]:
    """The layouts of `gpus` GPUs that the engine's kinds of parallelism allow."""
    rules = rules_for(plan.engine)
    if rules.pooled:
        yield Layout(layer_split=gpus)
        return
    for tensor in _divisors(gpus) if rules.tensor else [1]:
        for pipeline in _divisors(gpus // tensor) if rules.pipeline else [1]:
            yield from _variants(plan, tensor, pipeline, gpus // (tensor * pipeline))


def _variants(plan: Plan, tensor: int, pipeline: int, data: int) -> Iterator[Layout]:
    rules = rules_for(plan.engine)
    shares = plan.machine.shares
    experts = rules.shared_experts and shares is not None and shares.experts
    for shards in _divisors(tensor) if rules.decode_context else [1]:
        yield Layout(
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            data_parallel_size=data,
            decode_context_parallel_size=shards,
            shared_experts=experts,
        )
    if data == 1 and rules.attention_dp:
        # TensorRT-LLM's attention DP is all ranks or none; SGLang's any divisor.
        groups = [tensor] if plan.engine == "tensorrt-llm" else _divisors(tensor)
        for group in groups:
            if group > 1:
                yield Layout(
                    tensor_parallel_size=tensor,
                    pipeline_parallel_size=pipeline,
                    data_parallel_size=group,
                    attention_dp=True,
                )


def recommended(found: list[Laid], sequences: int | None) -> tuple[Laid, str] | None:
    """The layout to take, and why; None where there is none."""
    for stages in (False, True):
        able = [laid for laid in found if laid.sequences and _staged(laid) <= stages]
        enough = [laid for laid in able if sequences is not None and laid.sequences >= sequences]
        if enough:
            best = min(enough, key=lambda laid: (laid.layout.ranks, *_most(laid)))
            return best, f"the smallest replica that holds {sequences:,} sequences{_but(stages)}"
        if able and (sequences is None or stages):
            return min(able, key=_most), f"it holds the most sequences{_but(stages)}"
    if not found:
        return None
    return max(found, key=lambda laid: laid.budget.left.columns[1]), "no layout holds a sequence"


def _staged(laid: Laid) -> bool:
    return laid.layout.pipeline_parallel_size > 1


def _but(stages: bool) -> str:
    return "" if stages else " without pipeline stages"


def smallest(plan: Plan, context: int, sequences: int, *, stages: bool = True) -> Laid | None:
    """The layout with the fewest GPUs that holds `sequences`; None where no replica can.

    Every replica of up to 64 GPUs is tried, smallest first, until a larger one cannot be better.
    `stages` False leaves pipeline stages out.
    """
    best: Laid | None = None
    for ranks in range(1, _LARGEST_REPLICA + 1):
        if best is not None and ranks >= best.layout.gpus:
            break
        for replica in candidates(plan, ranks):
            repeated = replica.data_parallel_size > 1 and not replica.attention_dp
            if repeated or (replica.pipeline_parallel_size > 1 and not stages):
                continue
            most = _MOST_REPLICAS if best is None else best.layout.gpus // ranks
            found = _enough(plan, replica, context, sequences, most)
            if found is not None and (best is None or _fewest(found) < _fewest(best)):
                best = found
    return best


def _enough(plan: Plan, replica: Layout, context: int, sequences: int, most: int) -> Laid | None:
    """`replica` as often as it takes to hold `sequences`; None where `most` do not."""
    first = _laid(plan, replica, context)
    if first is None or first.sequences >= sequences:
        return first
    if replica.attention_dp or replica.layer_split > 1:
        return None
    if not replica.shared_experts:
        count = ceil_div(sequences, first.sequences) if first.sequences else most + 1
        return _laid(plan, _repeated(replica, count), context) if count <= most else None
    short = largest(
        lambda count: not _holds(plan, _repeated(replica, count), context, sequences), at_most=most
    )
    return None if short == most else _laid(plan, _repeated(replica, short + 1), context)


def _holds(plan: Plan, layout: Layout, context: int, sequences: int) -> bool:
    found = _laid(plan, layout, context)
    return found is not None and found.sequences >= sequences


def _repeated(replica: Layout, count: int) -> Layout:
    return Layout(
        tensor_parallel_size=replica.tensor_parallel_size,
        pipeline_parallel_size=replica.pipeline_parallel_size,
        decode_context_parallel_size=replica.decode_context_parallel_size,
        data_parallel_size=count,
        shared_experts=replica.shared_experts,
    )


def _laid(plan: Plan, layout: Layout, context: int) -> Laid | None:
    """What `layout` gives; None where the engine refuses it."""
    setup = plan.setup(layout)
    if not _heads_divide(plan.model, layout) or reason_refused(setup, context) is not None:
        return None
    budget = plan.budget(layout)
    weights = next((-e.columns[1] for e in budget.entries if e.label == "weights"), 0)
    return Laid(
        layout=layout,
        weights_bytes=weights,
        kv_bytes=budget.best_bytes,
        sequences=held(setup, context, budget.best_bytes).sequences,
        copies=copies(plan.model, layout),
        budget=budget,
    )


def _heads_divide(model: Model, layout: Layout) -> bool:
    """Query heads must divide over the ranks that share them, in every engine here."""
    heads = {
        a.num_attention_heads
        for a in attentions(model)
        if isinstance(a, FullAttention | LatentAttention)
    }
    return all(count % layout.attention_ranks == 0 for count in heads)


def copies(model: Model, layout: Layout) -> int:
    """How many ranks of a pipeline stage store the same token of the layer that repeats most."""
    ranks = layout.attention_ranks
    found = [1]
    for attention in attentions(model):
        if isinstance(attention, LatentAttention | CompressedAttention):
            found.append(ranks)
        elif isinstance(attention, FullAttention):
            found.append(max(1, ranks // attention.num_key_value_heads))
    return max(1, max(found) // layout.decode_context_parallel_size)


def _most(laid: Laid) -> tuple[int, int, int, int]:
    layout = laid.layout
    return (
        -laid.sequences,
        layout.pipeline_parallel_size,
        layout.ranks,
        layout.decode_context_parallel_size,
    )


def _fewest(laid: Laid) -> tuple[int, int, int, int]:
    layout = laid.layout
    return layout.gpus, layout.pipeline_parallel_size, layout.ranks, -laid.sequences


def _divisors(count: int) -> list[int]:
    return [number for number in range(1, count + 1) if count % number == 0]
