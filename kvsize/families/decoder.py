"""The common decoder: layer kinds by name, heads by key, and the hooks other families override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.layers import (
    ChunkedAttention,
    FullAttention,
    HybridLayer,
    Layer,
    NoCache,
    RecurrentState,
    SlidingAttention,
    TokenTensor,
)
from kvsize.model import Guess

# These classes cache one key and value head per attention head, whatever num_key_value_heads
# says (transformers 5.24.0, modeling files; measured with a stray key in the config).
CACHES_ALL_HEADS = frozenset(
    [
        "bart",
        "bert",
        "bert-generation",
        "big_bird",
        "bigbird_pegasus",
        "biogpt",
        "blenderbot",
        "blenderbot-small",
        "blip_text_model",
        "bloom",
        "camembert",
        "codegen",
        "cpmant",
        "ctrl",
        "data2vec-text",
        "electra",
        "ernie",
        "fsmt",
        "git",
        "gpt2",
        "gpt-sw3",
        "gpt_neo",
        "gpt_neox",
        "gpt_neox_japanese",
        "gptj",
        "hrm_text",
        "kosmos_2_text_model",
        "kosmos_2_5_text_model",
        "led",
        "longt5",
        "m2m_100",
        "marian",
        "mbart",
        "megatron-bert",
        "modernbert-decoder",
        "mpt",
        "mt5",
        "musicgen_decoder",
        "musicgen_melody_decoder",
        "mvp",
        "nllb-moe",
        "openai-gpt",
        "opt",
        "pegasus",
        "pegasus_x",
        "persimmon",
        "pix2struct_text_model",
        "plbart",
        "pop2piano",
        "prophetnet",
        "rembert",
        "roberta",
        "roberta-prelayernorm",
        "roc_bert",
        "roformer",
        "seamless_m4t",
        "seamless_m4t_v2",
        "speech_to_text",
        "speecht5",
        "switch_transformers",
        "t5",
        "trocr",
        "udop",
        "umt5",
        "whisper",
        "xglm",
        "xlm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    ]
)
# These classes never read a head_dim key: hidden_size // num_attention_heads decides.
IGNORES_HEAD_DIM = (
    CACHES_ALL_HEADS
    - {"hrm_text", "modernbert-decoder", "persimmon", "cpmant", "gpt_neox_japanese"}
) | {"falcon", "gpt_bigcode", "dbrx", "blt"}


class Decoder:
    """Reads one decoder section and yields its layers in the order of the cache."""

    no_static_cache: ClassVar[str | None] = None
    cache_class: ClassVar[str | None] = None
    prompt_tokens = 0

    def __init__(self, config: Config, root: Config) -> None:
        self.config = config
        self.root = root
        self.guesses: list[Guess] = []

    # -- how many layers, of which kind ------------------------------------------------------
    def num_hidden_layers(self) -> int:
        """Layers of the decoder."""
        return self.config.count("num_hidden_layers")

    def layer_types(self) -> list[str]:
        """The kind of each layer: as listed in the file, else by the class's rule, else by keys."""
        layers = self.num_hidden_layers()
        listed = self.config.texts("layer_types")
        if listed is not None:
            kinds = [patterns.LEGACY_NAMES.get(kind, kind) for kind in listed]
            return self.checked(kinds, layers)
        rule = patterns.RULES.get(self.config.model_type)
        if rule is not None:
            kinds = rule(self.config, layers)
            self.config.note("layer_types", kinds, "the pattern of the model type's class")
            return kinds
        return [self.kind_by_keys(self.layer_config(i, "")) for i in range(layers)]

    def checked(self, kinds: list[str], layers: int) -> list[str]:
        """`kinds` when there is one for each layer; ConfigError when the file disagrees."""
        if len(kinds) != layers:
            message = f"`layer_types` lists {len(kinds)} layers, `num_hidden_layers` is {layers}."
            raise self.config.contradiction(message)
        return kinds

    def kind_by_keys(self, config: Config) -> str:
        """The kind a layer gets from its keys alone, as transformers' caches decide it."""
        if self.window(config) is not None:
            return patterns.SLIDING
        if config.optional_count("attention_chunk_size") is not None:
            return patterns.CHUNKED
        return patterns.FULL

    # -- one layer ---------------------------------------------------------------------------
    def layers(self) -> tuple[Layer, ...]:
        """Every layer of the cache, in its order."""
        kinds = self.layer_types()
        made: dict[tuple[str, str], Layer] = {}
        result = []
        for index, kind in enumerate(kinds):
            overrides = self.overrides(index, kind)
            key = (kind, repr(sorted(overrides.items())) + self.variant(index, kind))
            if key not in made:
                config = self.config.derived(overrides) if overrides else self.config
                made[key] = self.layer(config, kind, index)
            result.append(made[key])
        return tuple(result)

    def variant(self, index: int, kind: str) -> str:
        """What else distinguishes layers of one kind with equal keys (families override)."""
        return ""

    def overrides(self, index: int, kind: str) -> Mapping[str, object]:
        """Keys that differ in this layer: `per_layer_config`, by layer number ("05" is 5)."""
        for number, keys in (self.config.mapping("per_layer_config") or {}).items():
            if not number.isdigit() or not isinstance(keys, Mapping):
                message = f"`per_layer_config` has {number!r}, not a layer's number and its keys."
                raise self.config.contradiction(message)
            if int(number) == index:
                return keys
        return {}

    def layer_config(self, index: int, kind: str) -> Config:
        """The section with this layer's overrides in place."""
        overrides = self.overrides(index, kind)
        return self.config.derived(overrides) if overrides else self.config

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """The record for a layer of `kind`."""
        match kind:
            case patterns.LINEAR | patterns.CONV:
                return self.recurrent(config, index)
            case patterns.HYBRID | patterns.HYBRID_SLIDING:
                sliding = kind == patterns.HYBRID_SLIDING
                attention = self.attention(config, patterns.SLIDING if sliding else patterns.FULL)
                return HybridLayer(attention=attention, recurrent=self.recurrent(config, index))
            case "moe" | "mlp" | "dummy":
                return NoCache(reason="a feed-forward block, nothing to remember")
            case patterns.FULL | patterns.SLIDING | patterns.CHUNKED:
                return self.attention(config, kind)
            case _:
                message = f"layer type '{kind}' is not one kvsize knows."
                raise self.config.contradiction(message)

    def attention(self, config: Config, kind: str) -> FullAttention:
        """Keys and values of a full, sliding or chunked layer."""
        heads, kv_heads, head_dim, v_head_dim = self.heads(config, kind)
        extras = self.extras(config, kind)
        if kind == patterns.SLIDING:
            return SlidingAttention(
                num_attention_heads=heads,
                num_key_value_heads=kv_heads,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
                extras=extras,
                sliding_window=self.required_window(config),
            )
        if kind == patterns.CHUNKED:
            return ChunkedAttention(
                num_attention_heads=heads,
                num_key_value_heads=kv_heads,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
                extras=extras,
                attention_chunk_size=config.count("attention_chunk_size"),
            )
        return FullAttention(
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            extras=extras,
        )

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """Query heads, cached heads, width of a key, width of a value."""
        heads = config.count("num_attention_heads")
        kv_heads = self.num_key_value_heads(config, heads)
        head_dim = self.head_dim(config, heads)
        return heads, kv_heads, head_dim, head_dim

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """Heads that are cached."""
        if config.model_type in CACHES_ALL_HEADS:
            config.note("num_key_value_heads", heads, "this class caches every attention head")
            return heads
        stated = config.optional_count("num_key_value_heads")
        if stated is None:
            config.note("num_key_value_heads", heads, "absent: equal to num_attention_heads")
            return heads
        return stated

    def head_dim(self, config: Config, heads: int) -> int:
        """Width of one head."""
        stated = None
        if config.model_type not in IGNORES_HEAD_DIM:
            stated = config.optional_count("head_dim")
        if stated is not None:
            return stated
        return self.divided(config, config.count("hidden_size"), heads)

    def divided(self, config: Config, hidden: int, heads: int) -> int:
        """hidden_size // num_attention_heads; ConfigError where that is nothing."""
        if hidden < heads:
            message = f"`hidden_size` {hidden} is less than `num_attention_heads` {heads}."
            raise config.contradiction(message)
        config.note("head_dim", hidden // heads, "hidden_size // num_attention_heads")
        return hidden // heads

    def extras(self, config: Config, kind: str) -> tuple[TokenTensor, ...]:
        """Further tensors that grow with the tokens (families override)."""
        return ()

    def window(self, config: Config) -> int | None:
        """The sliding window, or None for none."""
        return config.optional_count("sliding_window")

    def required_window(self, config: Config) -> int:
        """The window of a layer that slides; ConfigError where the file has none."""
        window = self.window(config)
        if window is None:
            message = "`layer_types` has sliding layers, but there is no `sliding_window`."
            raise config.contradiction(message)
        return window

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """The states of a linear, SSM or convolution layer (families override)."""
        message = (
            f"it has layers with a recurrent state, whose shape in model type "
            f"'{config.model_type}' kvsize does not know."
        )
        raise config.contradiction(message)
