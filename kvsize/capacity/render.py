"""An answer as text, Markdown or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from kvsize.errors import UsageError
from kvsize.units import UNITS, format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.answer import Answer
    from kvsize.capacity.gpus import Gpu
    from kvsize.capacity.inverse import Span
    from kvsize.capacity.layouts import Laid
    from kvsize.capacity.traffic import Traffic

SCHEMA_VERSION = 1
FORMATS = ("text", "markdown", "json")
_MANY_LAYOUTS = 24
# A number, with its sign, unit and range where it has them: cells of such a column stand right.
_FIGURE = re.compile(r"[-+]?[\d,.]+( [KMGT]?i?B| %)?( \([\d,]+ to [\d,]+\))?")


@dataclass(frozen=True, slots=True)
class Section:
    """A title, a table whose first row is its head, and sentences under it."""

    title: str
    rows: tuple[tuple[str, ...], ...] = ()
    sentences: tuple[str, ...] = ()
    code: str | None = None


def render(answer: Answer, format_name: str, unit: str | None = None) -> str:
    """`answer` in a format; UsageError for one that there is not."""
    if format_name == "json":
        return to_json(answer)
    return draw(tuple(sections(answer, unit)), format_name)


def draw(parts: Sequence[Section], format_name: str) -> str:
    """Sections as text or Markdown."""
    if format_name not in _DRAWN:
        msg = f"no output format named '{format_name}' here."
        raise UsageError(msg, f"use one of {', '.join(FORMATS)}.")
    lines = [line for section in parts for line in _DRAWN[format_name](section)]
    return "\n".join(lines).rstrip("\n") + "\n"


def sections(answer: Answer, unit: str | None) -> Iterator[Section]:
    """The verdict, the ledger, what fits, the layouts, the traffic, ways out and notes."""
    yield _head(answer)
    yield _ledger(answer, unit)
    yield from _capacities(answer, unit)
    if answer.layouts:
        yield _layouts(answer, unit)
    if answer.traffic is not None:
        yield from _traffic(answer.traffic, unit)
    if answer.remedies:
        rows = [(r.flags, "yes" if r.enough else "not alone", r.effect) for r in answer.remedies]
        yield Section("Ways out", (("change", "suffices", "because"), *rows))
    if answer.command is not None:
        yield Section("Command", code=answer.command)
    if answer.notes:
        yield Section("Notes", sentences=answer.notes)


def _head(answer: Answer) -> Section:
    where = ""
    if answer.gpu is not None:
        count = "" if answer.gpus == 1 else f"{answer.gpus} × "
        where = f" on {count}{answer.gpu}"
        where += f", {answer.layout.label}" if answer.gpus > 1 else ""
    title = f"{answer.model} in {answer.engine} {answer.engine_version}{where}"
    sentences = [verdict.sentence for verdict in answer.verdicts]
    if answer.reason:
        sentences.append(f"{answer.layout.label}: {answer.reason}.")
    return Section(title, sentences=tuple(sentences))


def _ledger(answer: Answer, unit: str | None) -> Section:
    """The lines of the ledger; those shown add up to the sum shown."""
    budget, split = answer.budget, answer.layout.layer_split
    entries = (*budget.entries, budget.left)
    scenarios = (1,) if budget.exact else (0, 1, 2)
    columns = [
        adding_up([entry.columns[index] for entry in budget.entries], unit or "GiB")
        for index in scenarios
    ]
    names = ("bytes",) if budget.exact else ("low reserve", "best", "high reserve")
    rows = [(entry.label, *(column[at] for column in columns)) for at, entry in enumerate(entries)]
    sources = tuple(f"{entry.label}: {entry.source}." for entry in budget.entries)
    title = "Memory of one GPU" if split == 1 else f"Memory of {split} GPUs"
    return Section(title, (("", *names), *rows), sources)


def adding_up(sizes: Sequence[int], unit: str) -> list[str]:
    """Sizes in a unit, and their sum: each is rounded so that what is shown adds up.

    A line is the step between two rounded running sums, so no line is off by more than the last
    digit shown.
    """
    if unit == "B":
        return [f"{size:,} B" for size in (*sizes, sum(sizes))]
    scale = UNITS[unit]
    running = [0, *(round(Fraction(100 * total, scale)) for total in accumulate(sizes))]
    steps = [after - before for before, after in pairwise(running)]
    return [f"{hundredths / 100:,.2f} {unit}" for hundredths in (*steps, running[-1])]


def _capacities(answer: Answer, unit: str | None) -> Iterator[Section]:
    rows = [
        (
            format_tokens(each.context),
            _span(each.sequences),
            each.binding,
            "" if each.tokens is None else format_tokens(each.tokens),
            "" if each.next_bytes is None else format_bytes(each.next_bytes, unit),
        )
        for each in answer.capacities
    ]
    head = ("context", "sequences", "bound by", "cache tokens", "one more needs, per GPU")
    sentences = []
    if answer.longest is not None:
        found = answer.longest
        count = "1 sequence" if found.sequences == 1 else f"{found.sequences:,} sequences"
        more = ""
        if found.next_bytes is not None:
            more = f"; one token more needs {format_bytes(found.next_bytes, unit)} per GPU"
        sentences.append(
            f"Longest context for {count}: {_span(found.context)}, bound by {found.binding}{more}."
        )
    yield Section("What fits", (head, *rows) if rows else (), tuple(sentences))


def _layouts(answer: Answer, unit: str | None) -> Section:
    shown = [*sorted(answer.layouts, key=lambda laid: laid.layout != answer.layout)]
    rows = [_layout_row(laid, shown, unit) for laid in shown[:_MANY_LAYOUTS]]
    head = ("layout", "GPUs", "weights", "cache", "sequences", "against the first", "same token")
    left_out = len(shown) - _MANY_LAYOUTS
    more = (f"{left_out} more hold fewer.",) if left_out > 0 else ()
    return Section("Layouts, per GPU", (head, *rows), more)


def _layout_row(laid: Laid, shown: Sequence[Laid], unit: str | None) -> tuple[str, ...]:
    gain = laid.sequences - shown[0].sequences
    copies = "once" if laid.copies == 1 else f"{laid.copies} times"
    return (
        laid.layout.label,
        str(laid.layout.gpus),
        format_bytes(laid.weights_bytes, unit),
        format_bytes(laid.kv_bytes, unit),
        f"{laid.sequences:,}",
        f"{gain:+,}" if gain else "",
        copies,
    )


def _traffic(found: Traffic, unit: str | None) -> Iterator[Section]:
    percent = f"{float(found.probability * 100):g} %"
    rows = (
        ("", "tokens", "bytes per GPU"),
        ("average", f"{float(found.mean_tokens):,.1f}", format_bytes(found.mean_bytes, unit)),
        ("99th percentile", format_tokens(found.p99_tokens), format_bytes(found.p99_bytes, unit)),
        ("longest", format_tokens(found.longest_tokens), ""),
    )
    sentence = (
        f"{found.sequences:,} sequences overflow the cache with a probability of at most {percent} "
        f"({found.method}), bound by {found.binding}; if all were the longest, "
        f"{found.sequences_if_longest:,} would fit."
    )
    yield Section("Sequences of these lengths", rows, (sentence,))
    if found.waste:
        lines = [
            (
                way.way,
                format_bytes(way.bytes_each, unit),
                f"{float(100 * way.wasted):.1f} %",
                f"{float(way.reads):.2f}",
                way.detail,
            )
            for way in found.waste
        ]
        head = ("way of allocating", "bytes each", "wasted", "reads per token kept", "because")
        yield Section("What each way of allocating wastes", (head, *lines))


def _span(span: Span) -> str:
    best = f"{span.best:,}"
    return best if span.exact else f"{best} ({span.least:,} to {span.most:,})"


def _text(section: Section) -> Iterator[str]:
    yield section.title
    columns = list(zip(*section.rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    figures = [all(not cell or _is_figure(cell) for cell in column[1:]) for column in columns]
    for cells in section.rows:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, figures, strict=True)
        ]
        yield f"  {'  '.join(padded)}".rstrip()
    for sentence in section.sentences:
        yield f"  {sentence}"
    if section.code:
        yield from section.code.splitlines()
    yield ""


def _is_figure(cell: str) -> bool:
    return _FIGURE.fullmatch(cell) is not None


def _markdown(section: Section) -> Iterator[str]:
    yield from (f"### {_escaped(section.title)}", "")
    for index, cells in enumerate(section.rows):
        yield f"| {' | '.join(map(_escaped, cells))} |"
        if index == 0:
            yield f"|{' --- |' * len(cells)}"
    if section.rows:
        yield ""
    for sentence in section.sentences:
        yield from (_escaped(sentence), "")
    if section.code:
        yield from ("```sh", *section.code.splitlines(), "```", "")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


_DRAWN: dict[str, Callable[[Section], Iterator[str]]] = {"text": _text, "markdown": _markdown}


def to_json(answer: Answer) -> str:
    """The answer as JSON: raw integer bytes, the fields of the Python types."""
    body = {"schema_version": SCHEMA_VERSION, "fits": answer.fits, **_plain_fields(answer)}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _plain_fields(record: object) -> dict[str, object]:
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: object) -> object:
    if isinstance(value, Fraction):
        return float(value)
    if is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def gpus_text(found: Sequence[Gpu], format_name: str) -> str:
    """The catalogue of accelerators in a format."""
    if format_name == "json":
        body = {"schema_version": SCHEMA_VERSION, "gpus": _plain(list(found))}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    rows = [
        (gpu.name, gpu.title, format_bytes(gpu.memory_bytes, "GiB"), gpu.memory, gpu.source)
        for gpu in found
    ]
    head = ("name", "accelerator", "memory", "figure", "from")
    return draw((Section("Accelerators", (head, *rows)),), format_name)
