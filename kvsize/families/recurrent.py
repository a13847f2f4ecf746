"""Models with linear-attention, state-space or convolution layers: states of fixed size.

Shapes per sequence, read in transformers 5.24.0's modeling files and measured: a convolution
state is as wide as its kernel, in the model's dtype; a recurrent state is float32 unless said.
"""

from __future__ import annotations

from typing import ClassVar

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.layers import Layer, NoCache, RecurrentState, State
from kvsize.model import Guess
from kvsize.units import pad


def conv(*shape: int, dtype: str | None = None, index: int = 0) -> State:
    """A convolution's state."""
    return State(name=f"conv_states[{index}]", shape=shape, dtype=dtype)


def recurrent(*shape: int, dtype: str | None = "float32") -> State:
    """A recurrent state."""
    return State(name="recurrent_states[0]", shape=shape, dtype=dtype)


class Mamba(Decoder):
    """Mamba 1: a convolution and a state per inner channel."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """`intermediate_size` where the file states it, else expand × hidden_size."""
        hidden = config.count("hidden_size")
        inner = config.count_or("intermediate_size", config.count_or("expand", 2) * hidden)
        width, state = config.count("conv_kernel"), config.count("state_size")
        return RecurrentState(states=(conv(inner, width), recurrent(inner, state)))


class Jamba(Decoder):
    """Jamba: Mamba 1 layers between attention layers."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """mamba_expand × hidden_size channels."""
        inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
        width, state = config.count("mamba_d_conv"), config.count("mamba_d_state")
        return RecurrentState(states=(conv(inner, width), recurrent(inner, state)))


class Mamba2(Decoder):
    """Mamba 2: groups share their input and output projections, heads have square states."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """Expand × hidden_size channels in num_heads heads of head_dim."""
        state = config.count("state_size")
        inner = int(config.count_or("expand", 2)) * config.count("hidden_size")
        channels = inner + 2 * config.count("n_groups") * state
        return RecurrentState(
            states=(
                conv(channels, config.count("conv_kernel")),
                recurrent(config.count("num_heads"), config.count("head_dim"), state),
            )
        )


class Bamba(Decoder):
    """Bamba, Granite 4 and Falcon-H1: Mamba 2 under `mamba_*` keys."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """Falcon-H1 may state its channels as `mamba_d_ssm`; a head dim may be "auto"."""
        state = config.count("mamba_d_state")
        hidden = config.count("hidden_size")
        expanded = config.count_or("mamba_expand", 2) * hidden
        inner = config.optional_count("mamba_d_ssm") or expanded
        if config.model_type != "falcon_h1":
            inner = expanded
        heads = config.count("mamba_n_heads")
        auto = config.value("mamba_d_head") in {"auto", None}
        head_dim = inner // heads if auto else config.count("mamba_d_head")
        channels = inner + 2 * config.count("mamba_n_groups") * state
        return RecurrentState(
            states=(
                conv(channels, config.count("mamba_d_conv")),
                recurrent(heads, head_dim, state),
            )
        )


class NemotronH(Decoder):
    """Nemotron-H: Mamba 2, attention, MLP and MoE blocks, each a layer of its own."""

    letters: ClassVar[dict[str, str]] = {
        "M": patterns.LINEAR,
        "*": patterns.FULL,
        "E": "moe",
        "-": "mlp",
    }

    def layer_types(self) -> list[str]:
        """`layers_block_type`, or the letters of `hybrid_override_pattern`."""
        listed = self.config.texts("layer_types")
        if listed is not None:
            return [patterns.LEGACY_NAMES.get(kind, kind) for kind in listed]
        pattern = self.config.text("hybrid_override_pattern")
        if pattern is None:
            return [patterns.LINEAR, "moe", patterns.FULL, "mlp"]
        unknown = set(pattern) - set(self.letters)
        if not pattern:
            raise self.config.contradiction("`hybrid_override_pattern` is empty.")
        if unknown:
            letter = min(unknown)
            message = f"`hybrid_override_pattern` has the letter '{letter}', not one of M * E -."
            raise self.config.contradiction(message)
        return [self.letters[letter] for letter in pattern]

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """mamba_num_heads × mamba_head_dim channels; older files use mamba_* names."""
        heads, head_dim = config.count("mamba_num_heads"), config.count("mamba_head_dim")
        state = config.count("ssm_state_size")
        groups = config.count("mamba_n_groups", "n_groups")
        width = config.count("mamba_d_conv", "conv_kernel")
        channels = heads * head_dim + 2 * groups * state
        return RecurrentState(states=(conv(channels, width), recurrent(heads, head_dim, state)))


class Zamba(Decoder):
    """Zamba: shared attention blocks twice as wide as the model beside Mamba layers."""

    def head_dim(self, config: Config, heads: int) -> int:
        """`attention_head_dim`, else 2 × hidden_size // num_attention_heads."""
        stated = config.optional_count("attention_head_dim")
        return stated or 2 * config.count("hidden_size") // heads

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """mamba_expand × hidden_size channels in n_mamba_heads heads."""
        inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
        heads, state = config.count("n_mamba_heads"), config.count("mamba_d_state")
        return RecurrentState(
            states=(
                conv(inner, config.count("mamba_d_conv")),
                recurrent(heads, inner // heads, state),
            )
        )


class Zamba2(Decoder):
    """Zamba 2: the same with Mamba 2."""

    def layer_types(self) -> list[str]:
        """The class's own list of 54 layers, when the file has none."""
        listed = self.config.texts("layer_types")
        if listed is None:
            linear, hybrid = patterns.LINEAR, patterns.HYBRID
            return (
                [linear]
                + ([linear] * 5 + [hybrid]) * 7
                + [linear] * 4
                + [hybrid]
                + [linear] * 3
                + [hybrid]
                + [linear] * 2
            )
        kinds = [patterns.LEGACY_NAMES.get(kind, kind) for kind in listed]
        return self.checked(kinds, self.num_hidden_layers())

    def head_dim(self, config: Config, heads: int) -> int:
        """`attention_head_dim` where the file states it: the class sets it after its own."""
        stated = config.optional_count("attention_head_dim")
        return stated or 2 * config.count("hidden_size") // heads

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """mamba_expand × hidden_size channels in n_mamba_heads heads, mamba_ngroups groups."""
        inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
        heads, state = config.count("n_mamba_heads"), config.count("mamba_d_state")
        channels = inner + 2 * config.count("mamba_ngroups") * state
        return RecurrentState(
            states=(
                conv(channels, config.count("mamba_d_conv")),
                recurrent(heads, inner // heads, state),
            )
        )


class GatedDeltaNet(Decoder):
    """Qwen3-Next, Qwen3.5, OLMo-Hybrid: key and value heads of a gated delta rule."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """2 × keys + values convolved; a key × value state per value head."""
        return RecurrentState(states=delta_states(config))


def delta_states(config: Config) -> tuple[State, State]:
    """The two states of a gated delta rule layer; OLMo-Hybrid derives absent dimensions."""
    heads = config.optional_count("num_attention_heads") or 1
    k_heads = config.optional_count("linear_num_key_heads") or heads
    v_heads = config.optional_count("linear_num_value_heads") or heads
    k_dim = config.optional_count("linear_key_head_dim")
    if k_dim is None:
        k_dim = int(0.75 * config.count("hidden_size") / k_heads)
    v_dim = config.optional_count("linear_value_head_dim") or 2 * k_dim
    channels = 2 * k_heads * k_dim + v_heads * v_dim
    return (
        conv(channels, config.count("linear_conv_kernel_dim")),
        recurrent(v_heads, k_dim, v_dim),
    )


class ShortConv(Decoder):
    """LFM2 and LFM3: a short convolution over the hidden state, and no recurrence."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """hidden_size channels, conv_L_cache wide."""
        return RecurrentState(
            states=(conv(config.count("hidden_size"), config.count("conv_L_cache")),)
        )


class Zaya(Decoder):
    """Zaya: compressed convolutional attention, a convolution state beside keys and values."""

    def layer_types(self) -> list[str]:
        """All hybrid unless the file lists them."""
        listed = self.config.texts("layer_types")
        layers = self.num_hidden_layers()
        return [patterns.HYBRID] * layers if listed is None else self.checked(listed, layers)

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """Both convolutions' memory, and half of the values, in the model's dtype."""
        heads, kv_heads, head_dim, _ = self.heads(config, patterns.FULL)
        width = config.count("cca_time0") - 1 + config.count("cca_time1") - 1
        return RecurrentState(
            states=(
                conv((heads + kv_heads) * head_dim, width),
                recurrent(kv_heads * head_dim // 2, dtype=None),
            )
        )


class MiniMaxText(Decoder):
    """MiniMax-Text-01: lightning attention, whose state is kept in the model's dtype."""

    cache_class: ClassVar[str | None] = "MiniMaxCache"
    no_static_cache: ClassVar[str | None] = (
        "the model brings its own MiniMaxCache, which only grows"
    )

    def layer_types(self) -> list[str]:
        """As the class has them; it does not read the published files' `attn_type_list`."""
        kinds = super().layer_types()
        listed = self.config.counts("attn_type_list")
        if listed is not None and [kind == 1 for kind in listed] != [
            kind == patterns.FULL for kind in kinds
        ]:
            told = "the file's `attn_type_list` names other full layers than transformers makes."
            self.guesses.append(Guess("KV010", told))
        return kinds

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """A head_dim × head_dim state per head."""
        heads, _, head_dim, _ = self.heads(config, patterns.FULL)
        return RecurrentState(states=(recurrent(heads, head_dim, head_dim, dtype=None),))


class MiniMaxText01(MiniMaxText):
    """MiniMax-Text-01 and M1 as published (remote code): `attn_type_list` says 1 for full."""

    def layer_types(self) -> list[str]:
        """Full where the list says 1, lightning attention where it says 0."""
        listed = self.config.counts("attn_type_list")
        if listed is None:
            return super().layer_types()
        kinds = [patterns.FULL if kind == 1 else patterns.LINEAR for kind in listed]
        self.guesses.append(
            Guess("KV010", "transformers' MiniMax class does not read `attn_type_list`; this does.")
        )
        return self.checked(kinds, self.num_hidden_layers())


class RecurrentGemma(Decoder):
    """RecurrentGemma: windows in the cache, recurrent states on the modules outside it."""

    def window(self, config: Config) -> int | None:
        """`attention_window_size`."""
        return config.optional_count("attention_window_size")

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Recurrent layers keep their state on the module, outside the cache."""
        if kind == patterns.LINEAR:
            return NoCache(reason="its recurrent state lives on the module, outside the cache")
        return super().layer(config, kind, index)


class OwnState(Decoder):
    """Models that keep a state object of their own; every layer is alike."""

    cache_class: ClassVar[str | None] = "own state"
    no_static_cache: ClassVar[str | None] = (
        "the model keeps a state of fixed size instead of a cache"
    )

    def layer_types(self) -> list[str]:
        """Every layer is recurrent."""
        return [patterns.LINEAR] * self.num_hidden_layers()


class Rwkv(OwnState):
    """RWKV-4: five vectors per layer, two of them in the model's dtype (modeling_rwkv.py)."""

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """hidden_size elements each."""
        hidden = config.count("hidden_size")
        kept = tuple(
            State(name=f"state[{i}]", shape=(hidden,), dtype=None if i < 2 else "float32")
            for i in range(5)
        )
        return RecurrentState(states=kept)


class XLstm(OwnState):
    """xLSTM: a matrix, a normaliser and a stabiliser per head (xLSTMCache)."""

    cache_class: ClassVar[str | None] = "xLSTMCache"

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """Widths are factors of hidden_size, rounded up to multiples of 64 (xLSTMConfig)."""
        heads, hidden = config.count("num_heads"), config.count("hidden_size")
        qk_dim = pad(int(hidden * config.ratio("qk_dim_factor", 0.5)), 64) // heads
        v_dim = pad(int(hidden * config.ratio("v_dim_factor", 1.0)), 64) // heads
        shapes = ((heads, qk_dim, v_dim), (heads, qk_dim), (heads, 1))
        kept = tuple(State(name=f"rnn_state[{i}]", shape=s) for i, s in enumerate(shapes))
        return RecurrentState(states=kept)
