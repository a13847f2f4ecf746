"""What tells one curve from another, and what all have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.plot.asking import Case
    from kvsize.results import Size


def labels(cases: Sequence[Case], sizes: Sequence[Size]) -> tuple[list[str], str]:
    """A label for each curve of what differs, and a line of what does not."""
    parts = [_parts(case, size) for case, size in zip(cases, sizes, strict=True)]
    columns = list(zip(*parts, strict=True))
    varies = [len(set(column)) > 1 for column in columns]
    if not any(varies):
        varies[0] = True
    names = [
        ", ".join(part for part, differs in zip(row, varies, strict=True) if differs)
        for row in parts
    ]
    common = [column[0] for column, differs in zip(columns, varies, strict=True) if not differs]
    return names, ", ".join(common)


def _parts(case: Case, size: Size) -> tuple[str, str, str, str]:
    """The model, the cache, its dtype and the sequences."""
    cache = "" if size.cache in {"paged", size.engine} else f" {size.cache}"
    return (
        case.model.name,
        f"{size.engine} {size.engine_version}{cache}",
        size.kv_dtype,
        sequences_text(size.sequences),
    )


def sequences_text(count: int) -> str:
    """`1 sequence`, `16 sequences`."""
    return "1 sequence" if count == 1 else f"{count:,} sequences"
