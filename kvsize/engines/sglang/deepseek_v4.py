"""DeepSeek-V4 in SGLang: compressed rows per full token, raw rows per sliding slot, states.

Source: SGLang 0.5.23, srt/model_executor/pool_configurator.py (DSV4PoolConfigurator),
srt/mem_cache/deepseek_v4_memory_pool.py and kernels/ops/attention/dsv4/kv_layout.py. The FlashMLA
row layout of V4, float32 compressor states and ratio sizing are modelled; the engine computes in
binary64, and so does this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines.sglang.cells import NAME
from kvsize.errors import EngineRefuses
from kvsize.units import pad

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE_SIZE = 256
SWA_FULL_TOKENS_RATIO = 0.1
_SCALE_BYTES, _PAGE_ALIGNMENT = 8, 576
_STATE_ITEMSIZE = 4
_CSA, _HCA = 4, 128
_RINGS = {_CSA: 8, _HCA: 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the pools need to know of the model on one pipeline stage, and of the pools' rule."""

    rates: tuple[int | None, ...]
    head_dim: int
    qk_rope_head_dim: int
    index_head_dim: int
    sliding_window: int
    page_size: int = PAGE_SIZE
    ratio: float = SWA_FULL_TOKENS_RATIO

    def layers(self, rate: int) -> int:
        """Layers that compress by `rate`."""
        return sum(found == rate for found in self.rates)

    @property
    def row_bytes(self) -> int:
        """A FlashMLA row: FP8 elements, 16-bit rotary ones, scales (584 bytes)."""
        return self.head_dim - self.qk_rope_head_dim + 2 * self.qk_rope_head_dim + _SCALE_BYTES


def page_bytes(shape: Shape, rows: int) -> int:
    """A page of `rows`, padded to the kernels' stride of 576 bytes."""
    return pad(rows * shape.row_bytes, _PAGE_ALIGNMENT)


def paged_row_bytes(shape: Shape, rate: int = 1) -> float:
    """What one row costs in its page of page_size / rate rows."""
    rows = shape.page_size // rate
    return page_bytes(shape, rows) / rows


def swa_token_bytes(shape: Shape) -> float:
    """One sliding slot in all layers, with its share of the overlapping compressor's ring."""
    elements = 2 * 2 * (shape.head_dim + shape.index_head_dim)
    ring = _RINGS[_CSA] / shape.page_size * elements * _STATE_ITEMSIZE * shape.layers(_CSA)
    return paged_row_bytes(shape) * len(shape.rates) + ring


def full_token_bytes(shape: Shape) -> float:
    """One full token: compressed rows, indexer rows, and the ratio of a sliding slot."""
    index = shape.index_head_dim + shape.index_head_dim // 128 * 4
    csa = paged_row_bytes(shape, _CSA) / 4 + index / 4
    hca = paged_row_bytes(shape, _HCA) / 128
    compressed = csa * shape.layers(_CSA) + hca * shape.layers(_HCA)
    return shape.ratio * swa_token_bytes(shape) + compressed


def request_state_bytes(shape: Shape, requests: int) -> int:
    """The non-overlapping compressor's rings, one per request slot (and one spare)."""
    ring = _RINGS[_HCA]
    rows = pad((requests + 1) * ring + ring + 1, 128)
    return rows * 2 * shape.head_dim * _STATE_ITEMSIZE * shape.layers(_HCA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of the full and the sliding pool."""

    full: int
    swa: int


def tokens(budget: int, shape: Shape, *, requests: int | None, context: int) -> Tokens:
    """What fits in `budget` bytes (DSV4PoolConfigurator.calculate_pool_sizes).

    Raises EngineRefuses when the sliding pool could never admit a request.
    """
    per_token, page_size = full_token_bytes(shape), shape.page_size
    if requests is None:
        rough = int(budget / per_token)
        requests = min(max(min(int(rough / context * 512), 4096), 2048), rough // 2)
    left = max(budget - request_state_bytes(shape, requests), 0)
    full = int(left / per_token) // page_size * page_size
    swa = int(full * shape.ratio) // page_size * page_size
    if shape.sliding_window + page_size >= swa:
        msg = f"{NAME}: a sliding pool of {swa:,} tokens cannot hold one window."
        raise EngineRefuses(msg, "give more memory, or a larger swa_full_tokens_ratio.")
    return Tokens(full=full, swa=swa)


def layer_bytes(shape: Shape, full: int, swa: int, requests: int) -> Sequence[int]:
    """What each layer's pools hold for `full` and `swa` tokens and `requests` requests."""
    page_size = shape.page_size
    sliding = swa // page_size * page_bytes(shape, page_size)
    index = shape.index_head_dim + shape.index_head_dim // 128 * 4
    pages = full // page_size
    csa = pages * page_bytes(shape, page_size // _CSA) + full // _CSA * index
    csa += swa // page_size * _RINGS[_CSA] * _csa_state_bytes(shape)
    hca = pages * page_bytes(shape, page_size // _HCA)
    hca += request_state_bytes(shape, requests) // max(shape.layers(_HCA), 1)
    extra = {_CSA: csa, _HCA: hca, None: 0}
    return [sliding + extra[rate] for rate in shape.rates]


def _csa_state_bytes(shape: Shape) -> int:
    return 2 * 2 * (shape.head_dim + shape.index_head_dim) * _STATE_ITEMSIZE
