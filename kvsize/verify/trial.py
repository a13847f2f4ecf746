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
from kvsize.verify.needs import engine_version
from kvsize.verify.reading import read_cache
from kvsize.verify.records import HeldLayer, first_difference

ENCODER_TOKENS = 13
BATCH = 2
DTYPE = torch.float32
# More room in a static cache than the tokens need.
SPARE = 2
# Tokens of the greedy decoding: more than a toy's window.
PROMPT, NEW = 11, 4
# Classes whose own code gives other logits with its cache than without it, however right the
# cache's shapes are (measured with transformers 5.24.0, float32).
OWN_DECODING = {
    "CpmAntForCausalLM": "its position bias is computed over the tokens of each step alone.",
    "DiffusionGemmaForBlockDiffusion": "it denoises whole blocks, not token after token.",
    "MoshiForCausalLM": "it applies its window with the cache only.",
    "ReformerModelWithLMHead": "its hashed attention reads other buckets with its cache.",
    "RwkvForCausalLM": "its state carries on differently from what a longer pass computes.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one comparison: exact, differs, refused by kvsize, not built, or noted."""

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


def trial(
    model_type: str, raw: Mapping[str, Any], wanted: Iterable[Run], *, decode: bool
) -> Iterator[Outcome]:
    """Every comparison for one config.json's content; with `decode`, greedy decoding too."""
    try:
        built, runner = _runner(model_type, raw)
    except Exception as error:  # noqa: BLE001 - whatever the class raises is the answer
        yield Outcome("not built", "", _reason(error))
        return
    for run in wanted:
        yield _compare(raw, runner, run, built)
    if decode:
        yield _decoded(runner, built)


def _decoded(runner: forward.Runner, built: str) -> Outcome:
    """Whether greedy decoding emits the same ids with the cache as without one."""
    case = f"{built}, greedy decoding"
    try:
        anew = runner.greedy(PROMPT, NEW, cached=False)
        cached = runner.greedy(PROMPT, NEW, cached=True)
    except Exception as error:  # noqa: BLE001 - whatever the class raises is the answer
        return Outcome("not built", case, _reason(error))
    if anew == cached:
        return Outcome("exact", case)
    known = OWN_DECODING.get(type(runner.model).__name__)
    if known is not None:
        return Outcome("noted", case, known)
    return Outcome("differs", case, f"{cached} with the cache, {anew} without")


def _runner(model_type: str, raw: Mapping[str, Any]) -> tuple[str, forward.Runner]:
    """The first class that builds the config and runs a few tokens."""
    config = CONFIG_MAPPING[str(raw["model_type"])].from_dict(copy.deepcopy(dict(raw)))
    failure: Exception | None = None
    for built, part, name in forward.candidates(config, model_type):
        try:
            return built, settled(part, name, BATCH)
        except Exception as error:  # noqa: BLE001 - the next class may do
            failure = failure or error
    raise failure or ValueError("no class to build")


def settled(config: Any, name: str, batch: int) -> forward.Runner:
    """A runner that has run three tokens, with the width of encoder states that its model takes."""
    model = forward.build(config, name, DTYPE)
    encoder = getattr(config, "encoder_config", None) or getattr(config, "encoder", None)
    widths = [None, getattr(encoder, "hidden_size", None)]
    for width in widths if model.config.is_encoder_decoder else widths[:1]:
        runner = forward.Runner(model, batch, ENCODER_TOKENS, width)
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
        engine_version=engine_version(),
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
