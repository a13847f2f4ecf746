"""What a cache memory holds: sequences of one length, under the engine's own rounding.

Engines with a pool are asked through their `fit`, the others through their `size`; no byte is
computed here. Counts are for the whole deployment, memory is per rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kvsize.capacity.limits import MEMORY, POOL_LIMITS, Asked, Limit
from kvsize.capacity.search import largest
from kvsize.engines import engine_for
from kvsize.errors import EngineRefuses, UsageError
from kvsize.units import TIB, ceil_div

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.setup import Setup
    from kvsize.engines.options import Request
    from kvsize.model import Model
    from kvsize.results import Fit, Size

# More than any rank has: what is refused with it is refused for another reason than memory.
_PLENTY_BYTES = 2**14 * TIB
_MOST_SEQUENCES = 2**20
_MOST_SLOTS = 2**14


@dataclass(frozen=True, slots=True)
class Held:
    """What fits: the sequences, every limit, and the engine's own answer where it has a pool."""

    limits: tuple[Limit, ...]
    fit: Fit | None = None
    tokens: int | None = None

    @property
    def binding(self) -> Limit:
        """The limit that is reached first."""
        return min(self.limits, key=lambda limit: limit.sequences)

    @property
    def sequences(self) -> int:
        """Sequences that all limits allow."""
        return self.binding.sequences


def has_pool(engine: str) -> bool:
    """Whether the engine cuts its memory into blocks at start, as `kvsize.fit` models."""
    return engine in POOL_LIMITS


def check_legal(setup: Setup, context: int) -> None:
    """Raise EngineRefuses or UsageError where the engine does not run `setup` at all."""
    if has_pool(setup.engine):
        pool_of(setup, context, _PLENTY_BYTES)
    else:
        _size(setup, context, 1)


def held(setup: Setup, context: int, kv_memory: int) -> Held:
    """Sequences of `context` tokens that `kv_memory` bytes per rank hold."""
    if not has_pool(setup.engine):
        most = largest(lambda n: _fits_size(setup, context, n, kv_memory), at_most=_MOST_SEQUENCES)
        return Held((Limit(_why_no_more(setup, context, most), most),))
    if not setup.chooses_batch:
        return _in_pool(setup, context, kv_memory, 1)
    replicas = setup.layout.data_parallel_size
    each = largest(
        lambda n: _in_pool(setup, context, kv_memory, n).sequences >= n * replicas,
        at_most=_MOST_SLOTS,
    )
    found = _in_pool(setup, context, kv_memory, max(each, 1))
    return Held((Limit(MEMORY, each * replicas),), found.fit, found.tokens)


def _in_pool(setup: Setup, context: int, kv_memory: int, slots: int) -> Held:
    """What a pool holds, with `slots` sequences per replica where the setup leaves that open."""
    if kv_memory <= 0:
        return Held((Limit(MEMORY, 0),))
    try:
        found = pool_of(setup, context, kv_memory, slots)
    except EngineRefuses:
        return Held((Limit(MEMORY, 0),))
    replicas = setup.layout.data_parallel_size
    limits = tuple(
        Limit(limit.name, max(0, limit.sequences) * replicas)
        for limit in POOL_LIMITS[setup.engine](Asked(setup, context, found))
    )
    return Held(limits, found, found.tokens * replicas)


def fits(setup: Setup, context: int, sequences: int, kv_memory: int) -> bool:
    """Whether `sequences` sequences of `context` tokens fit in `kv_memory` bytes per rank."""
    if not has_pool(setup.engine):
        return _fits_size(setup, context, sequences, kv_memory)
    slots = ceil_div(sequences, setup.layout.data_parallel_size)
    return _in_pool(setup, context, kv_memory, slots).sequences >= sequences


def needed_bytes(setup: Setup, context: int, sequences: int) -> int | None:
    """The least memory per rank that holds them; None where another limit forbids it."""
    if not has_pool(setup.engine):
        return _rank_bytes(setup, context, sequences)
    if not fits(setup, context, sequences, _PLENTY_BYTES):
        return None
    guess = _guess_bytes(setup, context, sequences)
    short = largest(
        lambda memory: not fits(setup, context, sequences, memory),
        at_most=_PLENTY_BYTES,
        guess=guess - 1,
    )
    return short + 1


def _guess_bytes(setup: Setup, context: int, sequences: int) -> int:
    """What so many sequences take of a pool that is one row of blocks, or of plain sizes."""
    if setup.chooses_batch:
        return _rank_bytes(setup, context, sequences)
    found = _in_pool(setup, context, _PLENTY_BYTES, 1)
    by_memory = next(limit.sequences for limit in found.limits if limit.name == MEMORY)
    return max(1, ceil_div(_PLENTY_BYTES * sequences, max(by_memory, 1)))


def pool_of(setup: Setup, context: int, kv_memory: int, slots: int = 1) -> Fit:
    """The engine's own answer for one replica; EngineRefuses where it does not start."""
    engine = engine_for(setup.engine, setup.model)
    fit = cast("Callable[[Model, Request, int], Fit]", getattr(engine, "fit"))  # noqa: B009
    return fit(setup.model, setup.request(context, slots), kv_memory)


def _size(setup: Setup, context: int, sequences: int) -> Size:
    engine = engine_for(setup.engine, setup.model)
    return engine.size(setup.model, setup.request(context, sequences))


def _rank_bytes(setup: Setup, context: int, sequences: int) -> int:
    """Bytes that the fullest rank allocates; all of them where devices are one pool."""
    found = _size(setup, context, ceil_div(sequences, setup.layout.data_parallel_size))
    total = sum(found.rank_bytes)
    if len(found.rank_bytes) <= 1 or not total:
        return found.allocated_bytes
    return ceil_div(found.allocated_bytes * max(found.rank_bytes), total)


def _fits_size(setup: Setup, context: int, sequences: int, kv_memory: int) -> bool:
    try:
        return _rank_bytes(setup, context, sequences) <= kv_memory
    except EngineRefuses:
        return False


def _why_no_more(setup: Setup, context: int, most: int) -> str:
    try:
        _size(setup, context, ceil_div(most + 1, setup.layout.data_parallel_size))
    except EngineRefuses as error:
        return error.message
    return MEMORY


def reason_refused(setup: Setup, context: int) -> str | None:
    """Why the engine does not run `setup`, or None where it does."""
    try:
        check_legal(setup, context)
    except (EngineRefuses, UsageError) as error:
        return error.message
    return None
