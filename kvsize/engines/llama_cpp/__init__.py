"""llama.cpp: the KV caches and recurrent memory of a context, as its log prints them.

The rules were read from llama.cpp 0c1e57098 (0.5.0-dev, the tree inside llama-cpp-python
0.3.36); each module names its source files. `context` × `sequences` is what `-c` must be: the
engine's `-c` counts the tokens of all sequences together.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsize.engines.llama_cpp.caches import Cache, CompressorState
from kvsize.engines.llama_cpp.context import Context, context_for
from kvsize.engines.llama_cpp.conversion import metadata
from kvsize.engines.llama_cpp.frontends import OPTIONS
from kvsize.engines.llama_cpp.memory import caches
from kvsize.engines.llama_cpp.notes import notes
from kvsize.engines.llama_cpp.types import CACHE_TYPES
from kvsize.engines.options import Request
from kvsize.errors import UsageError
from kvsize.gguf.header import READ_UNTIL
from kvsize.gguf.hparams import Hparams, read_hparams
from kvsize.model import Model
from kvsize.results import LayerGroup, Size

NAME = "llama.cpp"
TITLE = "llama.cpp and what is built on it (llama-server, ollama, llama-cpp-python)"
VERSIONS = ("0.5.0-dev",)
KV_DTYPES = ("auto", *CACHE_TYPES)
NOT_MODELLED = (
    "Compute buffers, which grow with n_ubatch, are not part of the cache.",
    "A GPU backend may pad its buffers a little further (CUDA to 128 bytes a tensor).",
    "A draft context (speculative decoding, multi-token prediction) is a second context.",
    "`--fit` may lower n_ctx where -c is not given and memory is short.",
    "llama-server also keeps a prompt cache in host memory, by default up to 8 GiB.",
    "How layers spread over devices is not modelled; the figures are totals.",
    (
        "Versions before 2026-02 give a hybrid model's attention cache n_ctx cells for each of its "
        "streams, n_seq_max times too many (llama.cpp#19559)."
    ),
    (
        "Versions before 2026-01 keep values beside latents: 1,088 elements instead of 576 for each "
        "token and layer of DeepSeek-V3 (llama.cpp#19067)."
    ),
    (
        "Some versions from 2026-04 on keep sliding windows as f16 whatever the cache type "
        "(llama.cpp#21277)."
    ),
    (
        "Versions before 2025-11 pad n_ctx differently, and llama-server opens one slot by default "
        "(llama.cpp#16812, #17046, #16736)."
    ),
    (
        "Versions before 2025-05 have no caches for sliding windows: every layer keeps every token "
        "(llama.cpp#13194)."
    ),
)
_KINDS = {
    "kv": "attention cache",
    "base": "full attention cache",
    "swa": "sliding window cache",
    "mla": "latent cache",
    "lid": "indexer cache",
    "idx": "index cache",
    "csa": "compressed cache, ratio 4",
    "hca": "compressed cache, ratio 128",
    "recurrent": "recurrent memory",
}

__all__ = ["KV_DTYPES", "NAME", "NOT_MODELLED", "OPTIONS", "TITLE", "VERSIONS", "size"]


def size(model: Model, request: Request) -> Size:
    """What llama.cpp allocates for `request`: the `size =` lines of its log, to the byte.

    Raises EngineRefuses where it makes no context, UsageError for an option, type or version it
    does not have, ConfigError for a config whose conversion to GGUF is not known.
    """
    _check(request)
    hparams = _hparams(model)
    context = context_for(hparams, request)
    made = caches(hparams, context)
    total_bytes = sum(cache.total_bytes for cache in made)
    return Size(
        engine=NAME,
        engine_version=VERSIONS[0],
        cache=" + ".join(dict.fromkeys(cache.tag for cache in made)) or "none",
        context=request.context or hparams.n_ctx_train,
        sequences=request.sequences,
        kv_dtype=_dtype(context),
        total_bytes=total_bytes,
        layer_bytes=_layer_bytes(hparams, made),
        allocated_bytes=total_bytes,
        prefill_bytes=total_bytes,
        rank_bytes=(total_bytes,),
        groups=tuple(_group(cache) for cache in made),
        details=_details(context, made),
        notes=(*notes(hparams, context, request, made), *_source_notes(model)),
    )


def _hparams(model: Model) -> Hparams:
    if model.source == "gguf":
        return read_hparams(model.config.raw, model.where)
    return read_hparams(metadata(model), model.where)


def _source_notes(model: Model) -> Iterator[str]:
    stopped_at = model.config.raw.get(READ_UNTIL)
    if stopped_at is not None:
        yield f"The remote header was read up to `{stopped_at}`; later keys were not."


def _check(request: Request) -> None:
    if request.engine_version not in {None, *VERSIONS}:
        msg = f"llama.cpp {request.engine_version} is not modelled."
        raise UsageError(msg, f"modelled: {', '.join(VERSIONS)}.")
    if request.tensor_parallel_size > 1 or request.pipeline_parallel_size > 1:
        msg = "llama.cpp: how the cache spreads over devices is not modelled."
        raise UsageError(msg, "leave tensor and pipeline parallelism out; the figure is the total.")


def _dtype(context: Context) -> str:
    k, v = context.type_k.name, context.type_v.name
    return k if k == v else f"{k}/{v}"


def _layer_bytes(hparams: Hparams, made: tuple[Cache, ...]) -> tuple[int, ...]:
    per_cache = [cache.layer_bytes for cache in made]
    return tuple(
        sum(layers.get(il, 0) for layers in per_cache) for il in range(len(hparams.blocks))
    )


def _group(cache: Cache) -> LayerGroup:
    kind = _KINDS[cache.tag]
    if isinstance(cache, CompressorState):
        kind = kind.replace("cache", "state")
    return LayerGroup(kind, cache.layers, cache.tensors, cache.total_bytes)


def _details(context: Context, made: tuple[Cache, ...]) -> dict[str, object]:
    return {
        "n_ctx": context.n_ctx,
        "n_ctx_seq": context.n_ctx_seq,
        "n_seq_max": context.n_seq_max,
        "kv_unified": context.kv_unified,
        "n_batch": context.n_batch,
        "n_ubatch": context.n_ubatch,
        "caches": tuple(cache.figures for cache in made),
        "log": tuple(cache.log_line for cache in made),
    }
