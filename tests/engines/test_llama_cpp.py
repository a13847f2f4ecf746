"""llama.cpp's caches to the byte: public logs, and each rule on a model small enough to count."""

import pytest

import kvsize
from kvsize.engines import llama_cpp
from kvsize.engines.llama_cpp.caches import mib
from kvsize.units import MIB
from tests.gguf_files import metadata, write

SWA = "attention__sliding_window"
PATTERN = "attention__sliding_window_pattern"


@pytest.fixture
def load(tmp_path):
    def made(arch="llama", **changes):
        return kvsize.load(write(tmp_path / "model.gguf", metadata(arch, **changes)))

    return made


def size(model, context=1024, **options):
    kwargs = {key: options.pop(key) for key in ("sequences", "kv_dtype") if key in options}
    return kvsize.size(model, context=context, engine="llama.cpp", options=options, **kwargs)


def caches(found):
    return {cache["cache"]: cache for cache in found.details["caches"]}


# -- what people's logs say ---------------------------------------------------------------------
LLAMA3_8B = {
    "block_count": 32,
    "embedding_length": 4096,
    "attention__head_count": 32,
    "attention__head_count_kv": 8,
    "attention__key_length": 128,
    "attention__value_length": 128,
}
GEMMA4_E4B = {  # 42 blocks, 18 of them share keys; every sixth is full
    "block_count": 42,
    "embedding_length": 2560,
    "attention__head_count_kv": 2,
    "attention__key_length": 512,
    "attention__value_length": 512,
    "attention__key_length_swa": 256,
    "attention__value_length_swa": 256,
    "attention__shared_kv_layers": 18,
    SWA: 512,
    PATTERN: [il % 6 != 5 for il in range(42)],
}
MUSE_GLIMMER = {
    "block_count": 52,
    "attention__head_count_kv": 2,
    "attention__key_length": 128,
    "attention__value_length": 128,
    SWA: 2048,
}
QWEN36_27B = {  # 64 layers, every fourth with attention
    "block_count": 64,
    "embedding_length": 5120,
    "attention__head_count": 24,
    "attention__head_count_kv": 4,
    "attention__key_length": 256,
    "attention__value_length": 256,
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 6144,
    "ssm__state_size": 128,
    "ssm__group_count": 16,
}
GEMMA3_27B = {
    "block_count": 62,
    "attention__head_count_kv": 16,
    "attention__key_length": 128,
    "attention__value_length": 128,
    SWA: 1024,
}


def test_llama_3_8b_log(load):
    """dranger003/c4ai-command-r-v01-iMat.GGUF discussion 6: 256 MiB at 2,048 tokens."""
    found = size(load(**LLAMA3_8B), 2048)
    assert found.total_bytes == 256 * MIB
    (line,) = found.details["log"]
    assert line == (
        "llama_kv_cache: size =  256.00 MiB (  2048 cells,  32 layers,  1/1 seqs), "
        "K (f16):  128.00 MiB, V (f16):  128.00 MiB"
    )


@pytest.mark.parametrize(
    ("options", "base", "swa", "cells"),
    [
        ({"n_ubatch": 1024}, 64, 60, 1536),
        ({"frontend": "api"}, 64, 160, 4096),
        # V is stored transposed and as wide as the widest layer's: twice K in windowed layers
        ({"frontend": "api", "flash_attn": "off"}, 64, 240, 4096),
    ],
)
def test_gemma_4_e4b_logs(load, options, base, swa, cells):
    """qualcomm/GenieX#1346, and the gguf_sizes test of llama.cpp 0.3.35."""
    found = caches(size(load("gemma4", **GEMMA4_E4B), 4096, **options))
    total = {tag: cache["k_bytes"] + cache["v_bytes"] for tag, cache in found.items()}
    assert total == {"base": base * MIB, "swa": swa * MIB}
    assert (found["base"]["layers"], found["swa"]["layers"]) == (4, 20)
    assert found["swa"]["cells"] == cells


