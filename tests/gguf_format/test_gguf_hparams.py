"""llama.cpp's hyperparameters from metadata, and files it would not load."""

import pytest

from kvsize.errors import ConfigError
from kvsize.gguf.hparams import has_required_keys, read_hparams
from tests.gguf_files import metadata


def hparams(arch="llama", **changes):
    return read_hparams(metadata(arch, **changes), "x.gguf")


def swa(found):
    return [il for il, block in enumerate(found.blocks) if block.is_swa]


def recurrent(found):
    return [il for il, block in enumerate(found.blocks) if block.is_recr]


def test_head_lengths_default_to_embedding_over_heads():
    found = hparams(attention__key_length=None, attention__value_length=None)
    assert {(b.n_embd_head_k, b.n_embd_head_v) for b in found.blocks} == {(64, 64)}


def test_kv_heads_default_to_heads():
    assert {b.n_head_kv for b in hparams(attention__head_count_kv=None).blocks} == {8}


def test_windowed_layers_have_their_own_head_lengths():
    found = hparams(
        "gemma4",
        attention__sliding_window=1024,
        attention__sliding_window_pattern=[True, False] * 4,
        attention__key_length_swa=32,
        attention__value_length_swa=16,
    )
    assert [(b.n_embd_head_k, b.n_embd_head_v) for b in found.blocks[:2]] == [(32, 16), (64, 64)]


@pytest.mark.parametrize(
    ("arch", "changes", "sliding"),
    [
        ("gemma2", {}, [0, 2, 4, 6]),
        ("gemma3", {"attention__sliding_window": 512}, [0, 1, 2, 3, 4, 6, 7]),
        ("gemma3", {}, []),
        ("gemma3", {"attention__sliding_window": 0}, []),
        ("gpt-oss", {"attention__sliding_window": 128}, [0, 2, 4, 6]),
        ("cohere2moe", {"attention__sliding_window": 64}, [1, 2, 3, 5, 6, 7]),
        ("llama4", {}, [0, 1, 2, 4, 5, 6]),
        ("llama4", {"attention__sliding_window": 0}, []),
        ("exaone4", {"attention__sliding_window": 64}, []),
        ("phi3", {"attention__sliding_window": 64}, []),
        ("qwen2", {"attention__sliding_window": 64}, []),
        (
            "olmo2",
            {"attention__sliding_window": 9, "attention__sliding_window_pattern": [True, False]},
            [0],
        ),
        (
            "olmo2",
            {"attention__sliding_window": 9, "attention__sliding_window_pattern": 0},
            list(range(8)),
        ),
        ("olmo2", {"attention__sliding_window": 9, "attention__sliding_window_pattern": 1}, []),
        ("olmo2", {"attention__sliding_window": 9, "nextn_predict_layers": 2}, [0, 1, 2, 4, 5]),
        (
            "lfm2",
            {
                "attention__sliding_window": 9,
                "shortconv__l_cache": 3,
                "attention__head_count_kv": [0, 2] * 4,
            },
            [1, 3, 5, 7],
        ),
    ],
)
def test_which_layers_slide(arch, changes, sliding):
    assert swa(hparams(arch, **changes)) == sliding


@pytest.mark.parametrize(
    ("arch", "changes", "size"),
    [
        ("gemma2", {}, 4096),
        ("gemma2", {"attention__sliding_window": 100}, 100),
        ("llama4", {"attention__sliding_window": 100}, 8192),
        ("smallthinker", {"attention__sliding_window": 100}, 4096),
        ("exaone4", {"block_count": 64}, 4096),
        ("llama", {"attention__sliding_window": 100}, None),
    ],
)
def test_how_wide_the_window_is(arch, changes, size):
    assert hparams(arch, **changes).n_swa == size


MAMBA = {"ssm__conv_kernel": 4, "ssm__inner_size": 1024, "ssm__state_size": 16}


@pytest.mark.parametrize(
    ("arch", "changes", "layers"),
    [
        ("mamba", MAMBA, list(range(8))),
        ("jamba", MAMBA | {"attention__head_count_kv": [0, 0, 2, 0] * 2}, [0, 1, 3, 4, 5, 7]),
        ("falcon-h1", MAMBA | {"ssm__group_count": 1}, list(range(8))),
        (
            "nemotron_h",
            MAMBA
            | {
                "ssm__group_count": 1,
                "attention__head_count_kv": [0, 0, 2, 0] * 2,
                "feed_forward_length": [0, 9, 0, 9] * 2,
            },
            [0, 4],
        ),
        ("qwen3next", MAMBA | {"ssm__group_count": 1}, [0, 1, 2, 4, 5, 6]),
        (
            "qwen35",
            MAMBA
            | {"ssm__group_count": 1, "nextn_predict_layers": 1, "full_attention_interval": 2},
            [0, 2, 4, 6],
        ),
        (
            "qwen35",
            MAMBA
            | {
                "ssm__group_count": 1,
                "attention__recurrent_layers": [True, False, False, True] * 2,
            },
            [0, 3, 4, 7],
        ),
        ("minimax-01", {}, list(range(7))),
    ],
)
def test_which_layers_recur(arch, changes, layers):
    assert recurrent(hparams(arch, **changes)) == layers


