"""The public functions: a Model's size in an engine, and what a given memory holds."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.engines import engine_for
from kvsize.engines.options import Request
from kvsize.errors import UsageError
from kvsize.model import Model
from kvsize.results import Fit, Size


def size(
    model: Model,
    *,
    context: int,
    sequences: int = 1,
    kv_dtype: str = "auto",
    engine: str = "transformers",
    engine_version: str | None = None,
    options: Mapping[str, object] | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
) -> Size:
    """What the KV cache of `sequences` sequences of `context` tokens takes, in bytes.

    `kv_dtype` "auto" is the model's own dtype; `engine_version` None the newest version
    modelled; `options` are the engine's own (see `kvsize engines NAME`). The figure is exact
    for the engine and version named in the result. Raises UsageError for an option or dtype the
    engine does not have, EngineRefuses where the engine itself refuses the settings.
    """
    request = Request(
        context=context,
        sequences=sequences,
        kv_dtype=kv_dtype,
        engine_version=engine_version,
        options=_options(options),
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
    )
    return engine_for(engine, model).size(model, _checked(request))


def fit(
    model: Model,
    *,
    engine: str,
    context: int | None,
    kv_memory: int,
    kv_dtype: str = "auto",
    engine_version: str | None = None,
    options: Mapping[str, object] | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
) -> Fit:
    """What `kv_memory` bytes per rank, left for the cache, hold in an engine with blocks.

    `context` is the longest sequence (the engine's maximum model length); None means the
    model's own, -1 the longest that fits in engines that can choose it. Raises EngineRefuses where the engine itself refuses, one sequence of that
    length not fitting included.
    """
    found = engine_for(engine, model)
    fit_in = getattr(found, "fit", None)
    if fit_in is None:
        msg = f"engine {engine} has no pool of blocks to fill."
        raise UsageError(msg, "use `kvsize.size`, or an engine that allocates blocks.")
    request = Request(
        context=context or 0,
        kv_dtype=kv_dtype,
        engine_version=engine_version,
        options=_options(options),
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
    )
    answer: Fit = fit_in(model, _checked(request, least_context=-1), kv_memory)
    return answer


def _options(options: object) -> dict[str, object]:
    """A copy of the engine options; UsageError for what is no mapping from names to values."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        msg = f"options is {options!r}, and must map the engine's option names to values."
        raise UsageError(msg, "give options={'cache': 'static'}, for instance.")
    return dict(options)


def _checked(request: Request, *, least_context: int = 0) -> Request:
    """The request, if its counts are whole and possible; UsageError otherwise."""
    for name, least in (
        ("context", least_context),
        ("sequences", 1),
        ("tensor_parallel_size", 1),
        ("pipeline_parallel_size", 1),
    ):
        value = getattr(request, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            msg = f"{name} is {value!r}, and must be a whole number of at least {least}."
            raise UsageError(msg, "give token and sequence counts as integers.")
    texts = {"kv_dtype": request.kv_dtype, "engine_version": request.engine_version or ""}
    for name, text in texts.items():
        if not isinstance(text, str):
            msg = f"{name} is {text!r}, and must be text."
            raise UsageError(msg, "write dtypes and versions as strings, such as '5.24.0'.")
    return request