def test_muse_glimmer_log_of_ollama(load):
    """Muse Glimmer notes, ollama 0.32.9: 416 MiB and 97.5 MiB, 2,560 cells in the window."""
    found = size(load("muse-glimmer", **MUSE_GLIMMER), 32768, frontend="ollama")
    assert [group.total_bytes for group in found.groups] == [416 * MIB, 97 * MIB + MIB // 2]
    assert caches(found)["swa"]["cells"] == 2560


def test_qwen_3_6_27b_server_log(load):
    """llama.cpp docker log of 2026-05: 4,352 MiB of q8_0 keys and 598.5 MiB for four slots."""
    found = size(load("qwen35", **QWEN36_27B), 131072, kv_dtype="q8_0", frontend="llama-server")
    attention, states = found.groups
    assert attention.total_bytes == 4352 * MIB
    assert states.total_bytes == 598 * MIB + MIB // 2
    assert found.details["log"][1] == (
        "llama_memory_recurrent: size =  598.50 MiB (     4 cells,  64 layers,  4 seqs  0 rs_seq), "
        "R (f32):   22.50 MiB, S (f32):  576.00 MiB, P (f32):    0.00 MiB"
    )


@pytest.mark.parametrize(("frontend", "cells"), [("llama-cli", 1536), ("llama-server", 4608)])
def test_server_slots_multiply_the_window(load, frontend, cells):
    found = caches(size(load("gemma3", **GEMMA3_27B), 32768, frontend=frontend))
    assert found["swa"]["cells"] == cells
    assert found["base"]["cells"] == 32768


# -- cells --------------------------------------------------------------------------------------
TOKEN = 8 * 2 * 2 * 64 * 2  # layers × (K, V) × heads × elements × bytes of f16


@pytest.mark.parametrize(
    ("context", "options", "n_ctx", "cells", "streams"),
    [
        (1, {}, 256, 256, 1),
        (1000, {}, 1024, 1024, 1),
        (5000, {}, 5120, 5120, 1),
        (1024, {"n_seq_max": 3}, 1536, 512, 3),
        (1000, {"n_seq_max": 8}, 2048, 256, 8),
        (5000, {"n_seq_max": 3, "kv_unified": True}, 5120, 5120, 1),
        (0, {}, 8192, 8192, 1),
        (262144, {}, 262144, 262144, 1),
        (1000, {"sequences": 4}, 4096, 1024, 4),
        (1000, {"sequences": 4, "kv_unified": True}, 4096, 4096, 1),
        (0, {"sequences": 2}, 16384, 8192, 2),
    ],
)
def test_cells(load, context, options, n_ctx, cells, streams):
    found = size(load(), context, **options)
    (cache,) = found.details["caches"]
    assert found.details["n_ctx"] == n_ctx
    assert (cache["cells"], cache["streams"]) == (cells, streams)
    assert found.total_bytes == cells * streams * TOKEN
    assert found.allocated_bytes == found.prefill_bytes == found.total_bytes
    assert found.layer_bytes == (found.total_bytes // 8,) * 8


@pytest.mark.parametrize(
    ("context", "options", "cells"),
    [
        (8192, {}, 768),  # 128 + 512, padded
        (8192, {"n_ubatch": 1024}, 1280),
        (8192, {"n_batch": 100}, 256),  # a micro-batch is no larger than a batch
        (8192, {"n_ubatch": 0}, 2304),  # none means the batch's
        (300, {}, 512),  # n_ubatch is cut to the unpadded context: 128 + 300
        (8192, {"n_seq_max": 4}, 768),  # of four streams
        (8192, {"n_seq_max": 4, "kv_unified": True}, 1024),  # 4 × 128 + 512
        (8192, {"swa_full": True}, 8192),
    ],
)
def test_window_cells(load, context, options, cells):
    found = caches(size(load("gpt-oss", **{SWA: 128}), context, **options))
    assert found["swa"]["cells"] == cells


def test_without_causal_attention_the_batch_is_not_cut_to_the_context(load):
    windowed = {SWA: 100, "attention__causal": False}
    assert caches(size(load("gpt-oss", **windowed), 300))["swa"]["cells"] == 512
    assert size(load("gpt-oss", **windowed), 300).details["n_batch"] == 2048


# -- layers -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arch", "changes", "layers"),
    [
        ("llama", {}, {"kv": 8}),
        ("bert", {}, {}),
        ("gemma3", {}, {"kv": 8}),
        ("gemma3", {SWA: 64}, {"base": 1, "swa": 7}),
        ("gemma3n", {"block_count": 30, SWA: 64}, {"base": 4, "swa": 16}),
        ("glm4moe", {"nextn_predict_layers": 1}, {"kv": 7}),
        ("nanbeige", {"num_loops": 2}, {"kv": 16}),
        ("graniteswitch", {}, {"kv": 9}),
        (
            "minimax-m3",
            {
                "leading_dense_block_count": 3,
                "nextn_predict_layers": 1,
                "attention__indexer__key_length": 64,
            },
            {"base": 8, "idx": 5},
        ),
    ],
)
def test_layers_of_each_cache(load, arch, changes, layers):
    found = caches(size(load(arch, **changes)))
    assert {tag: cache["layers"] for tag, cache in found.items()} == layers


def test_a_layer_without_heads_takes_nothing_but_a_transposed_v(load):
    """Nemotron-NAS: K has no rows; V, transposed, is as wide as the widest layer's."""
    model = load("deci", attention__head_count_kv=[2, 0] * 4)
    on, off = size(model).layer_bytes, size(model, flash_attn="off").layer_bytes
    row = 1024 * 2 * 64 * 2
    assert on[:2] == (2 * row, 0)
    assert off[:2] == (2 * row, row)


def test_latents_are_keys_alone(load):
    latent = {
        "attention__head_count_kv": 1,
        "attention__key_length": 576,
        "attention__value_length": 512,
    }
    mla = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    new = size(load("deepseek2", **latent, **mla))
    assert new.total_bytes == 8 * 1024 * 576 * 2
    assert caches(new)["kv"]["v_bytes"] == 0
    old = size(load("deepseek2", **latent))
    assert old.total_bytes == 8 * 1024 * (576 + 512) * 2
    assert "no key_length_mla" in old.notes[0]


def test_sparse_attention_keeps_an_indexer(load):
    keys = {
        "attention__head_count_kv": 1,
        "attention__key_length": 576,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
        "attention__indexer__key_length": 128,
        "nextn_predict_layers": 1,
    }
    found = caches(size(load("deepseek32", **keys)))
    assert found["mla"]["k_bytes"] == 7 * 1024 * 576 * 2
    assert found["lid"]["k_bytes"] == 7 * 1024 * 128 * 2
    shared = {"attention__indexer__types": [1, 1, 0, 0, 1, 0, 0]}
    assert caches(size(load("glm-dsa", **keys, **shared)))["lid"]["layers"] == 3


def test_deepseek_4_keeps_windows_compressed_rows_and_states(load):
    """Streams stay apart even where kv_unified asks for one (llama-kv-cache-dsv4.cpp)."""
    keys = {
        "attention__head_count_kv": 1,
        "attention__indexer__key_length": 32,
        "attention__compress_ratios": [0, 0, 4, 128, 4, 128, 4, 0],
        SWA: 128,
    }
    found = size(load("deepseek4", **keys), 8192, n_seq_max=2, kv_unified=True)
    got = caches(found)
    assert (got["base"]["layers"], got["base"]["k_bytes"]) == (0, 0)
    assert got["swa"]["k_bytes"] == 8 * 64 * 768 * 2 * 2
    assert got["csa"]["k_bytes"] == 3 * 64 * 2048 * 2 * 2
    assert got["hca"]["k_bytes"] == 2 * 64 * 256 * 2 * 2
    assert got["lid"]["k_bytes"] == 3 * 32 * 2048 * 2 * 2
    assert got["csa state"]["bytes"] == 3 * 2 * (2 * 64) * 8 * 4 * 2
    assert got["hca state"]["bytes"] == 2 * 2 * 64 * 128 * 4 * 2
    assert got["lid state"]["bytes"] == 3 * 2 * (2 * 32) * 8 * 4 * 2
    assert all(cache["v_bytes"] == 0 for cache in list(got.values())[:5])
    assert sum(found.layer_bytes) == found.total_bytes


MAMBA = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 1024,
    "ssm__state_size": 16,
    "ssm__group_count": 1,
}
ROW = 4 * (3 * (1024 + 2 * 16) + 1024 * 16)  # f32 elements of a Mamba 2 layer, per sequence


