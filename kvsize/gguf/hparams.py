"""From GGUF metadata to llama.cpp's hyperparameters: what each block keeps in memory.

Names are the engine's. Source: `llama_model_base::load_hparams` (`src/llama-model.cpp`),
`src/llama-hparams.cpp` and `src/models/*.cpp`, llama.cpp 0c1e57098 (0.5.0-dev).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvsize.errors import ConfigError
from kvsize.gguf import patterns, states
from kvsize.gguf.architectures import (
    Architecture,
    Latent,
    Memory,
    architecture,
    known_architectures,
)
from kvsize.gguf.keys import LARGEST_LAYER_COUNT, Keys
from kvsize.suggest import nearest

ARCHITECTURE = "general.architecture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block's dimensions, in llama.cpp's names."""

    n_head: int
    n_head_kv: int
    n_embd_head_k: int
    n_embd_head_v: int
    n_ff: int
    is_swa: bool
    is_recr: bool
    is_indexer_full: bool
    has_kv: bool = True
    is_ple: bool = False
    compress_ratio: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The sparse-attention indexer: its key's width, and what else decides its cache."""

    head_size: int = 0
    top_k: int = 0
    kpool: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hparams:
    """What llama.cpp keeps of a GGUF file as far as memory goes.

    `n_layer` counts the trunk; `blocks` has the multi-token-prediction layers after it.
    `n_swa` is None without a sliding window. `n_embd_r` and `n_embd_s` are the f32 elements of
    a recurrent layer's convolution and state per sequence, `ple_conv_state` those of a PLE
    layer's history. `kv_from_start`: the layers with keys of their own, where not all have.
    `has_router`: the last block is a router that the trunk attends to.
    """

    arch: str
    traits: Architecture
    n_ctx_train: int
    n_layer: int
    blocks: tuple[Block, ...]
    n_swa: int | None
    causal: bool
    is_mla: bool
    indexer: Indexer
    n_embd_r: int
    n_embd_s: int
    kv_from_start: int | None = None
    n_layer_dense_lead: int = 0
    ple_conv_state: int = 0
    has_router: bool = False


def architecture_of(metadata: Mapping[str, object], where: str) -> str:
    """The file's architecture; ConfigError where it has none or llama.cpp does not know it."""
    name = metadata.get(ARCHITECTURE)
    if not isinstance(name, str):
        msg = f"{where}: `{ARCHITECTURE}` is missing or not text."
        raise ConfigError(msg, "give the first shard of a model's .gguf.")
    if name == "clip":
        msg = f"{where}: it holds a vision or audio projector, which has no KV cache."
        raise ConfigError(msg, "give the language model's .gguf, the one without `mmproj`.")
    if architecture(name) is None:
        msg = f"{where}: llama.cpp knows no architecture '{name}'."
        hint = nearest(name, known_architectures(), "give the model's config.json instead")
        raise ConfigError(msg, hint)
    return name


def has_required_keys(metadata: Mapping[str, object]) -> bool:
    """Whether `read_hparams` would find all it needs.

    A remote header is read on past its vocabulary where it would not.
    """
    try:
        read_hparams(metadata, "")
    except ConfigError:
        return False
    return True


def read_hparams(metadata: Mapping[str, object], where: str) -> Hparams:
    """The hyperparameters in `metadata`. Raises ConfigError for a key that is missing or wrong."""
    arch = architecture_of(metadata, where)
    traits = architecture(arch) or Architecture()
    keys = Keys(metadata, arch, where)
    layers, trunk = _layer_counts(keys)
    blocks = _blocks(keys, arch, traits, layers, trunk)
    found = Hparams(
        arch=arch,
        traits=traits,
        n_ctx_train=keys.count("context_length"),
        n_layer=trunk,
        blocks=blocks,
        n_swa=patterns.window_size(keys, traits.window, trunk),
        causal=keys.flag("attention.causal", default=True),
        is_mla=_is_mla(keys, traits),
        indexer=_indexer(keys, arch),
        n_embd_r=states.conv_elements(keys, traits.state, blocks[0].n_head),
        n_embd_s=states.state_elements(
            keys, traits.state, blocks[0].n_head, blocks[0].n_embd_head_k
        ),
        kv_from_start=_kv_from_start(keys, arch, traits, layers),
        n_layer_dense_lead=keys.count("leading_dense_block_count", 0),
        ple_conv_state=states.ple_conv_state(keys, arch),
    )
    return _unrolled(keys, found)


def _layer_counts(keys: Keys) -> tuple[int, int]:
    """All blocks, and those of the trunk."""
    layers = keys.count("block_count")
    if not 0 < layers <= LARGEST_LAYER_COUNT:
        raise keys.contradiction(f"`block_count` is {layers}, not 1 to {LARGEST_LAYER_COUNT}")
    nextn = keys.count("nextn_predict_layers", 0)
    if nextn > layers:
        raise keys.contradiction(f"`nextn_predict_layers` is {nextn} of {layers} blocks")
    return layers, layers - nextn


