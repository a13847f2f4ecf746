"""What sequences of many lengths take, how many share a pool, and what each way of allocating wastes.

Bytes are per rank. A pool gives a sequence what it has come to need, so short ones leave room for
long ones; a slot or a static cache is as long as the longest, whoever is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.api import size as size_of
from kvsize.capacity.holding import has_pool, held, pool_of
from kvsize.capacity.limits import MEMORY, units_each, usable_units
from kvsize.capacity.overflow import sequences_within
from kvsize.errors import KvsizeError
from kvsize.units import ceil_div, format_tokens

if TYPE_CHECKING:
    from kvsize.capacity.lengths import Lengths
    from kvsize.capacity.setup import Setup

# More lengths than these say no more about capacity, and each costs a question to the engine.
_MOST_LENGTHS = 96
_P99 = Fraction(99, 100)
_BATCH = 8


@dataclass(frozen=True, slots=True)
class Waste:
    """One way of allocating: bytes per sequence on average, and what of it is never read.

    `needed_bytes`: what the tokens themselves take, in a DynamicCache without padding. `reads`: how many tokens one decoding step attends over, masked ones included, for each token
    that counts; 1.0 where nothing is masked.
    """

    way: str
    bytes_each: int
    needed_bytes: int
    wasted: Fraction
    reads: Fraction
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A distribution of lengths against a memory: `sequences` overflow with `probability`."""

    mean_tokens: Fraction
    p99_tokens: int
    longest_tokens: int
    mean_bytes: int
    p99_bytes: int
    sequences: int
    method: str
    probability: Fraction
    sequences_if_longest: int
    binding: str
    waste: tuple[Waste, ...]


def traffic(setup: Setup, lengths: Lengths, kv_memory: int, probability: Fraction) -> Traffic:
    """What `kv_memory` bytes per rank hold of such sequences."""
    coarse = lengths.coarse(_MOST_LENGTHS)
    fixed = held(setup, lengths.longest, kv_memory)
    count, method, binding = fixed.sequences, "slots as long as the longest", fixed.binding.name
    if has_pool(setup.engine) and fixed.fit is not None:
        count, method, binding = _shared(setup, coarse, kv_memory, probability)
    p99 = lengths.quantile(_P99)
    return Traffic(
        mean_tokens=lengths.mean,
        p99_tokens=p99,
        longest_tokens=lengths.longest,
        mean_bytes=_mean_bytes(setup, coarse),
        p99_bytes=_sequence_bytes(setup, p99),
        sequences=count,
        method=method,
        probability=probability,
        sequences_if_longest=fixed.sequences,
        binding=binding,
        waste=ways_of_allocating(setup, coarse),
    )


def _shared(
    setup: Setup, lengths: Lengths, kv_memory: int, probability: Fraction
) -> tuple[int, str, str]:
    """Sequences in one pool per replica, the method, and what bounds them."""
    pool = pool_of(setup, lengths.longest, kv_memory)
    costs = tuple(
        (units_each(pool_of(setup, length, kv_memory)), count) for length, count in lengths.counts
    )
    found = sequences_within(costs, usable_units(pool), probability)
    caps = [
        limit for limit in held(setup, lengths.longest, kv_memory).limits if limit.name != MEMORY
    ]
    total = found.sequences * setup.layout.data_parallel_size
    lowest = min(caps, key=lambda limit: limit.sequences, default=None)
    if lowest is not None and lowest.sequences < total:
        return lowest.sequences, found.method, lowest.name
    return total, found.method, MEMORY


def _sequence_bytes(setup: Setup, context: int) -> int:
    """What one sequence fills on the fullest rank."""
    layout = setup.layout
    found = size_of(
        setup.model,
        context=context,
        kv_dtype=setup.kv_dtype,
        engine=setup.engine,
        engine_version=setup.engine_version,
        options=setup.request(context).options,
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
    )
    return max(found.rank_bytes, default=found.total_bytes)


def _mean_bytes(setup: Setup, lengths: Lengths) -> int:
    total = sum(_sequence_bytes(setup, length) * count for length, count in lengths.counts)
    return ceil_div(total, lengths.total)


def ways_of_allocating(setup: Setup, lengths: Lengths) -> tuple[Waste, ...]:
    """Each way against what the tokens themselves need, all ranks together.

    () for a model that transformers does not run, since the need is then not known.
    """
    lengths = lengths.coarse(_MOST_LENGTHS)
    need = _mean(setup, lengths, "transformers", {})
    if need is None:
        return ()
    batch = lengths.expected_longest(_BATCH)
    padded = format_tokens(round(batch))
    mask = Fraction(lengths.longest) / lengths.mean
    pool = setup.engine if has_pool(setup.engine) else "vllm"
    ways = [
        (
            "StaticCache",
            _of(setup, lengths.longest, "transformers", {"cache": "static"}),
            mask,
            f"every sequence has {format_tokens(lengths.longest)} tokens, the longest",
        ),
        (
            "DynamicCache",
            _of(setup, round(batch), "transformers", {}),
            batch / lengths.mean,
            f"a batch of {_BATCH} is padded to its longest, {padded} tokens on average",
        ),
        (
            f"{pool} blocks",
            _mean(setup, lengths, pool, {}),
            Fraction(1),
            "whole blocks, with their padding",
        ),
        (
            "llama.cpp slots",
            _of(setup, lengths.longest, "llama.cpp", {"n_seq_max": 1}),
            Fraction(1),
            f"every slot has room for {format_tokens(lengths.longest)} tokens",
        ),
    ]
    return tuple(
        Waste(way, size, need, max(Fraction(0), 1 - Fraction(need, size)), reads, detail)
        for way, size, reads, detail in ways
        if size
    )


def _mean(setup: Setup, lengths: Lengths, engine: str, options: dict[str, object]) -> int | None:
    sizes = [(_of(setup, length, engine, options), count) for length, count in lengths.counts]
    total = sum((size or 0) * count for size, count in sizes)
    return None if any(size is None for size, _ in sizes) else ceil_div(total, lengths.total)


def _of(setup: Setup, context: int, engine: str, options: dict[str, object]) -> int | None:
    """One sequence in another engine, in the model's own dtype; None where it does not run it."""
    own = dict(setup.options) if engine == setup.engine else {}
    if options.get("cache") == "static":
        options = {**options, "max_cache_len": context}
    dtype = setup.kv_dtype if engine == setup.engine else "auto"
    try:
        found = size_of(
            setup.model, context=context, engine=engine, kv_dtype=dtype, options={**own, **options}
        )
    except KvsizeError:
        return None
    return found.allocated_bytes
