"""Token counts and bytes as text: what is read, what is refused, and that both agree."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsize.errors import UsageError
from kvsize.units import (
    UNITS,
    ceil_div,
    format_bytes,
    format_exact,
    format_tokens,
    pad,
    parse_bytes,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("32768", 32768),
        ("32_768", 32768),
        ("32,768", 32768),
        ("32k", 32768),
        ("32K", 32768),
        (" 8k ", 8192),
        ("1.5k", 1536),
        ("1m", 1048576),
        ("0.5m", 524288),
    ],
)
def test_token_counts(text, tokens):
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text", ["", "k", "0", "-1", "1g", "1.3k", "1e3", "0x10", "9" * 30, "1 000"]
)
def test_what_is_no_token_count(text):
    with pytest.raises(UsageError, match=rf"^'{text}' is not a number of tokens\.$"):
        parse_tokens(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("80GB", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("80 gib", 80 * 2**30),
        ("1.5TiB", 3 * 2**39),
        ("512MiB", 512 * 2**20),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("7", 7),
        ("7B", 7),
        ("0", 0),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.5", "80G", "80 GiBs", "nan"])
def test_what_is_no_size(text):
    with pytest.raises(UsageError, match=rf"^'{text}' is not a size in bytes\.$"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (327_680, "320.00 KiB"),
        (10 * 2**30, "10.00 GiB"),
        (2**40, "1.00 TiB"),
        (5000 * 2**40, "5,000.00 TiB"),
    ],
)
def test_bytes_in_a_fitting_unit(size_bytes, text):
    assert format_bytes(size_bytes) == text


def test_bytes_in_a_given_unit():
    shown = [format_bytes(3 * 2**29, unit) for unit in UNITS]
    assert shown == [
        "1,610,612,736 B",
        "1,572,864.00 KiB",
        "1,536.00 MiB",
        "1.50 GiB",
        "0.0015 TiB",
    ]


def test_bytes_short_and_exact():
    assert format_exact(327_680) == "320.00 KiB (327,680 B)"
    assert format_exact(17) == "17 B"


@given(st.integers(1, 10**12))
def test_tokens_read_back(tokens):
    assert parse_tokens(format_tokens(tokens)) == tokens
    assert parse_tokens(f"{tokens}k") == 1024 * tokens


@given(st.integers(0, 10**15))
def test_bytes_read_back(size_bytes):
    assert parse_bytes(format_bytes(size_bytes, "B")) == size_bytes


@given(st.integers(1, 10**15))
def test_bytes_read_back_to_two_digits(size_bytes):
    text = format_bytes(size_bytes)
    scale = UNITS[text.split()[1]]
    shown = Fraction(text.split()[0].replace(",", ""))
    assert abs(shown * scale - size_bytes) <= Fraction(scale, 200)


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_rounding_up_is_tight(value, step):
    assert (ceil_div(value, step) - 1) * step < value <= ceil_div(value, step) * step
    assert pad(value, step) % step == 0
    assert value <= pad(value, step) < value + step
