"""The answer as data: a row for each model, context and number of sequences.

Every output format prints a `Report`; JSON is exactly its fields, and data/report.schema.json is
generated from it. Bytes are integers. The fields are a promise: SCHEMA_VERSION grows when one
changes its meaning or goes away, not when one is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from kvsize import advice, attention
from kvsize.advice import Advice, Ask, Case
from kvsize.api import size as size_of
from kvsize.elsewhere import OtherEngine, other_engines
from kvsize.errors import EngineRefuses
from kvsize.model import Model
from kvsize.record import Record
from kvsize.results import LayerGroup

SCHEMA_VERSION: Literal[1] = 1
# Contexts shown when none is asked for: these, and the model's own limit in place of the larger.
DEFAULT_CONTEXTS = (1024, 4096, 16384, 65536, 262144, 1048576)
UNLIMITED_CONTEXTS = DEFAULT_CONTEXTS[:4]
# A multiple of the blocks that engines allocate and of the rates at which models compress.
GROWTH_TOKENS = 256


class Row(Record, kw_only=True):
    """One figure: what a cache takes for `sequences` sequences of `context` tokens."""

    model: str
    """What the model was called: a preset's name, a Hub id, a path."""
    hub_id: str | None
    """Its id on the Hugging Face Hub, where known."""
    revision: str | None
    """The Hub revision that was read."""
    source: str
    """Where the config came from: preset, hub, file, stdin, mapping or gguf."""
    model_type: str
    """config.json's model_type."""
    attention: str
    """MHA, GQA, MQA, MLA, compressed, recurrent, or a hybrid and what of."""
    attention_detail: str
    """The heads of each kind of attention, in words."""
    num_attention_heads: int | None
    """Query heads; null where layers differ or have none."""
    num_key_value_heads: int | None
    """Cached heads; null where layers differ or cache a latent."""
    head_dim: int | None
    """Width of a cached key; null where layers differ or cache a latent."""
    layers: int
    """Layers of the cache, those that keep nothing included."""
    context_limit: int | None
    """The longest sequence the model is made for, in tokens."""
    engine: str
    """The engine whose cache this is."""
    engine_version: str
    """The engine's version the figure holds for."""
    cache: str
    """The engine's cache, such as DynamicCache."""
    options: Mapping[str, object]
    """Engine options that were given, in the engine's words."""
    kv_dtype: str
    """The dtype of keys and values."""
    kv_dtype_assumed: bool
    """Whether the dtype was assumed because the config states none."""
    context: int
    """Tokens of one sequence."""
    sequences: int
    """Concurrent sequences."""
    tensor_parallel_size: int
    pipeline_parallel_size: int
    token_bytes: int
    """What one more token adds to one sequence: the average over the next 256 tokens."""
    sequence_bytes: int
    """What one sequence of `context` tokens holds."""
    total_bytes: int
    """What the tensors of all sequences and ranks hold."""
    allocated_bytes: int
    """What their storages hold; larger where a tensor is a view of a bigger buffer."""
    prefill_bytes: int
    """What the storages hold right after a prompt of `context` tokens, or the prompt given."""
    peak_bytes: int | None
    """What the storages and the copies made while they grow hold at most; null where unknown."""
    rank_bytes: tuple[int, ...]
    """The same as total_bytes per rank, where the cache is split over ranks."""
    groups: tuple[LayerGroup, ...]
    """The split of total_bytes by kind of layer."""
    mha_bytes: int | None
    """What 2 · layers · heads · head_dim · bytes gives; null where the model has no heads."""
    mha_overcount: float | None
    """mha_bytes over total_bytes, to four digits after the point."""
    details: Mapping[str, object]
    """Figures in the engine's own words."""
    notes: tuple[str, ...]
    """What must be known to compare the figure."""
    other_engines: tuple[OtherEngine, ...]
    """What other engines take for one sequence, where that differs; asked for tables only."""
    warnings: tuple[Advice, ...]
    """What is easily counted wrong about this model, and what was assumed."""


class Report(Record):
    """All rows that were asked for."""

    schema_version: Literal[1]
    rows: tuple[Row, ...]


