"""Two caches held against each other: figures, parts, steps, keys and reasons."""

from __future__ import annotations

import json

import pytest
from command import run
from test_report import ASK

import kvsize
from kvsize.comparison import compare
from kvsize.errors import UsageError
from kvsize.layers import NoCache, RecurrentState, State
from kvsize.reasons import kept
from kvsize.sources.preset import presets


def compared(first: str, second: str = "", contexts: tuple[int, ...] = (32768,), **asks):
    """The comparison of two presets; `asks` gives what each of the two asks otherwise."""
    one, other = ({**ASK, **{key: pair[i] for key, pair in asks.items()}} for i in (0, 1))
    models = (kvsize.load(first), kvsize.load(second or first))
    return compare(models, (one, other), contexts)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_what_changed_between_two_models():
    found = compared("qwen3-32b", "qwen3.5-27b")
    figure = found.figures[0]
    assert figure.total_bytes == (8589934592, 2302410752)
    assert figure.token_bytes == (262144, 65536)
    assert figure.ratio == 0.268
    assert [(part.kind, part.layers, part.total_bytes) for part in found.parts] == [
        ("full attention", (64, 16), (8589934592, 2147483648)),
        ("recurrent state", (0, 48), (0, 154927104)),
    ]
    assert found.differs
    assert found.steps == ()
    assert found.reasons == (
        "48 of 64 layers have a recurrent state (827,392 elements, however long the sequence); "
        "qwen3-32b has no such layer.",
        "16 layers have full attention instead of 64.",
        "A layer with full attention keeps 4 KV heads × (256 + 256) = 2,048 elements a token "
        "instead of 8 KV heads × (128 + 128) = 2,048 elements a token, which comes to the same.",
        "24 query heads instead of 64 change nothing: queries are not cached.",
        "The model is made for 262,144 instead of 40,960 tokens.",
    )
    keys = {key.key: (key.values, key.origins) for key in found.keys}
    assert keys["num_key_value_heads"] == ((8, 4), ("config.json", "config.json"))
    assert keys["linear_num_key_heads"] == ((None, 16), (None, "config.json"))
    assert keys["layer_types"][1] == ("rule", "config.json")
    assert "torch_dtype" not in keys
    assert "dtype" not in keys


def test_a_latent_and_an_indexer():
    assert compared("deepseek-v3", "deepseek-v3.2").reasons == (
        "A layer with latent attention keeps one latent of 512 + 64 + 128 for an indexer = 704 "
        "elements a token instead of one latent of 512 + 64 = 576 elements a token.",
    )


def test_engine_and_dtype_one_after_the_other():
    found = compared("llama-3.1-70b", engine=("transformers", "vllm"), kv_dtype=("auto", "fp8"))
    assert [side.label for side in found.sides] == ["transformers", "vllm"]
    assert [(step.change, step.total_bytes, step.ratio) for step in found.steps] == [
        ("engine vllm 0.33.0", 10737418240, 1.0),
        ("dtype fp8", 5368709120, 0.5),
    ]
    assert found.reasons[:2] == (
        "An element is kept as fp8 instead of bfloat16 (2 bytes).",
        "The cache is that of vllm 0.33.0 (paged) instead of transformers 5.24.0 (DynamicCache).",
    )
    assert found.reasons[2].startswith("vllm: ")
    assert found.keys == ()


def test_versions_of_one_engine():
    found = compared("deepseek-v3", engine_version=("5.13.1", "5.24.0"))
    assert [side.label for side in found.sides] == ["transformers 5.13.1", "transformers 5.24.0"]
    assert found.figures[0].ratio == round(2302672896 / 163745628160, 4)


def test_a_mixture_that_an_engine_refuses_has_no_steps():
    found = compared("llama-3.1-8b", engine=("vllm", "llama.cpp"), kv_dtype=("fp8", "q8_0"))
    assert found.figures[0].total_bytes == (2147483648, 2281701376)
    assert found.steps == ()


def test_the_same_cache():
    found = compared("qwen3-32b")
    assert not found.differs
    assert (found.reasons, found.keys, found.steps) == ((), (), ())
    assert [side.label for side in found.sides] == ["first", "second"]


def test_names_of_kinds_are_the_engines_own_and_no_difference():
    found = compared("llama-3.1-8b", engine=("transformers", "llama.cpp"))
    assert [part.kind for part in found.parts] == ["full attention", "attention cache"]
    assert not found.differs


@pytest.mark.parametrize("index", range(0, len(presets()) - 1, 7))
def test_parts_add_up_and_a_side_is_the_report_of_its_own(index):
    first, second = presets()[index : index + 2]
    try:
        found = compared(first, second, (4096, 1024))
    except kvsize.EngineRefuses:
        pytest.skip("transformers refuses one of them")
    assert [figure.context for figure in found.figures] == [4096, 1024]
    for side, name in enumerate((first, second)):
        total = kvsize.size(kvsize.load(name), context=4096).total_bytes
        assert found.figures[0].total_bytes[side] == total
        assert sum(part.total_bytes[side] for part in found.parts) == total
    assert compared(first, first, (4096,)).differs is False


