"""Models that run layers more than once: every pass has a cache of its own."""

from __future__ import annotations

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.families.recurrent import conv
from kvsize.layers import Layer, RecurrentState, State


class HrmText(Decoder):
    """HRM-Text: two stacks of `num_layers_per_stack` layers, called in nested cycles."""

    def num_hidden_layers(self) -> int:
        """Layers per stack × H_cycles × (L_cycles + 1), unless the file counts them already."""
        stated = self.config.count("num_hidden_layers")
        if self.config.optional_count("num_layers_per_stack") is not None:
            return stated
        high, low = self.config.count_or("H_cycles", 2), self.config.count_or("L_cycles", 3)
        return stated * high * (low + 1)


class Dory(Decoder):
    """Dory: input layers, a section that repeats `n_recurrent_loops` times, output layers."""

    def halved(self) -> bool:
        """Whether the file lists attention and MLP blocks apart, as published ones do."""
        return "mlp" in (self.config.texts("layer_types") or ())

    def num_hidden_layers(self) -> int:
        """Layers, an attention and an MLP block being one."""
        return self.config.count("num_hidden_layers") // (2 if self.halved() else 1)

    def layer_types(self) -> list[str]:
        """The listed kinds without the MLP blocks."""
        if not self.halved():
            return super().layer_types()
        listed = (self.config.texts("layer_types") or [])[::2]
        return self.checked(listed, self.num_hidden_layers())

    def layers(self) -> tuple[Layer, ...]:
        """The layers in order, then the recurrent section again for each further pass."""
        once = super().layers()
        unit = 2 if self.halved() else 1
        start = self.config.count_or("n_input_layers", 0) // unit
        end = len(once) - self.config.count_or("n_output_layers", 0) // unit
        stated = self.config.optional_count("n_recurrent_layers", least=0)
        if stated is not None:
            end = start + stated // unit
        loops = self.config.count_or("n_recurrent_loops", 1, least=1)
        if self.config.value("recurrent_kv_cache_mode", "per_loop") != "per_loop":
            loops = 1
        return once + once[start:end] * (loops - 1)


class Inkling(Decoder):
    """Inkling: convolutions beside attention; sliding layers have heads of their own size."""

    def window(self, config: Config) -> int | None:
        """`sliding_window_size` in published files."""
        stated = config.optional_count("sliding_window_size")
        return stated or super().window(config)

    def heads(self, config: Config, kind: str) -> tuple[int, int, int, int]:
        """`swa_*` keys apply to sliding layers."""
        swa = "swa_" if kind == patterns.SLIDING else ""
        heads = config.count(f"{swa}num_attention_heads", "num_attention_heads")
        kv_heads = config.count(f"{swa}num_key_value_heads", "num_key_value_heads")
        head_dim = config.count(f"{swa}head_dim", "head_dim")
        return heads, kv_heads, head_dim, head_dim

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """Remember the kind: the convolutions' widths follow it."""
        self._kind = patterns.SLIDING if kind == patterns.HYBRID_SLIDING else patterns.FULL
        return super().layer(config, kind, index)

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """Four float32 states: over keys, values, and the hidden state twice."""
        _, kv_heads, head_dim, _ = self.heads(config, self._kind)
        width, hidden = config.count("conv_kernel_size"), config.count("hidden_size")
        channels = (kv_heads * head_dim, kv_heads * head_dim, hidden, hidden)
        states: tuple[State, ...] = tuple(
            conv(n, width, dtype="float32", index=i) for i, n in enumerate(channels)
        )
        return RecurrentState(states=states)


class Inkling2Loop(Inkling):
    """Inkling 2 Loop: a core of layers runs `loop_num_passes` times."""

    def layers(self) -> tuple[Layer, ...]:
        """Every layer once, then the core again for each further pass."""
        once = super().layers()
        stated = self.config.mapping("loop_config") or {}
        names = {
            "core_start": "loop_layer_index_start",
            "core_end": "loop_layer_index_end",
            "num_passes": "loop_num_passes",
        }
        loop = self.config.derived({names[k]: v for k, v in stated.items() if k in names})
        start, end = loop.count_or("loop_layer_index_start", 0), loop.count("loop_layer_index_end")
        return once + once[start:end] * (loop.count("loop_num_passes") - 1)
