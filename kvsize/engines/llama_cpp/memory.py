"""Which caches llama.cpp makes for a model.

Source: `llama_model::create_memory` in `src/llama-model.cpp` and the constructors of the
memory modules (`llama-kv-cache-iswa.cpp`, `-dsa.cpp`, `-dsa-iswa.cpp`, `-msa.cpp`, `-dsv4.cpp`,
`llama-memory-hybrid*.cpp`), llama.cpp 0c1e57098; the default context, not an MTP draft's.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvsize.engines.llama_cpp import aborts
from kvsize.engines.llama_cpp.aborts import Keep
from kvsize.engines.llama_cpp.caches import (
    AttentionCache,
    Cache,
    CompressorState,
    RecurrentMemory,
)
from kvsize.engines.llama_cpp.context import CELL_PADDING, Context
from kvsize.gguf.architectures import Memory, Recurrent
from kvsize.gguf.hparams import Block, Hparams
from kvsize.units import ceil_div, pad

_CSA_RATIO, _HCA_RATIO = 4, 128  # src/llama-kv-cache-dsv4.cpp


@dataclass(frozen=True, slots=True)
class _Rows:
    """The widths of every block's rows in one kind of cache, in elements."""

    k: tuple[int, ...]
    v: tuple[int, ...]
    k_only: bool

    def of(self, il: int, *, v_trans: bool) -> tuple[int, int, int]:
        """A transposed V is as wide as the widest layer's of the whole model."""
        width = 0 if self.k_only else max(self.v) if v_trans else self.v[il]
        return il, self.k[il], width


def caches(hparams: Hparams, context: Context) -> tuple[Cache, ...]:
    """The caches of a context, in the order the engine makes them.

    Raises EngineRefuses where it aborts instead.
    """
    plan = _Plan(hparams, context)
    modules = {
        Memory.NONE: plan.nothing,
        Memory.DRAFT: plan.nothing,
        Memory.KV: plan.plain,
        Memory.RECURRENT: plan.recurrent,
        Memory.HYBRID: plan.hybrid,
        Memory.DSA: plan.sparse,
        Memory.DSA_SWA: plan.sparse,
        Memory.MSA: plan.indexed,
        Memory.DSV4: plan.compressed,
    }
    return modules[hparams.traits.memory]()


