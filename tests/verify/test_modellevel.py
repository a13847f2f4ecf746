"""`kvsize verify --level model`: the real architecture, small, run and compared."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from command import run

from kvsize import Model, loading
from kvsize.engines.options import Request
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.errors import Exit
from kvsize.record import replace

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.conformance

# Small enough that their attention weights take seconds.
MODELS = (
    "qwen2.5-0.5b",
    "gemma-3-270m",
    "gpt2",
    "pythia-410m",
    "mamba-130m",
    "t5-small",
    "whisper-tiny",
    "lfm2-1.2b",
)


def verified(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    said = run(capsys, "verify", *arguments, "--level", "model", "--json")
    assert said.err == ""
    return said.code, json.loads(said.out)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_as_predicted(
    capsys: pytest.CaptureFixture[str], model: str, cache: str
) -> None:
    code, found = verified(capsys, model, "--cache", cache, "--batch", "2")
    assert (code, found["verdict"]) == (0, "exact")
    assert found["predicted_bytes"] == found["real_bytes"] > 0
    assert found["predicted_storage_bytes"] == found["real_storage_bytes"]


def test_one_layer_of_each_kind_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Gemma 3 has five sliding layers, then a full one, three times."""
    _, cut = verified(capsys, "gemma-3-270m")
    assert (cut["compared_layers"], cut["all_layers"]) == (6, 18)
    assert cut["notes"][0] == (
        "6 of 18 layers were built: every kind of layer is among them. Vocabulary, MLPs and "
        "experts are small; the cache's widths are as published."
    )
    assert cut["notes"][1] == "the window of 512 tokens was not filled by 48: --ctx 560 does."
    _, whole = verified(capsys, "gemma-3-270m", "--full-depth", "--ctx", "520")
    assert (whole["compared_layers"], whole["notes"]) == (18, [])
    assert [tensor["shape"] for tensor in whole["layers"][0]["tensors"]] == [[1, 1, 511, 256]] * 2


def one_element_more(model: Model, request: Request) -> list[tuple[CacheTensor, ...]]:
    from kvsize.engines.transformers import tensors

    first, *others = tensors(model, request)
    keys, values = first
    wrong = replace(values, shape=(*values.shape[:-1], values.shape[-1] + 1))
    return [(keys, wrong), *others]