def test_states_do_not_grow_with_the_context(load):
    model = load("mamba2", **MAMBA)
    assert size(model, 1).total_bytes == size(model, 100_000).total_bytes == 8 * ROW
    assert size(model, kv_dtype="q8_0", n_seq_max=3).total_bytes == 3 * 8 * ROW


@pytest.mark.parametrize(("arch", "snapshots"), [("qwen3next", 1), ("qwen35", 3)])
def test_snapshots_only_where_states_roll_back(load, arch, snapshots):
    found = size(load(arch, **MAMBA), n_rs_seq=2)
    assert caches(found)["recurrent"]["r_bytes"] == snapshots * 6 * 4 * 3 * (1024 + 32)


def test_nemotron_h_feed_forward_blocks_keep_nothing(load):
    mixed = {
        "attention__head_count_kv": [0, 0, 2, 0] * 2,
        "feed_forward_length": [0, 9, 0, 9] * 2,
    }
    found = size(load("nemotron_h", **MAMBA, **mixed))
    attention = 1024 * 2 * 2 * 64 * 2
    assert found.layer_bytes == (ROW, 0, attention, 0) * 2


def test_falcon_h1_keeps_both_in_every_layer(load):
    found = size(load("falcon-h1", **MAMBA))
    assert found.total_bytes == 8 * ROW + 1024 * TOKEN
    assert found.cache == "kv + recurrent"


