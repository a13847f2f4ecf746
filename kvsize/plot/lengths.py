"""What each way of allocating takes for sequences of many lengths, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.capacity.lengths import read
from kvsize.capacity.traffic import ways_of_allocating
from kvsize.errors import UsageError
from kvsize.plot.asking import accepted, one_case
from kvsize.plot.chart import Way, Ways
from kvsize.units import format_tokens

if TYPE_CHECKING:
    from kvsize.plot.asking import Wanted


def ways(wanted: Wanted, text: str) -> Ways:
    """The ways for the distribution that `text` states (`2k:70,8k:25`), or the file it names.

    Raises UsageError where several caches are asked for, or none of the ways is known for one.
    """
    lengths = read(text)
    cases, notes = accepted(wanted, lengths.longest)
    case = one_case(cases, "--lengths")
    found = ways_of_allocating(case.setup(), lengths)
    if not found:
        msg = f"{case.model.where}: transformers does not run it, so what its tokens need is not known."
        raise UsageError(msg, "--lengths compares with what a DynamicCache of each length holds.")
    mean = f"{float(lengths.mean):,.1f}".removesuffix(".0")
    return Ways(
        title=f"KV cache of {case.model.name} for sequences of many lengths",
        subtitle=(f"{text}: {mean} tokens on average, {format_tokens(lengths.longest)} at most"),
        quantity="Bytes of one sequence on average",
        ways=tuple(
            Way(
                way=each.way,
                size_bytes=each.bytes_each,
                needed_bytes=min(each.needed_bytes, each.bytes_each),
                detail=each.detail,
            )
            for each in found
        ),
        notes=notes,
    )
