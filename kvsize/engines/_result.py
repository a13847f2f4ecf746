"""From what each layer stores on each rank to a Size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvsize.engines._layers import kind_of, tensors_of
from kvsize.parallel import fullest_rank_note
from kvsize.results import Fit, LayerGroup, Size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.engines.options import Request
    from kvsize.layers import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one layer stores on each tensor-parallel rank of its pipeline stage.

    `used` is filled by the sequences asked for; `allocated` is what the tensors take, and
    `prefill` what they take right after the prompt (both default to what stands before them).
    """

    kind: str
    tensors: tuple[str, ...] = ()
    used: tuple[int, ...]
    allocated: tuple[int, ...] = ()
    prefill: tuple[int, ...] = ()


def stored(
    layer: Layer,
    dtype: str,
    used: Sequence[int],
    allocated: Sequence[int] = (),
    prefill: Sequence[int] = (),
) -> Stored:
    """What `layer` stores, with its kind and its tensors in words."""
    return Stored(
        kind=kind_of(layer),
        tensors=tensors_of(layer, dtype),
        used=tuple(used),
        allocated=tuple(allocated),
        prefill=tuple(prefill),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An engine's own part of a Size: names, details and notes."""

    engine: str
    version: str
    cache: str
    kv_dtype: str
    details: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str | None, ...] = ()


def assemble(
    answer: Answer, request: Request, layers: Sequence[Stored], stages: Sequence[range]
) -> Size:
    """The Size of `layers` (one entry per model layer) over pipeline `stages`."""
    used = [layer.used for layer in layers]
    allocated = [layer.allocated or layer.used for layer in layers]
    prefill = [layer.prefill or layer.allocated or layer.used for layer in layers]
    rank_bytes = _per_rank(used, stages)
    notes = (*answer.notes, fullest_rank_note(rank_bytes))
    return Size(
        engine=answer.engine,
        engine_version=answer.version,
        cache=answer.cache,
        context=request.context,
        sequences=request.sequences,
        kv_dtype=answer.kv_dtype,
        total_bytes=sum(rank_bytes),
        layer_bytes=tuple(sum(on_ranks) for on_ranks in used),
        allocated_bytes=sum(_per_rank(allocated, stages)),
        prefill_bytes=sum(_per_rank(prefill, stages)),
        rank_bytes=rank_bytes,
        groups=_groups(layers),
        details=answer.details,
        notes=tuple(note for note in notes if note),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A filled pool: its blocks, and how many of them one sequence needs.

    `name` is the engine's word for a block, `short` what it does when one sequence needs more.
    """

    blocks: int
    block_bytes: int
    block_tokens: int
    needed: int
    short: str
    name: str = "blocks"


def filled(answer: Answer, request: Request, kv_memory: int, pool: Pool) -> Fit:
    """The Fit of `pool` in `kv_memory` bytes per rank."""
    short = short_note(pool.blocks, pool.needed, pool.name, pool.short)
    return Fit(
        engine=answer.engine,
        engine_version=answer.version,
        context=request.context,
        kv_dtype=answer.kv_dtype,
        kv_memory=kv_memory,
        blocks=pool.blocks,
        block_bytes=pool.block_bytes,
        tokens=pool.blocks * pool.block_tokens,
        concurrency=pool.blocks / pool.needed,
        details=answer.details,
        notes=tuple(note for note in (*answer.notes, short) if note),
    )


def short_note(capacity: int, needed: int, what: str, then: str) -> str | None:
    """A sentence when not even one sequence fits; `then` says what the engine does about it."""
    if capacity >= needed:
        return None
    return f"One sequence needs {needed:,} {what}, and {capacity:,} fit: {then}."


def _per_rank(layers: Sequence[tuple[int, ...]], stages: Sequence[range]) -> tuple[int, ...]:
    shards = len(layers[0]) if layers else 1
    return tuple(
        sum(layers[index][shard] for index in stage) for stage in stages for shard in range(shards)
    )


def _groups(layers: Sequence[Stored]) -> tuple[LayerGroup, ...]:
    together: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for layer in layers:
        together.setdefault((layer.kind, layer.tensors), []).append(sum(layer.used))
    return tuple(
        LayerGroup(kind=kind, layers=len(sizes), tensors=tensors, total_bytes=sum(sizes))
        for (kind, tensors), sizes in together.items()
    )
