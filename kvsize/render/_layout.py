"""What every format for people shows, before it is drawn: heading, columns, rows, remarks.

A fact that all rows share stands in the heading, once; one that differs becomes a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.advice import times
from kvsize.attention import attention_short
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvsize.report import Report, Row

Fact = tuple[str, "Callable[[Row], str]", "Callable[[Row], str]"]


class Layout:
    """A report laid out: `heading` is label and text, `parts` says which rows belong to the one
    above, `remarks` is label and text. Text columns come first, figures follow.
    """

    def __init__(self, report: Report, unit: str | None) -> None:
        rows = report.rows
        shared = [(name, full(rows[0])) for name, full, _ in FACTS if _same(rows, full)]
        self.heading = [(name, text) for name, text in shared if text]
        self.facts = [fact for fact in FACTS if not _same(rows, fact[1])]
        self.text_columns = len(self.facts) or 1
        figures = [column for column in FIGURES if column[2](report)]
        longest = max(len(format_tokens(row.context)) for row in rows)
        self.header = [name for name, _, _ in self.facts] + [name for name, _, _ in figures]
        self.rows: list[list[str]] = []
        self.parts: list[bool] = []
        for row in rows:
            cells = [short(row) for _, _, short in self.facts]
            cells += [text(row, unit) for _, text, _ in figures]
            cells[len(self.facts)] = cells[len(self.facts)].rjust(longest)
            self._add(cells, part=False)
            for label, size in _split(row, unit):
                self._add([label, *[""] * (len(cells) - 1)], part=True)
                self.rows[-1][self.bytes_column()] = size
        self.remarks = list(_remarks(report, unit))

    def widths(self) -> list[int]:
        """The widest cell of each column."""
        return [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]

    def _add(self, cells: list[str], *, part: bool) -> None:
        self.rows.append(cells)
        self.parts.append(part)

    def bytes_column(self) -> int:
        """The column of the figure itself, which the parts of a row add up to."""
        return self.header.index("whole batch" if "whole batch" in self.header else "per sequence")


def _model(row: Row) -> str:
    known = [
        name for name in (row.hub_id, row.revision, row.source) if name not in (None, row.model)
    ]
    return f"{row.model} ({', '.join(known)})" if known else row.model


def _attention(row: Row) -> str:
    detail = f", {row.attention_detail}" if row.attention_detail else ""
    return f"{row.attention}{detail}; {row.layers} layers"


def _attention_short(row: Row) -> str:
    return attention_short(row.attention, row.num_attention_heads, row.num_key_value_heads)


def _cache(row: Row) -> str:
    options = "".join(f", {name} {value}" for name, value in row.options.items() if name != "cache")
    return f"{row.engine} {row.engine_version} {row.cache}{options}"


def _dtype(row: Row) -> str:
    return f"{row.kv_dtype} (assumed)" if row.kv_dtype_assumed else row.kv_dtype


def _parallel(row: Row) -> str:
    sizes = (("tensor", row.tensor_parallel_size), ("pipeline", row.pipeline_parallel_size))
    return ", ".join(f"{name} {size}" for name, size in sizes if size > 1)


def _mha(row: Row) -> str:
    return "" if row.mha_overcount is None else times(row.mha_overcount)


FACTS: list[Fact] = [
    ("model", _model, lambda row: row.model),
    ("attention", _attention, _attention_short),
    ("cache", _cache, _cache),
    ("dtype", _dtype, _dtype),
    ("parallel", _parallel, _parallel),
]


def _fullest(row: Row, unit: str | None) -> str:
    """What the fullest rank holds, and which one it is where they differ (counted from 0)."""
    most = max(row.rank_bytes, default=row.total_bytes)
    named = f" (rank {row.rank_bytes.index(most)})" if len(set(row.rank_bytes)) > 1 else ""
    return format_bytes(most, unit) + named


def _always(_: Report) -> bool:
    return True


def _many(report: Report) -> bool:
    return any(row.sequences > 1 for row in report.rows)


Figure = tuple[str, "Callable[[Row, str | None], str]", "Callable[[Report], bool]"]
FIGURES: list[Figure] = [
    ("context", lambda row, _: format_tokens(row.context), _always),
    ("batch", lambda row, _: f"{row.sequences:,}", _many),
    ("per token", lambda row, unit: format_bytes(row.token_bytes, unit), _always),
    ("per sequence", lambda row, unit: format_bytes(row.sequence_bytes, unit), _always),
    ("whole batch", lambda row, unit: format_bytes(row.total_bytes, unit), _many),
    (
        "fullest rank",
        _fullest,
        lambda report: any(len(row.rank_bytes) > 1 for row in report.rows),
    ),
    (
        "as MHA",
        lambda row, _: _mha(row),
        lambda report: any(row.mha_overcount is not None for row in report.rows),
    ),
]


def _same(rows: tuple[Row, ...], text: Callable[[Row], str]) -> bool:
    return len({text(row) for row in rows}) == 1


def _split(row: Row, unit: str | None) -> Iterator[tuple[str, str]]:
    groups = [group for group in row.groups if group.total_bytes]
    if len(groups) > 1:
        for group in groups:
            yield f"{group.layers} × {group.kind}", format_bytes(group.total_bytes, unit)


def _others(row: Row, unit: str | None) -> str:
    """Each engine, its version and figure: `vllm 0.33.0 3.11 GiB, …` in one sentence."""
    figures = ", ".join(
        f"{other.engine} {other.engine_version} {format_bytes(other.total_bytes, unit)}"
        for other in row.other_engines
    )
    return f"{figures} for one sequence of {format_tokens(row.context)} tokens."


def _remarks(report: Report, unit: str | None) -> Iterator[tuple[str, str]]:
    """Notes and warnings, each once per model: that of its largest figure."""
    found: dict[tuple[str, str], tuple[int, str, str]] = {}
    for row in report.rows:
        told = [("note", note, note) for note in row.notes]
        lines = row.details.get("log", ())
        if isinstance(lines, tuple):  # the engine's own log lines, to compare
            told += [("log", f"log {number}", str(line)) for number, line in enumerate(lines)]
        if row.other_engines:
            told.append(("in other engines", "others", _others(row, unit)))
        told += [(f"warning {w.code}", w.code, w.message) for w in row.warnings]
        for label, key, text in told:
            largest = found.get((row.model, key), (0, "", ""))[0]
            if row.total_bytes >= largest:
                found[row.model, key] = (row.total_bytes, label, text)
    several = len({row.model for row in report.rows}) > 1
    for (model, _), (_, label, text) in found.items():
        yield label, f"{model}: {text}" if several else text
