"""Files and settings on which llama.cpp asserts while it makes the memory of a context.

Source: `create_memory` in `src/llama-model.cpp`, `src/llama-kv-cache.cpp` and `sched_reserve` in
`src/llama-context.cpp`, llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Callable

from kvsize.engines.llama_cpp.context import Context
from kvsize.errors import EngineRefuses
from kvsize.gguf.hparams import Block, Hparams

Keep = Callable[[int, Block], bool]
"""Whether a cache has the layer of that index."""
# [TAG_RESERVE_DIAG_DECAY] in src/llama-context.cpp.
_RESERVES_ONE_SEQUENCE = {"kimi-linear", "minimax-01"}


def without_windows(hparams: Hparams) -> None:
    """A model with a sliding window must have a layer with the window."""
    if hparams.n_swa is not None and not any(block.is_swa for block in hparams.blocks):
        raise _aborts(f"{hparams.arch} has a sliding window, but no layer of this file has it")


def without_keys_to_reuse(hparams: Hparams) -> None:
    """Layers without keys of their own take the last dense or the last windowed ones."""
    own = hparams.kv_from_start
    if own is None:
        return
    kinds = [block.is_swa for block in hparams.blocks]
    reused = set(kinds[max(own, 0) :])
    if own < 2 or any(kinds[own - (2 if swa else 1)] is not swa for swa in reused):
        raise _aborts(f"the layers after {own} have no cached layer of their kind to reuse")


def on_indexers(hparams: Hparams) -> None:
    """Of hy_v4, every layer is asked for its indexer, and the first one cannot share."""
    if hparams.arch == "hy_v4":
        if len(hparams.blocks) > hparams.n_layer:
            raise _aborts("hy_v4 with an indexer takes no multi-token-prediction layers")
        if not hparams.blocks[0].is_indexer_full:
            raise _aborts("the first layer of hy_v4 must own an indexer")


def on_uneven_streams(hparams: Hparams, context: Context, attends: Keep) -> None:
    """Two architectures reserve a graph for one sequence, which must divide by the streams.

    Of the last layer only the outputs are computed, which do.
    """
    tokens = min(context.n_ctx, context.n_ubatch)
    if hparams.arch not in _RESERVES_ONE_SEQUENCE or tokens % context.streams == 0:
        return
    if any(attends(il, block) for il, block in enumerate(hparams.blocks[: hparams.n_layer - 1])):
        raise _aborts(
            f"a micro-batch of {tokens} does not divide by the {context.streams} streams of "
            f"{hparams.arch}",
            "give an n_seq_max that divides n_ubatch, or kv_unified.",
        )


def _aborts(
    reason: str, hint: str = "convert the model again; llama.cpp aborts here."
) -> EngineRefuses:
    return EngineRefuses(f"llama.cpp: {reason}.", hint)
