"""Multi-head latent attention (DeepSeek-V2 and its kin), with or without an indexer.

The cache keeps the latent and the rotary key (transformers from 5.15.0); what they expand to is
kept in the record for the versions and engines that store that instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.families.recurrent import conv, recurrent
from kvsize.layers import LatentAttention, Layer, NoCache, RecurrentState, TokenTensor
from kvsize.model import Guess

ATTENTION = {patterns.FULL, patterns.SLIDING, patterns.CHUNKED, patterns.INDEXED}


class Latent(Decoder):
    """Every attention layer keeps kv_lora_rank + qk_rope_head_dim elements per token."""

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """A latent layer where the layer attends."""
        plain = config.value("use_mla") is False
        if config.has("kv_lora_rank") and config.value("kv_lora_rank") is None:
            plain = True  # DeepSeek-VL2's small decoders keep keys and values of every head
        if plain or kind not in ATTENTION:
            return super().layer(config, kind, index)
        return self.latent(config, kind, index)

    def latent(self, config: Config, kind: str, index: int) -> LatentAttention:
        """The latent of one layer."""
        rope = config.count_or("qk_rope_head_dim", 0)
        return LatentAttention(
            num_attention_heads=config.count("num_attention_heads"),
            kv_lora_rank=config.count("kv_lora_rank"),
            qk_rope_head_dim=rope,
            qk_nope_head_dim=config.count_or("qk_nope_head_dim", 0),
            v_head_dim=config.count_or("v_head_dim", 0),
            sliding_window=self.latent_window(config, kind),
            extras=self.indexer(config, kind, index),
        )

    def latent_window(self, config: Config, kind: str) -> int | None:
        """The window of a sliding layer; caches treat a chunk as one."""
        if kind == patterns.CHUNKED:
            return config.count("attention_chunk_size")
        return self.required_window(config) if kind == patterns.SLIDING else None

    def indexer(self, config: Config, kind: str, index: int) -> tuple[TokenTensor, ...]:
        """The indexer's keys, where the layer has one (families override)."""
        return ()


class LongcatFlash(Latent):
    """LongCat-Flash: each of `num_layers` layers has two attention blocks, cached apart."""

    def num_hidden_layers(self) -> int:
        """Cache layers: twice the model's; a stated num_hidden_layers counts them already."""
        if self.config.has("num_hidden_layers"):
            return self.config.count("num_hidden_layers") // 2 * 2
        return 2 * self.config.count("num_layers")


class Indexed(Latent):
    """DeepSeek sparse attention: an indexer keeps one key of `index_head_dim` per token."""

    indexer_dtype: str | None = None

    def indexer(self, config: Config, kind: str, index: int) -> tuple[TokenTensor, ...]:
        """The indexer's key."""
        if kind != patterns.INDEXED or not self.has_indexer(index):
            return ()
        return (
            TokenTensor(
                name="indexer_keys", width=self.indexer_width(config), dtype=self.indexer_dtype
            ),
        )

    def indexer_width(self, config: Config) -> int:
        """Elements of one indexer key."""
        return config.count("index_head_dim")

    def has_indexer(self, index: int) -> bool:
        """Whether the layer has an indexer of its own."""
        return True

    def variant(self, index: int, kind: str) -> str:
        """Layers with and without an indexer differ."""
        return f" indexer {self.has_indexer(index)}" if kind == patterns.INDEXED else ""


