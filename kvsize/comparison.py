"""What changed between two caches, and why: figures, kinds of layers, keys, reasons in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kvsize.api import size as size_of
from kvsize.errors import KvsizeError
from kvsize.explain import Key, keys_of
from kvsize.reasons import reasons
from kvsize.record import Record
from kvsize.report import build, for_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvsize.advice import Ask
    from kvsize.model import Model
    from kvsize.report import Row

DEFAULT_CONTEXT = 32768
# What of an Ask is the engine's, and changes together.
ENGINE_WORDS = ("engine", "engine_version", "options")


class Side(Record, kw_only=True):
    """One of the two caches; `label` is the shortest name that tells it from the other."""

    label: str
    model: str
    hub_id: str | None
    revision: str | None
    source: str
    model_type: str
    attention: str
    attention_detail: str
    context_limit: int | None
    engine: str
    engine_version: str
    cache: str
    kv_dtype: str
    layers: int


class Figure(Record, kw_only=True):
    """Both caches at one context; `ratio` is the second's total over the first's."""

    context: int
    sequences: int
    token_bytes: tuple[int, int]
    sequence_bytes: tuple[int, int]
    total_bytes: tuple[int, int]
    ratio: float | None


class Part(Record, kw_only=True):
    """The layers of one kind, in both caches, at the largest context."""

    kind: str
    layers: tuple[int, int]
    total_bytes: tuple[int, int]


class Step(Record, kw_only=True):
    """The total after one more of the changes (model, engine, dtype) was made to the first."""

    change: str
    total_bytes: int
    ratio: float | None


class KeyChange(Record, kw_only=True):
    """A key that the layers rest on and whose value differs; null where a side has none."""

    key: str
    values: tuple[object, object]
    origins: tuple[str | None, str | None]


class Comparison(Record, kw_only=True):
    """Everything that is to be told; pairs are (first, second)."""

    schema_version: Literal[1] = 1
    differs: bool
    sides: tuple[Side, Side]
    figures: tuple[Figure, ...]
    parts: tuple[Part, ...]
    steps: tuple[Step, ...]
    keys: tuple[KeyChange, ...]
    reasons: tuple[str, ...]


def compare(
    models: tuple[Model, Model],
    asks: tuple[Ask, Ask],
    contexts: tuple[int, ...] = (),
    sequences: int = 1,
) -> Comparison:
    """What the second cache has otherwise than the first.

    No `contexts`: 32,768 tokens, or what the shorter of the two models is made for. Raises what
    `kvsize.size` raises.
    """
    wanted = contexts or (_usual_context(models),)
    first, second = (
        build([model], ask, wanted, (sequences,)).rows
        for model, ask in zip(models, asks, strict=True)
    )
    figures = tuple(map(_figure, first, second))
    largest = max(range(len(wanted)), key=lambda index: wanted[index])
    last = (first[largest], second[largest])
    parts = tuple(_parts(last))
    sides = _sides(last)
    labels = (sides[0].label, sides[1].label)
    return Comparison(
        differs=_differs(figures, parts, last),
        sides=sides,
        figures=figures,
        parts=parts,
        steps=_steps(models, asks, last),
        keys=_key_changes(models),
        reasons=tuple(reasons(models, last, labels)),
    )


def _differs(figures: tuple[Figure, ...], parts: tuple[Part, ...], rows: tuple[Row, Row]) -> bool:
    """Whether a figure differs, or, in one engine, the number of layers of a kind."""
    pairs = [pair for each in figures for pair in (each.token_bytes, each.total_bytes)]
    if rows[0].engine == rows[1].engine:  # each has its own names for kinds
        pairs += [part.layers for part in parts]
    return any(first != second for first, second in pairs)


def _usual_context(models: tuple[Model, Model]) -> int:
    limits = [model.context_limit for model in models if model.context_limit is not None]
    return min([*limits, DEFAULT_CONTEXT])


def ratio(first: int, second: int) -> float | None:
    """How many times the first the second is, to four digits; None where there is no first."""
    return round(second / first, 4) if first else None


def _figure(first: Row, second: Row) -> Figure:
    return Figure(
        context=first.context,
        sequences=first.sequences,
        token_bytes=(first.token_bytes, second.token_bytes),
        sequence_bytes=(first.sequence_bytes, second.sequence_bytes),
        total_bytes=(first.total_bytes, second.total_bytes),
        ratio=ratio(first.total_bytes, second.total_bytes),
    )


def _parts(rows: tuple[Row, Row]) -> Iterator[Part]:
    """Kinds in the order of the first cache, then those that only the second has."""
    held: dict[str, list[tuple[int, int]]] = {}
    for index, row in enumerate(rows):
        for group in row.groups:
            sides = held.setdefault(group.kind, [(0, 0), (0, 0)])
            layers, total_bytes = sides[index]
            sides[index] = (layers + group.layers, total_bytes + group.total_bytes)
    for kind, (first, second) in held.items():
        yield Part(kind=kind, layers=(first[0], second[0]), total_bytes=(first[1], second[1]))


def _sides(rows: tuple[Row, Row]) -> tuple[Side, Side]:
    first, second = rows
    if first.model != second.model:
        labels = (first.model, second.model)
    else:
        told = [
            [row.engine, f"{row.engine} {row.engine_version}", row.kv_dtype, row.cache]
            for row in rows
        ]
        # The first of these that differs: an engine, its version, a dtype, a kind of cache.
        other = [pair for pair in zip(*told, strict=True) if pair[0] != pair[1]]
        labels = other[0] if other else ("first", "second")
    return _side(first, labels[0]), _side(second, labels[1])


def _side(row: Row, label: str) -> Side:
    return Side(
        label=label,
        model=row.model,
        hub_id=row.hub_id,
        revision=row.revision,
        source=row.source,
        model_type=row.model_type,
        attention=row.attention,
        attention_detail=row.attention_detail,
        context_limit=row.context_limit,
        engine=row.engine,
        engine_version=row.engine_version,
        cache=row.cache,
        kv_dtype=row.kv_dtype,
        layers=row.layers,
    )


def _steps(
    models: tuple[Model, Model], asks: tuple[Ask, Ask], rows: tuple[Row, Row]
) -> tuple[Step, ...]:
    """One change after the other, from the first cache to the second, where there are several.

    Empty for a single change, and where an engine refuses a mixture on the way.
    """
    own = [for_model(model, ask) for model, ask in zip(models, asks, strict=True)]
    changes: list[tuple[str, Ask, Model]] = []
    ask, model = own[0], models[0]
    if models[0].where != models[1].where or models[0].layers != models[1].layers:
        model = models[1]
        changes.append((f"model {rows[1].model}", ask, model))
    if any(own[0][word] != own[1][word] for word in ENGINE_WORDS):  # type: ignore[literal-required]
        ask = own[1].copy()
        ask["kv_dtype"] = own[0]["kv_dtype"]
        changes.append((f"engine {rows[1].engine} {rows[1].engine_version}", ask, model))
    if own[0]["kv_dtype"] != own[1]["kv_dtype"]:
        changes.append((f"dtype {rows[1].kv_dtype}", own[1], model))
    if len(changes) < 2:
        return ()
    context, sequences = rows[0].context, rows[0].sequences
    before, steps = rows[0].total_bytes, []
    for change, asked, sized in changes:
        try:
            total = size_of(sized, context=context, sequences=sequences, **asked).total_bytes
        except KvsizeError:
            return ()
        steps.append(Step(change=change, total_bytes=total, ratio=ratio(before, total)))
        before = total
    return tuple(steps)


def _key_changes(models: tuple[Model, Model]) -> tuple[KeyChange, ...]:
    first, second = ({_key_name(key.key): key for key in keys_of(model)} for model in models)
    found = []
    for name in dict.fromkeys([*first, *second]):
        one = first.get(name) or _stated(models[0], name)
        other = second.get(name) or _stated(models[1], name)
        values = (one.value if one else None, other.value if other else None)
        if values[0] != values[1]:
            origins = (one.origin if one else None, other.origin if other else None)
            found.append(KeyChange(key=name, values=values, origins=origins))
    return tuple(found)


def _key_name(key: str) -> str:
    """Transformers 5 calls `torch_dtype` `dtype`."""
    return "dtype" if key == "torch_dtype" else key


def _stated(model: Model, name: str) -> Key | None:
    """A key that this side's layers do not rest on, where its file states it all the same."""
    value = model.config.raw.get(name, model.root.raw.get(name))
    return None if value is None else Key(name, value, "config.json", name)
