"""A comparison as sections of sentences and small tables, drawn as text, Markdown or JSON."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

from kvsize.advice import times
from kvsize.record import as_dict
from kvsize.render._sections import Section, brief, chosen, sections_markdown, sections_text
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvsize.comparison import Comparison, Figure, Side
    from kvsize.render import Look

    Drawing = Callable[[Comparison, Look], str]


def text(comparison: Comparison, look: Look) -> str:
    """Plain text, wrapped to the look's width."""
    return sections_text(sections(comparison, look.unit), look.width)


def markdown(comparison: Comparison, look: Look) -> str:
    """GitHub-flavoured Markdown."""
    return sections_markdown(sections(comparison, look.unit))


def json(comparison: Comparison, look: Look) -> str:  # noqa: ARG001 - a drawing's signature
    """The comparison's own fields; pairs are lists of first and second."""
    return dumps(as_dict(comparison), indent=2, ensure_ascii=False) + "\n"


def drawing(format_name: str) -> Drawing:
    """How to draw a comparison in a format; UsageError where there is none of that name."""
    known = {"text": text, "markdown": markdown, "json": json}
    return chosen(known, format_name, "a comparison")


def sections(comparison: Comparison, unit: str | None) -> Iterator[Section]:
    """The figures, where the bytes are, the reasons, the steps and the keys, in that order."""
    first, second = comparison.sides
    yield _figures(comparison, unit)
    if any(
        part.layers[0] != part.layers[1] or part.total_bytes[0] != part.total_bytes[1]
        for part in comparison.parts
    ):
        yield _parts(comparison, unit)
    if comparison.reasons:
        yield Section("Why", tuple(comparison.reasons))
    if comparison.steps:
        yield _steps(comparison, unit)
    if comparison.keys:
        rows = [
            (change.key, *(_value(value) for value in change.values), _from(change.origins))
            for change in comparison.keys
        ]
        header = ("key", first.label, second.label, "from")
        yield Section("What the configs say otherwise", (), (header, *rows))


def _figures(comparison: Comparison, unit: str | None) -> Section:
    first, second = comparison.sides
    largest = max(comparison.figures, key=lambda figure: figure.context)
    if not comparison.differs:
        verdict = "the same cache"
    elif largest.total_bytes[0] == largest.total_bytes[1]:
        verdict = "the same size"
    else:
        factor = f"{_factor(largest.ratio)} " if largest.ratio else ""
        verdict = f"{factor}at {format_tokens(largest.context)} tokens"
    many = any(figure.sequences > 1 for figure in comparison.figures)
    header = ("context", "per token", "per sequence", *(("whole batch",) if many else ()), "ratio")
    rows = [_row(figure, unit, many=many) for figure in comparison.figures]
    return Section(
        f"{first.label} → {second.label}: {verdict}",
        (_described(first), _described(second)),
        (header, *rows),
    )


def _described(side: Side) -> str:
    known = ", ".join(name for name in (side.hub_id, side.source) if name)
    detail = f", {side.attention_detail}" if side.attention_detail else ""
    return (
        f"{side.model} ({known}): {side.attention}{detail}; {side.layers} layers; "
        f"{side.engine} {side.engine_version} {side.cache}, {side.kv_dtype}."
    )


def _row(figure: Figure, unit: str | None, *, many: bool) -> tuple[str, ...]:
    batch = (_change(figure.total_bytes, unit),) if many else ()
    return (
        format_tokens(figure.context),
        _change(figure.token_bytes, unit),
        _change(figure.sequence_bytes, unit),
        *batch,
        _factor(figure.ratio),
    )


def _factor(ratio: float | None) -> str:
    """`0.27×`; what is nearly 1 with all its digits."""
    if ratio is None:
        return ""
    return f"{ratio:.4f}×" if ratio != 1 and times(ratio) == "1×" else times(ratio)


def _change(pair: tuple[int, int], unit: str | None) -> str:
    first, second = (format_bytes(each, unit) for each in pair)
    return f"{first} → {second}"


def _parts(comparison: Comparison, unit: str | None) -> Section:
    largest = max(comparison.figures, key=lambda figure: figure.context)
    rows = [
        (
            part.kind,
            f"{part.layers[0]} → {part.layers[1]}",
            _change(part.total_bytes, unit),
            _signed(part.total_bytes[1] - part.total_bytes[0], unit),
        )
        for part in comparison.parts
    ]
    return Section(
        f"Where the bytes are, at {format_tokens(largest.context)} tokens",
        (),
        (("kind", "layers", "bytes", "change"), *rows),
    )


def _signed(change_bytes: int, unit: str | None) -> str:
    sign = "+" if change_bytes > 0 else "−" if change_bytes < 0 else ""
    return f"{sign}{format_bytes(abs(change_bytes), unit)}"


def _steps(comparison: Comparison, unit: str | None) -> Section:
    largest = max(comparison.figures, key=lambda figure: figure.context)
    rows = [
        (
            step.change,
            format_bytes(step.total_bytes, unit),
            _factor(step.ratio),
        )
        for step in comparison.steps
    ]
    start = ("", format_bytes(largest.total_bytes[0], unit), "")
    return Section("One change after the other", (), (("change", "total", "by"), start, *rows))


def _value(value: object) -> str:
    return "—" if value is None else brief(value)


def _from(origins: tuple[str | None, str | None]) -> str:
    first, second = (origin or "—" for origin in origins)
    return first if first == second else f"{first} → {second}"
