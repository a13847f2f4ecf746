"""`kvsize verify`: transformers' own cache classes, filled, against the figure."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from kvsize import cli
from kvsize.errors import Exit
from kvsize.record import replace

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]

MODELS = (
    "llama-3.1-70b",
    "llama-2-7b",
    "gemma-2-9b",
    "gemma-3-27b",
    "gemma-3n-e4b",
    "mistral-nemo",
    "deepseek-v3",
    "qwen3-next-80b",
    "gpt-oss-120b",
    "falcon-40b",
    "llama-4-scout",
    "zamba2-2.7b",
    "falcon-h1-7b",
    "jamba-v0.1",
)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["verify", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_as_predicted(
    capsys: pytest.CaptureFixture[str], model: str, cache: str
) -> None:
    code, out, err = said(
        capsys,
        model,
        "--ctx",
        "5000",
        "--batch",
        "3",
        "--cache",
        cache,
        "--device",
        "meta",
        "--json",
    )
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    assert found["verdict"] == "exact"
    assert found["predicted_bytes"] == found["real_bytes"] > 0
    assert found["predicted_storage_bytes"] == found["real_storage_bytes"]
    assert found["compared_layers"] == found["all_layers"]


def test_real_memory_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "smollm-1.7b", "--ctx", "256", "--device", "cpu")
    assert code == 0
    assert out.endswith("\nexact\n")


def test_a_wrong_prediction_is_caught(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvsize.verify import plan

    honest = plan.held

    def one_token_more(layers: Any, form: Any) -> Any:
        return honest(layers, replace(form, tokens=65) if form.tokens == 64 else form)

    monkeypatch.setattr(plan, "held", one_token_more)
    code, out, _ = said(capsys, "llama-2-7b", "--ctx", "64", "--device", "meta")
    assert code == Exit.NO
    told = "differs: layer 0, keys: shape predicted (1, 32, 65, 128), real (1, 32, 64, 128)"
    assert out.splitlines()[-1] == told


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    code, out, err = said(capsys, "llama-2-7b", "--device", "cuda")
    assert (code, out) == (Exit.USAGE, "")
    assert err.startswith("error: torch sees no CUDA device.\nhint: ")
    code, _, err = said(capsys, "llama-2-7b", "--device", "tpu")
    assert (code, err) == (
        Exit.USAGE,
        "error: --device is 'tpu'.\nhint: use one of auto, cuda, cpu, meta.\n",
    )


def test_without_torch_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvsize.verify import needs

    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "torch" else object())
    code, out, err = said(capsys, "llama-2-7b")
    assert (code, out) == (Exit.MISSING_EXTRA, "")
    assert err == (
        "error: `kvsize verify` builds real tensors and needs torch, which is not installed.\n"
        "hint: pip install 'kvsize[verify]'\n"
    )


def test_cache_implementation_names_the_cache_too(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["verify", "llama-3.1-8b", "--ctx", "64", "--device", "meta"]
    assert cli.run([*asked, "-o", "cache_implementation=static"]) == 0
    by_name = capsys.readouterr().out
    assert by_name.startswith("llama-3.1-8b: StaticCache of transformers ")
    assert cli.run([*asked, "--cache", "static"]) == 0
    assert capsys.readouterr().out == by_name


def test_progress_is_told_for_the_prompt_and_every_token() -> None:
    import kvsize
    from kvsize.engines.options import Request
    from kvsize.verify.cachelevel import verify_cache
    from kvsize.verify.devices import Cuda

    told: list[str] = []
    model = kvsize.load("llama-3.1-8b")
    request = Request(context=64)
    verify_cache(model, request, device="meta", steps=3, gpu=Cuda(), step=told.append)
    assert told == ["prompt of 61 tokens", *["single tokens"] * 3]
