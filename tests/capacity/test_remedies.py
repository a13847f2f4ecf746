"""Ways out: each computed, those that suffice first, and each true when it is taken."""

from __future__ import annotations

from typing import Any

import pytest
from deployments import GIB, plan

from kvsize.capacity.holding import fits, held
from kvsize.capacity.layout import Layout
from kvsize.capacity.remedies import Remedy, Unmet, flags_of, remedies


def ways(source: str, engine: str, context: int, sequences: int, **changes: Any) -> list[Remedy]:
    layout = changes.pop("layout", Layout())
    deployment = plan(source, changes.pop("gpu", "h100"), engine, **changes)
    return remedies(Unmet(plan=deployment, layout=layout, context=context, sequences=sequences))


def test_too_many_sequences_for_eight_gpus() -> None:
    found = ways("llama-3.1-70b", "vllm", 32768, 50, layout=Layout(tensor_parallel_size=8))
    assert [(way.flags, way.enough) for way in found] == [
        ("--kv-dtype fp8", True),
        ("--ctx 27696", True),
        ("--sequences 42", True),
        ("--weights int4", True),
        ("--gpus 10 --tp 2 --pp 5", True),
        ("--weights fp8", False),
    ]
    assert found[0].effect == (
        "saves 50 % of this model's cache: 31.25 GiB instead of 62.50 GiB per GPU"
    )


def test_the_ways_out_are_true() -> None:
    layout = Layout(tensor_parallel_size=8)
    deployment = plan("llama-3.1-70b", "h100", "vllm")
    memory = deployment.budget(layout).best_bytes
    assert fits(deployment.setup(layout), 27696, 50, memory)
    assert not fits(deployment.setup(layout), 27697, 50, memory)
    assert held(deployment.setup(layout), 32768, memory).sequences == 42


def test_fp8_is_far_from_half_on_a_hybrid() -> None:
    found = ways("qwen3-next-80b", "vllm", 4096, 900, layout=Layout(tensor_parallel_size=4))
    dtype = next(way for way in found if way.flags == "--kv-dtype fp8")
    assert dtype.effect.startswith("saves 30 % of this model's cache")


def test_weights_that_do_not_fit() -> None:
    found = ways("qwen3-30b-a3b", "vllm", 4096, 1, gpu="rtx4090", reserve_bytes=GIB)
    flags = [(way.flags, way.enough) for way in found]
    assert ("--weights int4", True) in flags
    assert ("--kv-dtype fp8", False) in flags
    assert not any(flag.startswith(("--ctx", "--sequences")) for flag, _ in flags)


def test_another_layout_of_the_same_gpus() -> None:
    found = ways(
        "deepseek-v3", "sglang", 16384, 100, layout=Layout(tensor_parallel_size=8), gpu="h200"
    )
    layouts = [(way.flags, way.enough) for way in found if way.flags.startswith("--tp")]
    assert layouts == [("--tp 8 --dp 4", True)]


def test_types_of_llama_cpp() -> None:
    found = ways("llama-3.1-8b", "llama.cpp", 131_072, 6, gpu="h100")
    dtypes = {way.flags: way.enough for way in found if "dtype" in way.flags}
    assert dtypes == {"--kv-dtype q8_0": True, "--kv-dtype q4_0": True}


def test_a_known_memory_has_no_other_machine() -> None:
    found = ways("llama-3.1-8b", "vllm", 32768, 20, kv_memory=40 * GIB, weights=None, shares=None)
    assert [way.flags for way in found] == ["--ctx 16368", "--sequences 9", "--kv-dtype fp8"]


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        (Layout(), ""),
        (Layout(tensor_parallel_size=4, data_parallel_size=2), "--tp 4 --dp 2"),
        (Layout(pipeline_parallel_size=2, decode_context_parallel_size=2), "--pp 2 --dcp 2"),
    ],
)
def test_layouts_as_options(layout: Layout, flags: str) -> None:
    assert flags_of(layout) == flags
