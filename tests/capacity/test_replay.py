"""Public engine logs: tokens within the rounding of the printed memory, budgets in their range."""

from __future__ import annotations

import pytest

from tools import derive_reserves, replay_logs

LOGS = replay_logs.facts(replay_logs.LOGS)
BUDGETS = replay_logs.facts(replay_logs.BUDGETS)
# An ATOM plugin on ROCm; a log whose memory is one worker's and whose tokens are another's.
MISSES = {"L0131", "L0182"}


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row["id"])
def test_tokens_of_the_printed_memory(row: dict[str, str]) -> None:
    replay = replay_logs.replay_tokens(row)
    assert replay.agrees == (row["id"] not in MISSES), (replay.low, replay.observed, replay.high)


def test_nine_of_ten_rows_agree() -> None:
    assert len(LOGS) - len(MISSES) >= 0.9 * len(LOGS)
    assert {row["engine"] for row in LOGS} == {"vllm", "sglang", "tensorrt-llm"}


@pytest.mark.parametrize("row", BUDGETS, ids=lambda row: f"{row['source']} tp {row['gpu']}")
def test_printed_budgets_lie_in_the_range(row: dict[str, str]) -> None:
    replay = replay_logs.replay_budget(row)
    assert replay.low <= replay.observed <= replay.high


def test_the_documented_tables_are_current() -> None:
    text = replay_logs.DOCS.read_text(encoding="utf-8")
    assert replay_logs.with_block(text, replay_logs.block()) == text


@pytest.mark.skipif(not replay_logs.SHARED.exists(), reason="the collection of logs is not here")
def test_facts_are_those_of_the_collection() -> None:
    assert replay_logs.compare(replay_logs.SHARED) == 0


def test_reserves_are_those_of_the_measurements() -> None:
    import json

    text = derive_reserves.DATA.read_text(encoding="utf-8")
    assert derive_reserves.text(json.loads(text)) == text


def test_a_reserve_is_the_median_and_a_wider_range() -> None:
    rows = [
        {"engine": "x", "of": "runtime", "source": "a", "total_gib": total, "free_gib": 10}
        for total in (11, 12, 16)
    ]
    found = derive_reserves.derived(rows)[0]
    gib = 2**30
    assert (found["low_bytes"], found["best_bytes"], found["high_bytes"]) == (
        gib * 4 // 5,
        2 * gib,
        6 * gib * 5 // 4,
    )
