"""How long sequences are in practice: a histogram, a CSV file or a trace, as one distribution."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING

from kvsize.errors import ConfigError, UsageError
from kvsize.units import ceil_div, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HISTOGRAM = re.compile(r"\s*[\d_.]+[km]?\s*:\s*[\d.]+\s*(,\s*[\d_.]+[km]?\s*:\s*[\d.]+\s*)*")
# What traces and benchmark files call a whole sequence, its prompt, and what was generated.
_WHOLE = ("tokens", "total_tokens", "num_tokens", "length", "len", "context")
_PROMPT = ("prompt_tokens", "input_tokens", "prompt_len", "input_length", "ContextTokens")
_OUTPUT = (
    "output_tokens",
    "completion_tokens",
    "generated_tokens",
    "output_len",
    "output_length",
    "GeneratedTokens",
)
_COUNT = ("count", "weight", "requests", "n")
_SHAPES = (
    "write 2k:70,8k:25,32k:5, or name a CSV file or a .jsonl trace with a column tokens, or with "
    "prompt_tokens and output_tokens."
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distinct lengths in tokens, shortest first, and how often each comes."""

    counts: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """Sequences counted."""
        return sum(count for _, count in self.counts)

    @property
    def longest(self) -> int:
        """The longest one."""
        return self.counts[-1][0]

    @property
    def mean(self) -> Fraction:
        """The average length."""
        return Fraction(sum(length * count for length, count in self.counts), self.total)

    def quantile(self, share: Fraction) -> int:
        """The shortest length that at least `share` of the sequences do not exceed."""
        seen = 0
        for length, count in self.counts:
            seen += count
            if seen >= share * self.total:
                return length
        return self.longest

    def coarse(self, most: int) -> Lengths:
        """At most `most` lengths: rounded up to a common step where there are more."""
        if len(self.counts) <= most:
            return self
        step = ceil_div(self.longest, most)
        counted: Counter[int] = Counter()
        for length, count in self.counts:
            counted[min(ceil_div(length, step) * step, self.longest)] += count
        return Lengths(tuple(sorted(counted.items())))

    def expected_longest(self, sequences: int) -> Fraction:
        """The expected length of the longest among `sequences` drawn independently."""
        expected, below, seen = Fraction(0), Fraction(0), 0
        for length, count in self.counts:
            seen += count
            at_most = Fraction(seen, self.total) ** sequences
            expected += length * (at_most - below)
            below = at_most
        return expected


def read(text: str) -> Lengths:
    """The distribution that `--lengths` names; UsageError or ConfigError where it is none."""
    if _HISTOGRAM.fullmatch(text):
        return _histogram(text)
    path = Path(text).expanduser()
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        msg = f"--lengths: '{text}' is neither a histogram nor a file that can be read."
        raise UsageError(msg, _SHAPES) from None
    rows = _jsonl(content) if content.lstrip().startswith("{") else _csv(content)
    return _counted(_weighted(rows, text), text)


def _histogram(text: str) -> Lengths:
    pairs = [part.split(":") for part in text.split(",")]
    shares = [Fraction(weight.strip()) for _, weight in pairs]
    scale = lcm(*(share.denominator for share in shares))
    lengths = [parse_tokens(length) for length, _ in pairs]
    counts = [int(share * scale) for share in shares]
    return _counted(zip(lengths, counts, strict=True), "the histogram")


def _jsonl(content: str) -> Iterator[Mapping[str, object]]:
    for line in content.splitlines():
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            yield row if isinstance(row, dict) else {}


def _csv(content: str) -> Iterator[Mapping[str, object]]:
    """Rows by the names of the first line, or, without names, the first column as tokens."""
    lines = [line for line in content.splitlines() if line.strip()]
    if lines and not re.search(r"[A-Za-z]", lines[0]):
        lines = ["tokens,count", *lines] if "," in lines[0] else ["tokens", *lines]
    yield from csv.DictReader(lines)


def _weighted(rows: Iterable[Mapping[str, object]], where: str) -> Iterator[tuple[int, int]]:
    for number, row in enumerate(rows, start=1):
        tokens = _first(row, _WHOLE)
        if tokens is None:
            prompt, output = _first(row, _PROMPT), _first(row, _OUTPUT)
            tokens = None if prompt is None else prompt + (output or 0)
        if tokens is None or tokens < 1:
            msg = f"{where}: entry {number} states no number of tokens."
            raise ConfigError(msg, _SHAPES)
        count = _first(row, _COUNT)
        yield tokens, 1 if count is None else count


def _first(row: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    """The first of `names` that the row has as a whole number."""
    for name in names:
        text = str(row.get(name, "")).strip()
        if re.fullmatch(r"\d{1,12}(\.0+)?", text):
            return int(float(text))
    return None


def _counted(pairs: Iterable[tuple[int, int]], where: str) -> Lengths:
    counted: Counter[int] = Counter()
    for length, count in pairs:
        counted[length] += count
    found = tuple(sorted((length, count) for length, count in counted.items() if count > 0))
    if not found:
        msg = f"{where} holds no sequence."
        raise ConfigError(msg, _SHAPES)
    return Lengths(found)
