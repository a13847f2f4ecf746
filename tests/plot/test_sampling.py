"""Which contexts a curve is drawn through, and how far a drawn line is from the figures."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.plot.sampling import bends, between, curve, grid
from kvsize.plot.ticks import bytes_text, even, octaves, powers, tokens_text


def test_the_grid_has_eight_steps_in_an_octave() -> None:
    assert grid(1024, 2048) == [1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048]
    assert len(grid(1024, 2**20)) == 81
    assert grid(1000, 1100) == [1000, 1024, 1100]
    assert grid(1, 5) == [1, 2, 3, 4, 5]


def test_bends_are_windows_and_the_limit() -> None:
    gemma = kvsize.load("gemma-3-27b")
    assert bends(gemma, 1024, 2**20) == [1024, 1025, 131071, 131072, 131073]
    assert bends(kvsize.load("llama-4-scout"), 4096, 16384) == [8191, 8192, 8193]


@given(
    window=st.integers(1, 5000),
    page=st.sampled_from([1, 16, 100, 256, 8192]),
    slope=st.integers(0, 1000),
    fixed=st.integers(0, 10**7),
    state=st.integers(1, 999),
)
@settings(max_examples=60, deadline=None)
def test_a_drawn_line_is_near_every_figure(window, page, slope, fixed, state) -> None:
    def figure(context: int) -> int:
        return fixed + state * min(context, window) + slope * (-(-context // page) * page)

    points = curve(figure, grid(900, 20000))
    assert all(size == figure(context) for context, size in points)
    assert [context for context, _ in points] == sorted({context for context, _ in points})
    for context in range(900, 20001, 7):
        exact = figure(context)
        assert abs(between(points, context) - exact) <= exact * (1 / 14 + 1 / 64)


def test_a_step_is_drawn_as_one() -> None:
    points = curve(lambda context: 100 if context <= 1500 else 200, grid(1024, 2048))
    steps = [pair for pair in pairwise(points) if pair[0][1] != pair[1][1]]
    assert steps == [((1500, 100), (1501, 200))]


def test_a_straight_line_needs_no_more_than_the_grid_and_its_middles() -> None:
    assert len(curve(lambda context: 7 * context, grid(1024, 2**20))) == 2 * 80 + 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (tokens_text(1024), "1k"),
        (tokens_text(1536), "1.5k"),
        (tokens_text(2**20), "1m"),
        (tokens_text(1000), "1,000"),
        (bytes_text(2**32), "4 GiB"),
        (bytes_text(3 * 2**29), "1.5 GiB"),
        (bytes_text(0), "0"),
    ],
)
def test_ticks_read_as_people_write_them(text: str, wanted: str) -> None:
    assert text == wanted


def test_ticks() -> None:
    assert powers(1024, 2**20, 11) == [2**n for n in range(10, 21)]
    assert powers(1000, 2**20, 6) == [2**n for n in range(10, 21, 2)]
    assert even(2**17, 5) == [0, 2**15, 2**16, 3 * 2**15, 2**17]
    assert octaves(2**30 + 1, 2**33) == (30, 33)
    assert octaves(7, 7) == (2, 3)
    assert octaves(1, 1) == (0, 1)
