"""Every column a table can have: its name for `--columns`, its heading, what it says of a row.

The default layout is made from this table too: a column with `full` is a fact, which stands in the
heading where all rows share it; one with `shown` is a figure of the reports it says yes to. The
others come only when they are chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.advice import times
from kvsize.attention import attention_short
from kvsize.errors import UsageError
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.report import Report, Row

AUTO = "auto"
"""Instead of names: the columns that the rows call for, as the default table has them."""


class Column:
    """A column: `text` is its cell for people, `field` the field of Row that data formats write.

    `figure`: it is aligned to the right. Not a Record: every start makes all of them, and nothing
    compares them by value.
    """

    __slots__ = ("field", "figure", "full", "heading", "name", "shown", "text")

    def __init__(  # noqa: PLR0913 - a record's own fields
        self,
        name: str,
        heading: str,
        text: Callable[[Row, str | None], str],
        field: str = "",
        *,
        figure: bool = False,
        full: Callable[[Row], str] | None = None,
        shown: Callable[[Report], bool] | None = None,
    ) -> None:
        self.name, self.heading, self.text, self.field = name, heading, text, field
        self.figure, self.full, self.shown = figure, full, shown


def chosen(names: str) -> tuple[Column, ...]:
    """`model,kv-heads,total` → those columns, in that order; `auto` → none, the rows decide.

    The fields of the report are names too (`num_key_value_heads`). Raises UsageError for a name
    that is not one, and for a column that is named twice.
    """
    if names.strip().lower() == AUTO:
        return ()
    known = _by_name()
    found: list[Column] = []
    for name in names.split(","):
        column = known.get(name.strip().lower().replace("_", "-"))
        if column is None:
            from kvsize.suggest import nearest

            listed = f"the columns are {AUTO}, {', '.join(each.name for each in COLUMNS)}"
            raise UsageError(f"no column named '{name.strip()}'.", nearest(name, known, listed))
        if column in found:
            message = f"the column '{column.name}' is chosen twice."
            raise UsageError(message, "name each column once.")
        found.append(column)
    return tuple(found)


def _by_name() -> dict[str, Column]:
    fields = {column.field.replace("_", "-"): column for column in COLUMNS if column.field}
    return fields | {column.name: column for column in COLUMNS}


def _model(row: Row) -> str:
    known = [
        name for name in (row.hub_id, row.revision, row.source) if name not in (None, row.model)
    ]
    return f"{row.model} ({', '.join(known)})" if known else row.model


def _attention(row: Row) -> str:
    detail = f", {row.attention_detail}" if row.attention_detail else ""
    return f"{row.attention}{detail}; {row.layers} layers"


def _attention_short(row: Row, _: str | None) -> str:
    return attention_short(row.attention, row.num_attention_heads, row.num_key_value_heads)


def _cache(row: Row) -> str:
    options = "".join(f", {name} {value}" for name, value in row.options.items() if name != "cache")
    return f"{row.cache}{options}"


def _setup(row: Row) -> str:
    return f"{row.engine} {row.engine_version} {_cache(row)}"


def _dtype(row: Row) -> str:
    return f"{row.kv_dtype} (assumed)" if row.kv_dtype_assumed else row.kv_dtype


def _parallel(row: Row) -> str:
    sizes = (("tensor", row.tensor_parallel_size), ("pipeline", row.pipeline_parallel_size))
    return ", ".join(f"{name} {size}" for name, size in sizes if size > 1)


def _fullest(row: Row, unit: str | None) -> str:
    """What the fullest rank holds, and which one it is where they differ (counted from 0)."""
    most = max(row.rank_bytes, default=row.total_bytes)
    named = f" (rank {row.rank_bytes.index(most)})" if len(set(row.rank_bytes)) > 1 else ""
    return format_bytes(most, unit) + named


def _overcount(row: Row, _: str | None) -> str:
    return "" if row.mha_overcount is None else times(row.mha_overcount)


def _groups(row: Row, unit: str | None) -> str:
    groups = [
        f"{group.layers} × {group.kind} {format_bytes(group.total_bytes, unit)}"
        for group in row.groups
    ]
    return ", ".join(groups)


def _always(_: Report) -> bool:
    return True


def _many(report: Report) -> bool:
    return any(row.sequences > 1 for row in report.rows)


def _split(report: Report) -> bool:
    return any(len(row.rank_bytes) > 1 for row in report.rows)


def _formula_applies(report: Report) -> bool:
    return any(row.mha_overcount is not None for row in report.rows)


def _plain(name: str, heading: str, field: str) -> Column:
    """A text as the row has it."""

    def text(row: Row, _: str | None) -> str:
        return str(getattr(row, field) or "")

    return Column(name, heading, text, field)


def _count(
    name: str, heading: str, field: str, shown: Callable[[Report], bool] | None = None
) -> Column:
    """A number; empty where nothing is known."""

    def text(row: Row, _: str | None) -> str:
        value = getattr(row, field)
        return "" if value is None else format_tokens(value)

    return Column(name, heading, text, field, figure=True, shown=shown)


def _bytes(
    name: str, heading: str, field: str, shown: Callable[[Report], bool] | None = None
) -> Column:
    """Bytes; empty where nothing is known."""

    def text(row: Row, unit: str | None) -> str:
        value = getattr(row, field)
        return "" if value is None else format_bytes(value, unit)

    return Column(name, heading, text, field, figure=True, shown=shown)


COLUMNS = (
    Column("model", "model", lambda row, _: row.model, "model", full=_model),
    Column("attention", "attention", _attention_short, "attention", full=_attention),
    Column("setup", "cache", lambda row, _: _setup(row), full=_setup),
    Column("dtype", "dtype", lambda row, _: _dtype(row), "kv_dtype", full=_dtype),
    Column("parallel", "parallel", lambda row, _: _parallel(row), full=_parallel),
    _count("context", "context", "context", _always),
    _count("batch", "batch", "sequences", _many),
    _bytes("token", "per token", "token_bytes", _always),
    _bytes("sequence", "per sequence", "sequence_bytes", _always),
    _bytes("total", "whole batch", "total_bytes", _many),
    Column("rank", "fullest rank", _fullest, "rank_bytes", figure=True, shown=_split),
    Column(
        *("mha-overcount", "as MHA", _overcount, "mha_overcount"),
        figure=True,
        shown=_formula_applies,
    ),
    _bytes("mha", "MHA formula", "mha_bytes"),
    _bytes("allocated", "allocated", "allocated_bytes"),
    _bytes("prefill", "after prefill", "prefill_bytes"),
    _bytes("peak", "peak", "peak_bytes"),
    Column("groups", "kinds of layer", _groups, "groups"),
    _count("layers", "layers", "layers"),
    _count("heads", "query heads", "num_attention_heads"),
    _count("kv-heads", "KV heads", "num_key_value_heads"),
    _count("head-dim", "head_dim", "head_dim"),
    _count("context-limit", "context limit", "context_limit"),
    _plain("hub-id", "Hub id", "hub_id"),
    _plain("revision", "revision", "revision"),
    _plain("source", "source", "source"),
    _plain("model-type", "model type", "model_type"),
    _plain("attention-detail", "heads", "attention_detail"),
    Column("engine", "engine", lambda row, _: f"{row.engine} {row.engine_version}", "engine"),
    _plain("engine-version", "version", "engine_version"),
    Column("cache", "cache", lambda row, _: _cache(row), "cache"),
    Column(
        "options",
        "options",
        lambda row, _: ", ".join(f"{name} {value}" for name, value in row.options.items()),
        "options",
    ),
    Column(
        "dtype-assumed",
        "dtype assumed",
        lambda row, _: "yes" if row.kv_dtype_assumed else "no",
        "kv_dtype_assumed",
    ),
    _count("tp", "tensor parallel", "tensor_parallel_size"),
    _count("pp", "pipeline parallel", "pipeline_parallel_size"),
    Column(
        "warnings",
        "warnings",
        lambda row, _: ", ".join(warning.code for warning in row.warnings),
        "warnings",
    ),
)