def _blocks(
    keys: Keys, arch: str, traits: Architecture, layers: int, trunk: int
) -> tuple[Block, ...]:
    headless = traits.memory in {Memory.RECURRENT, Memory.NONE}
    heads = keys.per_layer("attention.head_count", layers, [0] * layers if headless else None)
    heads_kv = keys.per_layer("attention.head_count_kv", layers, heads)
    n_ff = keys.per_layer("feed_forward_length", layers, [0] * layers)
    recurrent = patterns.recurrent_layers(keys, traits, trunk, heads_kv, n_ff)
    swa = [False] * layers
    if traits.window and patterns.window_size(keys, traits.window, trunk) is not None:
        swa = patterns.swa_layers(keys, traits.window, trunk, recurrent)
    full = patterns.indexer_layers(keys, arch, trunk, layers)
    dense, window = _head_lengths(keys, traits, heads[0])
    ratios = _compress_ratios(keys, traits, layers)
    ple = keys.array("ple.layers") if arch == "qwen4exp" and keys.has("ple.layers") else []
    own = _kv_from_start(keys, arch, traits, layers)
    return tuple(
        Block(
            n_head=heads[il],
            n_head_kv=heads_kv[il],
            n_embd_head_k=(window if swa[il] else dense)[0],
            n_embd_head_v=(window if swa[il] else dense)[1],
            n_ff=n_ff[il],
            is_swa=swa[il],
            is_recr=recurrent[il],
            is_indexer_full=full[il],
            has_kv=own is None or own < 0 or il < own,
            is_ple=il in ple,
            compress_ratio=ratios[il],
        )
        for il in range(layers)
    )


def _head_lengths(
    keys: Keys, traits: Architecture, n_head: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Key and value length of a head, in dense and in sliding-window layers.

    A model whose first layer has no heads has length 0, whatever its keys say.
    """
    key = value = 0
    if n_head > 0:
        default = keys.count("embedding_length") // n_head
        key = keys.count("attention.key_length", default)
        value = keys.count("attention.value_length", default)
    window = (
        keys.count("attention.key_length_swa", key),
        keys.count("attention.value_length_swa", value),
    )
    if traits.values_from_lora:
        value = keys.count("attention.kv_lora_rank")
    return (key, value), window


def _kv_from_start(keys: Keys, arch: str, traits: Architecture, layers: int) -> int | None:
    """`n_layer_kv_from_start`: later layers reuse earlier ones' keys. None: they have their own."""
    if arch == "gemma4":
        return layers - keys.count("attention.shared_kv_layers", 0)
    return traits.kv_layers


def _compress_ratios(keys: Keys, traits: Architecture, layers: int) -> list[int]:
    if traits.memory is not Memory.DSV4:
        return [0] * layers
    ratios = keys.array("attention.compress_ratios")
    if len(ratios) < layers:
        raise keys.contradiction("`attention.compress_ratios` is shorter than block_count")
    return ratios


def _is_mla(keys: Keys, traits: Architecture) -> bool:
    if traits.latent is Latent.NEVER:
        return False
    absent = None if traits.latent is Latent.ALWAYS else 0
    key = keys.count("attention.key_length_mla", absent)
    value = keys.count("attention.value_length_mla", absent)
    return key != 0 and value != 0


def _indexer(keys: Keys, arch: str) -> Indexer:
    match arch:
        case "deepseek32" | "glm-dsa" | "dots3note" | "minimax-m3" | "deepseek4" | "qwen4exp":
            return Indexer(head_size=keys.count("attention.indexer.key_length"))
        case "glm5-next":
            return Indexer(
                head_size=keys.count("attention.indexer.key_length"),
                kpool=keys.count("attention.indexer.kpool"),
            )
        case "hy_v4":
            return Indexer(
                head_size=keys.count("attention.indexer.key_length", 0),
                top_k=keys.count("attention.indexer.top_k", 0),
            )
        case _:
            return Indexer()


def _unrolled(keys: Keys, found: Hparams) -> Hparams:
    """A nanbeige runs its trunk several times; a graniteswitch has a router block after it."""
    if found.arch == "nanbeige":
        loops = keys.count("num_loops", 1)
        if not 0 < loops * found.n_layer <= LARGEST_LAYER_COUNT:
            raise keys.contradiction(f"`num_loops` is {loops} for {found.n_layer} blocks")
        nextn = len(found.blocks) - found.n_layer
        blocks = found.blocks[: found.n_layer] * loops if loops > 1 else found.blocks
        return replace(found, blocks=blocks, n_layer=len(blocks) - nextn)
    if found.arch == "graniteswitch":
        if len(found.blocks) > found.n_layer:
            raise keys.contradiction("a graniteswitch has no draft layers")
        trunk = found.blocks[: found.n_layer]
        router = replace(found.blocks[0], n_head=1, n_head_kv=1, n_ff=0)
        return replace(found, blocks=(*trunk, router), has_router=True)
    return found
