"""A picture as data: exact points, budgets, crossings. JSON is exactly these fields."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from fractions import Fraction

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Point:
    """What the cache takes at one context."""

    context: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve; where layers are stacked, one kind of layer.

    `label`: what tells it from the others. `context_limit`: the model's, beyond which the curve is
    dashed. `asked_kv_dtype`: `auto` where `kv_dtype` is the model's own. `refused_beyond`: the last context the engine takes, where it refuses some in the range.
    """

    label: str
    model: str
    engine: str
    engine_version: str
    cache: str
    kv_dtype: str
    asked_kv_dtype: str
    sequences: int
    context_limit: int | None
    refused_beyond: int | None
    points: tuple[Point, ...]

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The points as pairs of context and bytes."""
        return tuple((point.context, point.size_bytes) for point in self.points)

    def beyond_limit(self) -> bool:
        """Whether the curve goes on beyond the model's limit."""
        return self.context_limit is not None and self.points[-1].context > self.context_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A budget: `size_bytes` for the cache, and the indices of the series it is for.

    `least_bytes` and `most_bytes` differ from it where the memory is an estimate.
    """

    label: str
    meaning: str
    size_bytes: int
    least_bytes: int
    most_bytes: int
    series: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The largest context of a series that its engine holds in a budget; 0 where none is.

    `size_bytes` is the figure there. `everywhere`: the last context shown is held too, so that
    larger ones may be. `least_context`, `most_context`: the same at the ends of an estimate.
    """

    series: int
    budget: int
    context: int
    size_bytes: int
    everywhere: bool
    least_context: int
    most_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Memory against context. `stacked`: the series are parts of one cache, on even axes."""

    title: str
    subtitle: str
    quantity: str
    stacked: bool
    least_context: int
    most_context: int
    series: tuple[Series, ...]
    budgets: tuple[Line, ...]
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...]

    def extent(self) -> tuple[int, int]:
        """The least and the most bytes above zero that are shown, budgets included."""
        if self.stacked:
            rows = zip(*(series.pairs() for series in self.series), strict=True)
            sizes = [sum(size for _, size in row) for row in rows]
        else:
            sizes = [size for series in self.series for _, size in series.pairs()]
        shown = [size for size in (*sizes, *(line.size_bytes for line in self.budgets)) if size > 0]
        return min(shown, default=1), max(shown, default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of allocating: bytes of one sequence on average, and what of them tokens need."""

    way: str
    size_bytes: int
    needed_bytes: int
    detail: str

    @property
    def wasted(self) -> float:
        """The share that no token needs."""
        return 1 - self.needed_bytes / self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What each way of allocating takes for sequences of many lengths."""

    title: str
    subtitle: str
    quantity: str
    ways: tuple[Way, ...]
    notes: tuple[str, ...]


Picture = Chart | Ways


def to_json(picture: Picture) -> str:
    """The picture's data: raw integer bytes."""
    return json.dumps(as_data(picture), indent=2, ensure_ascii=False) + "\n"


def as_data(picture: Picture) -> dict[str, object]:
    """The same as plain values."""
    kind = "context" if isinstance(picture, Chart) else "lengths"
    return {"schema_version": SCHEMA_VERSION, "picture": kind, **asdict(picture)}


def fits_text(crossing: Crossing) -> str:
    """`fits to 85,504 tokens`, with the range where the budget is an estimate."""
    if crossing.everywhere:
        return f"fits at {format_tokens(crossing.context)} tokens and below"
    if not crossing.context:
        return "does not fit with a single token"
    spread = ""
    if crossing.least_context != crossing.most_context:
        least, most = crossing.least_context, crossing.most_context
        spread = f" ({format_tokens(least)} to {format_tokens(most)})"
    return f"fits to {format_tokens(crossing.context)}{spread} tokens"


def size_text(line: Line) -> str:
    """`62.13 GiB`, with the range where it is an estimate."""
    if line.least_bytes == line.most_bytes:
        return format_bytes(line.size_bytes)
    least, most = format_bytes(line.least_bytes), format_bytes(line.most_bytes)
    return f"{format_bytes(line.size_bytes)} ({least} to {most})"


def percent(share: float | Fraction) -> str:
    """`83.7 %`."""
    return f"{float(100 * share):.1f} %"
