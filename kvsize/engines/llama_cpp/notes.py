"""What a reader must know to compare a llama.cpp figure with a log, in whole sentences."""

from __future__ import annotations

from collections.abc import Iterator

from kvsize.engines.llama_cpp.caches import Cache
from kvsize.engines.llama_cpp.context import Context
from kvsize.engines.options import Request
from kvsize.gguf.architectures import Latent, Memory
from kvsize.gguf.hparams import Hparams
from kvsize.units import format_tokens


def notes(
    hparams: Hparams, context: Context, request: Request, made: tuple[Cache, ...]
) -> tuple[str, ...]:
    """The notes that apply, most surprising first."""
    return (
        *_layout(hparams, made),
        *_slots(hparams, context, request),
        *_cells(hparams, context, request),
    )


def _layout(hparams: Hparams, made: tuple[Cache, ...]) -> Iterator[str]:
    if hparams.traits.memory is Memory.NONE:
        yield f"llama.cpp keeps no memory between batches for {hparams.arch}."
    if hparams.traits.latent is Latent.IF_GIVEN and not hparams.is_mla:
        yield (
            "The file has no key_length_mla, so llama.cpp caches the keys and values of every "
            "head; a current conversion keeps one latent instead."
        )
    extra = len(hparams.blocks) - hparams.n_layer
    if extra and not hparams.has_router and not _reaches(hparams, made):
        yield f"{extra} multi-token-prediction layer(s) take nothing in the main context."


def _reaches(hparams: Hparams, made: tuple[Cache, ...]) -> bool:
    return any(il >= hparams.n_layer for cache in made for il in cache.layer_bytes)


def _slots(hparams: Hparams, context: Context, request: Request) -> Iterator[str]:
    windowed = hparams.n_swa is not None
    by_default = "frontend" not in request.options
    costly = windowed or hparams.traits.state is not None
    if costly and by_default and context.n_seq_max == 1:
        yield (
            "llama-server without -np opens 4 slots, which take more here: "
            "see the option frontend=llama-server."
        )
    if windowed and context.swa_full:
        yield "swa_full: sliding-window layers keep every token, not only their window."
    elif windowed and by_default:
        yield (
            "Programs that do not set swa_full (frontend=api, llama-cpp-python) keep every token "
            "in sliding-window layers."
        )


def _cells(hparams: Hparams, context: Context, request: Request) -> Iterator[str]:
    asked = (request.context or hparams.n_ctx_train) * request.sequences
    if hparams.traits.memory in {Memory.NONE, Memory.RECURRENT}:
        return
    if context.n_ctx != asked:
        each = f", {format_tokens(context.n_ctx_seq)} for each sequence"
        yield (
            f"n_ctx {format_tokens(asked)} becomes {format_tokens(context.n_ctx)} cells"
            f"{each if context.streams > 1 else ''}."
        )
    if 0 < hparams.n_ctx_train < context.n_ctx_seq:
        yield (
            f"{format_tokens(context.n_ctx_seq)} cells exceed the model's own "
            f"{format_tokens(hparams.n_ctx_train)} tokens; llama.cpp allocates them all the same."
        )
