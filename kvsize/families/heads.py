"""Decoders whose cached heads, or their widths, follow keys of their own."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.config import Config
from kvsize.errors import ConfigError
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.layers import Layer, NoCache, ReferenceAttention, TokenTensor


class Falcon(Decoder):
    """Falcon: the new architecture spreads its KV heads over all query heads before caching.

    falcon-40b has num_kv_heads 8 and caches 128 heads (modeling_falcon.py, `_split_heads`).
    """

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """1 with `multi_query` in the old architecture, else all query heads."""
        new, multi_query = config.flag("new_decoder_architecture"), config.flag("multi_query")
        kv_heads = 1 if multi_query and not new else heads
        why = "multi_query" if kv_heads == 1 else "keys are spread over all query heads"
        config.note("num_key_value_heads", kv_heads, why)
        return kv_heads


class GPTBigCode(Decoder):
    """GPT-BigCode (StarCoder): one KV head with `multi_query`, else one per query head."""

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """1 or num_attention_heads, whatever num_key_value_heads says."""
        kv_heads = 1 if config.flag("multi_query", default=True) else heads
        config.note("num_key_value_heads", kv_heads, "multi_query decides")
        return kv_heads


class Dbrx(Decoder):
    """DBRX: `attn_config.kv_n_heads`, whose class default is 1."""

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """The nested key."""
        nested = Config(config.mapping("attn_config") or {}, f"{config.where}: attn_config")
        return nested.count_or("kv_n_heads", 1, least=1)


class JetMoe(Decoder):
    """JetMoE: heads of `kv_channels`; attention experts multiply the query heads only."""

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """num_key_value_heads × num_experts_per_tok query heads."""
        kv_heads, dim = config.count("num_key_value_heads"), config.count("kv_channels")
        return kv_heads * config.count_or("num_experts_per_tok", 1), kv_heads, dim, dim


class MiMoV2Flash(Decoder):
    """MiMo-V2-Flash: values narrower than keys, twice the KV heads in sliding layers."""

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """2 × num_key_value_heads in sliding layers (hard coded in the modeling file)."""
        heads, kv_heads = config.count("num_attention_heads"), config.count("num_key_value_heads")
        if kind == patterns.SLIDING:
            kv_heads *= 2
        return heads, kv_heads, self.head_dim(config, heads), config.count("v_head_dim")

    def window(self, config: Config) -> int | None:
        """`sliding_window_size` + 1 where the file has that key."""
        stated = config.optional_count("sliding_window_size")
        return super().window(config) if stated is None else stated + 1


class CpmAnt(Decoder):
    """CPM-Ant: `dim_head`, and `prompt_length` learned tokens in front of every prompt."""

    def head_dim(self, config: Config, heads: int) -> int:
        """`dim_head`."""
        return config.count("dim_head")

    @property
    def prompt_tokens(self) -> int:  # type: ignore[override]
        """`prompt_length`."""
        return self.config.count_or("prompt_length", 32)


# MllamaTextConfig.__post_init__ (transformers 5.24.0).
DEFAULT_CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)


class Mllama(Decoder):
    """Llama 3.2 Vision: cross-attention layers hold nothing until an image is given."""

    def layer_types(self) -> list[str]:
        """`cross_attention_layers` read the image."""
        stated = self.config.counts("cross_attention_layers")
        cross = set(DEFAULT_CROSS_LAYERS if stated is None else stated)
        return ["image" if i in cross else k for i, k in enumerate(super().layer_types())]

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """The image's keys, once there are some."""
        if kind != "image":
            return super().layer(config, kind, index)
        return NoCache(reason="cross-attention to an image, empty until one is given")


class UnlimitedOcr(Decoder):
    """Unlimited-OCR: the whole prompt for ever, and a window over what is generated."""

    def layer_types(self) -> list[str]:
        """All of the reference kind unless the file lists them."""
        listed = self.config.texts("layer_types")
        layers = self.num_hidden_layers()
        kinds = ["reference_sliding_attention"] * layers
        return kinds if listed is None else self.checked(listed, layers)

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Keys and values with the window for generated tokens."""
        if kind != "reference_sliding_attention":
            return super().layer(config, kind, index)
        heads, kv_heads, head_dim, v_head_dim = self.heads(config, kind)
        return ReferenceAttention(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            sliding_window=self.required_window(config),
        )


class MiniMaxM3(Decoder):
    """MiniMax-M3: sparse layers keep one index key per token beside keys and values."""

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """A sparse layer is a full one with an index."""
        if kind != "minimax_m3_sparse":
            return super().layer(config, kind, index)
        return self.attention(config, kind)

    def extras(self, config: Config, kind: str) -> tuple[TokenTensor, ...]:
        """`idx_keys [batch, 1, seq_len, index_head_dim]`; older files nest the width."""
        if kind != "minimax_m3_sparse":
            return ()
        nested = config.mapping("sparse_attention_config") or {}
        source = config
        if "sparse_index_dim" in nested:
            source = config.derived({"index_head_dim": nested["sparse_index_dim"]})
        width = source.count("index_head_dim")
        return (TokenTensor(name="idx_keys", width=width, shape="[batch, 1, seq_len, {width}]"),)


class Step3p5(Decoder):
    """Step-3.5: lists that include the draft layers are cut; sliding layers have own query heads."""

    def layer_types(self) -> list[str]:
        """The first num_hidden_layers of `layer_types`, all full without the key."""
        listed = self.config.texts("layer_types")
        layers = self.num_hidden_layers()
        drafts = self.config.count_or("num_nextn_predict_layers", 0)
        if listed is not None and drafts and len(listed) == layers + drafts:
            listed = listed[:layers]
        return [patterns.FULL] * layers if listed is None else self.checked(listed, layers)

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """`num_attention_groups` in the published files."""
        stated = config.optional_count("num_attention_groups")
        return stated or super().num_key_value_heads(config, heads)


class PerLayerHeads(Decoder):
    """Laguna: query heads per layer, the same KV heads everywhere."""

    def overrides(self, index: int, kind: str) -> Mapping[str, object]:
        """`num_attention_heads_per_layer`."""
        stated = self.config.counts("num_attention_heads_per_layer", least=1)
        if stated is None:
            return super().overrides(index, kind)
        if index >= len(stated):
            message = f"`num_attention_heads_per_layer` lists {len(stated)} layers, too few."
            raise self.config.contradiction(message)
        return {**super().overrides(index, kind), "num_attention_heads": stated[index]}

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """Widths follow the common number of heads, not the layer's."""
        common = self.config.count("num_attention_heads")
        kv_heads = self.num_key_value_heads(self.config, common)
        head_dim = self.head_dim(self.config, common)
        return super().heads(config, kind)[0], kv_heads, head_dim, head_dim


class WithoutUsableCache(Decoder):
    """Classes that never write to the cache they are given (measured in transformers 5.24.0)."""

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Nothing."""
        return NoCache(reason="the modeling code does not write to the cache")


class HiddenStates(Decoder):
    """XLNet keeps each layer's inputs (`mems`, modeling_xlnet.py), no keys and values."""

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Raise ConfigError: there is no cache of keys and values to size."""
        message = (
            f"{config.where}: XLNet has no KV cache: it keeps the hidden states of its layers."
        )
        raise ConfigError(message, "there is nothing here for kvsize to size.")