@pytest.mark.parametrize(
    ("arch", "changes", "conv", "state"),
    [
        ("mamba", MAMBA, 3 * 1024, 16 * 1024),
        ("mamba", MAMBA | {"ssm__group_count": 8}, 3 * 1024, 16 * 1024),
        ("mamba2", MAMBA | {"ssm__group_count": 8}, 3 * (1024 + 2 * 8 * 16), 16 * 1024),
        ("rwkv7", {"wkv__head_size": 64}, 2 * 512, 512 * 64),
        ("rwkv6qwen2", {"wkv__head_size": 64, "token_shift_count": 1}, 512, 512 * 64),
        ("lfm2moe", {"shortconv__l_cache": 3}, 512 * 2, 0),
        ("minimax-01", {}, 0, 64 * 64 * 8),
        (
            "kimi-linear",
            {
                "ssm__conv_kernel": 4,
                "kda__head_dim": 128,
                "attention__key_length_mla": 192,
                "attention__value_length_mla": 128,
            },
            3 * 3 * 8 * 128,
            128 * 128 * 8,
        ),
    ],
)
def test_recurrent_states(arch, changes, conv, state):
    found = hparams(arch, **changes)
    assert (found.n_embd_r, found.n_embd_s) == (conv, state)


def test_latents_need_both_mla_lengths():
    both = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    assert hparams("deepseek2", **both).is_mla
    assert not hparams("deepseek2").is_mla
    assert not hparams("deepseek2", attention__key_length_mla=192).is_mla
    assert not hparams("minicpm3", **both).is_mla


def test_gemma4_shares_keys_from_the_end():
    window = {
        "attention__sliding_window": 8,
        "attention__sliding_window_pattern": [True, False] * 4,
    }
    found = hparams("gemma4", attention__shared_kv_layers=3, **window)
    assert [block.has_kv for block in found.blocks] == [True] * 5 + [False] * 3


def test_nanbeige_runs_its_blocks_again():
    assert len(hparams("nanbeige", num_loops=3).blocks) == 24


def test_graniteswitch_has_a_router_with_one_head():
    found = hparams("graniteswitch")
    assert [block.n_head_kv for block in found.blocks] == [2] * 8 + [1]
    assert found.has_router


def test_glm_dsa_shares_indexers_from_a_million_tokens_on():
    dsa = {
        "attention__indexer__key_length": 128,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
        "block_count": 10,
    }
    short = hparams("glm-dsa", context_length=1048575, **dsa)
    assert [b.is_indexer_full for b in short.blocks] == [True] * 10
    long = hparams("glm-dsa", context_length=1048576, **dsa)
    owned = [il for il, block in enumerate(long.blocks) if block.is_indexer_full]
    assert owned == [0, 1, 2, 6]


WRONG = {
    "no architecture": ({"general.architecture": None}, "`general.architecture` is missing"),
    "unknown architecture": ({"general.architecture": "lama"}, "no architecture 'lama'"),
    "projector": ({"general.architecture": "clip"}, "projector"),
    "no layers": ({"llama.block_count": 0}, "`block_count` is 0"),
    "too many layers": ({"llama.block_count": 513}, "`block_count` is 513"),
    "no block_count": ({"llama.block_count": None}, "`llama.block_count` is missing"),
    "no context_length": ({"llama.context_length": None}, "`llama.context_length` is missing"),
    "no heads": ({"llama.attention.head_count": None}, "`llama.attention.head_count` is missing"),
    "text for a number": ({"llama.block_count": "8"}, "must be a whole number"),
    "a flag for a number": ({"llama.block_count": True}, "must be a whole number"),
    "a fraction": ({"llama.block_count": 8.0}, "must be a whole number"),
    "negative": ({"llama.embedding_length": -1, "llama.attention.key_length": None}, "from 0 to"),
    "short array": ({"llama.attention.head_count_kv": [2] * 7}, "has 7 entries for 8 layers"),
    "long array": ({"llama.attention.head_count_kv": [2] * 600}, "at most 512 entries"),
    "more drafts than layers": ({"llama.nextn_predict_layers": 9}, "9 of 8 blocks"),
    "causal as a number": ({"llama.attention.causal": 1}, "must be true or false"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_metadata_is_told(name):
    changes, message = WRONG[name]
    keys = {key: item for key, item in (metadata() | changes).items() if item is not None}
    with pytest.raises(ConfigError, match=message):
        read_hparams(keys, "x.gguf")


def test_an_array_that_was_not_kept_is_told():
    with pytest.raises(ConfigError, match="is an array kvsize does not read"):
        read_hparams(metadata() | {"llama.attention.head_count_kv": None}, "x.gguf")


def test_hint_names_the_nearest_architecture():
    with pytest.raises(ConfigError) as caught:
        read_hparams({"general.architecture": "qwen4"}, "x.gguf")
    assert "did you mean qwen" in caught.value.hint


@pytest.mark.parametrize("missing", ["block_count", "context_length", "attention__head_count"])
def test_required_keys(missing):
    assert has_required_keys(metadata())
    assert not has_required_keys(metadata(**{missing: None}))


def test_each_architecture_has_its_own_required_keys():
    assert not has_required_keys(metadata("gpt-oss"))
    assert has_required_keys(metadata("gpt-oss", attention__sliding_window=128))
    assert has_required_keys(metadata("mamba", attention__head_count=None, **MAMBA))
