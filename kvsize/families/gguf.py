"""GGUF metadata: the layers as llama.cpp describes them.

The keys say how llama.cpp runs the model, which is not always what transformers would cache
(an old DeepSeek file is plain multi-head attention), so only llama.cpp's figures come from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.config import Config
from kvsize.gguf.architectures import Memory
from kvsize.gguf.hparams import Block, Hparams, read_hparams
from kvsize.gguf.keys import Keys
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    NoCache,
    RecurrentState,
    SlidingAttention,
    State,
)
from kvsize.model import Model, Raw


def build(raw: Raw) -> Model:
    """The model that a GGUF header describes. Raises ConfigError for one llama.cpp cannot load."""
    hparams = read_hparams(raw.config, raw.where)
    config = Config(raw.config, raw.where)
    return Model(
        name=raw.name,
        source=raw.source,
        where=raw.where,
        model_type=hparams.arch,
        config=config,
        root=config,
        layers=_layers(hparams, raw.config, raw.where),
        dtype="float16",
        dtype_assumed=False,
        context_limit=hparams.n_ctx_train or None,
        hub_id=raw.hub_id,
        revision=raw.revision,
        weight_bytes=raw.weight_bytes,
    )


def _layers(hparams: Hparams, metadata: Mapping[str, object], where: str) -> tuple[Layer, ...]:
    keys = Keys(metadata, hparams.arch, where)
    state = RecurrentState(
        states=tuple(
            State(name=name, shape=(width,), dtype="float32")
            for name, width in (("conv", hparams.n_embd_r), ("state", hparams.n_embd_s))
            if width
        )
    )
    return tuple(_layer(hparams, keys, state, il, block) for il, block in enumerate(hparams.blocks))


def _layer(hparams: Hparams, keys: Keys, state: RecurrentState, il: int, block: Block) -> Layer:
    if hparams.traits.memory is Memory.NONE:
        return NoCache(reason="llama.cpp keeps no memory for this architecture")
    if il >= hparams.n_layer and not hparams.has_router:
        return NoCache(reason="a multi-token-prediction layer")
    if block.is_recr:
        both = block.n_head_kv > 0 and hparams.traits.memory is Memory.HYBRID
        parallel = both and hparams.arch == "falcon-h1"
        return HybridLayer(attention=_full(block), recurrent=state) if parallel else state
    if not block.has_kv:
        return NoCache(reason="it reuses an earlier layer's keys and values")
    if block.n_head_kv == 0:
        return NoCache(reason="it has no attention heads")
    return _latent(keys, block) if hparams.is_mla else _attention(hparams, block)


def _full(block: Block) -> FullAttention:
    return FullAttention(
        num_attention_heads=block.n_head,
        num_key_value_heads=block.n_head_kv,
        head_dim=block.n_embd_head_k,
        v_head_dim=block.n_embd_head_v,
    )


def _attention(hparams: Hparams, block: Block) -> Layer:
    if not block.is_swa or hparams.n_swa is None:
        return _full(block)
    if hparams.arch == "llama4":
        return ChunkedAttention(
            num_attention_heads=block.n_head,
            num_key_value_heads=block.n_head_kv,
            head_dim=block.n_embd_head_k,
            v_head_dim=block.n_embd_head_v,
            attention_chunk_size=hparams.n_swa,
        )
    return SlidingAttention(
        num_attention_heads=block.n_head,
        num_key_value_heads=block.n_head_kv,
        head_dim=block.n_embd_head_k,
        v_head_dim=block.n_embd_head_v,
        sliding_window=hparams.n_swa,
    )


def _latent(keys: Keys, block: Block) -> LatentAttention:
    kv_lora_rank = keys.count("attention.kv_lora_rank", block.n_embd_head_k)
    rope = max(0, block.n_embd_head_k - kv_lora_rank)
    return LatentAttention(
        num_attention_heads=block.n_head,
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=max(0, keys.count("attention.key_length_mla") - rope),
        v_head_dim=keys.count("attention.value_length_mla"),
    )
