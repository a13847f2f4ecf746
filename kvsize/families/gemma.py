"""Gemma 3n and Gemma 4: layers that read another layer's cache, and wider heads in full layers."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.layers import Layer, NoCache


class SharedLayers(Decoder):
    """The last `num_kv_shared_layers` layers read earlier layers' keys and keep none."""

    def shared_from(self) -> int:
        """The first layer without a cache of its own."""
        layers = self.num_hidden_layers()
        shared = self.config.count_or("num_kv_shared_layers", 0)
        if shared > layers:
            message = f"`num_kv_shared_layers` {shared} exceeds `num_hidden_layers` {layers}."
            raise self.config.contradiction(message)
        return layers - shared

    def variant(self, index: int, kind: str) -> str:
        """Shared layers differ from those that own their cache."""
        return " shared" if index >= self.shared_from() else ""

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Nothing for a shared layer."""
        if index >= self.shared_from():
            return NoCache(reason="reads the keys of an earlier layer (num_kv_shared_layers)")
        return super().layer(config, kind, index)


class Gemma4(SharedLayers):
    """Full layers have heads of `global_head_dim`; the last layer is always full."""

    default_global_heads: int | None = None

    def shared_from(self) -> int:
        """An assistant (draft) model reads the target's cache in every layer."""
        assistant = self.root.model_type in {"gemma4_assistant", "gemma4_unified_assistant"}
        own = super().shared_from()
        return 0 if assistant and own == self.num_hidden_layers() else own

    def layer_types(self) -> list[str]:
        """As listed, but the last layer is forced to be full (Gemma4TextConfig.__post_init__)."""
        kinds = super().layer_types()
        return [*kinds[:-1], patterns.FULL]

    def window(self, config: Config) -> int | None:
        """The window, read as half plus one when all attention is bidirectional."""
        window = super().window(config)
        if window is not None and config.value("use_bidirectional_attention") == "all":
            window = window // 2 + 1
        return window

    def overrides(self, index: int, kind: str) -> Mapping[str, object]:
        """Full layers: global_head_dim, and their own KV heads with attention_k_eq_v."""
        if self.config.has("per_layer_config"):
            return super().overrides(index, kind)
        if kind != patterns.FULL:
            return {}
        config = self.config
        overrides: dict[str, object] = {"head_dim": config.count_or("global_head_dim", 512)}
        heads = config.optional_count("num_global_key_value_heads") or self.default_global_heads
        # Classes without the attribute are not gated by it: absent reads as true.
        if heads is not None and config.value("attention_k_eq_v", default=True):
            overrides["num_key_value_heads"] = heads
        return overrides


class EmbeddingGemma2(Gemma4):
    """EmbeddingGemma 2: one KV head in full layers unless stated."""

    default_global_heads: int | None = 1
