"""Encoder-decoders: the decoder's own cache, and the encoder's keys for cross-attention."""

from __future__ import annotations

from kvsize.config import Config
from kvsize.families.decoder import Decoder
from kvsize.layers import CrossAttention, FullAttention, HybridLayer, Layer, NoCache

# Config words for the decoder's dimensions, in the order the flat classes read them.
LAYERS = (
    "decoder_layers",
    "num_decoder_layers",
    "decoder_num_hidden_layers",
    "num_hidden_layers",
    "num_layers",
)
HEADS = (
    "decoder_attention_heads",
    "num_decoder_attention_heads",
    "decoder_num_attention_heads",
    "num_heads",
    "num_attention_heads",
)
KV_HEADS = ("decoder_num_key_value_heads", "num_key_value_heads")

# Decoders whose classes have cross-attention only where the config asks for it.
CROSS_WHEN_ASKED = frozenset(
    [
        "bert",
        "bert-generation",
        "big_bird",
        "camembert",
        "data2vec-text",
        "electra",
        "ernie",
        "gpt2",
        "gpt_bigcode",
        "megatron-bert",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "xglm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    ]
)
# generate() makes the cross-attention's cache from the same config, windows included; these
# classes make one without windows (`_prepare_cache_for_generation`, transformers 5.24.0).
WHOLE_CROSS = {"t5_gemma_module", "t5gemma2_decoder"}


class FlatSeq2Seq(Decoder):
    """Encoder and decoder in one flat file: `decoder_*` keys describe the decoder."""

    def num_hidden_layers(self) -> int:
        """Layers of the decoder (whisper's num_hidden_layers is the encoder's)."""
        return self.config.count(*LAYERS)

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """The T5 family states a head's width as `d_kv`; the others divide."""
        heads = config.count(*HEADS)
        kv_heads = heads
        if config.model_type == "moonshine":
            kv_heads = config.optional_count(KV_HEADS[0]) or heads
        dim = config.optional_count("d_kv")
        if dim is None:
            dim = self.divided(config, config.count("hidden_size", "d_model"), heads)
        return heads, kv_heads, dim, dim

    def layers(self) -> tuple[Layer, ...]:
        """The decoder's layers, and empty entries where the cache counts more of them."""
        own = super().layers()
        empty = NoCache(reason="the cache counts the encoder's layers; the decoder has fewer")
        return own + (empty,) * (self.entries(len(own)) - len(own))

    def entries(self, own: int) -> int:
        """How many entries the cache has: `num_hidden_layers`, which these classes map.

        For a flat encoder-decoder `get_text_config(decoder=True)` puts the `decoder_*` keys in
        its place; elsewhere (T5's `num_decoder_layers`, a decoder alone or nested) it stays the
        encoder's count (transformers 5.24.0, configuration_utils.py).
        """
        flat = self.config is self.root and self.config.flag("is_encoder_decoder")
        keys = ("decoder_layers", "decoder_num_hidden_layers")
        if flat and any(self.config.optional_count(key) is not None for key in keys):
            return own
        counts = (
            self.config.optional_count(key) for key in ("num_hidden_layers", "num_encoder_layers")
        )
        return max(own, *(count or 0 for count in counts))


def cross_layers(own: tuple[Layer, ...], config: Config) -> tuple[Layer, ...]:
    """A cross-attention layer for every self-attention layer: the same heads, but in Dia."""
    if config.model_type in CROSS_WHEN_ASKED and not config.flag("add_cross_attention"):
        empty = NoCache(reason="a decoder without cross-attention (add_cross_attention)")
        return (empty,) * len(own)
    return tuple(_cross(layer, config) for layer in own)


def _cross(layer: Layer, config: Config) -> Layer:
    attention = layer.attention if isinstance(layer, HybridLayer) else layer
    if not isinstance(attention, FullAttention):
        return NoCache(reason="no cross-attention in this layer")
    if config.model_type == "dia_decoder":
        return CrossAttention(
            num_attention_heads=config.count("cross_num_attention_heads"),
            num_key_value_heads=config.count("cross_num_key_value_heads"),
            head_dim=config.count("cross_head_dim"),
        )
    window = None
    if config.model_type not in WHOLE_CROSS:
        window = getattr(attention, "sliding_window", None) or getattr(
            attention, "attention_chunk_size", None
        )
    return CrossAttention(
        num_attention_heads=attention.num_attention_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        sliding_window=window,
    )


def encoder_tokens(root: Config, decoder: Config) -> int | None:
    """The encoder's own length: fixed for speech (whisper: 1500), else its position limit."""
    for config in (root, decoder):
        for key in ("max_source_positions", "max_position_embeddings", "n_positions"):
            found = config.optional_count(key)
            if found is not None:
                return found
    return None