def test_a_wrong_prediction_is_caught(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvsize.verify import modellevel

    monkeypatch.setattr(modellevel, "tensors", one_element_more)
    code, found = verified(capsys, "qwen2.5-0.5b")
    assert code == Exit.NO
    assert found["verdict"] == (
        "differs: layer 0, values: shape predicted (1, 2, 48, 65), real (1, 2, 48, 64)"
    )


def test_keys_of_another_shape_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the prediction has the same mistake, the guard compares with the config."""
    from kvsize.verify import modellevel

    read = modellevel.read_cache

    def swapped(tensor: Any) -> Any:
        batch, heads, tokens, width = tensor.shape
        return dataclasses.replace(tensor, shape=(batch, tokens, heads, width))

    def transposed(cache: object) -> list[Any]:
        return [
            dataclasses.replace(layer, tensors=tuple(swapped(held) for held in layer.tensors))
            for layer in read(cache)
        ]

    monkeypatch.setattr(modellevel, "read_cache", transposed)
    code, found = verified(capsys, "qwen2.5-0.5b")
    assert code == Exit.NO
    assert found["failures"] == ["layer 0: keys have the shape (1, 48, 2, 64), not (1, 2, 48, 64)."]


def test_a_cache_with_wrong_contents_is_caught(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every shape is right; the decoding tells."""
    from transformers import DynamicLayer

    update = DynamicLayer.update

    def rolled(self: Any, keys: Any, values: Any, *arguments: Any, **options: Any) -> Any:
        keys, values = update(self, keys, values, *arguments, **options)
        # Each head and each token reads another's values.
        return keys, values.roll(1, dims=1).roll(7, dims=2)

    monkeypatch.setattr(DynamicLayer, "update", rolled)
    code, found = verified(capsys, "qwen2.5-0.5b")
    assert code == Exit.NO
    assert found["predicted_bytes"] == found["real_bytes"]
    assert len(found["failures"]) == 1
    assert found["failures"][0].startswith("greedy decoding emits [[")
    assert found["verdict"] == "differs: " + found["failures"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["llama-3.1-8b", "--cache", "quantized"],
            Exit.USAGE,
            "error: the model level runs dynamic and static caches.\n"
            "hint: use --level cache for the others.\n",
        ),
        (
            ["gpt2", "--device", "meta"],
            Exit.USAGE,
            "error: the model level runs on the CPU.\nhint: use --device cpu, or --level cache.\n",
        ),
        (
            ["gpt2", "--kv-dtype", "fp8"],
            Exit.USAGE,
            "error: the model level runs in float32, not in fp8.\n"
            "hint: leave out --kv-dtype, or use --level cache.\n",
        ),
        (
            ["yi-6b", "--level", "modell"],
            Exit.USAGE,
            "error: --level is 'modell'.\nhint: use one of cache, model.\n",
        ),
        (
            ["chatglm2-6b"],
            Exit.INPUT,
            "error: transformers has no generating class for 'chatglm'.\n"
            "hint: use --level cache, or a model type that transformers runs.\n",
        ),
    ],
)
def test_what_cannot_be_run(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    said = run(capsys, "verify", "--level", "model", *arguments)
    assert (said.code, said.out, said.err) == (code, "", message)


def test_weights_beyond_the_free_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvsize.verify import devices

    monkeypatch.setattr(devices, "free_ram_bytes", lambda: 1 << 20)
    said = run(capsys, "verify", "qwen2.5-0.5b", "--level", "model")
    assert said.code == Exit.USAGE
    assert said.err == (
        "error: the weights of the layers to build take 8.55 MiB in float32, and 1.00 MiB of RAM "
        "are free.\nhint: use --level cache, which needs none.\n"
    )


def test_too_old_a_transformers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PretrainedConfig

    from kvsize.verify import needs

    monkeypatch.setattr(needs, "version", lambda name: "5.13.1")
    monkeypatch.delattr(PretrainedConfig, "sub_configs_defaults")
    expected = (
        "error: transformers 5.13.1 is installed, whose configs do not state their sections: no "
        "architecture can be made small with it.\n"
        "hint: pip install -U transformers, or use --level cache.\n"
    )
    for arguments in (["gpt2", "--level", "model"], ["--all"]):
        said = run(capsys, "verify", *arguments)
        assert (said.code, said.out, said.err) == (Exit.MISSING_EXTRA, "", expected)


WIDTHS = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "sliding_window",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_conv_kernel_dim",
    "mamba_d_state",
    "mamba_expand",
)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("llama-3.1-405b", 1),
        ("deepseek-v3", 1),
        ("gemma-3-27b", 6),
        ("gemma-3n-e4b", 35),  # the last layers read earlier ones' keys, at any depth
        ("gpt-oss-120b", 2),
        ("qwen3-next-80b", 4),
        ("jamba-v0.1", 5),
        ("llama-4-scout", 4),
    ],
)
def test_shrinking_leaves_the_cache_alone(name: str, layers: int) -> None:
    """No width of the cache changes, every kind of layer stays, and kvsize reads the same layers."""
    from kvsize.verify.shrinking import shrunk

    model = loading.load(name)
    raw, depth = shrunk(model, full_depth=False)
    before = [dict(model.root.raw), *sections(model.root.raw)]
    after = [raw, *sections(raw)]
    for old, new in zip(before, after, strict=False):
        assert {k: old[k] for k in WIDTHS if k in old} == {k: new[k] for k in WIDTHS if k in old}
    small = loading.load(raw).layers
    assert small == model.layers[:depth]
    assert set(small) == set(model.layers)
    assert depth == layers
    vocabularies = [s["vocab_size"] for s in after if "vocab_size" in s]
    assert set(vocabularies) == {128}


def sections(raw: Any) -> list[dict[str, Any]]:
    """The text section, where there is one."""
    return [dict(raw[key]) for key in ("text_config",) if isinstance(raw.get(key), dict)]
