"""The cache entries vLLM makes of a model's layers, on one rank.

An entry is one spec under a name; a layer may have several (an indexer's keys, a recurrent
state beside attention) or none. Registered as in vllm/model_executor/models and
vllm/model_executor/layers/attention (0.33.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from kvsize.engines.vllm import deepseek_v4
from kvsize.engines.vllm.backend_table import Backend
from kvsize.engines.vllm.backends import kernel
from kvsize.engines.vllm.blocks import Blocks
from kvsize.engines.vllm.grouping import CacheLayer
from kvsize.engines.vllm.needs import (
    Placed,
    backend_of,
    head_sizes,
    indexes,
    kv_heads,
    layer_kv_dtype,
    need_of,
    packing,
)
from kvsize.engines.vllm.settings import Settings
from kvsize.engines.vllm.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    Spec,
)
from kvsize.engines.vllm.states import States
from kvsize.errors import EngineRefuses
from kvsize.layers import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
    TokenTensor,
)


class _Sizes(TypedDict):
    """Fields that every attention spec has."""

    block_size: int
    num_kv_heads: int
    head_size: int
    head_size_v: int
    cell_bytes: int
    packing: str


class Entries:
    """Makes the cache entries of placed layers, once block sizes are known."""

    def __init__(self, settings: Settings, blocks: Blocks, states: States | None) -> None:
        self.settings = settings
        self.blocks = blocks
        self.states = states

    def of(self, placed: Placed) -> Iterator[CacheLayer]:
        """The entries of one layer, in the order vLLM registers them."""
        owner = f"{placed.prefix}.{placed.index}"
        for suffix, spec in self._specs(placed):
            yield CacheLayer(f"{owner}.{suffix}", spec, placed.stage, owner)

    def _specs(self, placed: Placed) -> Iterator[tuple[str, Spec]]:
        layer = placed.layer
        if self.settings.config.model_type == "deepseek_v4":
            yield from deepseek_v4.specs(self.settings.config, layer, self.blocks.block_size)
            return
        match layer:
            case LatentAttention():
                yield from self._latent(placed, layer)
            case FullAttention():
                yield from self._extras(layer.extras)
                yield "attn", self._attention(placed, layer)
            case HybridLayer():
                yield "attn", self._attention(placed, layer.attention)
                yield "mamba", self._state()
            case RecurrentState():
                yield "mamba", self._state()
            case CrossAttention():
                yield "cross_attn", CrossAttentionSpec(**self._sizes(placed, layer))
            case NoCache():
                return
            case _:
                msg = f"vllm: no cache is known for a layer of kind {type(layer).__name__}."
                raise EngineRefuses(msg, "use another engine for this model.")

    def _sizes(self, placed: Placed, layer: FullAttention | CrossAttention) -> _Sizes:
        """The fields that every plain attention spec has."""
        head_size, head_size_v = head_sizes(self.settings, layer)
        heads = kv_heads(self.settings, layer)
        packed = packing(self.settings, layer_kv_dtype(self.settings, placed))
        return {
            "block_size": self.blocks.block_size,
            "num_kv_heads": heads,
            "head_size": head_size,
            "head_size_v": head_size_v,
            "cell_bytes": heads * packed.bytes_of(head_size, head_size_v),
            "packing": packed.name,
        }

    def _attention(self, placed: Placed, layer: FullAttention) -> Spec:
        sizes = self._sizes(placed, layer)
        match layer:
            case SlidingAttention():
                return self._sliding(placed, layer.sliding_window, sizes)
            case ChunkedAttention():
                return ChunkedLocalAttentionSpec(
                    **sizes, attention_chunk_size=layer.attention_chunk_size
                )
            case _:
                return FullAttentionSpec(**sizes)

    def _sliding(self, placed: Placed, window: int, sizes: _Sizes) -> SlidingWindowSpec:
        """A window chooses its own block size: the largest its kernel reads within a page."""
        need = need_of(self.settings, placed)
        block_size = self.blocks.block_size
        if need is not None:
            own = kernel(backend_of(self.settings, need), need, self.settings.gpu)
            budget = self.blocks.skip_padded_bytes
            within = block_size if budget is None else budget // sizes["cell_bytes"]
            block_size = own.largest_within(within)
        sizes["block_size"] = block_size
        return SlidingWindowSpec(
            **sizes, sliding_window=window, padded_bytes=self.blocks.skip_padded_bytes
        )

    def _latent(self, placed: Placed, layer: LatentAttention) -> Iterator[tuple[str, Spec]]:
        """An indexer's keys where the layer has them, then the latent (or padded heads)."""
        head_size, head_size_v = head_sizes(self.settings, layer)
        if not self.settings.latent:
            yield "attn", self._padded_heads(placed, layer, head_size)
            return
        indexed = indexes(self.settings.config, layer, placed.index)
        if indexed:
            width = self.settings.config.count("index_head_dim")
            yield "indexer.k_cache", self._indexer(width)
        need = need_of(self.settings, placed)
        served = None if need is None else backend_of(self.settings, need)
        kv_dtype = layer_kv_dtype(self.settings, placed)
        if served is not None:
            kv_dtype = sparse_dtype(served, kv_dtype)
        packed = packing(self.settings, kv_dtype)
        cell_bytes = packed.latent(head_size)
        sizes: _Sizes = {
            "block_size": self.blocks.block_size,
            "num_kv_heads": 1,
            "head_size": head_size,
            "head_size_v": head_size_v,
            "cell_bytes": cell_bytes,
            "packing": packed.name,
        }
        if layer.sliding_window is not None:
            yield "attn", SlidingWindowMLASpec(**sizes, sliding_window=layer.sliding_window)
            return
        rows = served is not None and served.rows
        yield (
            "attn",
            MLAAttentionSpec(
                **sizes, role="leader" if indexed else "", row_bytes=cell_bytes if rows else None
            ),
        )

    def _padded_heads(self, placed: Placed, layer: LatentAttention, head_size: int) -> Spec:
        """Latent attention as plain heads of the query's size, values padded to it."""
        heads = kv_heads(self.settings, layer)
        packed = packing(self.settings, layer_kv_dtype(self.settings, placed))
        return FullAttentionSpec(
            block_size=self.blocks.block_size,
            num_kv_heads=heads,
            head_size=head_size,
            head_size_v=head_size,
            cell_bytes=heads * packed.bytes_of(head_size, head_size),
            packing=packed.name,
        )

    def _indexer(self, index_head_dim: int) -> MLAAttentionSpec:
        """DeepSeek sparse attention: fp8 keys with one float32 scale per 128 elements."""
        width = index_head_dim + index_head_dim // 128 * 4
        return self._keys(width, width, "uint8")

    def _extras(self, extras: tuple[TokenTensor, ...]) -> Iterator[tuple[str, Spec]]:
        """A side cache of index keys in the model's bfloat16 (MiniMax-M3)."""
        for extra in extras:
            if not extra.positions:
                yield extra.name, self._keys(extra.width, 2 * extra.width, "bfloat16")

    def _keys(self, width: int, cell_bytes: int, packed: str) -> MLAAttentionSpec:
        return MLAAttentionSpec(
            block_size=self.blocks.block_size,
            num_kv_heads=1,
            head_size=width,
            head_size_v=0,
            cell_bytes=cell_bytes,
            packing=packed,
            role="index",
        )

    def _state(self) -> MambaSpec:
        states = self.states
        if states is None:
            msg = f"vllm: recurrent states of '{self.settings.config.model_type}' are not known."
            raise EngineRefuses(msg, "use another engine for this model.")
        tokens = self.settings.speculation
        return MambaSpec(
            block_size=self.blocks.mamba_block_size,
            padded_bytes=self.blocks.mamba_padded_bytes,
            state_shapes=states.shapes,
            state_bytes=states.state_bytes,
            speculative_blocks=0 if tokens is None else tokens.num_speculative_tokens,
            checkpoint_blocks=states.checkpoint_blocks,
        )


def sparse_dtype(backend: Backend, kv_dtype: str) -> str:
    """Kernels that read DeepSeek's packed rows turn fp8 into that format.

    _canonicalize_sparse_mla_kv_cache_dtype in mla_attention.py.
    """
    if backend.name == "FLASHMLA_SPARSE" and kv_dtype in {"fp8", "fp8_e4m3"}:
        return "fp8_ds_mla"
    if backend.name == "FLASHINFER_MLA_SPARSE_SM120" and kv_dtype in {"auto", "fp8", "fp8_e4m3"}:
        return "fp8_ds_mla"
    return kv_dtype
