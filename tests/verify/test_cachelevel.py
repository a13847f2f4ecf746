"""What level `cache` builds and refuses, and what it says of the machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import kvsize
from kvsize.engines.options import Request
from kvsize.engines.transformers import NEWEST
from kvsize.errors import UsageError
from kvsize.verify.installed import note_on, rules_of

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]


def verified(name: Any, context: int, device: str = "meta", steps: int = 3, **options: Any) -> Any:
    from kvsize.verify.cachelevel import verify_cache
    from kvsize.verify.devices import Cuda

    request = Request(context=context, sequences=2, options=options)
    return verify_cache(kvsize.load(name), request, device=device, steps=steps, gpu=Cuda())


@pytest.mark.parametrize("context", [3, 64, 127, 128, 129, 300])
def test_compressed_layers_are_filled_as_their_model_does(context: int) -> None:
    found = verified("deepseek-v4-flash", context)
    assert found.verdict == "exact"
    assert {row.class_name for row in found.rows} >= {"DeepseekV4CSACache", "DeepseekV4HCACache"}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["whisper-large-v3", "flan-t5-base", "bart-large"])
def test_encoder_decoders_get_their_prompt_at_once(name: str, cache: str) -> None:
    found = verified(name, 400, cache=cache)
    assert found.verdict == "exact"
    assert found.cache == "EncoderDecoderCache"
    assert found.figures["steps"] == 3


def test_every_tensor_of_a_quantized_cache() -> None:
    found = verified("llama-2-7b", 20, cache="quantized", backend="fp8")
    assert found.verdict == "exact"
    assert found.cache == "QuantizedCache"
    assert [tensor.name for tensor, _, _ in found.rows[0].tensors] == [
        "_quantized_keys",
        "_quantized_keys scale",
        "_quantized_values",
        "_quantized_values scale",
    ]


def test_the_steps_can_be_all_but_one_token() -> None:
    assert verified("gemma-3-1b", 20, steps=500).figures["steps"] == 19


def test_a_generation_says_its_own_prompt() -> None:
    found = verified("gemma-3-1b", 0, prompt=600, new_tokens=4)
    assert (found.verdict, found.context, found.figures["steps"]) == ("exact", 603, 3)


def test_caches_that_only_their_models_make() -> None:
    config = {"model_type": "minimax", "num_hidden_layers": 2, "torch_dtype": "float32"}
    told = r"^the cache of .* \(MiniMaxCache\) is made by its model's code\.$"
    with pytest.raises(UsageError, match=told):
        verified(config, 20)


def test_a_cache_that_the_ram_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsize.verify import devices

    monkeypatch.setattr(devices, "free_ram_bytes", lambda: 2**30)
    told = r"^the cache needs 2\.01 GiB of RAM and 1\.00 GiB are free\.$"
    with pytest.raises(UsageError, match=told):
        verified("llama-3.1-8b", 8000, "cpu")
    assert verified("llama-3.1-8b", 8000, "auto").device == {"kind": "meta"}


def test_a_containers_limit_is_free_ram_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kvsize.verify import devices

    monkeypatch.setattr(devices, "CGROUP", tmp_path)
    free = devices.free_ram_bytes()
    assert free > 4096
    for name, text in (
        ("memory.max", "8192\n"),
        ("memory.current", "6144\n"),
        ("memory.stat", "anon 1\ninactive_file 2048\n"),
    ):
        (tmp_path / name).write_text(text, encoding="ascii")
    assert devices.free_ram_bytes() == 4096
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert devices.free_ram_bytes() > 4096


@pytest.mark.parametrize(
    ("installed", "rules"),
    [
        ("4.57.6", "4.57.6"),
        ("5.13.1", "5.13.1"),
        ("5.19.0.dev0", "5.19.0"),
        ("5.23.0rc1", "5.23.0"),
        (NEWEST, NEWEST),
        ("6.0.0", NEWEST),
    ],
)
def test_the_installed_versions_rules_are_used(installed: str, rules: str) -> None:
    assert rules_of(installed) == rules


def test_a_version_newer_than_the_rules_is_said() -> None:
    assert note_on(NEWEST) is None
    assert note_on("5.13.1") is None
    told = f"transformers 6.1.0 is newer than kvsize's rules, which are those of {NEWEST}."
    assert note_on("6.1.0") == told


def test_cuda_settings_are_told_by_the_name_that_torch_reads_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from kvsize.verify.devices import Cuda

    class Properties:
        name, total_memory, major, minor = "H", 80, 9, 0

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties())
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert Cuda().describe()["allocator_settings"] == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    found = Cuda().describe()
    assert found["allocator_settings"] == "max_split_size_mb:64"
    assert (found["name"], found["capability"], found["allocator"]) == ("H", "9.0", "native")


def test_the_counters_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from kvsize.verify.devices import Cuda, Memory

    calls: list[str] = []
    stats = {
        f"{name}_bytes.all.{when}": value
        for name, values in (("allocated", (1, 4)), ("requested", (2, 5)), ("reserved", (3, 6)))
        for when, value in zip(("current", "peak"), values, strict=True)
    }
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: stats)
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: calls.append(name))
    assert Cuda().memory() == Memory(1, 2, 3, 4, 5, 6)
    Cuda().restart(empty=True)
    Cuda().restart(empty=False)
    assert calls == [
        "synchronize",
        *("synchronize", "empty_cache", "reset_peak_memory_stats"),
        *("synchronize", "reset_peak_memory_stats"),
    ]
