"""One toy config: built by transformers, run with its caches, and held against kvsize's figure."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvsize.engines.options import Request
from kvsize.engines.transformers import tensors
from kvsize.errors import KvsizeError
from kvsize.loading import load
from kvsize.verify import forward
from kvsize.verify.reading import read_cache
from kvsize.verify.records import HeldLayer, first_difference

ENCODER_TOKENS = 13
BATCH = 2
DTYPE = torch.float32
# More room in a static cache than the tokens need.
SPARE = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one comparison: exact, differs, refused by kvsize, or not built."""

    status: str
    case: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A cache and how it is filled: `prompt` tokens at once, then `new` single ones."""

    cache: str
    prompt: int
    new: int

    @property
    def name(self) -> str:
        """`dynamic 5+3`."""
        return f"{self.cache} {self.prompt}+{self.new}"


def runs(window: int) -> tuple[Run, ...]:
    """Prompts shorter and longer than a window, in both kinds of cache."""
    return tuple(
        Run(cache, prompt, 3) for cache in ("dynamic", "static") for prompt in (5, 2 * window + 3)
    )


def trial(model_type: str, raw: Mapping[str, Any], wanted: Iterable[Run]) -> Iterator[Outcome]:
    """Every comparison for one config.json's content."""
    try:
        built, runner = _runner(model_type, raw)
    except Exception as error:  # noqa: BLE001 - whatever the class raises is the answer
        yield Outcome("not built", "", _reason(error))
        return
    for run in wanted:
        yield _compare(raw, runner, run, built)


def _runner(model_type: str, raw: Mapping[str, Any]) -> tuple[str, forward.Runner]:
    """The first class that builds the config and runs a few tokens."""
    config = CONFIG_MAPPING[str(raw["model_type"])].from_dict(copy.deepcopy(dict(raw)))
    failure: Exception | None = None
    for built, part, name in forward.candidates(config, model_type):
        try:
            return built, _settled(part, name)
        except Exception as error:  # noqa: BLE001 - the next class may do
            failure = failure or error
    raise failure or ValueError("no class to build")


def _settled(config: Any, name: str) -> forward.Runner:
    """A runner that has run three tokens, with the width of encoder states that its model takes."""
    model = forward.build(config, name, DTYPE)
    encoder = getattr(config, "encoder_config", None) or getattr(config, "encoder", None)
    widths = [None, getattr(encoder, "hidden_size", None)]
    for width in widths if model.config.is_encoder_decoder else widths[:1]:
        runner = forward.Runner(model, BATCH, ENCODER_TOKENS, width)
        try:
            runner.feed(runner.ids(3), 0, None)
        except RuntimeError:
            if width is widths[-1] or not model.config.is_encoder_decoder:
                raise
        else:
            return runner
    raise ValueError(f"no encoder states fit {name}")


def _compare(raw: Mapping[str, Any], runner: forward.Runner, run: Run, built: str) -> Outcome:
    case = f"{built}, {run.name}"
    try:
        first, last = _real(runner, run)
    except Exception as error:  # noqa: BLE001 - whatever the class raises is the answer
        return Outcome("not built", case, _reason(error))
    try:
        model = load(raw)
        request = _request(
            run, model.prompt_tokens, encoder_decoder=model.root.flag("is_encoder_decoder")
        )
        prompt_only = _request(
            Run(run.cache, run.prompt, 0),
            model.prompt_tokens + run.new,
            encoder_decoder=model.root.flag("is_encoder_decoder"),
        )
        difference = first_difference(tensors(model, request), last)
        if difference is None and run.cache == "dynamic":
            predicted = tensors(model, prompt_only)
            difference = first_difference(predicted, first, prefill=True)
    except KvsizeError as error:
        return Outcome("refused", case, error.message)
    return Outcome("differs" if difference else "exact", case, str(difference or ""))


def _request(run: Run, spare: int, *, encoder_decoder: bool) -> Request:
    options: dict[str, object] = {"cache": run.cache}
    if run.cache == "static":
        options["max_cache_len"] = run.prompt + run.new + SPARE + spare
    if encoder_decoder:
        options["encoder_tokens"] = ENCODER_TOKENS
    else:
        options["prompt"] = run.prompt
    return Request(
        context=run.prompt + run.new,
        sequences=BATCH,
        kv_dtype=str(DTYPE).removeprefix("torch."),
        options=options,
    )


def _real(runner: forward.Runner, run: Run) -> tuple[list[HeldLayer], list[HeldLayer]]:
    """The cache after the prompt, and after the last token."""
    config = runner.model.config
    total = run.prompt + run.new
    spare = getattr(config, "prompt_length", 0) if "CpmAnt" in type(config).__name__ else 0
    cache = runner.cache(run.cache, total + SPARE + spare)
    ids = runner.ids(total)
    _, cache = runner.feed(ids[:, : run.prompt], 0, cache)
    first = read_cache(cache)
    for seen in range(run.prompt, total):
        _, cache = runner.feed(ids[:, : seen + 1], seen, cache)
    return first, read_cache(cache)


def _reason(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})"
