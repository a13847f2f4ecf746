"""The devices a cache can be built on: what is free, and what torch's allocator reports.

`Cuda` is the only place that calls torch.cuda, so that everything else is tested with a fake.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from kvsize.errors import UsageError
from kvsize.units import KIB, format_bytes

MEMINFO = Path("/proc/meminfo")
# The limit of a container, and what it uses of it (cgroup v2).
CGROUP = Path("/sys/fs/cgroup")
# Left to the rest of the system when a CPU's memory is asked for.
SPARE_CPU_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """What the allocator holds: for tensors, exactly as asked for, and from the driver.

    Each with its peak since the last `restart`.
    """

    allocated_bytes: int
    requested_bytes: int
    reserved_bytes: int
    peak_bytes: int
    peak_requested_bytes: int
    peak_reserved_bytes: int


class Gpu(Protocol):
    """What the checks need of a GPU.

    `torch_device`: where tensors for it are made.
    """

    torch_device: str

    def available(self) -> bool:
        """Whether there is one."""

    def describe(self) -> dict[str, object]:
        """Its name, memory, driver, and the allocator's settings."""

    def free_bytes(self) -> int:
        """Memory that nobody uses."""

    def memory(self) -> Memory:
        """The allocator's counters now."""

    def restart(self, *, empty: bool) -> None:
        """Wait for the device, drop free segments if `empty`, and reset the peak."""


class Cuda:
    """torch.cuda, device 0."""

    torch_device = "cuda:0"

    def available(self) -> bool:
        """Whether torch sees a CUDA device."""
        return torch.cuda.is_available()

    def describe(self) -> dict[str, object]:
        """The device, its driver and CUDA, and the allocator's backend and settings.

        PYTORCH_ALLOC_CONF is read first, its older name only without it (torch 2.13,
        c10/core/AllocatorConfig.h).
        """
        properties = torch.cuda.get_device_properties(0)
        return {
            "name": properties.name,
            "total_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "driver": _driver(),
            "allocator": torch.cuda.get_allocator_backend(),
            "allocator_settings": os.environ.get(
                "PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
            ),
        }

    def free_bytes(self) -> int:
        """As the driver says, after torch has given back what it does not use."""
        gc.collect()  # an earlier cache may be part of a cycle
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(0)[0])

    def memory(self) -> Memory:
        """Torch's own counters, once all that was asked for is done."""
        torch.cuda.synchronize(0)
        stats = torch.cuda.memory_stats(0)
        counters = ("allocated_bytes", "requested_bytes", "reserved_bytes")
        now = [int(stats.get(f"{name}.all.current", 0)) for name in counters]
        most = [int(stats.get(f"{name}.all.peak", 0)) for name in counters]
        return Memory(*now, *most)

    def restart(self, *, empty: bool) -> None:
        """Reset the peak, and the segments too if `empty`."""
        torch.cuda.synchronize(0)
        if empty:
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(0)


def _driver() -> str | None:
    """The NVIDIA driver's version, as the kernel module or nvidia-smi tells it."""
    path = Path("/proc/driver/nvidia/version")
    if path.exists():
        return path.read_text(encoding="utf-8").splitlines()[0]
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - the system's own tool
    return told.stdout.strip() or None


def free_ram_bytes() -> int:
    """RAM that can be taken without swapping: the kernel's estimate, or a container's limit."""
    free = [_available_bytes(), _container_bytes()]
    return min(known for known in free if known is not None)


def _available_bytes() -> int:
    if MEMINFO.exists():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * KIB
    # Elsewhere only the whole memory is told.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _container_bytes() -> int | None:
    """What a cgroup leaves: its limit less what it uses, where file pages can be dropped."""
    try:
        limit = (CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((CGROUP / "memory.current").read_text(encoding="ascii"))
        pages = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    if limit == "max":
        return None
    files = next((int(line.split()[1]) for line in pages if line.startswith("inactive_file ")), 0)
    return max(int(limit) - used + files, 0)


def peak_rss_bytes() -> int | None:
    """The most RAM this process has held; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * KIB


def choose(name: str, needed_bytes: int, gpu: Gpu) -> str:
    """`auto` as the device that fits; UsageError for one that is not there or too small.

    cuda where there is one, else the CPU where `needed_bytes` are free, else meta.
    """
    if name == "cuda" and not gpu.available():
        raise UsageError("torch sees no CUDA device.", "use --device cpu, or --device meta.")
    if name == "cpu" and needed_bytes > free_ram_bytes() - SPARE_CPU_BYTES:
        message = (
            f"the cache needs {format_bytes(needed_bytes)} of RAM and "
            f"{format_bytes(free_ram_bytes())} are free."
        )
        raise UsageError(message, "use --device meta, which takes no memory, or a smaller --ctx.")
    if name != "auto":
        return name
    if gpu.available():
        return "cuda"
    return "cpu" if needed_bytes <= free_ram_bytes() - SPARE_CPU_BYTES else "meta"
