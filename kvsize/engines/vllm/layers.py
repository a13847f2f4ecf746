"""From a model's layers to the cache entries vLLM makes of them, on one rank.

An entry is one spec under a name; a layer may have several (an indexer's keys, a recurrent
state beside attention) or none. Registered as in vllm/model_executor/models and
vllm/model_executor/layers/attention (0.33.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

from kvsize.config import Config
from kvsize.engines.vllm import architectures, deepseek_v4
from kvsize.engines.vllm.backends import Backend, Need, kernel, select
from kvsize.engines.vllm.blocks import Blocks
from kvsize.engines.vllm.dtypes import PACKINGS, Packing
from kvsize.engines.vllm.grouping import CacheLayer
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
    Layer,
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


@dataclass(frozen=True, slots=True)
class Placed:
    """One model layer: its number, its pipeline stage, and what its name starts with."""

    layer: Layer
    index: int
    stage: int
    prefix: str = "model.layers"


@dataclass(frozen=True, slots=True)
class Part:
    """A model's layers with the settings it runs under: the target, or its draft."""

    settings: Settings
    placed: list[Placed]


def attention_of(layer: Layer) -> FullAttention | LatentAttention | CrossAttention | None:
    """The attention in a layer, None where there is none."""
    if isinstance(layer, HybridLayer):
        return layer.attention
    attends = isinstance(layer, FullAttention | LatentAttention | CrossAttention)
    return layer if attends else None


def layer_kv_dtype(settings: Settings, placed: Placed) -> str:
    """The cache dtype of a layer: "auto" where it is skipped from quantization."""
    skipped = skip_layers(settings)
    slides = isinstance(attention_of(placed.layer), SlidingAttention)
    if str(placed.index) in skipped or (slides and "sliding_window" in skipped):
        return "auto"
    return settings.kv_dtype


