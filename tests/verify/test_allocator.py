"""The arithmetic of torch's caching allocator, by values from its constants."""

from __future__ import annotations

import pytest

from kvsize.verify.allocator import Allocated, allocated, block_bytes, segment_bytes, unsplit_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("size", "block"),
    [(0, 0), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)],
)
def test_every_block_is_a_multiple_of_512(size: int, block: int) -> None:
    assert block_bytes(size) == block


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (0, 0),
        (8, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 513, 20 * MIB),
        (10 * MIB - 1, 10 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (64 * MIB - 1, 64 * MIB),
    ],
)
def test_segments_that_are_asked_of_the_driver(size: int, segment: int) -> None:
    assert segment_bytes(size) == segment


def test_what_memory_allocated_counts() -> None:
    assert allocated([]) == Allocated(0, 0)
    # Small blocks are split to the byte, so the figure is one.
    assert allocated([8, 8, 700]) == Allocated(2048, 2048)
    # A large one keeps a rest of up to 1 MiB.
    assert allocated([8, 3 * MIB]) == Allocated(3 * MIB + 512, 4 * MIB + 512)
    assert allocated([8, 3 * MIB], 0) == Allocated(3 * MIB + 512, 3 * MIB + 512)


def test_a_figure_is_held_at_both_ends() -> None:
    found = Allocated(1024, 2048)
    assert [found.holds(size) for size in (1023, 1024, 2048, 2049)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("backend", "settings", "unsplit"),
    [
        ("native", "", MIB),
        ("native", "garbage_collection_threshold:0.8", MIB),
        ("native", "expandable_segments:True", 0),
        ("native", "expandable_segments: true", 0),
        ("native", "expandable_segments:False", MIB),
        ("native", "max_split_size_mb:128", None),
        ("native", "roundup_power2_divisions:[256:1,512:2]", None),
        ("cudaMallocAsync", "backend:cudaMallocAsync", None),
    ],
)
def test_what_the_settings_change(backend: str, settings: str, unsplit: int | None) -> None:
    assert unsplit_bytes(backend, settings) == unsplit
