"""Which kind of GPU vLLM's defaults are taken from."""

from __future__ import annotations

import pytest

from kvsize.capacity.gpus import gpu, of_memory
from kvsize.capacity.machine import stand_in_note, vllm_gpu

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("h100", "h100"),
        ("rtx-pro-6000", "rtxpro6000"),
        ("rtx-a6000", "rtxa6000"),
        ("h100-nvl", "h20"),  # 94 GiB, compute capability 9.0
        ("rtx3060", "a10"),  # 12 GiB, 8.6
        ("rtx5080", "rtx5090"),
        ("t4", "a10"),  # no kind has compute capability 7.5: the nearest in memory
        ("mi300x", "gb200"),
    ],
)
def test_its_own_kind_or_the_nearest(name: str, kind: str) -> None:
    assert vllm_gpu(gpu(name)) == kind


def test_a_gpu_of_which_only_the_memory_is_known() -> None:
    assert vllm_gpu(of_memory(140 * GIB)) == "h200"


def test_another_kind_is_told() -> None:
    assert stand_in_note(gpu("h100"), "h100") is None
    assert stand_in_note(gpu("mi300x"), "gb200") == (
        "vLLM's defaults on AMD Instinct MI300X 192GB are taken to be those of its kind 'gb200' "
        "(-o gpu=…)."
    )
