"""The presets: valid files, names that lead to them, and figures that follow by hand."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

import kvsize
from kvsize.sources import preset

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT.parent / "shared" / "configs"
CATALOGUE = preset.catalogue()
SCHEMA = json.loads(files("kvsize").joinpath("data/preset.schema.json").read_text("utf-8"))
FROM_A_FILE = re.compile(r"config\.json of (\S+/\S+) on the Hugging Face Hub")
WITHOUT_QUANTISATION = "its quantization_config left out"


# -- the files -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CATALOGUE)
def test_file_is_valid(name):
    jsonschema.Draft202012Validator(SCHEMA).validate(CATALOGUE[name])
    assert re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name)


def test_the_schema_refuses_what_is_not_a_preset():
    checker = jsonschema.Draft202012Validator(SCHEMA)
    good = CATALOGUE["llama-3.1-70b"]
    assert checker.is_valid(good)
    assert not checker.is_valid({**good, "sources": {}})
    assert not checker.is_valid({**good, "weight_bytes": 1.5})
    assert not checker.is_valid({**good, "aliases": ["Llama 70B"]})
    assert not checker.is_valid({**good, "surprise": True})
    without_bytes = {key: value for key, value in good.items() if key != "weight_bytes"}
    assert not checker.is_valid(without_bytes)


def test_there_are_enough():
    assert len(CATALOGUE) >= 300


def test_names_and_aliases_are_unique():
    spelled = Counter(list(CATALOGUE))
    for found in CATALOGUE.values():
        spelled.update(found["aliases"])
    assert [name for name, times in spelled.items() if times > 1] == []


def test_hub_ids_are_unique():
    times = Counter(found["hub_id"] for found in CATALOGUE.values())
    assert [hub_id for hub_id, count in times.items() if count > 1] == []


# -- finding one -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "spelling",
    ["llama-3.1-70b", "LLAMA-3.1-70B", "llama3.1-70b", "Meta-Llama-3.1-70B-Instruct"],
)
def test_any_case_and_aliases_find_it(spelling):
    raw = preset.find(spelling)
    assert (raw.name, raw.where, raw.source) == (
        "llama-3.1-70b",
        "preset llama-3.1-70b",
        "preset",
    )
    assert raw.hub_id == "meta-llama/Llama-3.1-70B"
    assert raw.weight_bytes == 141_107_412_992  # 70,553,706,496 parameters of 2 bytes


def test_the_hub_ids_own_name_finds_it():
    spelled = preset.aliases() | {name: name for name in CATALOGUE}
    own = {
        found["hub_id"].split("/")[1].lower().replace("_", "-"): name
        for name, found in CATALOGUE.items()
    }
    assert {key: spelled[key] for key in own} == own


def test_its_own_name_costs_one_file(monkeypatch):
    opened = []
    read_text = Path.read_text

    def counted(path, **keywords):
        opened.append(path.name)
        return read_text(path, **keywords)

    monkeypatch.setattr(Path, "read_text", counted)
    preset.find("qwen3-32b")
    assert opened == ["qwen3-32b.json"]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("lama-3.1-70b", "llama-3.1-70b"),
        ("qwen3-32", "qwen3-32b"),
        ("depseek-v3", "deepseek-v3"),
        ("meta-llama-3.1-70b-instuct", "llama-3.1-70b"),
        ("Mixtral_8x7", "mixtral-8x7b"),
    ],
)
def test_a_near_miss_suggests(typed, first):
    with pytest.raises(kvsize.UsageError, match=r"^no preset named ") as caught:
        preset.find(typed)
    assert caught.value.hint.startswith(f"did you mean {first}")
    assert caught.value.hint.endswith("? `kvsize presets` lists all of them.")
    suggested = caught.value.hint.removeprefix("did you mean ").split("?")[0].split(" or ")
    assert set(suggested) <= set(CATALOGUE)


@pytest.mark.parametrize("typed", ["zzzzzzzzzz", "", "a\0b", "x" * 5000, "Ωmega", "a b"])
def test_what_is_like_nothing_is_only_refused(typed):
    with pytest.raises(kvsize.UsageError, match=r"^no preset named ") as caught:
        preset.find(typed)
    assert "`kvsize presets` lists all of them." in caught.value.hint
    assert len(caught.value.message) < 100


# -- a damaged installation ------------------------------------------------------------------
def test_a_missing_folder_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(preset, "folder", lambda: tmp_path / "gone")
    with pytest.raises(kvsize.ConfigError, match=r"gone: there are no presets\.$") as caught:
        preset.presets()
    assert caught.value.hint == "reinstall kvsize; its presets come with it."
    with pytest.raises(kvsize.ConfigError, match=r"there are no presets\.$"):
        preset.find("llama-3.1-70b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"broken\.json: the preset cannot be read\.$"),
        (b"\xff\xfe", r"broken\.json: the preset cannot be read\.$"),
        (b"[]", r"broken\.json: the preset has no config\.$"),
        (b'{"hub_id": "a/b"}', r"broken\.json: the preset has no config\.$"),
    ],
)
def test_a_damaged_file_is_told(monkeypatch, tmp_path, content, message):
    (tmp_path / "broken.json").write_bytes(content)
    monkeypatch.setattr(preset, "folder", lambda: tmp_path)
    with pytest.raises(kvsize.ConfigError, match=message):
        preset.find("broken")
    with pytest.raises(kvsize.ConfigError, match=message):
        preset.find("some-alias")


# -- against the published files -------------------------------------------------------------
SECTIONS = ("text_config", "llm_config", "decoder_config")
CACHE_WORDS = """
    model_type architectures is_encoder_decoder
    num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers
    hidden_size n_embd n_embed d_model dim intermediate_size
    num_attention_heads n_head n_heads num_heads num_attention_heads_per_layer
    num_key_value_heads n_kv_heads num_kv_heads num_global_key_value_heads multi_query
    head_dim attention_head_dim global_head_dim kv_channels d_kv v_head_dim attention_k_eq_v
    swa_num_attention_heads swa_num_key_value_heads swa_head_dim swa_v_head_dim
    layer_types layers_block_type hybrid_override_pattern hybrid_layer_pattern attn_type_list
    sliding_window sliding_window_pattern _sliding_window_pattern sliding_window_size
    use_sliding_window max_window_layers attention_chunk_size use_bidirectional_attention
    no_rope_layers no_rope_layer_interval full_attention_interval num_kv_shared_layers
    kv_lora_rank q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim
    index_head_dim index_n_heads index_topk index_topk_freq index_topk_pattern
    index_skip_topk_offset indexer_types compress_ratios
    linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
    linear_value_head_dim linear_attn_config mamba_num_heads mamba_head_dim mamba_ssm_dtype
    mamba_ssm_cache_dtype ssm_state_size conv_kernel n_groups expand conv_L_cache chunk_size
    mamba_chunk_size mamba_d_conv mamba_d_head mamba_d_state mamba_expand mamba_n_groups
    mamba_n_heads cross_attention_layers use_cla cla_share_factor dense_attention_every_n_layers
    num_nextn_predict_layers num_mtp_modules use_mtp mtp_num_hidden_layers _num_mtp_layers
    mtp_hybrid_override_pattern mtp_layers_block_type
    max_position_embeddings n_positions n_ctx seq_length max_seq_len max_sequence_length
    model_max_length original_max_position_embeddings max_source_positions max_target_positions
    torch_dtype dtype bf16 fp16 fp32 params_dtype vocab_size
