"""The block size, once the backends are known, and the pages it pads.

Rules of update_block_size_for_backend, _align_hybrid_block_size and
_align_heterogeneous_kv_block_size in vllm/platforms/interface.py (0.33.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from kvsize.engines.vllm.backends import Kernel, common_block
from kvsize.engines.vllm.states import States
from kvsize.errors import EngineRefuses
from kvsize.units import ceil_div

DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Tokens per block, and what pages of other kinds are padded to."""

    block_size: int
    mamba_block_size: int
    mamba_padded_bytes: int | None = None
    skip_padded_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBytes:
    """Bytes of one token in one attention layer: as quantized, and in the model's dtype."""

    cached: int
    skipped: int
    latent: bool
    turboquant: bool

    @property
    def common(self) -> int:
        """What a page must be a multiple of; packed and plain layers need a common one."""
        return lcm(self.cached, self.skipped) if self.turboquant else self.cached


def default_block(kernels: list[Kernel], *, backend_block_size: bool) -> int:
    """The block size that vLLM takes when the user names none."""
    return common_block(kernels, DEFAULT_BLOCK) if kernels and backend_block_size else DEFAULT_BLOCK


def aligned(
    block_size: int, kernels: list[Kernel], token: TokenBytes, states: States, latent_alignment: int
) -> int:
    """The block size at which an attention page is no smaller than a page of states.

    It is only ever raised. Latent kernels want 128 tokens, exported checkpoints their own step.
    """
    step = max(min(kernels[0].sizes), block_size)
    if token.latent:
        step = max(step, latent_alignment)
    if states.checkpoint_alignment is not None:
        step = lcm(step, states.checkpoint_alignment)
    wanted = step * ceil_div(states.state_bytes, step * token.common)
    smallest = lcm(*(min(kernel.sizes) for kernel in kernels))
    return max(block_size, smallest * ceil_div(wanted, smallest))


def with_skipped_layers(blocks: Blocks, kernels: list[Kernel], token: TokenBytes) -> Blocks:
    """Blocks that also hold the larger pages of layers kept in the model's dtype."""
    if token.skipped == token.cached:
        return blocks
    smallest = min(kernels[0].sizes)
    step = max(smallest, blocks.block_size)
    wanted = max(token.skipped * smallest, blocks.mamba_padded_bytes or 0)
    block_size = max(blocks.block_size, step * ceil_div(wanted, step * token.cached))
    shared = block_size * token.cached
    return Blocks(
        block_size=block_size,
        mamba_block_size=blocks.mamba_block_size,
        mamba_padded_bytes=None if blocks.mamba_padded_bytes is None else shared,
        skip_padded_bytes=shared,
    )


def check(blocks: Blocks, before: int, kernels: list[Kernel]) -> Blocks:
    """`blocks`, if every kernel takes the size that alignment left; EngineRefuses otherwise."""
    if blocks.block_size != before and not all(k.takes(blocks.block_size) for k in kernels):
        msg = f"vllm: an aligned block size of {blocks.block_size} fits not every backend."
        raise EngineRefuses(msg, "use another kv dtype or attention_backend.")
    return blocks
