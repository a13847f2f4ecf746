"""Level `cache` on a GPU: driven on a fake behind the seam, its own allocator counting.

It has not run on CUDA: these tests hold the logic, not the hardware.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import kvsize
from kvsize.engines.options import Request
from kvsize.errors import UsageError

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]
SPARE = 512 * 2**20


def verified(name: str, gpu: Any, context: int = 300, **options: object) -> Any:
    from kvsize.verify.cachelevel import verify_cache

    request = Request(context=context, sequences=2, options=options)
    with gpu:
        return verify_cache(kvsize.load(name), request, device="cuda", steps=4, gpu=gpu)


def fake(*args: Any, **settings: Any) -> Any:
    from fake_gpu import FakeGpu

    return FakeGpu(*args, **settings)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    "name",
    ["llama-3.1-8b", "gemma-3-27b", "qwen3-next-80b", "deepseek-v3", "gpt-oss-120b", "falcon-7b"],
)
def test_all_that_the_allocator_counts_is_as_predicted(name: str, cache: str) -> None:
    gpu = fake()
    found = verified(name, gpu, cache=cache)
    assert found.failures == []
    assert found.verdict == "exact"
    figures = found.figures
    assert figures["requested_bytes"] == figures["predicted_requested_bytes"]
    assert figures["predicted_requested_bytes"] >= found.predicted_storage_bytes
    assert figures["predicted_allocated_bytes"] <= figures["allocated_bytes"]
    assert figures["allocated_bytes"] <= figures["reserved_bytes"]
    assert figures["fragmented_bytes"] == figures["reserved_bytes"] - figures["allocated_bytes"]
    if cache == "dynamic":
        for phase in ("prefill", "growth"):
            measured = figures[f"{phase}_peak_requested_bytes"]
            assert measured == figures[f"predicted_{phase}_peak_requested_bytes"]
    assert gpu.restarts == [True, False]


def test_windows_are_copied_from_the_prompt() -> None:
    found = verified("gemma-3-27b", fake(), context=1500)
    assert found.verdict == "exact"
    assert found.figures["growth_peak_bytes"] > found.figures["allocated_bytes"]


def test_a_compressed_cache_has_no_predicted_peak() -> None:
    found = verified("deepseek-v4-flash", fake(), context=300)
    assert found.verdict == "exact"
    assert "predicted_growth_peak_bytes" not in found.figures


@pytest.mark.parametrize(
    ("counter", "told"),
    [
        ("requested", "torch was asked for "),
        ("allocated", "torch's allocator holds "),
        ("peak requested", "in its prefill torch was asked for at most "),
        ("peak allocated", "in its prefill torch's allocator held at most "),
    ],
)
def test_a_wrong_counter_is_caught(counter: str, told: str) -> None:
    calls: list[int] = []

    def more(value: int) -> int:
        calls.append(value)
        return value + (len(calls) > 1) * 2**30

    found = verified("llama-3.1-8b", fake(wrong={counter: more}))
    assert not found.exact
    assert [failure for failure in found.failures if failure.startswith(told)]


def test_a_peak_of_the_growth_alone_is_caught() -> None:
    calls: list[int] = []

    def third(value: int) -> int:
        calls.append(value)
        return value + (len(calls) > 2)

    found = verified("llama-3.1-8b", fake(wrong={"peak requested": third}))
    assert len(found.failures) == 1
    assert found.failures[0].startswith("in its growth torch was asked for at most ")


def test_a_cache_that_does_not_fit_is_done_in_part() -> None:
    whole = verified("llama-3.1-8b", fake(), context=8192)
    assert (whole.compared_layers, whole.all_layers) == (32, 32)
    assert "scale" not in whole.figures
    gpu = fake(SPARE + 500 * 2**20)
    found = verified("llama-3.1-8b", gpu, context=8192)
    assert found.verdict == "exact"
    # 64 MiB a layer, as much again handed over, and up to 1 MiB a tensor that is not split.
    assert found.compared_layers == 6
    assert found.figures["whole_cache_bytes"] == whole.predicted_storage_bytes
    assert found.figures["scale"] == 5.3333
    assert found.predicted_bytes * 32 == whole.predicted_bytes * 6
    assert found.figures["free_bytes"] == 500 * 2**20
    assert found.notes[0].startswith("The whole cache needs 2.12 GiB with its copies, and 500.00 M")
    assert "the first 6 of 32 layers were filled" in found.notes[0]
    assert found.notes[0].endswith("The whole cache holds 5.3333 times as much.")


def test_not_even_one_layer_fits() -> None:
    told = r"^one layer needs 129\.94 MiB with its copies, and 100\.00 MiB of the GPU are free\.$"
    with pytest.raises(UsageError, match=told):
        verified("llama-3.1-8b", fake(SPARE + 100 * 2**20), context=8192)


def test_memory_that_runs_out_all_the_same() -> None:
    gpu = fake()
    gpu.free_bytes = lambda: 2**40
    gpu.allocator.capacity = 2**26
    told = r"^the GPU ran out of memory after 0 tokens\.$"
    with pytest.raises(UsageError, match=told):
        verified("llama-3.1-8b", gpu, context=8192)


def test_settings_that_round_differently_are_only_measured() -> None:
    found = verified("llama-3.1-8b", fake(settings="roundup_power2_divisions:4"))
    assert found.verdict == "exact"
    assert "predicted_allocated_bytes" not in found.figures
    assert found.notes[-1].startswith("PYTORCH_ALLOC_CONF changes how blocks are rounded")


@pytest.fixture
def offloading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that do nothing, and moves between meta (the GPU) and the CPU."""
    import torch
    from transformers import cache_utils

    class Stream:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def wait_stream(self, _: object) -> None: ...

    def moved(device: str) -> Any:
        def move(layer: Any) -> None:
            if layer.is_initialized:
                layer.keys = torch.empty_like(layer.keys, device=device)
                layer.values = torch.empty_like(layer.values, device=device)

        return move

    monkeypatch.setattr(torch, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: Stream())
    monkeypatch.setattr(cache_utils.CacheLayerMixin, "offload", moved("cpu"))
    monkeypatch.setattr(cache_utils.CacheLayerMixin, "prefetch", moved("meta"))


@pytest.mark.usefixtures("offloading")
@pytest.mark.parametrize("cache", ["offloaded", "offloaded_static"])
def test_an_offloaded_cache_lies_on_both(cache: str) -> None:
    found = verified("smollm-1.7b", fake(), context=64, cache=cache)
    assert found.failures == []
    assert found.verdict == "exact"
    layer = found.predicted_bytes // 24
    # Between passes the first layer waits on the GPU for the next one.
    assert (found.figures["device_bytes"], found.figures["cpu_bytes"]) == (layer, 23 * layer)


def test_an_offloaded_cache_needs_a_gpu() -> None:
    from kvsize.verify.cachelevel import verify_cache
    from kvsize.verify.devices import Cuda

    request = Request(context=64, options={"cache": "offloaded"})
    told = "^an offloaded cache moves its layers between a GPU and the CPU, and needs both"
    with pytest.raises(UsageError, match=told):
        verify_cache(kvsize.load("llama-2-7b"), request, device="meta", steps=1, gpu=Cuda())
