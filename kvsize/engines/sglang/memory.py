"""The default mem_fraction_static, from the GPU's memory: a rule of thumb, not a profile.

Source: SGLang 0.5.23, srt/arg_groups/memory_hook.py and cuda_graph_hook.py. Memory is in MiB, as
nvidia-smi prints it; the engine computes in binary64, and so does this.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB_PER_GIB = 1024
_LEAST_ACTIVATION_TOKENS = 2048
# GPU memory below so many GiB: chunked prefill, decode graph sizes below and from 4 ranks.
_BY_MEMORY = (
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (None, 16384, 512, 512),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """The prefill chunk and the largest decode graph the engine settles on."""

    chunked_prefill_size: int
    decode_max_bs: int


def graphs(gpu_mib: int, tensor_parallel_size: int) -> Graphs:
    """The defaults for a GPU of `gpu_mib` MiB."""
    _, chunk, small, large = next(
        row for row in _BY_MEMORY if row[0] is None or gpu_mib < row[0] * _MIB_PER_GIB
    )
    return Graphs(
        chunked_prefill_size=chunk,
        decode_max_bs=small if tensor_parallel_size < 4 else large,
    )


def prefill_graph_sizes(largest: int) -> int:
    """How many prefill graphs are captured up to `largest` tokens."""
    steps = (
        range(4, 33, 4),
        range(48, 257, 16),
        range(288, 513, 32),
        range(576, 1025, 64),
        range(1280, 4097, 256),
        range(4608, largest + 1, 512),
    )
    return sum(size <= largest for sizes in steps for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the rule reads of a launch: ranks, the attention's kind, the prefill chunk if stated.

    `latent`: the model runs on the MLA backend, whose prefill graphs are reserved as a lump.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    attn_dp_size: int = 1
    latent: bool = False
    chunked_prefill_size: int | None = None


def default_mem_fraction_static(gpu_mib: int, launch: Launch) -> float:
    """The fraction for a text model with CUDA graphs: what is not reserved, to three digits."""
    defaults = graphs(gpu_mib, launch.tensor_parallel_size)
    chunk = launch.chunked_prefill_size or defaults.chunked_prefill_size
    decode = defaults.decode_max_bs
    reserved: float = 512 + max(chunk, _LEAST_ACTIVATION_TOKENS) * 1.5
    reserved += launch.tensor_parallel_size * launch.pipeline_parallel_size / 8 * _MIB_PER_GIB
    reserved += decode * 2
    if launch.attn_dp_size > 1:
        reserved += decode * launch.attn_dp_size * 3
        reserved += decode * launch.attn_dp_size * 1.5 if decode > 300 else 0
    reserved += 1536 if launch.latent else prefill_graph_sizes(chunk) * 8
    if gpu_mib > 60 * _MIB_PER_GIB:
        reserved = max(reserved, 10 * _MIB_PER_GIB)
    return round((gpu_mib - reserved) / gpu_mib, 3)
