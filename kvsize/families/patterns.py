"""The kind of each layer where config.json does not list `layer_types`: data, by model type.

Read in transformers 5.24.0, `__post_init__` (or the `layer_types` property) of each model's
configuration class. `i` counts layers from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kvsize.config import Config

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, CONV, INDEXED = "linear_attention", "conv", "indexed_attention"
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"

# Names that older files use for the same kinds (transformers 5.24.0, configuration_utils.py).
LEGACY_NAMES = {
    "mamba": LINEAR,
    "attention": FULL,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}

Rule = Callable[[Config, int], list[str]]


def every(step: int, other: str = SLIDING, *, key: str | None = None, special: str = FULL) -> Rule:
    """The last layer of every `step` is `special`; `key` names the config key for `step`."""

    def rule(config: Config, layers: int) -> list[str]:
        period = config.count_or(key, step, least=1) if key else step
        return [special if (i + 1) % period == 0 else other for i in range(layers)]

    return rule


def first_of(step: int, *, key: str | None = None) -> Rule:
    """The first layer of every `step` is full, the others slide."""

    def rule(config: Config, layers: int) -> list[str]:
        period = config.count_or(key, step, least=1) if key else step
        return [FULL if i % period == 0 else SLIDING for i in range(layers)]

    return rule


def counted_from_last(step: int) -> Rule:
    """Every `step`-th layer counted back from the last, which is full."""
    return lambda _, n: [FULL if (n - 1 - i) % step == 0 else SLIDING for i in range(n)]


def last_full(rule: Rule) -> Rule:
    """`rule`, but the last layer is always full."""
    return lambda config, n: [*rule(config, n)[:-1], FULL] if n else []


def all_of(kind: str) -> Rule:
    """Every layer is of one kind."""
    return lambda _, n: [kind] * n


def cycle(*kinds: str) -> Rule:
    """The kinds in turn."""
    return lambda _, n: [kinds[i % len(kinds)] for i in range(n)]


def upper_layers(config: Config, layers: int) -> list[str]:
    """Qwen2 and Qwen3: layers from `max_window_layers` on slide, when windows are switched on."""
    off = config.value("use_sliding_window") is not None and not config.flag("use_sliding_window")
    if off or config.optional_count("sliding_window", least=0) is None:
        return [FULL] * layers
    start = config.count_or("max_window_layers", layers)
    return [SLIDING if i >= start else FULL for i in range(layers)]


def qwen2_moe(config: Config, layers: int) -> list[str]:
    """Even layers below `max_window_layers` slide: the other way round than in Qwen2."""
    on = config.flag("use_sliding_window")
    end = config.count_or("max_window_layers", layers)
    return [SLIDING if on and i % 2 == 0 and i < end else FULL for i in range(layers)]


def exaone(config: Config, layers: int) -> list[str]:
    """Every `sliding_window_pattern`-th layer is full; without a window none slides."""
    if config.optional_count("sliding_window", least=0) is None:
        return [FULL] * layers
    pattern = config.value("sliding_window_pattern", 4)
    if pattern == "":
        raise config.contradiction("`sliding_window_pattern` is empty.")
    if isinstance(pattern, str):
        # The class cannot read the letters ("LLLG") that EXAONE's own files use: L slides.
        return [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(layers)]
    period = config.count_or("sliding_window_pattern", 4, least=1)
    return [SLIDING if (i + 1) % period else FULL for i in range(layers)]


def smollm3(config: Config, layers: int) -> list[str]:
    """Layers without rotary positions slide, when windows are switched on."""
    window = config.optional_count("sliding_window", least=0)
    on = config.flag("use_sliding_window") and window is not None
    rotary = no_rope_layers(config, layers)
    return [SLIDING if on and not rotary[i] else FULL for i in range(layers)]


def no_rope_layers(config: Config, layers: int) -> list[int]:
    """1 where a layer has rotary positions, 0 where it has none (the key's own, odd meaning)."""
    stated = config.counts("no_rope_layers")
    if stated:
        if len(stated) < layers:
            message = f"`no_rope_layers` lists {len(stated)} layers of {layers}."
            raise config.contradiction(message)
        return stated
    interval = config.count_or("no_rope_layer_interval", 4, least=1)
    return [int((i + 1) % interval != 0) for i in range(layers)]


def llama4(config: Config, layers: int) -> list[str]:
    """Layers with rotary positions attend inside chunks."""
    chunk = config.optional_count("attention_chunk_size")
    rotary = no_rope_layers(config, layers)
    return [CHUNKED if rotary[i] and chunk is not None else FULL for i in range(layers)]


def cohere2_moe(config: Config, layers: int) -> list[str]:
    """Leading dense layers have a pattern of their own, then the common one starts again."""
    dense = min(config.count_or("first_k_dense_replace", 0), layers)
    prefix = config.count_or("prefix_dense_sliding_window_pattern", 1, least=1)
    period = config.count_or("sliding_window_pattern", 4, least=1)
    return [SLIDING if (i + 1) % prefix else FULL for i in range(dense)] + [
        SLIDING if (i + 1) % period else FULL for i in range(layers - dense)
    ]


def mimo_v2_flash(config: Config, layers: int) -> list[str]:
    """The first and every sixth layer are full; published files say it as 0/1 per layer."""
    stated = config.counts("hybrid_layer_pattern")
    if stated is not None and len(stated) == layers:
        return [SLIDING if slides else FULL for slides in stated]
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers)]


