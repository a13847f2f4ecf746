"""The devices a cache can be built on: what is free, and what torch's allocator reports.

`Cuda` is the only place that calls torch.cuda, so that everything else is tested with a fake.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from kvsize.errors import UsageError
from kvsize.units import KIB, format_bytes

MEMINFO = Path("/proc/meminfo")
# Left to the rest of the system when a CPU's memory is asked for.
SPARE_CPU_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """What the allocator holds: for tensors, exactly as asked for, and from the driver."""

    allocated_bytes: int
    requested_bytes: int
    reserved_bytes: int
    peak_bytes: int


class Gpu(Protocol):
    """What the checks need of a GPU."""

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

    def available(self) -> bool:
        """Whether torch sees a CUDA device."""
        return torch.cuda.is_available()

    def describe(self) -> dict[str, object]:
        """The device, its driver and CUDA, and PYTORCH_CUDA_ALLOC_CONF."""
        properties = torch.cuda.get_device_properties(0)
        return {
            "name": properties.name,
            "total_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "driver": _driver(),
            "allocator": torch.cuda.get_allocator_backend(),
            "allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
            or os.environ.get("PYTORCH_ALLOC_CONF")
            or "",
        }

    def free_bytes(self) -> int:
        """As the driver says, after torch has given back what it does not use."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(0)[0])

    def memory(self) -> Memory:
        """Torch's own counters."""
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats(0)
        return Memory(
            allocated_bytes=torch.cuda.memory_allocated(0),
            requested_bytes=int(stats.get("requested_bytes.all.current", 0)),
            reserved_bytes=torch.cuda.memory_reserved(0),
            peak_bytes=torch.cuda.max_memory_allocated(0),
        )

    def restart(self, *, empty: bool) -> None:
        """Reset the peak, and the segments too if `empty`."""
        torch.cuda.synchronize()
        if empty:
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(0)


def _driver() -> str | None:
    """The NVIDIA driver's version, where /proc tells."""
    path = Path("/proc/driver/nvidia/version")
    return path.read_text(encoding="utf-8").splitlines()[0] if path.exists() else None


def free_ram_bytes() -> int:
    """RAM that can be taken without swapping, as the kernel estimates it."""
    if MEMINFO.exists():
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * KIB
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_rss_bytes() -> int:
    """The most RAM this process has held (ru_maxrss is in KiB on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


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