class SharedIndexer(Indexed):
    """GLM-5: layers marked `shared` reuse the indexer of an earlier layer."""

    _types: list[str] | None = None

    def has_indexer(self, index: int) -> bool:
        """Whether `indexer_types` says full for the layer."""
        if self._types is None:
            self._types = self.indexer_types(self.num_hidden_layers())
        return self._types[index] == "full"

    def indexer_types(self, layers: int) -> list[str]:
        """As listed; else letters (`index_topk_pattern`); else by frequency and offset."""
        listed = self.config.texts("indexer_types")
        pattern = self.config.value("index_topk_pattern")
        if listed is None and isinstance(pattern, str):
            listed = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
        elif listed is None and pattern is not None:
            listed = self.config.texts("index_topk_pattern")
        if listed is None:
            return self.default_indexer_types(layers)
        if len(listed) != layers and self.config.has("index_topk_freq"):
            told = (
                f"the file lists {len(listed)} indexer types for {layers} layers, which "
                "transformers refuses; sized by its `index_topk_freq` instead."
            )
            self.guesses.append(Guess("KV010", told))
            return self.default_indexer_types(layers)
        if len(listed) != layers:
            message = f"the file lists {len(listed)} indexer types for {layers} layers."
            raise self.config.contradiction(message)
        return listed

    def default_indexer_types(self, layers: int) -> list[str]:
        """Every `index_topk_freq`-th layer after `index_skip_topk_offset` has its own."""
        freq = max(self.config.count_or("index_topk_freq", 1), 1)
        offset = self.config.count_or("index_skip_topk_offset", 2)
        return ["full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(layers)]


class HunyuanV4(SharedIndexer):
    """Hunyuan V4: the first layer and every fourth from the second have an indexer."""

    def default_indexer_types(self, layers: int) -> list[str]:
        """HYV4Config.__post_init__."""
        return ["full" if i == 0 or (i - 1) % 4 == 0 else "shared" for i in range(layers)]


class MistralLarge4(SharedIndexer):
    """Mistral Large 4: layers may read another layer's cache, or have no rotary key."""

    def overrides(self, index: int, kind: str) -> Mapping[str, object]:
        """A layer without rotary positions keeps no rotary key (`no_rope_layers` 0)."""
        overrides = dict(super().overrides(index, kind))
        if not patterns.no_rope_layers(self.config, self.num_hidden_layers())[index]:
            overrides["qk_rope_head_dim"] = 0
        return overrides

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Nothing, or only the indexer's keys, where the layer reads another's cache."""
        source = self.source(index)
        if source == index:
            return super().layer(config, kind, index)
        if not self.has_indexer(index):
            return NoCache(reason=f"reads the cache of layer {source}")
        return LatentAttention(
            num_attention_heads=config.count("num_attention_heads"),
            kv_lora_rank=0,
            qk_rope_head_dim=0,
            qk_nope_head_dim=0,
            v_head_dim=0,
            extras=self.indexer(config, kind, index),
        )

    def variant(self, index: int, kind: str) -> str:
        """Layers differ by where they read from."""
        source = self.source(index)
        return super().variant(index, kind) + ("" if source == index else f" of {source}")

    def source(self, index: int) -> int:
        """The layer whose cache the layer reads: `kv_source_layers`, its own without the key."""
        sources = self.config.counts("kv_source_layers")
        if sources is None:
            return index
        if index >= len(sources):
            raise self.config.contradiction("`kv_source_layers` does not list every layer.")
        return sources[index]


class Dots3Note(Indexed):
    """dots.3-note: latent windows of another size beside indexed full layers, float32 keys."""

    indexer_dtype: str | None = "float32"
    # What Dots3NoteTextConfig fills in for sliding layers.
    sliding_defaults: ClassVar[dict[str, int]] = {
        "num_attention_heads": 64,
        "kv_lora_rank": 1024,
        "head_dim": 256,
        "qk_nope_head_dim": 192,
        "v_head_dim": 128,
    }

    def layer_types(self) -> list[str]:
        """Full layers are indexed, unless `use_dsa` is false."""
        use_dsa = self.config.value("use_dsa")
        if use_dsa is None:
            use_dsa = None if self.config.has("per_layer_config") else True
        kinds = super().layer_types()
        if use_dsa is None:
            return kinds
        old, new = patterns.FULL, patterns.INDEXED
        if not use_dsa:
            old, new = new, old
        return [new if kind == old else kind for kind in kinds]

    def overrides(self, index: int, kind: str) -> Mapping[str, object]:
        """`swa_*` keys apply to sliding layers."""
        stated = super().overrides(index, kind)
        if stated or kind != patterns.SLIDING or self.config.has("per_layer_config"):
            return stated
        swa: dict[str, object] = {
            key: self.config.count_or(f"swa_{key}", value)
            for key, value in self.sliding_defaults.items()
        }
        head_dim, nope = int(str(swa["head_dim"])), int(str(swa["qk_nope_head_dim"]))
        swa["qk_rope_head_dim"] = self.config.count_or("swa_qk_rope_head_dim", head_dim - nope)
        return swa

    def window(self, config: Config) -> int | None:
        """`sliding_window`, else `sliding_window_size`, else 512."""
        stated = config.optional_count("sliding_window")
        return stated or config.count_or("sliding_window_size", 512)


class KimiLinear(Latent):
    """Kimi-Linear: latent attention between layers of Kimi delta attention."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """The states of Kimi delta attention."""
        return delta_attention(config)


def delta_attention(config: Config) -> RecurrentState:
    """Queries, keys and values convolved; a square state per head."""
    stated = config.mapping("linear_attn_config") or {}
    section = config.derived({"linear_attn_config": dict(stated), **_renamed(stated)})
    heads, dim = section.count("linear_num_heads"), section.count("linear_head_dim")
    width = section.count("linear_conv_kernel_dim")
    return RecurrentState(states=(conv(3 * heads * dim, width), recurrent(heads, dim, dim)))


def _renamed(linear_attn_config: Mapping[str, object]) -> dict[str, object]:
    names = {
        "head_dim": "linear_head_dim",
        "num_heads": "linear_num_heads",
        "short_conv_kernel_size": "linear_conv_kernel_dim",
    }
    return {new: linear_attn_config[old] for old, new in names.items() if old in linear_attn_config}


class BailingHybrid(Latent):
    """Ling 2.5 hybrid: the linear layers' heads are the attention's."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """num_attention_heads heads of head_dim (BailingHybridConfig.__post_init__)."""
        heads = config.count("linear_num_heads", "num_attention_heads")
        dim = config.count("linear_head_dim", "head_dim")
        width = config.count("linear_conv_kernel_dim", "short_conv_kernel_size")
        return RecurrentState(states=(conv(3 * heads * dim, width), recurrent(heads, dim, dim)))


class Glm5Next(SharedIndexer):
    """GLM-5-Next: Kimi delta attention, and indexed latents with a pooled indexer key."""

    def layer_types(self) -> list[str]:
        """Full layers are indexed ones."""
        kinds = super().layer_types()
        return [patterns.INDEXED if kind == patterns.FULL else kind for kind in kinds]

    def has_indexer(self, index: int) -> bool:
        """Every indexed layer keeps the keys."""
        return True

    def indexer_width(self, config: Config) -> int:
        """The key, its pooling gate, and a channel that marks valid tokens."""
        return 2 * config.count("index_head_dim") + 1

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """The states of Kimi delta attention."""
        return delta_attention(config)