def flint(_: Config, layers: int) -> list[str]:
    """The first two, every fourth from the second, and the last layer are full."""
    return [FULL if i < 2 or i % 4 == 1 or i == layers - 1 else SLIDING for i in range(layers)]


def ministral(config: Config, layers: int) -> list[str]:
    """All layers slide where there is a window."""
    window = config.optional_count("sliding_window", least=0)
    return [FULL if window is None else SLIDING] * layers


def listed(key: str, listed_kind: str, other: str) -> Rule:
    """`key` lists the layers of one kind; without it all are of the other … see the callers."""

    def rule(config: Config, layers: int) -> list[str]:
        chosen = set(config.counts(key) or ())
        return [listed_kind if i in chosen else other for i in range(layers)]

    return rule


def lfm2(config: Config, layers: int) -> list[str]:
    """`full_attn_idxs` attend, the others convolve; without the key all attend."""
    chosen = config.counts("full_attn_idxs")
    return [FULL if chosen is None or i in chosen else CONV for i in range(layers)]


def lfm3(_: Config, layers: int) -> list[str]:
    """Every fourth from the third is full, every fourth from the fifth slides, others convolve."""
    return [
        FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i > 0 else CONV for i in range(layers)
    ]


def jamba(config: Config, layers: int) -> list[str]:
    """One attention layer in each `attn_layer_period`, at `attn_layer_offset`."""
    period = config.count_or("attn_layer_period", 8, least=1)
    offset = config.count_or("attn_layer_offset", 4)
    return [FULL if i % period == offset else LINEAR for i in range(layers)]


def kimi_linear(config: Config, layers: int) -> list[str]:
    """`linear_attn_config` numbers its layers from 1; else every fourth after the first is full."""
    stated = config.mapping("linear_attn_config") or {}
    full = stated.get("full_attn_layers")
    if isinstance(full, list) and "kda_layers" in stated:
        return [FULL if i + 1 in full else LINEAR for i in range(layers)]
    return [FULL if i and i % 4 == 0 else LINEAR for i in range(layers)]


def olmo_hybrid(_: Config, layers: int) -> list[str]:
    """Every fourth layer is full; a model shorter than that ends in a full one."""
    kinds = [FULL if i % 4 == 3 else LINEAR for i in range(layers)]
    return kinds if FULL in kinds else [*kinds[:-1], FULL]


def dots3_note(config: Config, layers: int) -> list[str]:
    """The first two and every fourth from the second are full (indexed), the others slide."""
    slides = config.flag("use_sliding_window", default=True)
    return [FULL if not slides or i < 2 or i % 4 == 1 else SLIDING for i in range(layers)]


def inkling(config: Config, layers: int) -> list[str]:
    """`local_layer_ids` slide; without the key all but every sixth."""
    local = config.counts("local_layer_ids")
    slides = set(local) if local is not None else {i for i in range(layers) if (i + 1) % 6}
    return [HYBRID_SLIDING if i in slides else HYBRID for i in range(layers)]


def recurrent_gemma(config: Config, layers: int) -> list[str]:
    """`block_types` repeated; the recurrent blocks keep their state outside the cache."""
    blocks = config.texts("block_types") or ["recurrent", "recurrent", "attention"]
    return [LINEAR if blocks[i % len(blocks)] == "recurrent" else SLIDING for i in range(layers)]


def zamba(config: Config, layers: int) -> list[str]:
    """Two linear layers, a hybrid one, then a hybrid one in each `attn_layer_period`."""
    period = config.count_or("attn_layer_period", 6, least=1)
    offset = config.count_or("attn_layer_offset", 4)
    start = [LINEAR, LINEAR, HYBRID]
    rest = [HYBRID if i % period == offset else LINEAR for i in range(max(layers - 3, 0))]
    return (start + rest)[:layers]


