"""What the serving engines share: versions, dtypes, typed options, and a Size from layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kvsize.dtypes import canonical
from kvsize.engines.options import resolve
from kvsize.errors import UsageError
from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
)
from kvsize.parallel import fullest_rank_note, latent_note, replication_note
from kvsize.results import LayerGroup, Size
from kvsize.suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.engines.options import Option, Request
    from kvsize.layers import Layer
    from kvsize.model import Model

Attention = FullAttention | LatentAttention | CompressedAttention | CrossAttention
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Values:
    """An engine's options with their values, typed at the place of use."""

    engine: str
    values: Mapping[str, object]

    def whole(self, name: str) -> int:
        """The integer option `name`, which always has a value."""
        value = self.values[name]
        if not isinstance(value, int):
            msg = f"{self.engine}: {name} must be a whole number."
            raise UsageError(msg, f"`kvsize engines {self.engine}` lists the options.")
        return value

    def whole_or_none(self, name: str) -> int | None:
        """The integer option `name`, or None where it was left open."""
        return None if self.values[name] is None else self.whole(name)

    def number(self, name: str) -> float:
        """The float option `name`, which always has a value."""
        value = self.values[name]
        if not isinstance(value, int | float):
            msg = f"{self.engine}: {name} must be a number."
            raise UsageError(msg, f"`kvsize engines {self.engine}` lists the options.")
        return float(value)

    def number_or_none(self, name: str) -> float | None:
        """The float option `name`, or None where it was left open."""
        return None if self.values[name] is None else self.number(name)

    def flag(self, name: str) -> bool:
        """The boolean option `name`."""
        return self.values[name] is True

    def text(self, name: str) -> str | None:
        """The text option `name`, or None where it was left open."""
        value = self.values[name]
        return None if value is None else str(value)


def options_of(engine: str, options: tuple[Option, ...], request: Request) -> Values:
    """The request's options, checked and completed with the engine's defaults."""
    return Values(engine, resolve(engine, options, request.options))


def version_of(engine: str, versions: tuple[str, ...], wanted: str | None) -> str:
    """The version asked for, or the newest modelled; UsageError for one that is not modelled."""
    if wanted is None:
        return versions[0]
    if wanted not in versions:
        msg = f"{engine} {wanted} is not modelled."
        raise UsageError(msg, f"versions modelled: {', '.join(versions)}.")
    return wanted


def named_dtype(engine: str, known: Mapping[str, T], wanted: str) -> T:
    """The entry of `known` under `wanted`, in any spelling; UsageError names those there are."""
    for name in (wanted.lower(), canonical(wanted)):
        if name in known:
            return known[name]
    msg = f"{engine} has no KV dtype '{wanted}'."
    raise UsageError(msg, nearest(wanted, known, f"it has {', '.join(known)}"))


def parts(layer: Layer) -> tuple[Attention | None, RecurrentState | None]:
    """A layer's attention and its recurrent state; either may be absent."""
    match layer:
        case HybridLayer():
            return layer.attention, layer.recurrent
        case RecurrentState():
            return None, layer
        case NoCache():
            return None, None
    return layer, None


def attentions(model: Model) -> tuple[Attention, ...]:
    """The attention of every layer that has one."""
    found = (parts(layer)[0] for layer in model.layers)
    return tuple(attention for attention in found if attention is not None)


def recurrents(model: Model) -> tuple[RecurrentState, ...]:
    """The recurrent state of every layer that has one."""
    found = (parts(layer)[1] for layer in model.layers)
    return tuple(state for state in found if state is not None)


def parallel_notes(model: Model, ranks: int, latent_remedy: str) -> tuple[str | None, ...]:
    """What tensor parallelism over `ranks` does not save for this model, in sentences."""
    found = attentions(model)
    latent = any(isinstance(attention, LatentAttention) for attention in found)
    heads = max((a.num_key_value_heads for a in found if isinstance(a, FullAttention)), default=0)
    return (
        latent_note(ranks, latent_remedy) if latent else None,
        replication_note(heads, ranks) if heads else None,
    )


def kind_of(layer: Layer) -> str:
    """What a group of such layers is called: full, sliding, latent, recurrent state …"""
    attention, recurrent = parts(layer)
    names = {
        "FullAttention": "full attention",
        "SlidingAttention": "sliding attention",
        "ChunkedAttention": "chunked attention",
        "ReferenceAttention": "full attention",
        "LatentAttention": "latent attention",
        "CompressedAttention": "compressed attention",
        "CrossAttention": "cross attention",
        "NoneType": "",
    }
    words = [names[type(attention).__name__], "recurrent state" if recurrent else ""]
    return " and ".join(word for word in words if word) or "nothing kept"


def not_modelled(engine: str, what: str, instead: str) -> UsageError:
    """The error for something the engine can do and kvsize cannot size."""
    return UsageError(f"{engine}: {what} is not modelled.", instead)


def short_note(capacity: int, needed: int, what: str, then: str) -> str | None:
    """A sentence when not even one sequence fits; `then` says what the engine does about it."""
    if capacity >= needed:
        return None
    return f"One sequence needs {needed:,} {what}, and {capacity:,} fit: {then}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What one layer stores on each tensor-parallel rank of its pipeline stage.

    `used` is filled by the sequences asked for; `allocated` is what the tensors take, and
    `prefill` what they take right after the prompt (both default to what stands before them).
    """

    kind: str
    tensors: tuple[str, ...]
    used: tuple[int, ...]
    allocated: tuple[int, ...] = ()
    prefill: tuple[int, ...] = ()


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


def no_pipeline(engine: str, request: Request, instead: str) -> None:
    """UsageError when pipeline parallelism is asked of an engine that does not have it."""
    if request.pipeline_parallel_size > 1:
        msg = f"{engine} has no pipeline parallelism."
        raise UsageError(msg, instead)


def with_context(model: Model, request: Request, engine: str) -> Request:
    """The request with a context: its own, or the model's limit where it says 0."""
    if request.context:
        return request
    if model.context_limit is None:
        msg = f"{engine}: {model.where} states no context limit, so a context must be given."
        raise UsageError(msg, "give a context, such as 32768.")
    return replace(request, context=model.context_limit)
