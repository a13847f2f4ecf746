"""What a picture is asked for: models, engines, dtypes, numbers of sequences; all combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvsize.api import size as size_of
from kvsize.engines import engine as engine_called
from kvsize.errors import EngineRefuses, KvsizeError, UsageError
from kvsize.report import for_model
from kvsize.units import format_tokens, parse_tokens

if TYPE_CHECKING:
    from kvsize.advice import Ask
    from kvsize.capacity.setup import Setup
    from kvsize.model import Model
    from kvsize.results import Size

_MOST_CURVES = 24
LEFT_OUT = "left out:"
# Without --ctx: from 1k to the longest limit of the models, or to this where none states one.
_LEAST, _UNLIMITED = 1024, 65536
# What a page lets one choose from where the command line does not say; an engine has some of them.
_SEQUENCES, _KV_DTYPES = (1, 4, 16, 64), ("fp8", "q8_0", "q4_0")
# Beyond it axes have no words, and no model is made for a hundredth of it.
_LONGEST = 2**30
_RANGE_HINT = "write the smaller one first: --ctx 1k:1m."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The combinations asked for. Empty `engines`: each model's own.

    `vllm_gpu`: the kind of GPU whose defaults vLLM has, where one is named; its windowed layers
    keep the tokens in flight, and how many those are depends on it.
    """

    models: tuple[Model, ...]
    engines: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ("auto",)
    sequences: tuple[int, ...] = (1,)
    engine_version: str | None = None
    options: Mapping[str, object]
    vllm_gpu: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1

    @property
    def ranks(self) -> int:
        """GPUs that share one cache."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def cases(self) -> Iterator[Case]:
        """Every combination, models first."""
        for model in self.models:
            for engine in self.engines or ("",):
                for kv_dtype in self.kv_dtypes:
                    ask: Ask = {
                        "engine": engine,
                        "kv_dtype": kv_dtype,
                        "engine_version": self.engine_version,
                        "options": self._options(engine),
                        "tensor_parallel_size": self.tensor_parallel_size,
                        "pipeline_parallel_size": self.pipeline_parallel_size,
                    }
                    for count in self.sequences:
                        yield Case(model, for_model(model, ask), count, self.ranks)

    def _options(self, engine: str) -> Mapping[str, object]:
        if engine == "vllm" and self.vllm_gpu and "gpu" not in self.options:
            return {**self.options, "gpu": self.vllm_gpu}
        return self.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was stated: sizes, GPUs by name or by memory, and the weights on them (a size or a dtype)."""

    budgets: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    gpu_memory: tuple[str, ...] = ()
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One combination, and its figures."""

    model: Model
    ask: Ask
    sequences: int
    ranks: int

    def size(self, context: int) -> Size:
        """The engine's answer; EngineRefuses and UsageError as it gives them."""
        return size_of(self.model, context=context, sequences=self.sequences, **self.ask)

    def measure(self, context: int) -> int:
        """The bytes that are drawn: of the whole cache, or of the fullest GPU where several share it."""
        found = self.size(context)
        return (
            max(found.rank_bytes, default=found.total_bytes)
            if self.ranks > 1
            else found.total_bytes
        )

    def setup(self) -> Setup:
        """The same as `kvsize.capacity` is asked about it."""
        from kvsize.capacity.layout import Layout
        from kvsize.capacity.setup import Setup

        layout = Layout(
            tensor_parallel_size=self.ask["tensor_parallel_size"],
            pipeline_parallel_size=self.ask["pipeline_parallel_size"],
        )
        return Setup(
            model=self.model,
            engine=str(self.ask["engine"]),
            layout=layout,
            engine_version=self.ask["engine_version"],
            kv_dtype=self.ask["kv_dtype"],
            options=self.ask["options"],
        )

    def takes(self, context: int) -> bool:
        """Whether the engine accepts that context."""
        try:
            self.size(context)
        except EngineRefuses:
            return False
        return True


