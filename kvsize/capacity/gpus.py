"""The accelerators kvsize knows by name, and the one in this machine.

`data/gpus.json` holds them. `memory` says what `memory_bytes` is: "driver", what the card's own
driver reports (newer NVIDIA drivers count what they keep for themselves too), or "nominal", the
data sheet's figure where the driver's is not known to us.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvsize.errors import MissingExtra, UsageError
from kvsize.suggest import nearest
from kvsize.units import MIB, format_bytes

_LOCAL_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of accelerator; `unified` where it shares its memory with the CPU."""

    name: str
    title: str
    vendor: str
    memory_bytes: int
    memory: str
    source: str
    aliases: tuple[str, ...] = ()
    compute_capability: str | None = None
    unified: bool = False


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every accelerator of the catalogue, in its order."""
    text = files("kvsize").joinpath("data/gpus.json").read_text(encoding="utf-8")
    return tuple(
        Gpu(**{**row, "aliases": tuple(row["aliases"])}) for row in json.loads(text)["gpus"]
    )


def gpu(name: str) -> Gpu:
    """The accelerator called `name` in any spelling (`RTX 4090`, `rtx-4090`); UsageError otherwise."""
    known = {bare(label): found for found in gpus() for label in (found.name, *found.aliases)}
    found = known.get(bare(name))
    if found is None:
        msg = f"no GPU named '{name}'."
        otherwise = "`kvsize gpus` lists them; --gpu-memory 24GiB takes any other"
        raise UsageError(msg, nearest(name, [each.name for each in gpus()], otherwise))
    return found


def of_memory(memory_bytes: int) -> Gpu:
    """A GPU of which only the memory is known, as `--gpu-memory` gives it."""
    if memory_bytes < MIB:
        msg = f"--gpu-memory is {memory_bytes} bytes, which is no GPU's memory."
        raise UsageError(msg, "write it with its unit: --gpu-memory 24GiB.")
    shown = format_bytes(memory_bytes)
    return Gpu(
        name=shown,
        title=f"a GPU of {shown}",
        vendor="",
        memory_bytes=memory_bytes,
        memory="given",
        source="--gpu-memory",
    )


def local() -> tuple[Gpu, ...]:
    """The GPUs of this machine: nvidia-smi's (NVML), else torch's; MissingExtra without either."""
    found = _from_nvidia_smi() or _from_torch()
    if not found:
        msg = "--gpu local: neither nvidia-smi nor torch finds a GPU here."
        hint = "name one (`kvsize gpus`), give --gpu-memory 24GiB, or pip install 'kvsize[verify]'."
        raise MissingExtra(msg, hint)
    return found


def _from_nvidia_smi() -> tuple[Gpu, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [
        program,
        "--query-gpu=name,memory.total,compute_cap",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(  # noqa: S603 - the driver's own program, fixed arguments
            query, capture_output=True, text=True, timeout=_LOCAL_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(read for line in answer.stdout.splitlines() if (read := _smi_line(line)))


def _smi_line(line: str) -> Gpu | None:
    """One GPU of nvidia-smi's list; None where it states no memory (GB10 prints [N/A])."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != 3 or not fields[1].isdigit():
        return None
    title, mib, capability = fields
    return _local(title, int(mib) * MIB, capability, "nvidia-smi on this machine")


def _from_torch() -> tuple[Gpu, ...]:
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(
        _local(
            torch.cuda.get_device_name(index),
            int(torch.cuda.mem_get_info(index)[1]),
            ".".join(map(str, torch.cuda.get_device_capability(index))),
            "torch.cuda.mem_get_info on this machine",
        )
        for index in range(torch.cuda.device_count())
    )


def _local(title: str, memory_bytes: int, capability: str, source: str) -> Gpu:
    return Gpu(
        name="local",
        title=title,
        vendor="nvidia",
        memory_bytes=memory_bytes,
        memory="driver",
        source=source,
        compute_capability=capability,
    )


def bare(name: str) -> str:
    """`NVIDIA GeForce RTX 4090` and `rtx-4090` are one name: `rtx4090`."""
    letters = re.sub(r"[^a-z0-9+]", "", name.lower())
    return re.sub(r"^(nvidia|amd|intel|apple)?(geforce|radeon(?=rx))?", "", letters)