"""
CACHE_KEYS = frozenset(CACHE_WORDS.split())


def published() -> dict[str, Path]:
    if not CONFIGS.is_dir():
        return {}
    with (CONFIGS / "INDEX.tsv").open(encoding="utf-8") as index:
        return {
            row["hub_id"]: CONFIGS / row["file"] for row in csv.DictReader(index, delimiter="\t")
        }


PUBLISHED = published()
needs_files = pytest.mark.skipif(
    not PUBLISHED, reason="the published config.json files are not beside this checkout"
)


def source_file(name: str) -> str | None:
    found = FROM_A_FILE.match(CATALOGUE[name]["sources"]["config"])
    return found[1] if found and found[1] in PUBLISHED else None


FROM_FILES = [name for name in CATALOGUE if source_file(name)] or ["none"]


def differences(ours: object, theirs: object, where: str) -> list[str]:
    """Every place where a preset says something else than its file."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            found
            for key, value in ours.items()
            for found in (
                differences(value, theirs[key], f"{where}.{key}")
                if key in theirs
                else [f"{where}.{key} is not in the file"]
            )
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]")]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{where}: {ours!r}"]


def missing(ours: dict, theirs: dict, where: str) -> list[str]:
    """Keys that decide the cache, and are in the file but not in the preset."""
    found = [f"{where}.{key}" for key in theirs if key in CACHE_KEYS and key not in ours]
    for section in SECTIONS:
        if isinstance(theirs.get(section), dict):
            found += missing(ours[section], theirs[section], f"{where}.{section}")
    return found


