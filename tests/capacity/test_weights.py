"""How many bytes the weights take, where that is known from, and how they are cut."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import gguf_files
import pytest
from deployments import TINY

import kvsize
from kvsize.capacity import parameters
from kvsize.capacity.layout import Layout
from kvsize.capacity.sharding import BY_PART, EVENLY, Shares, shares
from kvsize.capacity.weights import checkpoint_bits, weights_of
from kvsize.errors import UsageError
from kvsize.sources.preset import catalogue


def safetensors(path: Path, tensor_bytes: int) -> None:
    header = json.dumps({"x": {"dtype": "U8", "shape": [tensor_bytes]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(tensor_bytes))


def test_a_preset_states_them() -> None:
    found = weights_of(kvsize.load("llama-3.1-8b"))
    assert (found.total_bytes, found.source, found.estimated) == (
        16_060_522_496,
        "preset llama-3.1-8b",
        False,
    )


@pytest.mark.parametrize(
    ("stated", "total_bytes"),
    [
        ("140GB", 140 * 10**9),
        ("140GiB", 140 * 2**30),
        ("fp8", 8_030_261_248),
        ("bf16", 16_060_522_496),
        ("int4", 4_171_971_664),
        ("NVFP4", 4_517_021_952),
        ("float8_e4m3fn", 8_030_261_248),
    ],
)
def test_the_user_states_them(stated: str, total_bytes: int) -> None:
    assert weights_of(kvsize.load("llama-3.1-8b"), stated).total_bytes == total_bytes


def test_what_is_no_size_and_no_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="--weights is 'fat', which is neither a size nor a dtype"):
        weights_of(kvsize.load("llama-3.1-8b"), "fat")


def test_safetensors_beside_a_config_are_counted_without_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    safetensors(tmp_path / "model-00001-of-00002.safetensors", 1000)
    safetensors(tmp_path / "model-00002-of-00002.safetensors", 234)
    safetensors(tmp_path / "adapter_model.safetensors", 99)
    found = weights_of(kvsize.load(tmp_path))
    assert (found.total_bytes, found.estimated) == (1234, False)
    assert found.source == f"2 safetensors files in {tmp_path}"


def test_a_gguf_file_is_its_own_weights(tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "tiny.gguf", gguf_files.metadata())
    assert weights_of(kvsize.load(path)).total_bytes == path.stat().st_size


def test_a_config_alone_is_counted() -> None:
    found = weights_of(kvsize.load("deepseek-v3"))
    assert found.estimated
    # 671.0 billion parameters in FP8, the two embeddings in 16 bits.
    assert found.total_bytes == 671_025_397_760 + 2 * 926_679_040


def test_what_is_not_known_must_be_stated() -> None:
    with pytest.raises(UsageError, match="the size of its weights is not known") as error:
        weights_of(kvsize.load(TINY))
    assert error.value.hint == "state it: --weights 140GB, or a dtype such as --weights fp8."


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        ({"quant_method": "fp8"}, "8"),
        ({"quant_method": "mxfp4"}, "17/4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "9/2"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "133/32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "131/16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "131/16"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            "37/8",
        ),
    ],
)
def test_bits_of_quantized_checkpoints(scheme: dict[str, Any], bits: str) -> None:
    model = kvsize.load({**TINY, "quantization_config": scheme})
    assert str(checkpoint_bits(model)[0]) == bits


# Text models whose file is all in one dtype; those with other towers, or with embeddings tied where
# the preset does not say so, are counted less well.
COUNTED = (
    *("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "llama-2-13b", "mistral-7b-v0.3"),
    *("mixtral-8x7b", "mixtral-8x22b", "qwen2.5-72b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b"),
    *("qwen3-235b-a22b", "qwen3-next-80b", "deepseek-v2", "deepseek-v2-lite", "glm-4.5", "phi-4"),
    *("gemma-2-27b", "gemma-7b", "command-r", "bloom", "gpt-neox-20b", "jamba-v0.1", "olmo-2-13b"),
    *("glm-5.1", "falcon-7b", "starcoder2-3b", "phi-2", "llama-4-scout", "falcon-mamba-7b"),
)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_counted_from_the_config(name: str) -> None:
    model = kvsize.load(name)
    counted = parameters.count(model)
    assert counted is not None
    assert model.weight_bytes is not None
    itemsize = 4 if model.dtype == "float32" else 2
    # Llama-4-Scout's vision tower and Falcon-Mamba's small projections are the largest omissions.
    slack = 0.08 if name in {"llama-4-scout", "falcon-mamba-7b"} else 0.013
    assert counted.total * itemsize / model.weight_bytes == pytest.approx(1, abs=slack)


def test_every_preset_is_counted_or_says_it_cannot_be() -> None:
    counted = [name for name in catalogue() if parameters.count(kvsize.load(name)) is not None]
    assert len(counted) >= 0.95 * len(catalogue())


def test_one_rank_holds_everything() -> None:
    for name in ("llama-3.1-70b", "deepseek-v3", "qwen3-30b-a3b", "gemma-3-27b"):
        assert shares(kvsize.load(name)).rank_bytes(10**11, Layout()) == 10**11


def test_heads_repeat_beyond_their_number() -> None:
    found = shares(kvsize.load("qwen3-30b-a3b"))
    assert found.parts is not None
    per_parameter = 10**11 / found.parts.total
    extra = found.rank_bytes(10**11, Layout(tensor_parallel_size=8)) - 10**11 / 8
    # 4 KV heads over 8 ranks: a quarter each where an even cut gives an eighth.
    assert extra == pytest.approx(per_parameter * found.parts.key_value / 8, abs=2)


def test_latent_projections_are_whole_on_every_rank() -> None:
    found = shares(kvsize.load("deepseek-v3"))
    assert found.parts is not None
    ranks = Layout(tensor_parallel_size=8)
    extra = found.rank_bytes(found.parts.total * 8, ranks) - found.parts.total
    assert extra == found.parts.latent * 7
    assert found.assumption == BY_PART


def test_shared_experts_spread_over_replicas() -> None:
    found = shares(kvsize.load("deepseek-v3"))
    assert found.parts is not None
    replicas = Layout(data_parallel_size=8, shared_experts=True)
    dense = found.parts.total - found.parts.experts
    assert found.rank_bytes(found.parts.total, replicas) == dense + found.parts.experts // 8


def test_the_fullest_stage_has_one_end_of_the_model() -> None:
    found = shares(kvsize.load("llama-3.1-8b"))
    assert found.parts is not None
    layers = found.parts.total - found.parts.embedding - found.parts.output
    stages = Layout(pipeline_parallel_size=4)
    assert found.rank_bytes(found.parts.total, stages) == layers // 4 + found.parts.embedding


def test_unknown_parts_are_cut_evenly() -> None:
    found = Shares(None, 8, 32)
    assert found.rank_bytes(1001, Layout(tensor_parallel_size=2, pipeline_parallel_size=2)) == 251
    assert found.assumption == EVENLY
