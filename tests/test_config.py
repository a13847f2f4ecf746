"""The config reader: where values come from, and what each kind of bad value says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.config import LARGEST_COUNT, LARGEST_LAYERS, Config, class_facts, known_model_types
from kvsize.errors import printable

CORRECT = "correct the file, or fetch the published config.json again."
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def config(**values: object) -> Config:
    """A section with these values, of no known model type."""
    return Config(values, "./config.json")


def refusal(read: Callable[[], object]) -> str:
    """The message of the ConfigError that `read` raises; the hint is the same for all."""
    with pytest.raises(kvsize.ConfigError, match=r"^\./config\.json: ") as caught:
        read()
    assert caught.value.hint == CORRECT
    return caught.value.message.removeprefix("./config.json: ")


COUNTED = f"a whole number from 1 to {LARGEST_COUNT:,}"


@pytest.mark.parametrize(
    ("value", "shown", "wanted"),
    [
        (0, "0", COUNTED),
        (-1, "-1", COUNTED),
        (10**9 + 1, "1000000001", COUNTED),
        (10**18, "1000000000000000000", COUNTED),
        (10**100, "1" + "0" * 56 + "…", COUNTED),
        (1e300, "1e+300", COUNTED),
        (1.5, "1.5", "a whole number"),
        (math.nan, "NaN", "a whole number"),
        (math.inf, "Infinity", "a whole number"),
        (-math.inf, "-Infinity", "a whole number"),
        (True, "true", "a whole number"),
        (False, "false", "a whole number"),
        ("8", '"8"', "a whole number"),
        ("", '""', "a whole number"),
        ("é\n\x1b[2J", '"é\\n\\u001b[2J"', "a whole number"),
        ([8], "[8]", "a whole number"),
        ({"a": [None]}, '{"a": [null]}', "a whole number"),
        (
            list(range(100)),
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16…",
            "a whole number",
        ),
    ],
)
def test_a_count_that_is_none(value: object, shown: str, wanted: str) -> None:
    told = f"`hidden_size` is {shown}, and must be {wanted}."
    bad = config(hidden_size=value)
    assert refusal(lambda: bad.count("hidden_size")) == told
    assert refusal(lambda: bad.optional_count("hidden_size")) == told
    assert refusal(lambda: bad.count_or("hidden_size", 7, least=1)) == told


def test_values_that_only_a_python_mapping_can_hold() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for value, shown in ((nested, "a list"), (10**5000, "a int"), ({(1, 2): 3}, "a dict")):
        said = refusal(lambda value=value: config(hidden_size=value).count("hidden_size"))
        assert said.startswith(f"`hidden_size` is {shown}, and must be a whole number")
    said = refusal(lambda: config(hidden_size=1 + 2j).count("hidden_size"))
    assert said == '`hidden_size` is "(1+2j)", and must be a whole number.'


def test_counts_of_layers_have_a_limit_of_their_own() -> None:
    assert config(num_hidden_layers=LARGEST_LAYERS).count("num_hidden_layers") == LARGEST_LAYERS
    assert refusal(lambda: config(num_hidden_layers=10_001).count("num_hidden_layers")) == (
        "`num_hidden_layers` is 10001, and must be a whole number from 1 to 10,000."
    )


def test_counts_that_are_right() -> None:
    assert config(n=1).count("n") == 1
    assert config(n=10**9).count("n") == 10**9
    assert config(n=32.0).count("n") == 32
    assert type(config(n=32.0).count("n")) is int
    assert config(n=0).optional_count("n", least=0) == 0
    assert config(n=None).optional_count("n") is None
    assert config().optional_count("n") is None
    assert config(n=None).count_or("n", 5) == 5
    assert config().count_or("n", 5) == 5
    assert config(n=0).count_or("n", 5) == 0


def test_count_takes_the_first_key_that_is_there() -> None:
    assert config(a=None, b=2, c=3).count("a", "b", "c") == 2
    with pytest.raises(kvsize.ConfigError, match=r".") as caught:
        Config({"b": None}, "./config.json", "mine").count("a", "b")
    assert caught.value.message == (
        "./config.json: `a` or `b` is missing, and model type 'mine' has no default for it."
    )
    assert caught.value.hint == (
        "give the complete config.json of a decoder; a tokenizer's, adapter's or vision config "
        "does not describe a KV cache."
    )
    with pytest.raises(kvsize.ConfigError, match=r".") as caught:
        config().count("a")
    assert caught.value.message == (
        "./config.json: `a` is missing, and a file without model_type has no default for it."
    )


@pytest.mark.parametrize("value", [0, -0.5, 1000, 10**400, math.nan, math.inf, True, "2", [2.0]])
def test_a_ratio_that_is_none(value: object) -> None:
    said = refusal(lambda: config(ssm_expand=value).ratio("ssm_expand", 2.0))
    assert said.startswith("`ssm_expand` is ")
    assert said.endswith(", and must be a number between 0 and 1000.")


def test_ratios_that_are_right() -> None:
    assert config(expand=2).ratio("expand", 1.0) == 2.0
    assert config(expand=0.5).ratio("expand", 1.0) == 0.5
    assert config(expand=None).ratio("expand", 1.5) == 1.5
    assert config().ratio("expand", 1.5) == 1.5


def test_flags() -> None:
    for value, shown in ((0, "0"), (1, "1"), ("true", '"true"'), ([], "[]"), (math.nan, "NaN")):
        said = refusal(lambda value=value: config(use_x=value).flag("use_x"))
        assert said == f"`use_x` is {shown}, and must be true or false."
    assert config(use_x=True).flag("use_x")
    assert not config(use_x=False).flag("use_x", default=True)
    assert config(use_x=None).flag("use_x", default=True)
    assert not config().flag("use_x")


def test_texts() -> None:
    for value, shown in ((5, "5"), (True, "true"), ([], "[]"), ({}, "{}")):
        said = refusal(lambda value=value: config(model_type=value).text("model_type"))
        assert said == f"`model_type` is {shown}, and must be a string."
    assert config(model_type="x").text("model_type") == "x"
    assert config(model_type=None).text("model_type") is None


@pytest.mark.parametrize("value", ["full_attention", 5, {}, True])
def test_a_list_that_is_none(value: object) -> None:
    bad = config(layer_types=value)
    for read in (bad.items, bad.counts, bad.texts):
        said = refusal(lambda read=read: read("layer_types"))
        assert said.startswith("`layer_types` is ")
        assert said.endswith(", and must be a list.")


def test_lists_with_a_wrong_item() -> None:
    # Items that Python takes for false are as wrong as others.
    for item, shown in ((None, "null"), (0, "0"), (False, "false"), ([], "[]"), (3, "3")):
        bad = config(layer_types=["full_attention", item])
        assert refusal(lambda bad=bad: bad.texts("layer_types")) == (
            f"`layer_types[1]` is {shown}, and must be a string."
        )
    for item, shown in ((None, "null"), ("8", '"8"'), (True, "true"), (1.5, "1.5")):
        bad = config(heads=[8, 8, item])
        assert refusal(lambda bad=bad: bad.counts("heads")) == (
            f"`heads[2]` is {shown}, and must be a whole number."
        )
    assert refusal(lambda: config(heads=[0]).counts("heads", least=1)) == (
        "`heads[0]` is 0, and must be a whole number from 1 to 1,000,000,000."
    )


def test_lists_that_are_right() -> None:
    assert config(heads=[0, 8]).counts("heads") == [0, 8]
    assert config(heads=(1, 2)).counts("heads") == [1, 2]
    assert config(kinds=["a", ""]).texts("kinds") == ["a", ""]
    assert config(any=[1, None]).items("any") == [1, None]
    empty = config(heads=None)
    assert (empty.items("heads"), empty.counts("heads"), empty.texts("heads")) == (None, None, None)


def test_objects() -> None:
    for value, shown in (([], "[]"), ("x", '"x"'), (5, "5"), (True, "true")):
        said = refusal(lambda value=value: config(rope_scaling=value).mapping("rope_scaling"))
        assert said == f"`rope_scaling` is {shown}, and must be an object."
        said = refusal(lambda value=value: config(text_config=value).section("text_config"))
        assert said == f"`text_config` is {shown}, and must be an object."
    assert config(rope_scaling={"a": 1}).mapping("rope_scaling") == {"a": 1}
    assert config(rope_scaling=None).mapping("rope_scaling") is None


def test_a_section_names_itself_in_errors() -> None:
    nested = config(text_config={"hidden_size": "big"}).section("text_config")
    assert refusal(lambda: nested.count("hidden_size")) == (
        'text_config: `hidden_size` is "big", and must be a whole number.'
    )
    assert refusal(lambda: config(text_config={"model_type": 5}).section("text_config")) == (
        "text_config: `model_type` is 5, and must be a string."
    )


def test_values_come_from_the_file_then_the_class() -> None:
    gpt2 = Config({"n_head": 20}, "./config.json", "gpt2")
    assert gpt2.known
    assert gpt2.count("num_attention_heads") == 20
    assert gpt2.origins["num_attention_heads"].detail == "n_head"
    assert gpt2.origins["num_attention_heads"].kind == "config.json"
    assert gpt2.count("num_hidden_layers") == 12
    assert gpt2.origins["num_hidden_layers"].kind == "class default"
    assert gpt2.origins["num_hidden_layers"].detail == "GPT2Config"
    assert gpt2.has("num_attention_heads")
    assert not gpt2.has("num_hidden_layers")
    gpt2.note("head_dim", 64, "n_embd / n_head")
    assert (gpt2.origins["head_dim"].kind, gpt2.origins["head_dim"].value) == ("rule", 64)
    changed = gpt2.derived({"n_head": 5})
    assert (changed.count("num_attention_heads"), gpt2.count("num_attention_heads")) == (5, 20)


def test_an_unknown_model_type_has_no_defaults() -> None:
    assert not config().known
    assert config().class_name == ""
    assert class_facts("no_such_type") is None
    assert config(a=1).value("b", "c") == "c"


def test_a_null_in_the_file_is_no_missing_key() -> None:
    stated = Config({"num_hidden_layers": None}, "./config.json", "gpt2")
    assert stated.has("num_hidden_layers")
    assert stated.value("num_hidden_layers") is None


def test_a_contradiction_says_so() -> None:
    error = config().contradiction("`a` is not `b`.")
    assert isinstance(error, kvsize.ConfigError)
    assert error.message == "./config.json: `a` is not `b`."
    assert error.hint == "the file contradicts itself; correct it, or use the published one."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_key_value_heads": 3},
            "`num_key_value_heads` 3 does not divide `num_attention_heads` 4.",
        ),
        (
            # Nemotron-NAS gives the query heads of each KV head; here they are more than all.
            {
                "model_type": "nemotron-nas",
                "block_configs": [{"attention": {"n_heads_in_group": 8}}] * 2,
            },
            "`num_key_value_heads` 0 does not divide `num_attention_heads` 4.",
        ),
        ({"num_attention_heads": None}, "`num_attention_heads` is missing"),
        (
            {"num_hidden_layers": -80},
            "`num_hidden_layers` is -80, and must be a whole number from 1",
        ),
        (
            {"hidden_size": 10**18},
            "`hidden_size` is 1000000000000000000, and must be a whole number",
        ),
        ({"head_dim": math.nan}, "`head_dim` is NaN, and must be a whole number."),
        ({"num_key_value_heads": "2"}, '`num_key_value_heads` is "2", and must be a whole number.'),
        ({"num_hidden_layers": True}, "`num_hidden_layers` is true, and must be a whole number."),
        ({"model_type": ["llama"]}, '`model_type` is ["llama"], and must be a string.'),
    ],
)
def test_a_bad_file_is_told_from_end_to_end(changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(kvsize.ConfigError, match=r".") as caught:
        kvsize.load({**LLAMA, **changes})
    assert caught.value.message.startswith(f"the mapping: {message}")
    assert caught.value.exit_code == 3


def test_messages_stay_one_line_of_text_whatever_a_file_holds() -> None:
    error = kvsize.ConfigError("a\nb\x1b[2J\u202e\ud800é×…", "c\r\n\td")
    assert error.message == r"a\nb\x1b[2J\u202e\ud800é×…"
    assert error.hint == r"c\r\n\td"
    assert str(error) == error.message
    assert printable("plain") == "plain"
    with pytest.raises(kvsize.ConfigError, match=r"model type 'a\\nb\\x1b\[2J' has no default"):
        kvsize.load({"model_type": "a\nb\x1b[2J"})


BAD = (
    *(None, True, False, 0, -1, 1, 3, 10**5, 10**18, 1.5, -0.5, math.nan, math.inf, "", "8", "x"),
    *([], [1], ["x"], [None], [[]], [10**18] * 3, ["full_attention"] * 3),
    *({}, {"a": 1}, {"model_type": 5}, {"model_type": "llama"}, [{}]),
)
BASE = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "head_dim",
    "layer_types",
    "sliding_window",
    "max_position_embeddings",
    "text_config",
    "dtype",
    "is_encoder_decoder",
)


@st.composite
def broken_configs(draw: st.DrawFn) -> dict[str, object]:
    """A model type with up to three of its keys set to something that does not belong there."""
    model_type = draw(st.sampled_from(known_model_types()))
    keys = sorted({*BASE, *(class_facts(model_type) or {}).get("defaults", {})})
    changes = draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(BAD), max_size=3))
    return {"model_type": model_type, **changes}


def outcome(config: Mapping[str, object]) -> kvsize.Size | kvsize.KvsizeError:
    """The figure for a config, or the error that says why there is none."""
    try:
        return kvsize.size(kvsize.load(config), context=4097, sequences=2)
    except kvsize.KvsizeError as error:
        return error


@settings(max_examples=500, deadline=None, derandomize=True)
@given(broken_configs())
def test_no_value_in_any_key_of_any_model_type_escapes_as_another_error(
    broken: dict[str, object],
) -> None:
    found = outcome(broken)
    if isinstance(found, kvsize.KvsizeError):
        assert found.message
        assert found.hint
        assert found.exit_code in {1, 2, 3}
    else:
        assert type(found.total_bytes) is int
        assert found.total_bytes >= 0
