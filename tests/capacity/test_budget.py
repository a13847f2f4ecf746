"""The ledger: each engine's share on its own base, every column adding up."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from deployments import GIB, plan

from kvsize.capacity import budget as ledger
from kvsize.capacity.gpus import of_memory
from kvsize.capacity.layout import Layout
from kvsize.capacity.rules import RULES, default_fraction, parse_fraction, rules_for
from kvsize.engines import engines
from kvsize.errors import UsageError

CARD = of_memory(80 * GIB)
COSTS = ledger.Costs(
    weights_bytes=16 * GIB, weights_source="x", fraction=Fraction(9, 10), reserve_bytes=2 * GIB
)


@pytest.mark.parametrize(
    ("engine", "left"),
    [
        ("vllm", ceil(80 * GIB * Fraction(9, 10)) - 18 * GIB),
        ("sglang", 78 * GIB - int(78 * GIB * Fraction(1, 10)) - 16 * GIB),
        ("tensorrt-llm", 62 * GIB - int(62 * GIB * Fraction(1, 10))),
        ("lmdeploy-turbomind", 62 * GIB - int(62 * GIB * Fraction(1, 10))),
        ("llama.cpp", 62 * GIB),
    ],
)
def test_each_engine_takes_its_share_of_its_own_base(engine: str, left: int) -> None:
    found = ledger.budget(engine, CARD, COSTS)
    assert found.left.columns == (left, left, left)
    assert found.exact
    assert found.best_bytes == left


@pytest.mark.parametrize("engine", sorted(RULES))
@pytest.mark.parametrize("name", ["h100", "rtx4090", "gb10", "mi300x", "m3-max-64gb"])
def test_columns_add_up_and_a_higher_reserve_leaves_less(engine: str, name: str) -> None:
    found = plan("llama-3.1-8b", name, engine, reserve_bytes=None).budget(Layout())
    for index in range(3):
        assert sum(e.columns[index] for e in found.entries) == found.left.columns[index]
    low, best, high = found.left.columns
    assert low > best > high
    assert found.range_bytes == (max(0, high), max(0, low))
    assert all(entry.source for entry in found.entries)


def test_every_engine_has_its_rules() -> None:
    assert sorted(RULES) == engines()
    with pytest.raises(UsageError, match="engine abacus has no memory budget"):
        rules_for("abacus")


def test_vllm_s_share_grew_in_0_20() -> None:
    shares = [default_fraction("vllm", version) for version in ("0.19.1", "0.20.0", None)]
    assert shares == [Fraction(9, 10), Fraction(92, 100), Fraction(92, 100)]


def test_only_cuda_cards_lose_memory_to_their_driver() -> None:
    def labels(name: str) -> list[str]:
        found = plan("llama-3.1-8b", name, reserve_bytes=None).budget(Layout())
        return [entry.label for entry in found.entries]

    assert "kept by the driver" in labels("h100")
    assert "kept by the driver" not in labels("gb10")
    assert "kept by the driver" not in labels("mi300x")
    assert "kept by macOS" in labels("m2-max-32gb")


def test_a_stated_reserve_leaves_nothing_to_estimate() -> None:
    found = plan("llama-3.1-8b", "h100").budget(Layout())
    assert found.exact
    assert [entry.label for entry in found.entries] == [
        "GPU memory",
        "left free: gpu_memory_utilization 0.92 of the total",
        "weights",
        "runtime reserve",
    ]


def test_sglang_s_share_is_its_own_rule() -> None:
    found = plan("llama-3.1-8b", "h100", "sglang").budget(Layout(tensor_parallel_size=8))
    assert found.entries[2].label == "left free: mem_fraction_static 0.812 of what is free before"


def test_several_gpus_of_llama_cpp_are_one_budget() -> None:
    two = plan("llama-3.1-8b", CARD, "llama.cpp").budget(Layout(layer_split=2))
    assert two.best_bytes == 2 * (80 * GIB - 4 * GIB) - 16_060_522_496


@pytest.mark.parametrize("text", ["0", "1.1", "-0.5", "x", "1/0"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"^'{text}' is not a share"):
        parse_fraction(text)