@needs_files
def test_every_published_preset_names_its_file():
    named = {CATALOGUE[name]["hub_id"] for name in CATALOGUE} & set(PUBLISHED)
    assert named == {source_file(n) for n in CATALOGUE if CATALOGUE[n]["hub_id"] in PUBLISHED}
    assert len(named) >= 120


@needs_files
@pytest.mark.parametrize("name", FROM_FILES)
def test_agrees_with_the_published_file(name):
    theirs = json.loads(PUBLISHED[source_file(name)].read_text("utf-8"))
    ours = CATALOGUE[name]["config"]
    assert differences(ours, theirs, "config") == []
    assert missing(ours, theirs, "config") == []
    for key in ("block_configs", "attn_config", "sparse_attention_config"):
        assert (key in ours) == (key in theirs)
    for section, whole in [(ours, theirs)] + [(ours[k], theirs[k]) for k in SECTIONS if k in ours]:
        stretched = (whole.get("rope_scaling") or whole.get("rope_parameters") or {}).get("factor")
        kept = section.get("rope_scaling") or section.get("rope_parameters") or {}
        assert kept.get("factor") == stretched
    scheme = (theirs.get("quantization_config") or {}).get("kv_cache_scheme")
    if scheme and WITHOUT_QUANTISATION not in CATALOGUE[name]["sources"]["config"]:
        assert ours["quantization_config"]["kv_cache_scheme"]


def comparable(size: kvsize.Size) -> tuple[object, ...]:
    return size.total_bytes, size.layer_bytes, size.allocated_bytes, size.prefill_bytes


@needs_files
@pytest.mark.parametrize("name", FROM_FILES)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_sizes_to_the_published_files_bytes(name, cache):
    whole = kvsize.load(json.loads(PUBLISHED[source_file(name)].read_text("utf-8")))
    ours = kvsize.load(name)
    assert (ours.dtype, ours.context_limit) == (whole.dtype, whole.context_limit)
    assert ours.layers == whole.layers
    if cache == "static" and whole.no_static_cache:
        assert ours.no_static_cache == whole.no_static_cache
        return
    for context in (1, 4096, 32768):
        sizes = [
            kvsize.size(model, context=context, options={"cache": cache}) for model in (ours, whole)
        ]
        assert comparable(sizes[0]) == comparable(sizes[1])


