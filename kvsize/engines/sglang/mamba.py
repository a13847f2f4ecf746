"""Recurrent states: bytes of one, how many slots fit, and what their pool allocates.

Sources: SGLang 0.5.23, srt/configs/mamba_utils.py (shapes), srt/mem_cache/memory_pool.py
(MambaPool) and srt/mem_cache/kv_cache_configurator.py (`_handle_max_mamba_cache`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines.sglang.cells import NAME
from kvsize.errors import EngineRefuses
from kvsize.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL_MEMORY_RATIO = 0.9
# Radix cache on: the running state and two snapshots; the extra buffer tracks two more.
BASE_SLOTS, EXTRA_BUFFER_SLOTS = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShape:
    """One linear layer's state on one rank.

    `channels` of a convolution of `kernel` (kernel - 1 columns are kept), and the elements of
    the recurrent state. `delta_attention` (KDA) keeps a window per draft token.
    """

    channels: int
    kernel: int
    recurrent: tuple[int, ...] = ()
    conv_itemsize: int = 2
    recurrent_itemsize: int = 4
    delta_attention: bool = False

    @property
    def conv_bytes(self) -> int:
        """The convolution's columns."""
        return self.channels * (self.kernel - 1) * self.conv_itemsize

    @property
    def recurrent_bytes(self) -> int:
        """The recurrent state; 0 where there is none (LFM2)."""
        elements = self.recurrent_itemsize if self.recurrent else 0
        for length in self.recurrent:
            elements *= length
        return elements

    @property
    def bytes(self) -> int:
        """Both."""
        return self.conv_bytes + self.recurrent_bytes

    def draft_bytes(self, draft_tokens: int, *, topk: int = 1) -> int:
        """What verifying `draft_tokens` keeps for one request.

        Windows of consecutive tokens overlap and are stored once (draft_tokens + kernel - 2
        columns), except for KDA and for draft trees.
        """
        columns = draft_tokens + self.kernel - 2
        if self.delta_attention or topk > 1:
            columns = draft_tokens * (self.kernel - 1)
        return self.channels * columns * self.conv_itemsize + draft_tokens * self.recurrent_bytes


def sharded_channels(channels: int, groups: int, state_size: int, tensor_parallel: int) -> int:
    """A convolution's channels on one rank; groups that do not divide are replicated first.

    `Mamba2StateShape.create`: inner channels and heads divide, each rank keeps a whole group.
    Raises EngineRefuses where the channels still do not divide.
    """
    if groups % tensor_parallel:
        channels += 2 * (tensor_parallel - groups) * state_size
    if channels % tensor_parallel:
        msg = (
            f"{NAME}: {channels:,} channels of a convolution do not divide over {tensor_parallel}."
        )
        raise EngineRefuses(msg, "use a tensor_parallel_size that divides the heads.")
    return channels // tensor_parallel


def slots_per_request(
    *, radix_cache: bool = True, strategy: str = "no_buffer", overlap: bool = True
) -> int:
    """State slots one running request may take (`_calculate_mamba_ratio`)."""
    if not radix_cache:
        return 1
    if strategy == "no_buffer":
        return BASE_SLOTS
    if strategy == "extra_buffer_lazy" or not overlap:
        return BASE_SLOTS + 1
    return BASE_SLOTS + EXTRA_BUFFER_SLOTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The states' slots (max_mamba_cache_size) and the GiB left for keys and values."""

    max_mamba_cache_size: int
    rest_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user fixes, per DP rank: slots, running requests, drafts, the radix cache."""

    max_mamba_cache_size: int | None = None
    max_running_requests: int | None = None
    draft_tokens: int = 0
    radix_cache: bool = True
    slots_per_request: int = BASE_SLOTS
    full_memory_ratio: float = FULL_MEMORY_RATIO


def state_slots(rest_gib: float, per_request: int, wanted: Wanted) -> Slots:
    """Slots, and what they leave of `rest_gib` (`_handle_max_mamba_cache`).

    Explicit slots are taken as they are; without a radix cache every running request has one;
    otherwise states get mamba_full_memory_ratio / (1 + it) of the memory. One padding slot is
    charged to both buffers. Raises EngineRefuses when no slot fits.
    """
    drafts = wanted.draft_tokens
    slots = _slots(rest_gib, per_request, wanted)
    if slots <= 0:
        msg = f"{NAME}: not enough memory for one recurrent state of {per_request:,} bytes."
        raise EngineRefuses(msg, "lower max_running_requests, or give more memory.")
    if drafts:
        running = intermediate_requests(slots, wanted)
        rest_gib -= per_request * (running + 1) * drafts / GIB
    return Slots(max_mamba_cache_size=slots, rest_gib=rest_gib - (slots + 1) * per_request / GIB)


def intermediate_requests(slots: int, wanted: Wanted) -> int:
    """Requests whose drafts are kept: those that may run, by the slots each needs."""
    if (
        wanted.max_mamba_cache_size is None
        and not wanted.radix_cache
        and wanted.max_running_requests
    ):
        return slots
    requests = max(1, wanted.max_running_requests or 1)
    return min(requests, slots // wanted.slots_per_request)


def _slots(rest_gib: float, per_request: int, wanted: Wanted) -> int:
    if wanted.max_mamba_cache_size is not None:
        return wanted.max_mamba_cache_size
    if not wanted.radix_cache and wanted.max_running_requests is not None:
        return max(1, wanted.max_running_requests)
    ratio, drafts = wanted.full_memory_ratio, wanted.draft_tokens
    budget = rest_gib * ratio / (1 + ratio) * GIB
    if not drafts:
        return int((budget - per_request) // per_request)
    per_slot = per_request * (1 + drafts / wanted.slots_per_request)
    return int((budget - per_request * (1 + drafts)) // per_slot)


def pool_bytes(
    layers: Sequence[StateShape],
    slots: int,
    *,
    requests: int = 0,
    draft_tokens: int = 0,
    topk: int = 1,
) -> int:
    """What the pool allocates: one padding slot more, and the drafts of requests + 1."""
    total = (slots + 1) * sum(layer.bytes for layer in layers)
    if draft_tokens:
        drafts = sum(layer.draft_bytes(draft_tokens, topk=topk) for layer in layers)
        total += (requests + 1) * drafts
    return total
