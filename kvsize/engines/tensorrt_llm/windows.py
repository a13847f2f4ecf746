"""Layers with different attention windows (VSWA): one pool per window, equal shares of memory.

Source: TensorRT-LLM main (late 2026, 1.3), tensorrt_llm/_torch/pyexecutor/resource_manager.py:
`adjust_window_sizes_for_vswa` and `calculate_max_num_blocks_for_vswa`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Windows = dict[int, list[int]]
"""Window size → the layers that have it."""


def fitted_windows(
    windows: Mapping[int, Sequence[int]],
    layer_bytes: Sequence[int],
    pool_bytes: int,
    max_tokens: int | None = None,
) -> Windows:
    """The windows after shrinking them so that one sequence fits in the pool.

    `layer_bytes` is the cost of one token in each layer. From the smallest window up, each takes
    the tokens that the layers not yet settled can still pay for; once one cannot be filled, all
    larger windows get the same size.
    """
    total = {window: sum(layer_bytes[i] for i in layers) for window, layers in windows.items()}
    if sum(window * per_token for window, per_token in total.items()) < pool_bytes:
        return {window: list(layers) for window, layers in windows.items()}
    fitted: Windows = {}
    left_bytes, per_token = pool_bytes, sum(total.values())
    tokens = previous = 0
    for window in sorted(windows):
        if left_bytes > 0 and per_token:
            step = min(left_bytes // per_token, window - previous)
            left_bytes -= step * per_token
            tokens += step
            if tokens < window:
                left_bytes = 0
            if max_tokens is not None and tokens >= max_tokens:
                tokens, left_bytes = max_tokens, 0
        fitted.setdefault(tokens, []).extend(windows[window])
        per_token -= total[window]
        previous = window
    return fitted


def blocks_per_window(
    windows: Mapping[int, Sequence[int]],
    layer_bytes: Sequence[int],
    pool_bytes: int,
    tokens_per_block: int,
    shares: Sequence[float] | None = None,
) -> dict[int, int]:
    """Blocks of each window's pool: memory is shared per window, not by need.

    `shares` are those of TRTLLM_WINDOW_SIZE_SHARES, for windows in ascending order; the engine
    computes in binary64, and so does this.
    """
    count = len(windows)
    if shares is not None and (len(shares) != count or sum(shares) != 1.0):
        msg = f"TRTLLM_WINDOW_SIZE_SHARES has {len(shares)} shares that sum to {sum(shares)}."
        raise UsageError(msg, f"give {count} shares, smallest window first, that sum to 1.")
    parts = [1.0 / count] * count if shares is None else list(shares)
    result = {}
    for share, (window, layers) in zip(parts, sorted(windows.items()), strict=True):
        tokens = pool_bytes * share / sum(layer_bytes[i] for i in layers)
        result[window] = int(tokens // tokens_per_block)
    return result
