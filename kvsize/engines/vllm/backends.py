"""Which attention backend vLLM picks for a layer, and the block sizes of its kernel.

Order and selection of _get_backend_priorities and get_attn_backend_cls in
vllm/platforms/cuda.py (0.33.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import lcm

from kvsize.engines.vllm.backend_table import BACKENDS, FLOATS, FP8, Backend, Need, flash_version
from kvsize.engines.vllm.gpus import Gpu
from kvsize.errors import EngineRefuses


def _priorities(need: Need, gpu: Gpu) -> list[str]:
    """Backends in the order vLLM tries them."""
    if need.latent:
        return _latent_priorities(need, gpu)
    rest = ["TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    if gpu.family == 10:
        first = ["TRITON_FLASHINFER"] if need.mm_prefix else []
        return [*first, "FLASHINFER", "FLASH_ATTN", *rest]
    first = ["TRITON_FLASH_ATTN"] if need.mm_prefix and gpu.family == 9 else []
    return [*first, "FLASH_ATTN", "FLASHINFER", *rest]


def _latent_priorities(need: Need, gpu: Gpu) -> list[str]:
    if gpu.family == 12:
        return ["TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"]
    if gpu.family == 10:
        if need.kv_dtype not in FLOATS:
            sparse = ["FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        elif need.heads <= 16:
            sparse = ["FLASH_ATTN_MLA_SPARSE_FA4", "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        else:
            sparse = ["FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"]
        dense = ["FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA"]
        return [*dense, "TRITON_MLA", *sparse]
    sparse = ["FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"]
    flashinfer = "FLASHINFER_MLA_SPARSE_SM90"
    sparse = [flashinfer, *sparse] if need.head_size == 512 else [*sparse, flashinfer]
    return ["FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", *sparse]


def select(need: Need, gpu: Gpu, wanted: str | None) -> Backend:
    """The backend of a layer: `wanted` if it serves, else the first that does.

    Raises EngineRefuses where none does.
    """
    names = _priorities(need, gpu) if wanted is None else [wanted]
    for name in names:
        if BACKENDS[name].accepts(need, gpu):
            return _runs(BACKENDS[name], need, gpu)
    kind = "sparse latent" if need.sparse else "latent" if need.latent else "plain"
    fixed = f", block_size {need.block_size}" if need.block_size else ""
    named = f"attention backend {wanted}" if wanted else "no attention backend"
    msg = (
        f"vllm: {named} serves {kind} attention with head size {need.head_size}, dtype "
        f"{need.dtype}, kv dtype {need.kv_dtype}{fixed} on {gpu.name}."
    )
    if wanted:
        msg = msg.replace(" serves ", " does not serve ")
    raise EngineRefuses(msg, "choose another kv dtype, block_size, attention_backend or gpu.")


def _runs(backend: Backend, need: Need, gpu: Gpu) -> Backend:
    """`backend`, unless its kernels miss the hardware: Triton's fp8 needs capability 8.9.

    Checked when the layer is built, after selection (triton_attn.py, triton_mla.py).
    """
    triton = backend.name in {"TRITON_ATTN", "TRITON_MLA"}
    if triton and need.kv_dtype.startswith("fp8") and gpu.capability < 89:
        msg = f"vllm: {backend.name} has no fp8 KV cache on {gpu.name}."
        raise EngineRefuses(msg, "use kv dtype auto, or a GPU of compute capability 8.9 or more.")
    return backend


@dataclass(frozen=True, slots=True)
class Kernel:
    """Block sizes a kernel reads: those listed, or every multiple of the one listed."""

    sizes: tuple[int, ...]
    multiples: bool

    def takes(self, block_size: int) -> bool:
        """Whether blocks of `block_size` tokens can be cut into the kernel's."""
        return any(block_size % size == 0 for size in self.sizes)

    def largest_within(self, block_size: int) -> int:
        """The largest size not above `block_size`, the smallest where none is."""
        if self.multiples:
            base = self.sizes[0]
            return max(base, block_size // base * base)
        fitting = [size for size in self.sizes if size <= block_size]
        return max(fitting) if fitting else min(self.sizes)


def kernel(backend: Backend, need: Need, gpu: Gpu) -> Kernel:
    """The kernel of a backend for one layer on one GPU."""
    if backend.name in {"FLASH_ATTN", "TRITON_FLASH_ATTN"}:
        version = flash_version(need, gpu)
        if gpu.family == 9 and need.kv_dtype in FP8 and need.head_size == 512 and version == 4:
            return Kernel((64,), multiples=False)
        if gpu.family == 10 and need.head_size == 256 and version == 4:
            return Kernel((128,), multiples=False)
    if backend.name == "FLASHINFER" and gpu.family == 10 and need.grouped:
        # trtllm-gen kernels also take large pages, for grouped queries only.
        return Kernel((16, 32, 64, 128, 256, 512, 1024), multiples=False)
    return Kernel(backend.blocks, backend.any_multiple)


def common_block(kernels: list[Kernel], default: int) -> int:
    """The smallest block size that every kernel takes; `default` where they all do."""
    if all(own.takes(default) for own in kernels):
        return default
    candidates = (lcm(*sizes) for sizes in product(*(own.sizes for own in kernels)))
    return min(c for c in candidates if all(own.takes(c) for own in kernels))