# -- figures ---------------------------------------------------------------------------------
# Each follows by hand from published dimensions; 2 · layers · KV heads · head_dim · bytes · tokens
# unless told otherwise.
GOLDEN = [
    # the two everybody checks first: 10 GiB and 2 GiB
    ("llama-3.1-70b", 32768, 2 * 80 * 8 * 128 * 2 * 32768, 10_737_418_240),
    ("llama-2-7b", 4096, 2 * 32 * 32 * 128 * 2 * 4096, 2_147_483_648),
    ("llama-3.1-8b", 131072, 2 * 32 * 8 * 128 * 2 * 131072, 17_179_869_184),
    ("llama-3.1-405b", 131072, 2 * 126 * 8 * 128 * 2 * 131072, 67_645_734_912),
    ("mixtral-8x7b", 32768, 2 * 32 * 8 * 128 * 2 * 32768, 4_294_967_296),
    ("qwen2.5-72b", 32768, 2 * 80 * 8 * 128 * 2 * 32768, 10_737_418_240),
    # head_dim 128 is stated; hidden_size / heads would be 80 and 64
    ("qwen3-32b", 32768, 2 * 64 * 8 * 128 * 2 * 32768, 8_589_934_592),
    ("qwen3-235b-a22b", 32768, 2 * 94 * 4 * 128 * 2 * 32768, 6_308_233_216),
    # no dtype in the file: bfloat16 assumed
    ("gpt2", 1024, 2 * 12 * 12 * 64 * 2 * 1024, 37_748_736),
    ("bloom", 2048, 2 * 70 * 112 * 128 * 2 * 2048, 8_220_835_840),
    ("command-r", 8192, 2 * 40 * 64 * 128 * 2 * 8192, 10_737_418_240),
    ("dbrx", 32768, 2 * 40 * 8 * 128 * 2 * 32768, 5_368_709_120),
    ("chatglm3-6b", 8192, 2 * 28 * 2 * 128 * 2 * 8192, 234_881_024),
    ("glm-4.5", 32768, 2 * 92 * 8 * 128 * 2 * 32768, 12_348_030_976),
    # 31 of 80 layers have no attention
    ("nemotron-super-49b", 32768, 2 * 49 * 8 * 128 * 2 * 32768, 6_576_668_672),
    # one KV head of 64 for 71 query heads; the new architecture caches all 128
    ("falcon-7b", 2048, 2 * 32 * 1 * 64 * 2 * 2048, 16_777_216),
    ("falcon-40b", 2048, 2 * 60 * 128 * 64 * 2 * 2048, 4_026_531_840),
    # a dynamic cache keeps window - 1 tokens of a sliding layer
    ("mistral-7b-v0.1", 32768, 2 * 32 * 8 * 128 * 2 * 4095, 536_739_840),
    ("phi-3-mini-4k", 4096, 2 * 32 * 32 * 96 * 2 * 2046, 804_519_936),
    ("gpt-oss-120b", 131072, 2 * 8 * 64 * 2 * 18 * (131072 + 127), 4_836_519_936),
    # float32 in the file; every other layer slides
    ("gemma-2-9b", 8192, 2 * 8 * 256 * 4 * 21 * (8192 + 4095), 4_227_514_368),
    # every sixth of 62 layers is full
    ("gemma-3-27b", 32768, 2 * 16 * 128 * 2 * (10 * 32768 + 52 * 1023), 3_120_136_192),
    # 15 of 35 layers share the keys of others; of the first 20 every fifth is full
    ("gemma-3n-e4b", 32768, 2 * 2 * 256 * 2 * (4 * 32768 + 16 * 511), 285_179_904),
    # 12 full layers without rope, 36 that keep chunk - 1 tokens
    ("llama-4-scout", 131072, 2 * 8 * 128 * 2 * (12 * 131072 + 36 * 8191), 7_650_263_040),
    # a latent of 512 and a rotary key of 64 per layer, whatever the heads
    ("deepseek-v3", 32768, 61 * (512 + 64) * 2 * 32768, 2_302_672_896),
    ("kimi-k2", 131072, 61 * (512 + 64) * 2 * 131072, 9_210_691_584),
    ("longcat-flash", 131072, 2 * 28 * (512 + 64) * 2 * 131072, 8_455_716_864),
    ("minicpm3-4b", 32768, 62 * (256 + 32) * 2 * 32768, 1_170_210_816),
    # and an indexer's key of 128
    ("deepseek-v3.2", 163840, 61 * (512 + 64 + 128) * 2 * 163840, 14_071_889_920),
    # 4 of 32 layers attend; the others hold 8192 channels of 4 inputs and 16 float32 states
    (
        "jamba-v0.1",
        262144,
        4 * 2 * 8 * 128 * 2 * 262144 + 28 * 8192 * (4 * 2 + 16 * 4),
        4_311_482_368,
    ),
    # 12 of 48 layers attend; the others hold 4 inputs of 8192 channels and 32 states of 128 × 128
    (
        "qwen3-next-80b",
        262144,
        12 * 2 * 2 * 256 * 2 * 262144 + 36 * (8192 * 4 * 2 + 32 * 128 * 128 * 4),
        6_520_307_712,
    ),
    # float32 and no attention at all: the same at every length
    ("mamba-2.8b", 1, 64 * 5120 * (4 + 16) * 4, 26_214_400),
    ("mamba-2.8b", 1_000_000, 64 * 5120 * (4 + 16) * 4, 26_214_400),
    # 448 tokens of the decoder and 1500 of the encoder in each of 32 layers
    ("whisper-large-v3", 448, 2 * 32 * 20 * 64 * 2 * (448 + 1500), 319_160_320),
]


@pytest.mark.parametrize(("name", "context", "derived", "stated"), GOLDEN)
def test_figure_follows_by_hand(name, context, derived, stated):
    assert derived == stated
    assert kvsize.size(kvsize.load(name), context=context).total_bytes == stated


@pytest.mark.parametrize("name", CATALOGUE)
def test_loads_and_has_a_size(name):
    model = kvsize.load(name)
    sizes = [kvsize.size(model, context=context).total_bytes for context in (1, 4096)]
    assert 0 < sizes[0] <= sizes[1]


def test_only_these_rest_on_a_guess():
    guessed = {name for name in CATALOGUE if kvsize.load(name).guesses}
    # types or nestings that transformers 5.24.0 has no class for, or reads otherwise
    allowed = {"exaone-4.5-33b", "step-3.7-flash", "step-3.7-flash-fp8", "vibevoice-1.5b"}
    assert guessed <= allowed
