"""Every model type that transformers generates with, built small, against kvsize's figure.

One test for each model type, named after it, so that a transformers release that changes a cache
fails with that name. By default each type is run in one set of dimensions, with a dynamic and a
static cache and greedy decoding (about 3 minutes on 2 cores). All sets of dimensions that
`kvsize verify --all --wide` has (about 15 minutes):

    KVSIZE_CONFORMANCE=full pytest -m conformance tests/verify/test_conformance.py
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kvsize.verify.sweep import Result

pytestmark = pytest.mark.conformance

# Types that cannot be run with tokens alone, or at all: transformers 5.24.0.
NOT_BUILT = {
    "blt": "its config has no num_hidden_layers, which generation asks for.",
    "gemma4_assistant": "it reads the keys and values of the model that it drafts for.",
    "gemma4_unified_assistant": "it reads the keys and values of the model that it drafts for.",
    "pi0": "it takes images and a robot's state, and emits actions.",
    "reformer": "its cache is of buckets and hidden states, returned under another name.",
    "xlm": "its attention mask has no room for what is cached: a second step raises.",
    "xlnet": "it keeps hidden states (`mems`), no keys and values.",
}
# Types whose classes cannot run a static cache.
NO_STATIC = {
    "cpmant": "its position bias is as long as the tokens, not as the cache.",
    "deepseek_v4": "StaticCache has no layer for compressed attention.",
    "kosmos-2": "its attention mask is as long as the tokens, not as the cache.",
    "minimax": "it brings a cache of its own.",
    "prophetnet": "its attention masks are as long as the tokens, not as the cache.",
    "prophetnet/causal": "its attention masks are as long as the tokens, not as the cache.",
    "rwkv": "it keeps a state of fixed size.",
    "xlstm": "it keeps a state of fixed size.",
}
# Types whose own code decodes otherwise with its cache, or has several streams of tokens.
NO_GREEDY = {
    "cpmant": "its position bias is computed over the tokens of each step alone.",
    "dia": "it decodes several streams of tokens.",
    "diffusion_gemma": "it denoises whole blocks.",
    "kyutai_speech_to_text": "it decodes several streams of tokens.",
    "moshi": "it applies its window with the cache only.",
    "rwkv": "its state carries on differently from what a longer pass computes.",
}


def model_types() -> list[str]:
    if (
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None
    ):
        return []
    from kvsize.verify import forward

    return list(forward.model_types())


MODEL_TYPES = model_types()


class Running:
    """The sweep of the types that this run of pytest tests, taken as far as it is asked for."""

    def __init__(self, names: list[str]) -> None:
        from kvsize.verify import variants
        from kvsize.verify.sweep import sweep

        full = os.environ.get("KVSIZE_CONFORMANCE") == "full"
        chosen = variants.WIDE if full else {"plain": variants.VARIANTS["plain"]}
        self.results = sweep(names, {}, chosen)
        self.found: dict[str, Result] = {}

    def result(self, name: str) -> Result:
        """What came of the type `name`, once it has been run."""
        while name not in self.found:
            result = next(self.results)
            self.found[result.model_type] = result
        return self.found[name]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    found = Running([c.params["conforming"] for c in calls if c and "conforming" in c.params])
    yield found
    found.results.close()


@pytest.mark.parametrize("conforming", MODEL_TYPES)
def test_is_exact(running: Running, conforming: str) -> None:
    result = running.result(conforming)
    told = [case for case in result.cases if case["status"] == "differs"] or result.cases
    if conforming in NOT_BUILT:
        assert result.status == "not built", "it can be run: take it out of NOT_BUILT"
        return
    expected = {"dynamic"}
    expected |= set() if conforming in NO_STATIC else {"static"}
    expected |= set() if conforming in NO_GREEDY else {"greedy"}
    assert (result.status, set(result.exact)) == ("exact", expected), told[:3]


@pytest.mark.skipif(not MODEL_TYPES, reason="torch and transformers are not installed")
def test_the_exceptions_are_model_types() -> None:
    assert {*NOT_BUILT, *NO_STATIC, *NO_GREEDY} <= set(MODEL_TYPES)
