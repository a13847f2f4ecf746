"""Distributions of lengths, overflow, and what each way of allocating wastes."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from deployments import GIB, TINY, setup
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsize.capacity.lengths import Lengths, read
from kvsize.capacity.overflow import sequences_within
from kvsize.capacity.traffic import traffic
from kvsize.errors import ConfigError, UsageError

HISTOGRAM = Lengths(((2048, 70), (8192, 25), (32768, 5)))


def test_a_histogram() -> None:
    assert read("2k:70,8k:25,32k:5") == HISTOGRAM
    assert read(" 2048 : 0.7 , 8k:0.25,32k: 0.05") == Lengths(((2048, 14), (8192, 5), (32768, 1)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "tokens\n10\n20\n20\n"),
        ("a.csv", "10\n20\n20\n"),
        ("a.csv", "10,1\n20,2\n"),
        ("a.csv", "id,prompt_tokens,output_tokens\nx,7,3\ny,15,5\nz,20,\n"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n0,9,1\n1,19,1\n2,19,1\n"),
        ("a.csv", "\ufefflength,count\n10,1\n20,2\n"),
        ("a.jsonl", '{"prompt_tokens": 7, "completion_tokens": 3}\n{"tokens": 20, "count": 2}\n'),
    ],
)
def test_files(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read(str(path)) == Lengths(((10, 1), (20, 2)))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("tokens\nten\n", "entry 1 states no number of tokens"),
        ("tokens,count\n10,0\n", "holds no sequence"),
        ('{"tokens": 5}\nnot json\n', "entry 2 states no number of tokens"),
        ("", "holds no sequence"),
    ],
)
def test_files_without_lengths(text: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        read(str(path))


def test_what_is_neither_a_histogram_nor_a_file() -> None:
    with pytest.raises(
        UsageError, match=r"'\./none\.csv' is neither a histogram nor a file"
    ) as error:
        read("./none.csv")
    assert "2k:70,8k:25,32k:5" in error.value.hint


def test_statistics() -> None:
    assert HISTOGRAM.mean == 5120
    assert [HISTOGRAM.quantile(Fraction(p, 100)) for p in (50, 70, 71, 95, 99)] == [
        *(2048, 2048, 8192, 8192, 32768)
    ]
    # 1 - 0.95^8 of batches of eight have a 32k member, 0.7^8 only 2k ones.
    expected = 32768 * (1 - 0.95**8) + 8192 * (0.95**8 - 0.7**8) + 2048 * 0.7**8
    assert float(HISTOGRAM.expected_longest(8)) == pytest.approx(expected)


def test_many_lengths_are_rounded_up_to_few() -> None:
    lengths = Lengths(tuple((n, 1) for n in range(1, 1001)))
    coarse = lengths.coarse(100)
    assert len(coarse.counts) == 100
    assert (coarse.total, coarse.longest) == (1000, 1000)
    assert coarse.mean >= lengths.mean
    assert HISTOGRAM.coarse(3) == HISTOGRAM


def exact_overflow(costs: list[tuple[int, int]], count: int, capacity: int) -> Fraction:
    """Every combination of `count` costs, counted."""
    total = sum(weight for _, weight in costs)
    over = Fraction(0)
    for drawn in product(costs, repeat=count):
        if sum(cost for cost, _ in drawn) > capacity:
            chance = Fraction(1)
            for _, weight in drawn:
                chance *= Fraction(weight, total)
            over += chance
    return over


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 9)),
        min_size=2,
        max_size=3,
        unique_by=lambda x: x[0],
    ),
    st.integers(20, 90),
    st.sampled_from([Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]),
)
def test_overflow_is_that_of_counting(
    costs: list[tuple[int, int]], capacity: int, probability: Fraction
) -> None:
    found = sequences_within(tuple(costs), capacity, probability).sequences
    if found <= 6:
        assert found == 0 or exact_overflow(costs, found, capacity) <= probability
    if found + 1 <= 6:
        assert exact_overflow(costs, found + 1, capacity) > probability


def test_many_sequences_share_better_than_few() -> None:
    costs = tuple((length // 16, count) for length, count in HISTOGRAM.counts)
    few = sequences_within(costs, 6144, Fraction(1, 100))
    assert (few.sequences, few.method) == (8, "convolution")
    many = sequences_within(costs, 1_000_000, Fraction(1, 100))
    assert (many.sequences, many.method) == (2955, "normal distribution")
    assert few.sequences / 6144 < many.sequences / 1_000_000 < 1 / 320


def test_equal_lengths_leave_nothing_to_chance() -> None:
    found = sequences_within(((10, 3),), 95, Fraction(1, 100))
    assert (found.sequences, found.method) == (9, "all are equally long")
    assert sequences_within(((10, 1), (20, 1)), 0, Fraction(1, 100)).sequences == 0


def test_traffic_in_a_pool() -> None:
    found = traffic(setup("sglang", "llama-3.1-8b"), HISTOGRAM, 51 * GIB, Fraction(1, 100))
    assert (found.mean_tokens, found.p99_tokens, found.longest_tokens) == (5120, 32768, 32768)
    assert (found.mean_bytes, found.p99_bytes) == (5120 * 131_072, 4 * GIB)
    assert (found.sequences, found.method, found.binding) == (55, "convolution", "memory")
    assert found.sequences_if_longest == 12


def test_waste_of_each_way_of_allocating() -> None:
    found = traffic(setup("sglang", "llama-3.1-8b"), HISTOGRAM, 51 * GIB, Fraction(1, 100))
    ways = {way.way: way for way in found.waste}
    static = ways["StaticCache"]
    assert (static.bytes_each, static.wasted) == (4 * GIB, 1 - Fraction(5120, 32768))
    assert static.reads == Fraction(32768, 5120)
    assert ways["llama.cpp slots"].bytes_each == 4 * GIB
    assert ways["llama.cpp slots"].reads == 1
    dynamic = ways["DynamicCache"]
    assert dynamic.bytes_each == round(HISTOGRAM.expected_longest(8)) * 131_072
    # One spare token per sequence.
    assert ways["sglang blocks"].bytes_each == 5121 * 131_072


def test_slots_share_nothing() -> None:
    found = traffic(setup("llama.cpp", "llama-3.1-8b"), HISTOGRAM, 10 * GIB, Fraction(1, 100))
    assert (found.sequences, found.sequences_if_longest) == (2, 2)
    assert found.method == "slots as long as the longest"


def test_a_limit_of_the_engine_comes_before_chance() -> None:
    deployment = setup("vllm", TINY, options={"max_num_seqs": 3})
    found = traffic(deployment, Lengths(((16, 1), (32, 1))), 10**9, Fraction(1, 100))
    assert (found.sequences, found.binding) == (3, "max_num_seqs")