def minimax_m3(config: Config, layers: int) -> list[str]:
    """`sparse_attention_config.sparse_attention_freq` marks the sparse layers."""
    stated = config.mapping("sparse_attention_config") or {}
    freq = stated.get("sparse_attention_freq")
    if not isinstance(freq, list):
        return [FULL] * layers
    if len(freq) != layers:
        message = f"`sparse_attention_freq` lists {len(freq)} layers of {layers}."
        raise config.contradiction(message)
    return ["minimax_m3_sparse" if sparse else FULL for sparse in cast("list[object]", freq)]


RULES: dict[str, Rule] = {
    # windows in a pattern
    "afmoe": every(4, key="global_attn_every_n_layers"),
    "beam": last_full(every(6)),
    "cohere2": every(4, key="sliding_window_pattern"),
    "cohere2_moe": cohere2_moe,
    "cwm": first_of(4),
    "diffusion_gemma_text": last_full(every(6)),
    "dory": every(4),
    "dots1": upper_layers,
    "embedding_gemma2_text": last_full(every(6, key="sliding_window_pattern")),
    "exaone4": exaone,
    "exaone_moe": exaone,
    "flint": flint,
    "gemma2": every(2),
    "gemma3_text": every(6, key="sliding_window_pattern"),
    "gemma3n_text": every(5),
    "gemma4_text": last_full(every(6)),
    "gemma4_unified_text": last_full(every(6)),
    "gpt_oss": every(2),
    "granite_swa": first_of(4),
    "granitemoe_swa": first_of(4),
    "kolibri1": every(5),
    "llama4_text": llama4,
    "mimo_v2_flash": mimo_v2_flash,
    "ministral": ministral,
    "modernbert-decoder": first_of(3, key="global_attn_every_n_layers"),
    "muse_glimmer_text": counted_from_last(4),
    "muse_spark_text": counted_from_last(4),
    "olmo3": every(4),
    "qwen2": upper_layers,
    "qwen2_5_omni_text": upper_layers,
    "qwen2_5_vl_text": upper_layers,
    "qwen2_moe": qwen2_moe,
    "qwen2_vl_text": upper_layers,
    "qwen3": upper_layers,
    "smollm3": smollm3,
    "t5_gemma_module": every(2),
    "t5gemma2_decoder": every(6, key="sliding_window_pattern"),
    "vaultgemma": every(2),
    # these classes fill layer_types themselves, so a stray sliding_window key decides nothing
    "cohere_compass_text": all_of(FULL),
    "laguna": all_of(FULL),
    "mellum": all_of(FULL),
    "minimax_m3_vl_text": minimax_m3,
    "step3p5": all_of(FULL),
    # indexed attention
    "axk2": all_of(INDEXED),
    "deepseek_v32": all_of(INDEXED),
    "dots3_note_text": dots3_note,
    "glm5_next_text": every(4, LINEAR, special=INDEXED),
    "glm_moe_dsa": all_of(INDEXED),
    "hy_v4": all_of(INDEXED),
    "hy_v4_vl_text": all_of(INDEXED),
    "mistral_large4_text": all_of(INDEXED),
    # linear attention, state spaces, convolutions
    "bailing_hybrid": every(8, LINEAR, key="layer_group_size"),
    "bamba": listed("attn_layer_indices", FULL, LINEAR),
    "falcon_h1": all_of(HYBRID),
    "falcon_mamba": all_of(LINEAR),
    "granitemoehybrid": all_of(LINEAR),
    "inkling2_loop_text": every(6, HYBRID_SLIDING, special=HYBRID),
    "inkling2_text": every(6, HYBRID_SLIDING, special=HYBRID),
    "inkling_text": inkling,
    "jamba": jamba,
    "kimi_linear": kimi_linear,
    "lara_mini": cycle(LINEAR, SLIDING, LINEAR, FULL, SLIDING),
    "lfm2": lfm2,
    "lfm3": lfm3,
    "mamba": all_of(LINEAR),
    "mamba2": all_of(LINEAR),
    "minimax": cycle(FULL, LINEAR),
    "olmo_hybrid": olmo_hybrid,
    "qwen3_5_moe_text": every(4, LINEAR, key="full_attention_interval"),
    "qwen3_5_text": every(4, LINEAR, key="full_attention_interval"),
    "qwen3_next": every(4, LINEAR, key="full_attention_interval"),
    "qwen4_exp_text": every(4, LINEAR, key="full_attention_interval", special=INDEXED),
    "recurrent_gemma": recurrent_gemma,
    "zamba": zamba,
}