def accepted(wanted: Wanted, context: int) -> tuple[list[Case], tuple[str, ...]]:
    """The combinations that the engines take at `context`, and a sentence for each left out.

    Raises what the first one raised where none is taken.
    """
    found: list[Case] = []
    errors: list[tuple[Case, KvsizeError]] = []
    for case in wanted.cases():
        try:
            case.size(context)
        except (EngineRefuses, UsageError) as error:
            errors.append((case, error))
        else:
            found.append(case)
    if not found:
        raise errors[0][1]
    sentences = dict.fromkeys(
        f"{LEFT_OUT} {case.model.name}, {case.ask['engine']}, {case.ask['kv_dtype']}: {error.message}"
        for case, error in errors
    )
    return found, tuple(sentences)


def context_range(text: str, models: tuple[Model, ...]) -> tuple[int, int]:
    """`1k:1m` → (1024, 1048576); nothing → up to the longest limit of the models.

    Raises UsageError for a range that is empty, or none at all.
    """
    if not text.strip():
        limits = [model.context_limit for model in models if model.context_limit]
        most = max(limits, default=_UNLIMITED)
        return min(_LEAST, max(1, most // 16)), most
    first, colon, last = text.partition(":")
    if not colon:
        msg = f"--ctx '{text}' is no range of contexts, and a curve needs one."
        raise UsageError(msg, "write the smallest and the largest: --ctx 1k:1m.")
    least, most = parse_tokens(first), parse_tokens(last)
    if least >= most:
        msg = f"--ctx {text} is an empty range."
        raise UsageError(msg, _RANGE_HINT)
    if most > _LONGEST:
        msg = f"--ctx goes to {format_tokens(most)} tokens, which no model is near."
        raise UsageError(msg, f"draw up to {format_tokens(_LONGEST)} at most.")
    return least, most


def refuse_crowds(wanted: Wanted) -> None:
    """Raise UsageError where more curves are asked for than can be told apart."""
    asked = sum(1 for _ in wanted.cases())
    if asked > _MOST_CURVES:
        msg = f"a picture shows at most {_MOST_CURVES} curves, and {asked} are asked for."
        raise UsageError(msg, "name fewer models, engines, dtypes or numbers of sequences.")


def one_case(cases: list[Case], why: str) -> Case:
    """The only combination; UsageError where there are several."""
    if len(cases) > 1:
        msg = f"{why} shows one cache, and {len(cases)} are asked for."
        raise UsageError(msg, "name one model, engine, dtype and number of sequences.")
    return cases[0]


def wanted(
    models: tuple[Model, ...],
    asked: Ask,
    engines: tuple[str, ...],
    kv_dtypes: tuple[str, ...],
    sequences: tuple[int, ...],
) -> Wanted:
    """What is asked for, from options as they were typed; UsageError for an engine there is not."""
    return Wanted(
        models=models,
        engines=tuple(engine_called(engine).NAME for engine in engines),
        kv_dtypes=kv_dtypes or ("auto",),
        sequences=sequences,
        engine_version=asked["engine_version"],
        options=asked["options"],
        tensor_parallel_size=asked["tensor_parallel_size"],
        pipeline_parallel_size=asked["pipeline_parallel_size"],
    )


def with_gpu(wanted: Wanted, gpus: tuple[str, ...]) -> Wanted:
    """The same with vLLM's defaults of the GPU, where one is named."""
    if len(gpus) != 1 or "vllm" not in wanted.engines:
        return wanted
    from kvsize.capacity.asked import gpu_named
    from kvsize.capacity.machine import vllm_gpu

    found = gpu_named(gpus[0], "")
    return replace(wanted, vllm_gpu=vllm_gpu(found) if found else None)


def with_choices(wanted: Wanted) -> Wanted:
    """The same with more numbers of sequences and dtypes to choose from, where one is asked for."""
    sequences, kv_dtypes = wanted.sequences, wanted.kv_dtypes
    if len(sequences) == 1:
        sequences = tuple(sorted({*sequences, *_SEQUENCES}))
    if len(kv_dtypes) == 1:
        kv_dtypes = tuple(dict.fromkeys((*kv_dtypes, *_KV_DTYPES)))
    return replace(wanted, sequences=sequences, kv_dtypes=kv_dtypes)
