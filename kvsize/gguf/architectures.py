"""What llama.cpp does differently for each architecture when it allocates memory, as data.

Source: `src/models/*.cpp` (each architecture's `load_arch_hparams`), `llama-arch.cpp` and
`llama_model::create_memory` in llama.cpp 0c1e57098 (0.5.0-dev).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class When(Enum):
    """When an architecture's sliding window is in force, given the key's value."""

    ALWAYS = "always"
    POSITIVE = "the key is there and not 0"
    UNLESS_ZERO = "unless the key is there and 0"


class Pattern(Enum):
    """Which layers have the window."""

    PERIOD = "all but one in a period, unless sliding_window_pattern lists them"
    LISTED = "those that sliding_window_pattern lists"
    ATTENTION = "every attention layer"
    ALL = "every layer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """An architecture's sliding window.

    `period`: the period where the file gives none. `dense_first`: the dense layer opens the
    period instead of closing it. `default`: the window without a key, None where the key is
    required. `fixed`: the window whatever the key says. `trunk`: only in a model of that many
    layers.
    """

    pattern: Pattern = Pattern.PERIOD
    period: int = 0
    dense_first: bool = False
    when: When = When.ALWAYS
    default: int | None = None
    fixed: int | None = None
    trunk: int | None = None


class Recurrent(Enum):
    """Which layers of a hybrid keep a recurrent state instead of keys and values."""

    NO_KV_HEADS = "head_count_kv is 0"
    NO_KV_HEADS_NO_FFN = "head_count_kv and feed_forward_length are 0"
    INTERVAL = "attention.recurrent_layers, else all but every full_attention_interval-th"
    EVERY = "every layer, beside its keys and values"


class State(Enum):
    """How large a recurrent state is (`llama_hparams::n_embd_r`, `n_embd_s`)."""

    MAMBA = "Mamba 1"
    MAMBA2 = "Mamba 2 and gated delta net: the convolution covers the groups too"
    RWKV = "RWKV: token shift and wkv"
    SHORT_CONV = "LFM2: a short convolution alone"
    KDA = "Kimi delta attention"
    LINEAR = "MiniMax: linear attention, no convolution"


class Latent(Enum):
    """Whether the cache holds latents alone, without values (MLA)."""

    NEVER = "never"
    IF_GIVEN = "where key_length_mla and value_length_mla are given"
    ALWAYS = "always, and both keys are required"


class Memory(Enum):
    """The memory module `create_memory` makes; a window turns KV and HYBRID into two caches."""

    NONE = "none"
    KV = "kv"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"
    DSA = "main and indexer cache"
    DSA_SWA = "main, indexer and window cache"
    MSA = "main and index cache, values included"
    DSV4 = "DeepSeek-V4"
    DRAFT = "needs another model's context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One architecture's departures from a plain decoder with one cache.

    `values_from_lora`: the value length is kv_lora_rank. `interval`: the default of
    full_attention_interval. `rollback`: states can be rolled back, so that `n_rs_seq` counts.
    `trunk_only`: the caches skip the multi-token-prediction layers. `flash_attn` False: flash
    attention is forced off. `kv_layers`: only the first so many layers have keys and values.
    """

    memory: Memory = Memory.KV
    window: Window | None = None
    recurrent: Recurrent | None = None
    state: State | None = None
    interval: int = 4
    rollback: bool = False
    latent: Latent = Latent.NEVER
    values_from_lora: bool = False
    trunk_only: bool = True
    flash_attn: bool = True
    kv_layers: int | None = None


_LATENT = Architecture(latent=Latent.IF_GIVEN)
_LISTED = Architecture(window=Window(pattern=Pattern.LISTED))
_POSITIVE = When.POSITIVE


def _period(period: int, *, dense_first: bool = False) -> Architecture:
    return Architecture(window=Window(period=period, dense_first=dense_first))


def _if_positive(period: int, *, dense_first: bool = False) -> Architecture:
    return Architecture(
        window=Window(period=period, dense_first=dense_first, when=_POSITIVE, default=0)
    )


def _hybrid(
    rule: Recurrent, state: State, *, rollback: bool = False, trunk_only: bool = False
) -> Architecture:
    return Architecture(
        memory=Memory.HYBRID,
        recurrent=rule,
        state=state,
        rollback=rollback,
        trunk_only=trunk_only,
    )


def _kda(
    *, rollback: bool, values_from_lora: bool = False, trunk_only: bool = False
) -> Architecture:
    return Architecture(
        memory=Memory.HYBRID,
        recurrent=Recurrent.NO_KV_HEADS,
        state=State.KDA,
        latent=Latent.ALWAYS,
        rollback=rollback,
        values_from_lora=values_from_lora,
        trunk_only=trunk_only,
    )


_NEMOTRON_H = _hybrid(Recurrent.NO_KV_HEADS_NO_FFN, State.MAMBA2, rollback=True)
_DELTA_NET = _hybrid(Recurrent.INTERVAL, State.MAMBA2, trunk_only=True)
_DELTA_NET_ROLLBACK = _hybrid(Recurrent.INTERVAL, State.MAMBA2, rollback=True, trunk_only=True)
_NO_MEMORY = Architecture(memory=Memory.NONE)
_DRAFT = Architecture(memory=Memory.DRAFT)