def test_ling_3_draft_layer_is_in_the_main_cache(load):
    """bailingmoe3 has no filter for its attention layers, the draft layer among them."""
    keys = {
        "attention__head_count_kv": [0, 1] * 4,
        "attention__key_length_mla": 192,
        "attention__value_length_mla": 128,
        "ssm__conv_kernel": 4,
        "kda__head_dim": 16,
        "nextn_predict_layers": 1,
    }
    assert caches(size(load("bailingmoe3", **keys)))["kv"]["layers"] == 4


# -- types --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "of_256"),
    [
        ("f32", 1024),
        ("f16", 512),
        ("bf16", 512),
        ("q8_0", 272),
        ("q5_1", 192),
        ("q5_0", 176),
        ("q4_1", 160),
        ("q4_0", 144),
        ("iq4_nl", 144),
    ],
)
def test_bytes_of_each_type(load, kind, of_256):
    found = size(load(), kv_dtype=kind)
    assert found.total_bytes == 1024 * 8 * of_256
    assert found.kv_dtype == kind


@pytest.mark.parametrize(
    ("name", "kind"), [("auto", "f16"), ("float16", "f16"), ("BF16", "bf16"), ("fp32", "f32")]
)
def test_names_of_types(load, name, kind):
    assert size(load(), kv_dtype=name).kv_dtype == kind


def test_key_and_value_types_may_differ(load):
    found = size(load(), kv_dtype="q8_0", type_v="q4_0")
    assert found.kv_dtype == "q8_0/q4_0"
    assert found.total_bytes == 1024 * 8 * (136 + 72)


def test_unknown_types_are_told_with_those_there_are(load):
    with pytest.raises(kvsize.UsageError, match="no cache type 'fp8_e4m3'") as caught:
        size(load(), kv_dtype="fp8_e4m3")
    assert caught.value.hint == ("use one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1.")
    with pytest.raises(kvsize.UsageError, match="type_k cannot be 'q6_k'") as caught:
        size(load(), type_k="q6_k")
    assert "q8_0" in caught.value.hint