@pytest.mark.parametrize("name", presets())
def test_every_layer_of_every_preset_has_words(name):
    for layer in set(kvsize.load(name).layers):
        kind, words, elements = kept(layer)
        assert kind
        assert words
        assert elements is None or elements > 0


def test_what_layers_without_tokens_keep():
    states = (State(name="a", shape=(2, 3)), State(name="b", shape=(4,)))
    assert kept(RecurrentState(states=states)) == (
        "a recurrent state",
        "10 elements, however long the sequence",
        None,
    )
    assert kept(NoCache(reason="an MLP block")) == ("no cache", "an MLP block", None)


# -- the command -----------------------------------------------------------------------------------
def test_the_text(capsys):
    said = run(capsys, "diff", "gemma-3-27b", "--cache", "dynamic,static", "--ctx", "32k")
    assert said == (
        0,
        """\
DynamicCache → StaticCache: 1.0001× at 32,768 tokens
  context  per token              per sequence         ratio
  32,768   80.00 KiB → 80.00 KiB  2.91 GiB → 2.91 GiB  1.0001×
  gemma-3-27b (google/gemma-3-27b-it, preset): GQA, 32 query heads : 16 KV heads, head_dim 128; 62
  layers; transformers 5.24.0 DynamicCache, bfloat16.
  gemma-3-27b (google/gemma-3-27b-it, preset): GQA, 32 query heads : 16 KV heads, head_dim 128; 62
  layers; transformers 5.24.0 StaticCache, bfloat16.

Where the bytes are, at 32,768 tokens
  kind            layers   bytes                    change
  sliding window  52 → 52  415.59 MiB → 416.00 MiB  +416.00 KiB
  full attention  10 → 10  2.50 GiB → 2.50 GiB      0 B

Why
  The cache is that of transformers 5.24.0 (StaticCache) instead of transformers 5.24.0
  (DynamicCache).
""",
        "",
    )


def test_a_batch_and_markdown(capsys):
    said = run(
        capsys,
        "diff",
        "llama-3.1-8b",
        "qwen3-8b",
        "--ctx",
        "8k",
        "--batch",
        "4",
        "--format",
        "markdown",
    )
    assert said.out.startswith(
        "### llama-3.1-8b → qwen3-8b: 1.12× at 8,192 tokens\n\n"
        "| context | per token | per sequence | whole batch | ratio |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| 8,192 | 128.00 KiB → 144.00 KiB | 1.00 GiB → 1.12 GiB | 4.00 GiB → 4.50 GiB | 1.12× |\n"
    )


def test_json_has_raw_bytes_in_pairs(capsys):
    said = json.loads(run(capsys, "diff", "llama-3.1-8b", "qwen3-8b", "--json").out)
    assert said["schema_version"] == 1
    assert said["figures"] == [
        {
            "context": 32768,
            "sequences": 1,
            "token_bytes": [131072, 147456],
            "sequence_bytes": [4294967296, 4831838208],
            "total_bytes": [4294967296, 4831838208],
            "ratio": 1.125,
        }
    ]
    assert said["sides"][1]["label"] == "qwen3-8b"


def test_the_exit_code_says_whether_they_differ(capsys):
    assert run(capsys, "diff", "llama-3.1-8b", "qwen3-8b").code == 0
    assert run(capsys, "diff", "llama-3.1-8b", "qwen3-8b", "--exit-code").code == 1
    same = run(capsys, "diff", "llama-3.1-8b", "llama-3.1-8b", "--exit-code")
    assert same.code == 0
    assert same.out.startswith("first → second: the same cache\n")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            ["llama-3.1-8b"],
            "there is nothing to compare with.",
            "name another model, or give two values: --engine vllm,transformers.",
        ),
        (
            ["llama-3.1-8b", "--engine", "a,b,c"],
            "--engine is 'a,b,c', and takes one value, or one for each side.",
            "write it as in --engine A,B.",
        ),
        (
            ["llama-3.1-8b", "qwen3-8b", "--kv-dtype", ",fp8"],
            "--kv-dtype is ',fp8', and takes one value, or one for each side.",
            "write it as in --kv-dtype A,B.",
        ),
        (
            ["llama-3.1-8b", "qwen3-8b", "--format", "csv"],
            "no format named 'csv' for a comparison.",
            "use one of text, markdown, json.",
        ),
        (
            ["-", "-"],
            "standard input (-) is named 2 times, and can be read once.",
            "name the other models by a file or a preset.",
        ),
    ],
)
def test_what_cannot_be_meant(capsys, arguments, message, hint):
    assert run(capsys, "diff", *arguments) == (2, "", f"error: {message}\nhint: {hint}\n")


def test_the_library_raises_what_size_raises():
    with pytest.raises(UsageError, match="no engine named 'vlm'"):
        compared("llama-3.1-8b", engine=("vlm", "vllm"))