def _recurrent(state: State) -> Architecture:
    return Architecture(memory=Memory.RECURRENT, state=state)


SPECIAL: dict[str, Architecture] = {
    # no memory: encoders and diffusion models
    **dict.fromkeys(
        (
            "bert",
            "dream",
            "eurobert",
            "gemma-embedding",
            "jina-bert-v2",
            "jina-bert-v3",
            "llada",
            "llada-moe",
            "modern-bert",
            "neo-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "rnd1",
            "wavtokenizer-dec",
        ),
        _NO_MEMORY,
    ),
    # draft models
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFT),
    # sliding windows
    "gemma2": Architecture(window=Window(period=2, default=4096)),
    "gemma3": _if_positive(6),
    "gemma3n": Architecture(window=Window(period=5), kv_layers=20),
    "gemma4": _LISTED,
    "gpt-oss": _period(2),
    "cohere2": _period(4),
    "cohere2moe": _period(4, dense_first=True),
    "exaone4": Architecture(window=Window(period=4, default=4096, trunk=64)),
    "exaone-moe": _period(4),
    "muse-glimmer": _period(4),
    "llama4": Architecture(
        window=Window(period=4, when=When.UNLESS_ZERO, default=8192, fixed=8192)
    ),
    "smallthinker": Architecture(
        window=Window(period=4, dense_first=True, when=_POSITIVE, default=0, fixed=4096)
    ),
    "afmoe": _if_positive(4),
    "olmo2": _if_positive(4),
    "mellum": _if_positive(4),
    "plamo3": _if_positive(8),
    "laguna": _if_positive(4, dense_first=True),
    **dict.fromkeys(("mimo2", "step35", "spark2_5", "maple", "granite_swa"), _LISTED),
    # latent attention
    "deepseek2": _LATENT,
    "mistral4": _LATENT,
    "deepseek32": Architecture(memory=Memory.DSA, latent=Latent.ALWAYS),
    "glm-dsa": Architecture(memory=Memory.DSA, latent=Latent.ALWAYS),
    "hy_v4": Architecture(memory=Memory.DSA, latent=Latent.ALWAYS, trunk_only=False),
    "dots3note": Architecture(
        memory=Memory.DSA_SWA, latent=Latent.ALWAYS, window=Window(pattern=Pattern.LISTED)
    ),
    "minimax-m3": Architecture(memory=Memory.MSA, trunk_only=False),
    "deepseek4": Architecture(
        memory=Memory.DSV4, window=Window(pattern=Pattern.ALL), rollback=True
    ),
    # recurrent
    "mamba": _recurrent(State.MAMBA),
    "mamba2": _recurrent(State.MAMBA2),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _recurrent(State.RWKV)),
    # hybrid
    "jamba": _hybrid(Recurrent.NO_KV_HEADS, State.MAMBA),
    "plamo2": _hybrid(Recurrent.NO_KV_HEADS, State.MAMBA2),
    "granitehybrid": _hybrid(Recurrent.NO_KV_HEADS, State.MAMBA2),
    "falcon-h1": _hybrid(Recurrent.EVERY, State.MAMBA2),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": _NEMOTRON_H,
    "lfm2": Architecture(
        memory=Memory.HYBRID,
        recurrent=Recurrent.NO_KV_HEADS,
        state=State.SHORT_CONV,
        rollback=True,
        trunk_only=False,
        window=Window(pattern=Pattern.ATTENTION, when=_POSITIVE, default=0),
    ),
    "lfm2moe": _hybrid(Recurrent.NO_KV_HEADS, State.SHORT_CONV, rollback=True),
    "qwen3next": _DELTA_NET,
    "qwen35": _DELTA_NET_ROLLBACK,
    "qwen35moe": _DELTA_NET_ROLLBACK,
    "qwen4exp": _DELTA_NET_ROLLBACK,
    "minimax-01": Architecture(
        memory=Memory.HYBRID, recurrent=Recurrent.INTERVAL, state=State.LINEAR, interval=8
    ),
    "kimi-linear": _kda(rollback=False),
    "kimi-k3": _kda(rollback=True, values_from_lora=True),
    "bailingmoe3": _kda(rollback=True),
    "glm5-next": _kda(rollback=True, values_from_lora=True, trunk_only=True),
    # otherwise plain
    "grok": Architecture(flash_attn=False),
}

# One cache, every layer alike, a sliding window in the file ignored.
_PLAIN_NAMES = """
    apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell
    cogvlm command-r dbrx deci deepseek deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon
    gemma glm4 glm4moe gpt2 gptneox granite granitemoe graniteswitch grovemoe hrm_text
    hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2 llama llama-embed maincoder
    minicpm minicpm3 minimax-m2 mistral3 mpt nanbeige nemotron olmo olmoe openelm orion paddleocr
    pangu-embedded phi2 phi3 phimoe plamo plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe
    qwen3tts qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm starcoder starcoder2 t5
    t5encoder talkie xverse
"""
PLAIN = frozenset(_PLAIN_NAMES.split())


def known_architectures() -> list[str]:
    """Every `general.architecture` that llama.cpp can run a text model of, sorted."""
    return sorted({*PLAIN, *SPECIAL})


def architecture(name: str) -> Architecture | None:
    """What is particular to `name`; None where llama.cpp does not know it."""
    return SPECIAL.get(name) or (Architecture() if name in PLAIN else None)