def build(
    models: Iterable[Model],
    ask: Ask,
    contexts: tuple[int, ...] = (),
    sequences: tuple[int, ...] = (1,),
    *,
    compare: bool = False,
) -> Report:
    """A row for each model, context and number of sequences, in that order.

    No `contexts`: a few of them up to each model's limit. No engine in `ask`: each model's own,
    and with `compare` each row also has what other engines take. Raises UsageError for an option the
    engine does not have, EngineRefuses where the engine itself refuses the settings.
    """
    rows = [
        _row(model, context, count, own, compare=compare and _asks_for_defaults(ask))
        for model in models
        for own in (for_model(model, ask),)
        for context in contexts or default_contexts(model.context_limit)
        for count in sequences
    ]
    return Report(SCHEMA_VERSION, tuple(rows))


def _asks_for_defaults(ask: Ask) -> bool:
    """Whether the figure is for no engine in particular, so that others are comparable."""
    parallel = (ask["tensor_parallel_size"], ask["pipeline_parallel_size"])
    chosen = ask["engine"] or ask["engine_version"] or ask["options"]
    return not chosen and parallel == (1, 1) and ask["kv_dtype"] == "auto"


def for_model(model: Model, ask: Ask) -> Ask:
    """`ask` with the engine a model is for where none is named: llama.cpp for a GGUF file."""
    own = "llama.cpp" if model.source == "gguf" else "transformers"
    return {**ask, "engine": ask["engine"] or own}


def default_contexts(limit: int | None) -> tuple[int, ...]:
    """A few contexts up to the model's limit: 131072 → 1024, 4096, 16384, 65536, 131072."""
    if limit is None:
        return UNLIMITED_CONTEXTS
    return (*(context for context in DEFAULT_CONTEXTS if context < limit), limit)


def token_bytes(model: Model, context: int, ask: Ask, sequence_bytes: int) -> int:
    """What one token adds to a sequence of `context` tokens: an average over GROWTH_TOKENS.

    A window that is full adds nothing; a cache that grows by blocks, or compresses, adds the
    same in every span of that length. Counted over the last tokens where the engine refuses more.
    """
    try:
        more = _generating(ask, GROWTH_TOKENS)
        longer = size_of(model, context=context + GROWTH_TOKENS, **more).total_bytes
    except EngineRefuses:
        shorter = max(context - GROWTH_TOKENS, 1)
        less = _generating(ask, shorter - context)
        held = size_of(model, context=shorter, **less).total_bytes
        return (sequence_bytes - held) // max(context - shorter, 1)
    return (longer - sequence_bytes) // GROWTH_TOKENS


def _generating(ask: Ask, tokens: int) -> Ask:
    """`ask` with `tokens` more new tokens, where it states how many are generated."""
    stated = ask["options"].get("new_tokens")
    if not str(stated).isdecimal():
        return ask
    return {**ask, "options": {**ask["options"], "new_tokens": max(int(str(stated)) + tokens, 1)}}


def _row(model: Model, context: int, sequences: int, ask: Ask, *, compare: bool) -> Row:
    size = size_of(model, context=context, sequences=sequences, **ask)
    one = size if sequences == 1 else size_of(model, context=context, **ask)
    case = Case(model, ask, size)
    mha = advice.mha_bytes(case)
    queries, cached, width = attention.heads(model.layers)
    others: tuple[OtherEngine, ...] = ()
    if compare and model.source != "gguf":
        others = other_engines(model, context, one.total_bytes)
    return Row(
        model=model.name,
        hub_id=model.hub_id,
        revision=model.revision,
        source=model.source,
        model_type=model.model_type,
        attention=attention.attention_name(model.layers),
        attention_detail=attention.attention_detail(model.layers),
        num_attention_heads=queries,
        num_key_value_heads=cached,
        head_dim=width,
        layers=len(size.layer_bytes),
        context_limit=model.context_limit,
        engine=size.engine,
        engine_version=size.engine_version,
        cache=size.cache,
        options=ask["options"],
        kv_dtype=size.kv_dtype,
        kv_dtype_assumed=advice.dtype_is_assumed(model, ask),
        context=size.context,
        sequences=size.sequences,
        tensor_parallel_size=ask["tensor_parallel_size"],
        pipeline_parallel_size=ask["pipeline_parallel_size"],
        token_bytes=token_bytes(model, size.context, ask, one.total_bytes),
        sequence_bytes=one.total_bytes,
        total_bytes=size.total_bytes,
        allocated_bytes=size.allocated_bytes,
        prefill_bytes=size.prefill_bytes,
        peak_bytes=size.peak_bytes,
        rank_bytes=size.rank_bytes,
        groups=size.groups,
        mha_bytes=mha,
        mha_overcount=advice.overcount(mha, size.total_bytes),
        details=size.details,
        notes=size.notes,
        other_engines=others,
        warnings=tuple(advice.warnings(case)),
    )
