"""From a model and a request to SGLang's cells, states and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import torch_dtype
from kvsize.engines._layers import checkpoint_kv_dtype, parts, served_layers, sixteen_bit
from kvsize.engines._settings import Values, named_dtype, options_of
from kvsize.engines.sglang import cells
from kvsize.engines.sglang.architectures import is_hybrid
from kvsize.engines.sglang.cells import DTYPES, NAME, Packing, Scales
from kvsize.engines.sglang.mamba import StateShape, sharded_channels
from kvsize.engines.sglang.options import OPTIONS
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    LatentAttention,
    SlidingAttention,
)
from kvsize.parallel import heads_per_rank, stages

if TYPE_CHECKING:
    from kvsize.engines._layers import Attention
    from kvsize.engines.options import Request
    from kvsize.layers import Layer, RecurrentState
    from kvsize.model import Model

DSA_PAGE_SIZE = 64
_EAGLE = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One layer on one rank: bytes of a token, whether in the sliding pool, and its state.

    `unlogged_bytes` are those of `token_bytes` that the engine's log line leaves out.
    """

    token_bytes: int = 0
    unlogged_bytes: int = 0
    index_bytes: int = 0
    sliding: bool = False
    latent: bool = False
    state: StateShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What model and request settle."""

    values: Values
    dtype: str
    packing: Packing
    page_size: int
    layers: tuple[LayerCost, ...]
    stages: tuple[range, ...]
    attn_tp: int
    attn_dp: int
    workspace_bytes: int
    hybrid: bool
    window: int | None
    draft_layers: int
    draft_tokens: int

    @property
    def fullest(self) -> tuple[LayerCost, ...]:
        """The stage whose tokens cost most: the token count is the minimum over stages."""
        by_stage = [tuple(self.layers[i] for i in stage) for stage in self.stages]
        return max(by_stage, key=lambda ls: sum(la.token_bytes + la.index_bytes for la in ls))

    @property
    def states(self) -> tuple[StateShape, ...]:
        """The states of the stage with the most, which decides the slots everywhere."""
        by_stage = [
            tuple(la.state for la in (self.layers[i] for i in stage) if la.state)
            for stage in self.stages
        ]
        return max(by_stage, key=lambda states: sum(state.bytes for state in states))


def plan_of(model: Model, request: Request) -> Plan:
    """The plan; raises UsageError and EngineRefuses for what cannot be meant or is refused."""
    values = options_of(NAME, OPTIONS, request)
    dtype = _dtype(model, request)
    # The model's own dtype is what "auto" stores, also where the flag has no word for it.
    own = sixteen_bit(model)
    packing = named_dtype(NAME, DTYPES, "auto" if dtype in {"auto", own} else dtype)
    attn_dp = _attn_dp(values, request)
    attn_tp = request.tensor_parallel_size // attn_dp
    scales = _scales(values, packing)
    packing = packing.resolved(torch_dtype(own).block_bytes, scales.layouts)
    hybrid = is_hybrid(model) and not values.flag("disable_hybrid_swa_memory")
    costs = _Costs(model, values, packing, scales, attn_tp, hybrid=hybrid)
    found = [parts(layer)[0] for layer in served_layers(model)]
    windows = [w for w in map(_window, found) if w is not None]
    speculative = values.text("speculative_algorithm")
    drafts = values.whole("speculative_num_draft_tokens") if speculative else 0
    return Plan(
        values=values,
        dtype=own if dtype == "auto" else dtype,
        packing=packing,
        page_size=_page_size(values, found),
        layers=tuple(costs.cost(layer) for layer in served_layers(model)),
        stages=stages(len(model.layers), request.pipeline_parallel_size, extra="last"),
        attn_tp=attn_tp,
        attn_dp=attn_dp,
        workspace_bytes=costs.workspace_bytes(found),
        hybrid=hybrid and bool(windows),
        window=min(windows, default=None),
        draft_layers=_draft_layers(model, values) if speculative in _EAGLE else 0,
        draft_tokens=drafts,
    )


@dataclass(frozen=True, slots=True)
class _Costs:
    model: Model
    values: Values
    packing: Packing
    scales: Scales
    attn_tp: int
    hybrid: bool

    def cost(self, layer: Layer) -> LayerCost:
        attention, recurrent = parts(layer)
        state = None if recurrent is None else self.state(recurrent)
        match attention:
            case None | CrossAttention() | CompressedAttention():
                return LayerCost(state=state)
            case LatentAttention():
                return self.latent(attention, state)
        return LayerCost(
            token_bytes=self.rows(attention),
            index_bytes=self.sparse_index(attention),
            sliding=self.hybrid and _window(attention) is not None,
            state=state,
        )

    def rows(self, attention: FullAttention) -> int:
        return cells.mha_layer_bytes(
            heads_per_rank(attention.num_key_value_heads, self.attn_tp),
            attention.head_dim,
            attention.v_head_dim,
            self.packing,
        )

    def latent(self, attention: LatentAttention, state: StateShape | None) -> LayerCost:
        backends = {self.values.text(f"dsa_{phase}_backend") for phase in ("prefill", "decode")}
        raw = "trtllm" in backends or backends == {"tilelang"}
        row = cells.latent_layer_bytes(
            attention.kv_lora_rank,
            attention.qk_rope_head_dim,
            self.packing,
            scaled_rows=bool(_indexed(self.model)) and not raw,
        )
        kpool = self.model.config.count_or("index_kpool", 1, least=1)
        index = sum(cells.index_row_bytes(extra.width, kpool) for extra in attention.extras)
        scales = cells.latent_scale_bytes(
            attention.kv_lora_rank, attention.qk_rope_head_dim, self.packing
        )
        return LayerCost(
            token_bytes=row, unlogged_bytes=scales, index_bytes=index, latent=True, state=state
        )

    def sparse_index(self, attention: FullAttention) -> int:
        """MiniMax-M3's indexer: one head of keys in the sparse layers, in the cache's dtype."""
        widths = sum(extra.width for extra in attention.extras if not extra.positions)
        return widths * self.packing.itemsize

    def state(self, recurrent: RecurrentState) -> StateShape:
        convolutions = [s for s in recurrent.states if s.name.startswith("conv")]
        others = [s for s in recurrent.states if not s.name.startswith("conv")]
        groups, group_state = _groups(self.model)
        channels = sum(s.shape[0] for s in convolutions)
        return StateShape(
            channels=sharded_channels(channels, groups or self.attn_tp, group_state, self.attn_tp),
            kernel=convolutions[0].shape[-1] if convolutions else 1,
            recurrent=(others[0].shape[0] // self.attn_tp, *others[0].shape[1:]) if others else (),
            recurrent_itemsize=torch_dtype(self.state_dtype).block_bytes,
            delta_attention=self.model.config.has("linear_attn_config"),
        )

    def workspace_bytes(self, attentions: list[Attention | None]) -> int:
        widest = 0
        for attention in attentions:
            if isinstance(attention, FullAttention):
                heads = heads_per_rank(attention.num_key_value_heads, self.attn_tp)
                widest = max(widest, cells.workspace_bytes(heads, attention.head_dim, self.scales))
        return widest if self.packing.fp4 else 0

    @property
    def state_dtype(self) -> str:
        stated = self.values.text("mamba_ssm_dtype")
        return stated or self.model.config.text("mamba_ssm_dtype") or "float32"


def _dtype(model: Model, request: Request) -> str:
    if request.kv_dtype == "auto" and checkpoint_kv_dtype(model) == "fp8":
        return "fp8_e4m3"
    return cells.SPELLINGS.get(request.kv_dtype.lower(), request.kv_dtype)


def _attn_dp(values: Values, request: Request) -> int:
    if not values.flag("enable_dp_attention"):
        return 1
    attn_dp = values.whole("dp_size")
    if request.tensor_parallel_size % attn_dp:
        msg = f"{NAME}: dp_size {attn_dp} does not divide {request.tensor_parallel_size} ranks."
        raise EngineRefuses(msg, "give a dp_size that divides tensor_parallel_size.")
    return attn_dp


def _scales(values: Values, packing: Packing) -> Scales:
    if not packing.global_scales:
        return Scales()
    prefill = values.text("prefill_attention_backend") or "flashinfer"
    decode = values.text("decode_attention_backend") or "trtllm_mha"
    return cells.nvfp4_scales(prefill, decode, sm100=values.flag("native_scale_layout"))


def _window(attention: Attention | None) -> int | None:
    if isinstance(attention, SlidingAttention):
        return attention.sliding_window
    return attention.attention_chunk_size if isinstance(attention, ChunkedAttention) else None


def _indexed(model: Model) -> list[Layer]:
    latents = [
        layer for layer in served_layers(model) if isinstance(parts(layer)[0], LatentAttention)
    ]
    return [layer for layer in latents if getattr(parts(layer)[0], "extras", ())]


def _page_size(values: Values, attentions: list[Attention | None]) -> int:
    if any(isinstance(attention, CompressedAttention) for attention in attentions):
        default = 256
    else:
        indexed = (isinstance(a, LatentAttention) and a.extras for a in attentions)
        default = DSA_PAGE_SIZE if any(indexed) else cells.PAGE_SIZE
    return values.whole_or_none("page_size") or default


def _groups(model: Model) -> tuple[int | None, int]:
    """Groups of a state-space or delta-rule convolution, and the state size of one."""
    config = model.config
    if (heads := config.optional_count("linear_num_key_heads")) is not None:
        return heads, config.count("linear_key_head_dim")
    for key in ("n_groups", "mamba_n_groups", "mamba_ngroups"):
        if (groups := config.optional_count(key)) is not None:
            return groups, config.count("ssm_state_size", "mamba_d_state", "state_size")
    return None, 0


def _draft_layers(model: Model, values: Values) -> int:
    stated = values.whole_or_none("eagle_draft_num_layers")
    if stated is not None:
        return stated
    found = model.config.optional_count("num_nextn_predict_layers")
    if found is None:
        msg = f"{NAME}: {model.where} names no draft layers (num_nextn_predict_layers)."
        raise UsageError(msg, "give eagle_draft_num_layers, such as 1.")
    return found