# -- refusals -----------------------------------------------------------------------------------
HEAD_80 = {"attention__key_length": 80, "attention__value_length": 80}
MLA = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
KIMI = MLA | {"attention__head_count_kv": [0, 1] * 4, "ssm__conv_kernel": 4, "kda__head_dim": 16}
HY_V4 = MLA | {"attention__indexer__key_length": 32, "attention__indexer__top_k": 8}
REFUSED = {
    "quantized values without flash attention": (
        ("llama", {}),
        {"type_v": "q8_0", "flash_attn": "off"},
        "needs flash attention",
    ),
    "heads that blocks do not divide": (
        ("phi2", HEAD_80),
        {"type_k": "q8_0"},
        "do not divide the K head size 80 of layer 0",
    ),
    "value heads that blocks do not divide": (
        ("phi2", {"attention__value_length": 80}),
        {"type_v": "q4_0", "flash_attn": "on"},
        "do not divide the V head size 80",
    ),
    "rows that blocks do not divide": (
        ("llama", {"attention__key_length": 40, "attention__head_count_kv": 1}),
        {"type_k": "q8_0", "flash_attn": "off"},
        "K rows of 40 elements",
    ),
    "latents of two types": (("deepseek2", MLA), {"type_k": "q8_0"}, "latents, which are both"),
    "grok with quantized values": (("grok", {}), {"type_v": "q8_0"}, "needs flash attention"),
    "a draft model": (("eagle3", {}), {}, "needs its target model's context"),
    "too many sequences": (("llama", {}), {"n_seq_max": 257}, "must be <= 256"),
    "no context length": (("llama", {"context_length": 0}), {}, "are both 0"),
    "a window that no layer has": (
        ("gemma2", {PATTERN: 1}),
        {},
        "no layer of this file has it",
    ),
    "more sequences than a batch has tokens": (
        ("llama", {}),
        {"n_seq_max": 7, "n_batch": 2},
        "a batch of 2 has no room for 7 sequences",
    ),
    "streams that do not divide a micro-batch": (
        ("kimi-linear", KIMI),
        {"n_seq_max": 3},
        "512 does not divide by the 3 streams of kimi-linear",
    ),
    "an indexer and draft layers": (
        ("hy_v4", HY_V4 | {"nextn_predict_layers": 1}),
        {},
        "takes no multi-token-prediction layers",
    ),
    "a first layer that shares": (
        ("hy_v4", HY_V4 | {"attention__indexer__types": [0, 1] * 4}),
        {},
        "the first layer of hy_v4 must own an indexer",
    ),
    "more shared layers than there are": (
        ("gemma4", {SWA: 8, PATTERN: [True, False] * 4, "attention__shared_kv_layers": 9}),
        {},
        "no cached layer of their kind",
    ),
    "a shared layer without one to share": (
        ("gemma4", {SWA: 8, PATTERN: [False] * 7 + [True], "attention__shared_kv_layers": 1}),
        {},
        "no cached layer of their kind",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_refuses(load, name):
    (arch, changes), options, message = REFUSED[name]
    context = 0 if "context length" in name else 1024
    with pytest.raises(kvsize.EngineRefuses, match=message):
        size(load(arch, **changes), context, **options)


@pytest.mark.parametrize(
    "options",
    [{"n_seq_max": 4}, {"n_seq_max": 3, "kv_unified": True}, {"n_seq_max": 3, "n_ubatch": 510}],
)
def test_streams_that_divide_a_micro_batch(load, options):
    assert caches(size(load("kimi-linear", **KIMI), **options))["kv"]["layers"] == 4


def test_hy_v4_without_top_k_has_no_indexer(load):
    found = size(load("hy_v4", **{**HY_V4, "attention__indexer__top_k": 0}))
    assert list(caches(found)) == ["kv"]


def test_rows_of_whole_blocks_are_enough_without_flash_attention(load):
    """phi-2's heads of 80: two of them are five blocks of 32."""
    found = size(load("phi2", **HEAD_80), type_k="q8_0", flash_attn="off")
    assert found.total_bytes == 1024 * 8 * (160 // 32 * 34 + 160 * 2)


def test_auto_flash_attention_turns_on_for_quantized_values(load):
    assert size(load(), kv_dtype="q8_0", flash_attn="auto").total_bytes == 1024 * 8 * 272


def test_llama_cpp_python_turns_flash_attention_off(load):
    with pytest.raises(kvsize.EngineRefuses, match="needs flash attention"):
        size(load(), kv_dtype="q8_0", frontend="llama-cpp-python")


# -- usage --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"engine_version": "b1"}, "llama.cpp b1 is not modelled"),
        ({"tensor_parallel_size": 2}, "spreads over devices"),
        ({"pipeline_parallel_size": 2}, "spreads over devices"),
        ({"options": {"n_ctx": 1}}, "has no option 'n_ctx'"),
        ({"options": {"frontend": "vllm"}}, "frontend cannot be 'vllm'"),
        ({"options": {"n_seq_max": 0}}, "n_seq_max cannot be 0"),
        ({"options": {"n_batch": 0}}, "n_batch cannot be 0"),
        ({"options": {"flash_attn": "maybe"}}, "flash_attn cannot be 'maybe'"),
        ({"sequences": 4, "options": {"n_seq_max": 2}}, "does not hold 4 sequences"),
    ],
)
def test_usage_errors(load, kwargs, message):
    with pytest.raises(kvsize.UsageError, match=message):
        kvsize.size(load(), context=1024, engine="llama.cpp", **kwargs)


@pytest.mark.parametrize("name", ["llama.cpp", "llama-cpp", "llama_cpp"])
def test_names_of_the_engine(load, name):
    assert kvsize.size(load(), context=1024, engine=name).engine == "llama.cpp"


def test_other_engines_do_not_size_gguf_files(load):
    model = load()
    with pytest.raises(kvsize.UsageError, match="not for transformers") as caught:
        kvsize.size(model, context=1024)
    assert caught.value.hint == "choose engine llama.cpp, or give the model's config.json."
    with pytest.raises(kvsize.UsageError, match="not for transformers"):
        kvsize.fit(model, engine="transformers", context=1024, kv_memory=1)


def test_the_module_is_an_engine():
    assert llama_cpp.NAME == "llama.cpp"
    assert llama_cpp.VERSIONS[0] == "0.5.0-dev"
    assert all(sentence.endswith(".") for sentence in llama_cpp.NOT_MODELLED)
    assert len({option.name for option in llama_cpp.OPTIONS}) == len(llama_cpp.OPTIONS) == 10


# -- notes --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arch", "changes", "options", "note"),
    [
        (
            "llama",
            {},
            {"sequences": 3},
            "n_ctx 3,000 becomes 3,072 cells, 1,024 for each sequence.",
        ),
        ("llama", {"context_length": 512}, {}, "1,024 cells exceed the model's own 512 tokens"),
        ("bert", {}, {}, "llama.cpp keeps no memory between batches for bert."),
        ("gemma3", {SWA: 64}, {}, "llama-server without -np opens 4 slots"),
        ("gemma3", {SWA: 64}, {"frontend": "api"}, "swa_full: sliding-window layers keep every"),
        (
            "glm4moe",
            {"nextn_predict_layers": 2},
            {},
            "2 multi-token-prediction layer(s) take nothing",
        ),
    ],
)
def test_notes(load, arch, changes, options, note):
    found = size(load(arch, **changes), 1000, **options)
    assert any(sentence.startswith(note) for sentence in found.notes)


def test_a_plain_answer_has_no_notes(load):
    assert size(load()).notes == ()


def test_groups_say_what_is_stored(load):
    (group,) = size(load(), sequences=2).groups
    assert group.kind == "attention cache"
    assert group.layers == 8
    assert group.tensors == (
        "K [128, 1,024 cells, 2 streams] f16",
        "V [128, 1,024 cells, 2 streams] f16",
    )


def test_log_figures_pass_through_a_float():
    """As the engine prints them: a C float has 24 bits."""
    assert mib(2**38 - 2**13) == "262144.00"
    assert mib(2**20) == "   1.00"
