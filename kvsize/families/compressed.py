"""Caches with several parts of unlike shape: DeepSeek-V4's compressed rows, Qwen4-Exp's states."""

from __future__ import annotations

from typing import ClassVar

from kvsize.config import Config
from kvsize.families import patterns
from kvsize.families.decoder import Decoder
from kvsize.families.recurrent import conv, delta_states
from kvsize.layers import CompressedAttention, Layer, RecurrentState, State, TokenTensor

CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"


class DeepseekV4(Decoder):
    """DeepSeek-V4: a window of keys, and one compressed row per 4 (CSA) or 128 (HCA) tokens."""

    no_static_cache: ClassVar[str | None] = "its compressed caches have no static form"
    ratios: ClassVar[dict[int, str]] = {0: patterns.SLIDING, 4: CSA, 128: HCA}
    default_rates: ClassVar[dict[str, int]] = {CSA: 4, HCA: 128}

    def layer_types(self) -> list[str]:
        """As listed; by `compress_ratios`; else two HCA layers, then HCA and CSA in turn."""
        layers = self.num_hidden_layers()
        kinds = self.config.texts("layer_types")
        ratios = self.config.counts("compress_ratios")
        if kinds is None and ratios is not None:
            unknown = set(ratios) - set(self.ratios)
            if unknown:
                message = f"`compress_ratios` has {min(unknown)}, not one of 0, 4 and 128."
                raise self.config.contradiction(message)
            kinds = [self.ratios[ratio] for ratio in ratios]
        if kinds is None:
            rest = [CSA if i % 2 else HCA for i in range(max(layers - 2, 0))]
            kinds = [HCA] * min(layers, 2) + rest
        # Published files list the draft layers too; the class cuts them off.
        return self.checked(kinds[:layers], layers)

    def num_key_value_heads(self, config: Config, heads: int) -> int:
        """One head, whatever the file says: keys and values are one tensor for all queries."""
        return 1

    def rate(self, config: Config, kind: str) -> int:
        """Tokens per compressed row."""
        old = {CSA: "compress_rate_csa", HCA: "compress_rate_hca"}[kind]
        stated = config.optional_count(old)
        rates = config.mapping("compress_rates") or self.default_rates
        section = Config({"compress_rates": rates.get(kind)}, config.where)
        return stated or section.count("compress_rates")

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """The parts of a compressed layer; the others slide with one head for all queries."""
        if kind not in {CSA, HCA}:
            return super().layer(config, kind, index)
        heads = config.count("num_attention_heads")
        return CompressedAttention(
            num_attention_heads=heads,
            head_dim=self.head_dim(config, heads),
            sliding_window=self.required_window(config),
            compress_rate=self.rate(config, kind),
            index_head_dim=config.count("index_head_dim") if kind == CSA else 0,
        )


class Qwen4Exp(Decoder):
    """Qwen4-Exp: gated delta layers, indexed attention, and n-gram layers with more states."""

    def layer_types(self) -> list[str]:
        """Full layers are indexed ones."""
        kinds = super().layer_types()
        self._first = next((i for i, k in enumerate(kinds) if k in INDEXED_KINDS), None)
        return [patterns.INDEXED if kind in INDEXED_KINDS else kind for kind in kinds]

    def variant(self, index: int, kind: str) -> str:
        """The first indexed layer also keeps positions; n-gram layers keep more states."""
        return f" {index == self._first} {self.has_ngrams(index)}"

    def has_ngrams(self, index: int) -> bool:
        """Whether `ple_layer_ids` (numbered from 1) names the layer."""
        return index + 1 in (self.config.counts("ple_layer_ids") or ())

    def layer(self, config: Config, kind: str, index: int) -> Layer:
        """An indexed layer is a full one with an index."""
        if kind != patterns.INDEXED:
            return super().layer(config, kind, index)
        self._index = index
        return self.attention(config, kind)

    def extras(self, config: Config, kind: str) -> tuple[TokenTensor, ...]:
        """An indexer key per token; three int64 positions per token, in one layer only."""
        if kind != patterns.INDEXED:
            return ()
        width = config.count("indexer_head_dim", "index_head_dim")
        keys = TokenTensor(name="indexer_keys", width=width)
        if self._index != self._first:
            return (keys,)
        positions = TokenTensor(
            name="indexer_position_ids",
            width=3,
            dtype="int64",
            shape="[{width}, batch, seq_len]",
            positions=True,
        )
        return keys, positions

    def recurrent(self, config: Config, index: int) -> RecurrentState:
        """The delta rule's states, and in n-gram layers a convolution and the last token ids."""
        states: tuple[State, ...] = delta_states(config)
        if self.has_ngrams(index):
            ngram = config.count("ngram_size", "ple_ngram_size")
            channels = config.count_or("hc_count", 1, least=1) * config.count("hidden_size")
            width = (config.count("ple_conv_kernel_size") - 1) * ngram
            ids = State(name="conv_states[2]", shape=(ngram - 1,), dtype="int64")
            states = (*states, conv(channels, width, index=1), ids)
        return RecurrentState(states=states)


INDEXED_KINDS = {patterns.FULL, patterns.INDEXED}