@dataclass(frozen=True, slots=True)
class _Plan:
    hparams: Hparams
    context: Context

    # -- the memory modules ----------------------------------------------------------------
    def nothing(self) -> tuple[Cache, ...]:
        """No memory: an encoder or a diffusion model."""
        return ()

    def plain(self) -> tuple[Cache, ...]:
        """`llama_kv_cache`, or `llama_kv_cache_iswa` with a window."""
        aborts.without_windows(self.hparams)
        aborts.without_keys_to_reuse(self.hparams)
        return self._attention("kv", self._keeps)

    def hybrid(self) -> tuple[Cache, ...]:
        """Attention caches beside recurrent states (`llama_memory_hybrid*`)."""
        aborts.on_uneven_streams(self.hparams, self.context, self._keeps_attention)
        found = self._attention("kv", self._keeps_attention)
        if self.hparams.indexer.head_size > 0:
            factor = 3 if self.hparams.indexer.kpool > 0 else 1
            index = self._index_rows(k_only=True, factor=factor)
            found = (*found, self._cache("idx", index, self._keeps_hybrid_index))
        return (*found, self._states())

    def recurrent(self) -> tuple[Cache, ...]:
        """`llama_memory_recurrent` alone."""
        return (self._states(),)

    def sparse(self) -> tuple[Cache, ...]:
        """`llama_kv_cache_dsa`, `llama_kv_cache_dsa_iswa`: latents and an indexer's keys."""
        hparams = self.hparams
        if hparams.arch == "hy_v4" and hparams.indexer.top_k == 0:
            return self._attention("kv", self._keeps)
        aborts.on_indexers(self.hparams)
        main = self._cache("mla", self._rows(), self._keeps_dense)
        index = self._cache("lid", self._index_rows(k_only=hparams.is_mla), self._keeps_index)
        if hparams.n_swa is None:
            return main, index
        window = self._cache("swa", self._rows(), self._keeps_window, cells=self._window_cells())
        return main, index, window

    def indexed(self) -> tuple[Cache, ...]:
        """`llama_kv_cache_msa`: keys and values, and an index with a value head of its own."""
        lead = self.hparams.n_layer_dense_lead
        index = self._index_rows(k_only=self.hparams.is_mla)
        return (
            self._cache("base", self._rows(), self._keeps),
            self._cache("idx", index, lambda il, _: il >= lead),
        )

    def compressed(self) -> tuple[Cache, ...]:
        """`llama_kv_cache_dsv4`: K-only caches and compressor states, one stream a sequence."""
        keys = _Rows(self._rows().k, (), k_only=True)
        index = _Rows((self.hparams.indexer.head_size,) * len(self.hparams.blocks), (), k_only=True)
        head = self.hparams.blocks[0].n_embd_head_k
        streams = self.context.n_seq_max
        csa, hca = _compressed_by(_CSA_RATIO), _compressed_by(_HCA_RATIO)
        csa_cells, hca_cells = (
            self._compressed_cells(_CSA_RATIO),
            self._compressed_cells(_HCA_RATIO),
        )
        window_cells = self._window_cells(unified=False)
        return (
            self._cache("base", keys, lambda *_: False, streams=streams),
            self._cache("swa", keys, self._keeps, cells=window_cells, streams=streams),
            self._cache("csa", keys, csa, cells=csa_cells, streams=streams),
            self._cache("hca", keys, hca, cells=hca_cells, streams=streams),
            self._cache("lid", index, csa, cells=csa_cells, streams=streams),
            self._compressor("csa", _CSA_RATIO, 2 * _CSA_RATIO, 2 * head),
            self._compressor("hca", _HCA_RATIO, _HCA_RATIO, head),
            self._compressor("lid", _CSA_RATIO, 2 * _CSA_RATIO, 2 * self.hparams.indexer.head_size),
        )

    # -- one cache -------------------------------------------------------------------------
    def _attention(self, tag: str, keeps: Keep) -> tuple[Cache, ...]:
        rows = self._rows()
        if self.hparams.n_swa is None:
            return (self._cache(tag, rows, keeps),)
        return (
            self._cache("base", rows, lambda il, block: keeps(il, block) and not block.is_swa),
            self._cache(
                "swa",
                rows,
                lambda il, block: keeps(il, block) and block.is_swa,
                cells=self._window_cells(),
            ),
        )

    def _cache(
        self,
        tag: str,
        rows: _Rows,
        keeps: Keep,
        *,
        cells: int | None = None,
        streams: int | None = None,
    ) -> AttentionCache:
        context = self.context
        v_trans = not context.flash_attn
        return AttentionCache(
            tag=tag,
            cells=context.n_ctx_seq if cells is None else cells,
            streams=context.streams if streams is None else streams,
            n_seq_max=context.n_seq_max,
            type_k=context.type_k,
            type_v=context.type_v,
            widths=tuple(
                rows.of(il, v_trans=v_trans)
                for il, block in enumerate(self.hparams.blocks)
                if block.has_kv and keeps(il, block)
            ),
        )

    def _rows(self) -> _Rows:
        blocks = self.hparams.blocks
        return _Rows(
            tuple(block.n_embd_head_k * block.n_head_kv for block in blocks),
            tuple(block.n_embd_head_v * block.n_head_kv for block in blocks),
            k_only=self.hparams.is_mla,
        )

    def _index_rows(self, *, k_only: bool, factor: int = 1) -> _Rows:
        """One head per layer, the indexer's width where the layer has no window."""
        blocks, width = self.hparams.blocks, self.hparams.indexer.head_size * factor
        return _Rows(
            tuple(block.n_embd_head_k if block.is_swa else width for block in blocks),
            tuple(block.n_embd_head_v for block in blocks),
            k_only=k_only,
        )

    def _states(self) -> RecurrentMemory:
        """`llama_memory_recurrent` goes over the trunk's layers only."""
        hparams, context = self.hparams, self.context
        layers = [il for il in range(hparams.n_layer) if hparams.blocks[il].is_recr]
        with_history = [il for il in layers if hparams.blocks[il].is_ple]
        return RecurrentMemory(
            cells=context.n_seq_max,
            n_seq_max=context.n_seq_max,
            n_rs_seq=context.n_rs_seq,
            trunk=hparams.n_layer,
            recurrent=tuple(layers),
            ple=tuple(with_history) if hparams.ple_conv_state > 0 else (),
            r=hparams.n_embd_r,
            s=hparams.n_embd_s,
            p=hparams.ple_conv_state,
        )

    def _compressor(self, tag: str, ratio: int, state_size: int, width: int) -> CompressorState:
        keeps = _compressed_by(ratio)
        return CompressorState(
            tag=tag,
            ratio=ratio,
            state_size=state_size,
            width=width,
            streams=self.context.n_seq_max,
            n_rs_seq=self.context.n_rs_seq,
            compressed=tuple(
                il for il, block in enumerate(self.hparams.blocks) if keeps(il, block)
            ),
        )

    # -- cells -----------------------------------------------------------------------------
    def _window_cells(self, *, unified: bool | None = None) -> int:
        """The cells of a window: one micro-batch on top, and padded to 256 after the minimum."""
        context = self.context
        if context.swa_full:
            return context.n_ctx_seq
        shared = context.kv_unified if unified is None else unified
        windows = (self.hparams.n_swa or 0) * (context.n_seq_max if shared else 1)
        return pad(min(context.n_ctx_seq, windows + context.n_ubatch), CELL_PADDING)

    def _compressed_cells(self, ratio: int) -> int:
        return pad(max(1, ceil_div(self.context.n_ctx_seq, ratio)), CELL_PADDING)

    # -- which layers ----------------------------------------------------------------------
    def _keeps(self, il: int, _: Block) -> bool:
        """The trunk: multi-token-prediction layers have a context of their own.

        Unless there is no trunk, or the last layer is a router that the trunk attends to.
        """
        hparams = self.hparams
        whole = not hparams.traits.trunk_only or hparams.n_layer == 0 or hparams.has_router
        return whole or il < hparams.n_layer

    def _keeps_attention(self, il: int, block: Block) -> bool:
        match self.hparams.traits.recurrent:
            case Recurrent.EVERY:
                return True
            case Recurrent.NO_KV_HEADS_NO_FFN:
                return not block.is_recr and block.n_ff == 0
            case _:
                return self._in_reach(il) and not block.is_recr

    def _keeps_hybrid_index(self, il: int, block: Block) -> bool:
        return il < self.hparams.n_layer and not block.is_recr and block.is_indexer_full

    def _keeps_dense(self, il: int, block: Block) -> bool:
        return self._in_reach(il) and not block.is_swa

    def _keeps_window(self, il: int, block: Block) -> bool:
        return self._in_reach(il) and block.is_swa

    def _keeps_index(self, il: int, block: Block) -> bool:
        return il < self.hparams.n_layer and block.is_indexer_full

    def _in_reach(self, il: int) -> bool:
        return il < self.hparams.n_layer or not self.hparams.traits.trunk_only


def _compressed_by(ratio: int) -> Keep:
    return lambda _, block: block.compress_ratio == ratio
