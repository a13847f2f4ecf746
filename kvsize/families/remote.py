"""Model types that transformers has no class for: their own rule, or the generic one.

Rules read in the repositories' published modeling code (facts only; it is never run). A type that
is not listed is sized by the generic rule, which tries the names that configs use for the same
dimension, and that is a guess (KV008).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.families.latent import Latent
from kvsize.layers import FullAttention, Layer, NoCache

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "num_attention_groups",
    "num_query_groups",
)
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
# Keys of linear attention and state spaces: what such layers keep cannot be guessed.
RECURRENT = (
    "attn_type_list",
    "linear_attn_config",
    "layer_group_size",
    "mamba_d_state",
    "mamba_step",
    "ssm_state_size",
    "ssm_cfg",
    "decay_low_rank_dim",
    "retention_heads",
)
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "head_size")


def first_count(config: Config, keys: tuple[str, ...]) -> int | None:
    """The first of `keys` that the file states."""
    for key in keys:
        found = config.optional_count(key)
        if found is not None:
            return found
    return None


class Generic(Latent):
    """Any decoder whose config uses the usual words, under any of their usual names."""

    # Plain decoders under these names; nothing about them is a guess.

    def num_hidden_layers(self) -> int:
        """Layers, under any of the usual names."""
        return self.config.count(*LAYERS)

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """A latent where the file has one, else keys and values."""
        if config.optional_count("kv_lora_rank") is not None:
            return super().layer(config, kind, index)
        return Decoder.layer(self, config, kind, index)

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """Heads, under any of the usual names."""
        heads = config.count(*HEADS)
        kv_heads = self.num_key_value_heads(config, heads)
        head_dim = first_count(config, HEAD_DIM)
        if head_dim is None:
            head_dim = self.divided(config, config.count(*HIDDEN), heads)
        return heads, kv_heads, head_dim, head_dim

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """Stated, or 1 with `multi_query`, or nested in `attn_config`, or all heads."""
        if config.flag("multi_query_attention"):
            return config.count("multi_query_group_num")
        nested = config.mapping("attn_config") or {}
        if "kv_n_heads" in nested:
            return Config(nested, f"{config.where}: attn_config").count("kv_n_heads")
        stated = first_count(config, KV_HEADS)
        if stated is None and config.value("multi_query") is True:
            stated = 1
        if stated is None:
            config.note("num_key_value_heads", heads, "absent: equal to num_attention_heads")
        return heads if stated is None else stated

    def window(self, config: Config) -> int | None:
        """`sliding_window`, unless `use_sliding_window` switches it off."""
        if config.value("use_sliding_window") is False:
            return None
        return super().window(config)


class ChatGLM(Generic):
    """ChatGLM 2 to 4 (remote code): grouped heads of `kv_channels`."""


class NemotronNas(Generic):
    """DeciLM and Nemotron-NAS: `block_configs` says per layer whether and how it attends."""

    def layers(self) -> tuple[Layer, ...]:
        """Heads ÷ n_heads_in_group KV heads; nothing where attention is dropped or linear."""
        blocks = self.config.items("block_configs")
        if blocks is None:
            return self.listed_heads()
        layers = self.num_hidden_layers()
        if len(blocks) != layers:
            message = f"`block_configs` lists {len(blocks)} of {layers} layers."
            raise self.config.contradiction(message)
        return tuple(self.block(block) for block in blocks)

    def block(self, block: object) -> Layer:
        """The layer of one entry of `block_configs`."""
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            message = "an entry of `block_configs` has no `attention`."
            raise self.config.contradiction(message)
        section = Config(cast("Mapping[str, object]", attention), f"{self.config.where}: attention")
        if section.flag("no_op") or section.flag("replace_with_linear"):
            return NoCache(reason="its attention is dropped or replaced by a linear layer")
        heads = self.config.count(*HEADS)
        return self.full(heads // section.count("n_heads_in_group"))

    def listed_heads(self) -> tuple[Layer, ...]:
        """DeciLM-7B: `num_key_value_heads_per_layer`."""
        listed = self.config.counts("num_key_value_heads_per_layer", least=1)
        if listed is None:
            return super().layers()
        layers = self.num_hidden_layers()
        if len(listed) != layers:
            message = f"`num_key_value_heads_per_layer` lists {len(listed)} of {layers} layers."
            raise self.config.contradiction(message)
        return tuple(self.full(n) for n in listed)

    def full(self, kv_heads: int) -> FullAttention:
        """Full attention with `kv_heads` heads."""
        heads = self.config.count(*HEADS)
        head_dim = first_count(self.config, HEAD_DIM)
        if head_dim is None:
            head_dim = self.divided(self.config, self.config.count(*HIDDEN), heads)
        return FullAttention(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=head_dim,
        )


class OpenELM(NemotronNas):
    """OpenELM: query and KV heads differ from layer to layer."""

    def layers(self) -> tuple[Layer, ...]:
        """`num_query_heads` and `num_kv_heads`, one each per layer."""
        queries = self.config.counts("num_query_heads", least=1) or []
        kv_heads = self.config.counts("num_kv_heads", least=1) or []
        layers = self.num_hidden_layers()
        if len(queries) != layers or len(kv_heads) != layers:
            message = "`num_query_heads` and `num_kv_heads` do not list every layer."
            raise self.config.contradiction(message)
        dim = self.config.count("head_dim")
        return tuple(
            FullAttention(
                num_attention_heads=q, num_key_value_heads=kv, head_dim=dim, v_head_dim=dim
            )
            for q, kv in zip(queries, kv_heads, strict=True)
        )


class Hunyuan(Generic):
    """Hunyuan (remote code): with CLA, one of `cla_share_factor` layers keeps keys for all."""

    def variant(self, index: int, kind: str) -> str:
        """Layers that share differ from those that keep."""
        return f" shared {self.shared(index)}"

    def shared(self, index: int) -> bool:
        """Whether the layer reads an earlier layer's keys."""
        factor = self.config.count_or("cla_share_factor", 1, least=1)
        return self.config.flag("use_cla") and index % factor != 0

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Nothing where the layer shares."""
        if self.shared(index):
            return NoCache(reason="reads the keys of an earlier layer (use_cla)")
        return super().layer(config, kind, index)


class Unknown(Generic):
    """A model type nobody told kvsize about: the generic rule, and a warning."""

    def layer_types(self) -> list[str]:
        """Kinds that the common decoder knows; a file with others cannot be guessed."""
        recurrent = next((key for key in RECURRENT if self.config.has(key)), None)
        if recurrent is not None:
            message = (
                f"`{recurrent}` tells of layers with a recurrent state, whose shape in model type "
                f"'{self.config.model_type}' is not known."
            )
            raise self.config.contradiction(message)
        kinds = super().layer_types()
        plain = {patterns.FULL, patterns.SLIDING, patterns.CHUNKED}
        other = next((kind for kind in kinds if kind not in plain), None)
        if other is not None:
            message = f"layer type '{other}' of model type '{self.config.model_type}' is not known."
            raise self.config.contradiction(message)
        return kinds
