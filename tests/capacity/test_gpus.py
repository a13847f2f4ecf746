"""The catalogue of accelerators, and this machine's own."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any

import pytest

from kvsize.capacity import gpus as catalogue
from kvsize.errors import MissingExtra, UsageError
from kvsize.units import MIB


def test_there_are_many_of_all_kinds() -> None:
    found = catalogue.gpus()
    vendors = Counter(gpu.vendor for gpu in found)
    assert len(found) >= 60
    assert set(vendors) == {"nvidia", "amd", "intel", "apple"}
    assert min(vendors.values()) >= 9


def test_every_name_is_one_gpu_s() -> None:
    names = [catalogue.bare(n) for gpu in catalogue.gpus() for n in (gpu.name, *gpu.aliases)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("gpu", catalogue.gpus(), ids=lambda gpu: gpu.name)
def test_every_figure_says_what_it_is(gpu: catalogue.Gpu) -> None:
    assert gpu.memory in {"driver", "nominal"}
    assert gpu.memory_bytes >= 8 * 1000 * MIB
    assert len(gpu.source) > 10
    assert gpu.memory == "driver" or gpu.memory_bytes % 2**30 == 0
    assert (gpu.compute_capability is not None) == (gpu.vendor == "nvidia")


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("h100", 81_559),
        ("H200", 143_771),
        ("A100-80GB", 81_920),
        ("NVIDIA GeForce RTX 4090", 24_564),
        ("3090", 24_576),
        ("NVIDIA L40S", 46_068),
    ],
)
def test_memory_is_what_the_driver_reports(name: str, mib: int) -> None:
    assert catalogue.gpu(name).memory_bytes == mib * MIB


def test_an_amd_card_in_bytes() -> None:
    assert catalogue.gpu("mi300x").memory_bytes == 206_141_652_992


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^no GPU named 'rtx409'\.$") as error:
        catalogue.gpu("rtx409")
    assert error.value.hint.startswith("did you mean rtx4090")


def test_a_gpu_of_which_only_the_memory_is_known() -> None:
    found = catalogue.of_memory(24 * 2**30)
    assert (found.memory_bytes, found.memory, found.title) == (
        24 * 2**30,
        "given",
        "a GPU of 24.00 GiB",
    )
    with pytest.raises(UsageError, match="24 bytes, which is no GPU's memory"):
        catalogue.of_memory(24)


def answers(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(catalogue.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(catalogue.subprocess, "run", run)


def test_the_local_gpus_are_nvidia_smi_s(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "NVIDIA L4, 23034, 8.9\nNVIDIA GB10, [N/A], 12.1\n")
    (found,) = catalogue.local()
    assert (found.title, found.memory_bytes, found.compute_capability) == (
        "NVIDIA L4",
        23_034 * MIB,
        "8.9",
    )


def test_without_a_gpu_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.shutil, "which", lambda name: None)
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="neither nvidia-smi nor torch finds a GPU") as error:
        catalogue.local()
    assert "--gpu-memory 24GiB" in error.value.hint