def skip_layers(settings: Settings) -> set[str]:
    """Layers kept in the model's dtype: stated, and TurboQuant's first and last two.

    TurboQuantConfig.get_boundary_skip_layers; hybrid models have none of their own.
    """
    stated = settings.options["kv_cache_dtype_skip_layers"]
    skipped = {str(item) for item in stated} if isinstance(stated, list | tuple) else set()
    if settings.kv_dtype.startswith("turboquant_") and not settings.hybrid:
        layers = settings.config.count("num_hidden_layers")
        edge = min(2, layers // 2)
        skipped |= {str(i) for i in range(layers) if i < edge or i >= layers - edge}
    return skipped


def packing(settings: Settings, kv_dtype: str) -> Packing:
    """How a cache dtype packs; "auto" is the model's dtype."""
    return PACKINGS[settings.dtype if kv_dtype == "auto" else kv_dtype]


def need_of(settings: Settings, placed: Placed) -> Need | None:
    """What a layer asks of an attention backend; None where it has no attention."""
    layer = attention_of(placed.layer)
    if layer is None:
        return None
    config = settings.config
    latent = isinstance(layer, LatentAttention) and settings.latent
    heads = layer.num_attention_heads // settings.tensor_parallel_size
    return Need(
        head_size=head_sizes(settings, layer)[0],
        dtype=settings.dtype,
        kv_dtype=layer_kv_dtype(settings, placed),
        latent=latent,
        sparse=latent and config.optional_count("index_topk") is not None,
        sink=has_sinks(settings, layer),
        mm_prefix=not latent and architectures.multimodal_prefix(settings.model),
        sliding=isinstance(layer, SlidingAttention),
        heads=heads,
        grouped=heads // kv_heads(settings, layer) > 1,
        qk_nope_head_dim=config.count_or("qk_nope_head_dim", 0),
        qk_rope_head_dim=config.count_or("qk_rope_head_dim", 0),
        v_head_dim=config.count_or("v_head_dim", 0),
        index_topk=config.optional_count("index_topk"),
        block_size=settings.block_size,
        dcp=settings.decode_context_parallel_size,
        flash_version=forced_flash_version(settings),
        softcap=config.value("attn_logit_softcapping") is not None,
        encoder_decoder=isinstance(layer, CrossAttention),
    )


def backend_of(settings: Settings, need: Need) -> Backend:
    """The backend that serves `need`."""
    wanted = settings.options["attention_backend"]
    if wanted is None and _triton_only(settings):
        wanted = "TRITON_ATTN"
    return select(need, settings.gpu, None if wanted is None else str(wanted))


def head_sizes(
    settings: Settings, layer: FullAttention | LatentAttention | CrossAttention
) -> tuple[int, int]:
    """Key and value head sizes as cached: one latent, or padded heads where it is disabled."""
    if isinstance(layer, CrossAttention):
        return layer.head_dim, layer.head_dim
    if isinstance(layer, FullAttention):
        return layer.head_dim, layer.v_head_dim
    if settings.latent:
        return layer.kv_lora_rank + layer.qk_rope_head_dim, 0
    padded = layer.qk_nope_head_dim + layer.qk_rope_head_dim
    return padded, padded


def kv_heads(settings: Settings, layer: FullAttention | LatentAttention | CrossAttention) -> int:
    """KV heads on one rank: split, or one each where there are fewer than ranks.

    Raises EngineRefuses where heads can be neither split nor replicated evenly.
    """
    if isinstance(layer, LatentAttention):
        return 1 if settings.latent else layer.num_attention_heads // settings.tensor_parallel_size
    heads, ranks = layer.num_key_value_heads, settings.tensor_parallel_size
    replicates = settings.config.model_type not in WITHOUT_REPLICATION
    if heads % ranks and (ranks % heads or not replicates):
        msg = f"vllm: {heads} KV heads can be neither split nor replicated over {ranks} ranks."
        raise EngineRefuses(msg, "choose a tensor_parallel_size that divides the KV heads.")
    return max(1, heads // ranks)


WITHOUT_REPLICATION = {"gpt_oss"}
"""Model classes that only split KV heads (gpt_oss.py)."""


def has_sinks(settings: Settings, layer: Layer) -> bool:
    """Whether a layer has attention sinks, which fewer backends serve."""
    config = settings.config
    if config.model_type == "gpt_oss":
        return True
    slides = isinstance(layer, SlidingAttention)
    key = "add_swa_attention_sink_bias" if slides else "add_full_attention_sink_bias"
    return config.value(key) is True


def indexes(config: Config, layer: LatentAttention, index: int) -> bool:
    """Whether a sparse latent layer has an indexer of its own, by vLLM's rule.

    DeepSeek's classes go by frequency, offset or a pattern of letters and read no `indexer_types`
    (deepseek_v2.py); multi-token-prediction layers always have one.
    """
    if config.optional_count("index_topk") is None:
        return False
    if config.model_type not in BY_FREQUENCY or index >= config.count("num_hidden_layers"):
        return bool(layer.extras)
    pattern = config.value("index_topk_pattern")
    if isinstance(pattern, str | list):
        return index >= len(pattern) or pattern[index] != "S"
    offset = config.count_or("index_skip_topk_offset", 2)
    return max(index - offset + 1, 0) % config.count_or("index_topk_freq", 1, least=1) == 0


BY_FREQUENCY = {"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa"}


def _mixed_head_sizes(settings: Settings) -> int:
    """The largest head size of a Gemma 4 whose layers differ in it; 0 otherwise."""
    if not settings.config.model_type.startswith(("gemma4", "diffusion_gemma")):
        return 0
    attentions = (attention_of(layer) for layer in settings.model.layers)
    sizes = {head_sizes(settings, layer)[0] for layer in attentions if layer is not None}
    return max(sizes) if len(sizes) > 1 else 0


def forced_flash_version(settings: Settings) -> int | None:
    """The FlashAttention version a model or dtype forces (Gemma4Config; TurboQuant)."""
    if settings.kv_dtype.startswith("turboquant_"):
        return 2
    if not _mixed_head_sizes(settings) or 4 not in settings.gpu.flash_attention:
        return None
    per_layer = settings.gpu.family == 9 and settings.kv_dtype.startswith("fp8")
    return None if per_layer else 4


def _triton_only(settings: Settings) -> bool:
    """Whether Gemma 4's mixed head sizes leave Triton alone (no FlashAttention 4)."""
    return bool(_mixed_head_sizes(settings)) and 4 not in settings.gpu.flash_attention


class Entries:
    """Makes the cache entries of placed layers, once block sizes are known."""

    def __init__(self, settings: Settings, blocks: Blocks, states: States | None) -> None:
        self.settings = settings
        self.blocks = blocks
        self.states = states

    def of(self, placed: Placed) -> Iterator[CacheLayer]:
        """The entries of one layer, in the order vLLM registers them."""
        for suffix, spec in self._specs(placed):
            yield CacheLayer(f"{placed.prefix}.{placed.index}.{suffix}", spec, placed.stage)

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
        return SlidingWindowSpec(
            **{**sizes, "block_size": block_size},
            sliding_window=window,
            padded_bytes=self.blocks.skip_padded_bytes,
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
        yield "attn", MLAAttentionSpec(
            **sizes, role="leader" if indexed else "", row_bytes=cell_bytes if rows else None
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
