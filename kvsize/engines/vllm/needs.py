"""What each layer asks of vLLM: its sizes on one rank, its cache dtype, its attention backend."""

from __future__ import annotations

from dataclasses import dataclass

from kvsize.config import Config
from kvsize.engines.vllm import architectures
from kvsize.engines.vllm.backend_table import Backend, Need
from kvsize.engines.vllm.backends import select
from kvsize.engines.vllm.dtypes import PACKINGS, Packing
from kvsize.engines.vllm.settings import Settings
from kvsize.errors import EngineRefuses
from kvsize.layers import (
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    SlidingAttention,
)


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
    match layer:
        case HybridLayer():
            return layer.attention
        case FullAttention() | LatentAttention() | CrossAttention():
            return layer
        case _:
            return None


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
