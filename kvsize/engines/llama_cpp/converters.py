"""The rules of llama.cpp's converter: from a model's layers and config to GGUF keys.

Each rule names the class in `conversion/` (llama.cpp 0c1e57098) that it follows. Keys are
without the architecture's prefix; a later rule's keys replace an earlier one's.
"""

from __future__ import annotations

from collections.abc import Callable

from kvsize.config import Config
from kvsize.errors import ConfigError
from kvsize.families import family, patterns
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    RecurrentState,
    SlidingAttention,
)
from kvsize.model import Model

Metadata = dict[str, object]
Rule = Callable[[Model], Metadata]
# The context length that the converter writes for models without positions.
_UNLIMITED = 2**20


# -- attention -----------------------------------------------------------------------------
def plain(model: Model) -> Metadata:
    """TextModel.set_gguf_parameters: sizes, head counts and head lengths."""
    config = model.config
    attention = [_attention(layer) for layer in model.layers]
    known = [layer for layer in attention if layer is not None]
    fallback = config.count_or("num_attention_heads", 0)
    found: Metadata = {
        "block_count": len(model.layers),
        "context_length": model.context_limit or 0,
        "embedding_length": config.count_or("hidden_size", 0),
        "attention.head_count": _same(
            [layer.num_attention_heads if layer else fallback for layer in attention]
        ),
        "attention.head_count_kv": [
            layer.num_key_value_heads if layer else 0 for layer in attention
        ],
    }
    for key, lengths in (
        ("attention.key_length", {layer.head_dim for layer in known}),
        ("attention.value_length", {layer.v_head_dim for layer in known}),
    ):
        if len(lengths) == 1:
            found[key] = lengths.pop()
    return found


def window(model: Model) -> Metadata:
    """The window as the file states it."""
    size = model.config.optional_count("sliding_window")
    return {} if size is None else {"attention.sliding_window": size}


def sliding_layers(model: Model) -> Metadata:
    """`layer_types`, layer by layer, where there is a window."""
    if model.config.optional_count("sliding_window") is None:
        return {}
    return {"attention.sliding_window_pattern": [_slides(layer) for layer in model.layers]}


def falcon_heads(model: Model) -> Metadata:
    """FalconModel: the new architecture's `num_kv_heads`, else one."""
    config = model.config
    heads = config.count("num_attention_heads")
    old = 1 if config.flag("multi_query") else heads
    new = config.flag("new_decoder_architecture")
    kv_heads = config.count_or("num_kv_heads", heads) if new else old
    return {"attention.head_count_kv": kv_heads, "context_length": 2048}


def one_kv_head(_: Model) -> Metadata:
    """StarCoderModel: always multi-query."""
    return {"attention.head_count_kv": 1}


def mpt_heads(model: Model) -> Metadata:
    """MPTModel: `attn_config.kv_n_heads` where it is there."""
    nested = Config(model.config.mapping("attn_config") or {}, f"{model.where}: attn_config")
    kv_heads = nested.optional_count("kv_n_heads")
    return {} if kv_heads is None else {"attention.head_count_kv": kv_heads}


def expanded_latent(model: Model) -> Metadata:
    """MiniCPM3Model: keys and values of every head are cached; the value length is the default."""
    config = model.config
    heads = config.count("num_attention_heads")
    key = config.count("qk_nope_head_dim") + config.count("qk_rope_head_dim")
    return {
        "attention.head_count": heads,
        "attention.head_count_kv": config.count_or("num_key_value_heads", heads),
        "attention.key_length": key,
        "attention.value_length": config.count("hidden_size") // heads,
    }


def t5(model: Model) -> Metadata:
    """T5Model: as many cached layers as the encoder has, whatever the decoder's number."""
    config = model.config
    return {
        "block_count": config.count("num_layers"),
        "context_length": config.count_or("n_positions", 512),
        "attention.head_count": config.count("num_heads"),
        "attention.head_count_kv": config.count("num_heads"),
        "attention.key_length": config.count("d_kv"),
        "attention.value_length": config.count("d_kv"),
    }


def gemma3n(model: Model) -> Metadata:
    """Gemma3NModel: the pattern of all layers, those that share keys included."""
    return {**_gemma_heads(model), "attention.sliding_window_pattern": _sliding_kinds(model)}


def gemma4(model: Model) -> Metadata:
    """Gemma4Model: full layers have heads of their own length and, where stated, number."""
    config = model.config
    sliding = _sliding_kinds(model)
    full, head_dim = config.count_or("global_head_dim", 512), config.count("head_dim")
    found = _gemma_heads(model) | {
        "attention.sliding_window_pattern": sliding,
        "attention.shared_kv_layers": config.count_or("num_kv_shared_layers", 0),
        "attention.key_length": full,
        "attention.value_length": full,
        "attention.key_length_swa": head_dim,
        "attention.value_length_swa": head_dim,
    }
    global_heads = config.optional_count("num_global_key_value_heads")
    if global_heads is not None:
        heads = config.count("num_key_value_heads")
        found["attention.head_count_kv"] = [heads if swa else global_heads for swa in sliding]
    return found


def llama4(model: Model) -> Metadata:
    """Llama4Model: a window of 0 switches llama.cpp's own chunks off."""
    chunked = any(isinstance(layer, ChunkedAttention) for layer in model.layers)
    return {} if chunked else {"attention.sliding_window": 0}


# -- latent and sparse attention -----------------------------------------------------------
def latent(model: Model) -> Metadata:
    """DeepseekV2Model: latents as the keys of one head; no window's latent among them."""
    layers = [layer for layer in model.layers if isinstance(layer, LatentAttention)]
    full = next((layer for layer in layers if layer.sliding_window is None), layers[0])
    return {
        "attention.head_count": _same(
            [
                layer.num_attention_heads
                if isinstance(layer, LatentAttention)
                else model.config.count("num_attention_heads")
                for layer in model.layers
            ]
        ),
        "attention.head_count_kv": [
            int(isinstance(layer, LatentAttention)) for layer in model.layers
        ],
        "attention.kv_lora_rank": full.kv_lora_rank,
        "attention.key_length": full.kv_lora_rank + full.qk_rope_head_dim,
        "attention.value_length": full.kv_lora_rank,
        "attention.key_length_mla": full.qk_nope_head_dim + full.qk_rope_head_dim,
        "attention.value_length_mla": full.v_head_dim,
    }


def latent_window(model: Model) -> Metadata:
    """Dots3NoteModel: sliding layers have a latent of another width."""
    layers = [layer for layer in model.layers if isinstance(layer, LatentAttention)]
    sliding = next((layer for layer in layers if layer.sliding_window is not None), None)
    if sliding is None:
        return {}
    return {
        "attention.sliding_window": sliding.sliding_window,
        "attention.key_length_swa": sliding.kv_lora_rank + sliding.qk_rope_head_dim,
        "attention.value_length_swa": sliding.kv_lora_rank,
        "attention.sliding_window_pattern": [_slides(layer) for layer in model.layers],
    }


def indexer(model: Model) -> Metadata:
    """DeepseekV32Model and its kin: the width of an indexer's key."""
    return {
        "attention.indexer.key_length": model.config.count("index_head_dim"),
        "attention.indexer.top_k": model.config.count_or("index_topk", 0),
    }


def indexer_layers(model: Model) -> Metadata:
    """GlmMoeDsaModel, HYV4Model: the layers whose indexer is their own."""
    own = [isinstance(layer, LatentAttention) and bool(layer.extras) for layer in model.layers]
    return {"attention.indexer.types": own}


def not_sliding(model: Model) -> Metadata:
    """Dots3NoteModel: every layer without a window has an indexer."""
    return {"attention.indexer.types": [not _slides(layer) for layer in model.layers]}


def pooled_indexer(model: Model) -> Metadata:
    """Glm5NextModel: the pool, and the layers that own an indexer where the file lists them."""
    found: Metadata = {"attention.indexer.kpool": model.config.count("index_kpool")}
    types = model.config.texts("indexer_types")
    if types is not None:
        found["attention.indexer.types"] = [kind == "full" for kind in types]
    return found


def deepseek_v4(model: Model) -> Metadata:
    """DeepseekV4Model: one head of keys, a window, and a compression ratio for each layer."""
    config = model.config
    heads, head_dim = config.count("num_attention_heads"), config.count("head_dim")
    rates = [
        layer.compress_rate or 0 if isinstance(layer, CompressedAttention) else 0
        for layer in model.layers
    ]
    return {
        "attention.head_count": heads,
        "attention.head_count_kv": config.count_or("num_key_value_heads", 1),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.sliding_window": config.count("sliding_window"),
        "attention.compress_ratios": rates,
    }


def minimax_m3(model: Model) -> Metadata:
    """MiniMaxM3Model: an index key and value in every layer after the leading dense ones."""
    indexed = [isinstance(layer, FullAttention) and bool(layer.extras) for layer in model.layers]
    widths = [
        extra.width
        for layer in model.layers
        if isinstance(layer, FullAttention)
        for extra in layer.extras
    ]
    if not widths:
        raise unknown(model, "it has no sparse layers")
    freq = model.config.counts("moe_layer_freq") or [int(sparse) for sparse in indexed]
    lead = next((il for il, sparse in enumerate(freq) if sparse), len(freq))
    return {
        "attention.indexer.key_length": widths[0],
        "leading_dense_block_count": lead,
    }


# -- recurrent and hybrid ------------------------------------------------------------------
def mamba(model: Model) -> Metadata:
    """MambaModel: it reads the file itself, without the class's defaults."""
    config = model.config
    hidden = config.count("hidden_size")
    return {
        "context_length": _UNLIMITED,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": _stated(config, "conv_kernel", 4),
        "ssm.inner_size": _stated(config, "intermediate_size", 2 * hidden),
        "ssm.state_size": _stated(config, "state_size", 16),
    }


def mamba2(model: Model) -> Metadata:
    """Mamba2Model: it reads the file itself, without the class's defaults."""
    config = model.config
    inner = _stated(config, "expand", 2) * config.count("hidden_size")
    return {
        "context_length": _UNLIMITED,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": _stated(config, "conv_kernel", 4),
        "ssm.inner_size": _stated(config, "intermediate_size", inner),
        "ssm.state_size": _stated(config, "state_size", 128),
        "ssm.group_count": _stated(config, "n_groups", 1),
    }


def falcon_h1(model: Model) -> Metadata:
    """FalconH1Model: attention and a Mamba 2 state in every layer."""
    config = model.config
    inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
    return _mamba_keys(config) | {"ssm.inner_size": config.count_or("mamba_d_ssm", inner, least=1)}


def granite_hybrid(model: Model) -> Metadata:
    """GraniteHybridModel: a model without state layers becomes plain granite."""
    config = model.config
    if not has_states(model):
        return {}
    inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
    rope = config.model_type == "bamba"
    found = _mamba_keys(config) | {"ssm.inner_size": inner}
    return found if rope else found | {"context_length": _UNLIMITED}


def jamba(model: Model) -> Metadata:
    """JambaModel: Mamba 1 states between attention layers."""
    config = model.config
    return {
        "ssm.conv_kernel": config.count_or("mamba_d_conv", 4),
        "ssm.inner_size": config.count_or("mamba_expand", 2) * config.count("hidden_size"),
        "ssm.state_size": config.count_or("mamba_d_state", 16),
    }


def nemotron_h(model: Model) -> Metadata:
    """NemotronHModel: blocks with neither a state nor heads have a feed-forward length."""
    config = model.config
    feed_forward = config.count("intermediate_size", "moe_intermediate_size")
    return {
        "feed_forward_length": [
            0 if isinstance(layer, RecurrentState | FullAttention) else feed_forward
            for layer in model.layers
        ],
        "ssm.conv_kernel": config.count("conv_kernel", "mamba_d_conv"),
        "ssm.inner_size": config.count("mamba_num_heads") * config.count("mamba_head_dim"),
        "ssm.state_size": config.count("ssm_state_size"),
        "ssm.group_count": config.count("n_groups", "mamba_n_groups"),
    }


def short_conv(model: Model) -> Metadata:
    """LFM2Model, LFM2MoeModel: a short convolution where there is no attention."""
    return {"shortconv.l_cache": model.config.count("conv_L_cache")}


def delta_net(model: Model) -> Metadata:
    """Qwen3NextModel: gated delta net layers, listed one by one."""
    config = model.config
    values = config.count("linear_num_value_heads") * config.count("linear_value_head_dim")
    return {
        "ssm.conv_kernel": config.count("linear_conv_kernel_dim"),
        "ssm.inner_size": values,
        "ssm.state_size": config.count("linear_key_head_dim"),
        "ssm.group_count": config.count("linear_num_key_heads"),
        "attention.recurrent_layers": [isinstance(layer, RecurrentState) for layer in model.layers],
        # Unlike in other hybrids, every layer states the attention's heads.
        "attention.head_count_kv": config.count("num_key_value_heads"),
    }


def qwen4_exp(model: Model) -> Metadata:
    """Qwen4ExpTextModel: an indexer, and n-gram layers (numbered from 1 in the file)."""
    config = model.config
    found: Metadata = {
        "attention.indexer.key_length": config.count("indexer_head_dim", "index_head_dim"),
        "hyper_connection.count": config.count("hc_count"),
    }
    layers = config.counts("ple_layer_ids", least=1)
    if layers:
        found |= {
            "ple.layers": [number - 1 for number in layers],
            "ple.ngram_size": config.count("ngram_size"),
            "ple.conv_kernel": config.count("ple_conv_kernel_size"),
        }
    return found


def kimi_delta(model: Model) -> Metadata:
    """KimiLinearModel: square states per head, a convolution over queries, keys and values."""
    states = next(
        (layer.states for layer in model.layers if isinstance(layer, RecurrentState)), None
    )
    if states is None:
        raise unknown(model, "it has no layers of Kimi delta attention")
    convolution, square = states
    return {"ssm.conv_kernel": convolution.shape[-1], "kda.head_dim": square.shape[-1]}


# -- inside --------------------------------------------------------------------------------
def _attention(layer: Layer) -> FullAttention | None:
    if isinstance(layer, HybridLayer):
        return layer.attention
    return layer if isinstance(layer, FullAttention) else None


def _slides(layer: Layer) -> bool:
    if isinstance(layer, LatentAttention):
        return layer.sliding_window is not None
    return isinstance(layer, SlidingAttention)


def _sliding_kinds(model: Model) -> list[bool]:
    """Whether each layer slides, layers without a cache of their own included."""
    kinds = family(model.config.model_type)(model.config, model.root).layer_types()
    return [kind == patterns.SLIDING for kind in kinds]


def _gemma_heads(model: Model) -> Metadata:
    """One head count for all layers, those without a cache of their own included."""
    config = model.config
    return {
        "attention.head_count": config.count("num_attention_heads"),
        "attention.head_count_kv": config.count("num_key_value_heads"),
    }


def _mamba_keys(config: Config) -> Metadata:
    return {
        "ssm.conv_kernel": config.count("mamba_d_conv"),
        "ssm.state_size": config.count("mamba_d_state"),
        "ssm.group_count": config.count("mamba_n_groups"),
    }


def _stated(config: Config, key: str, default: int) -> int:
    """The file's own value, never the class's default."""
    return config.count_or(key, default) if config.has(key) else default


def _same(values: list[int]) -> int | list[int]:
    """One number for all layers where they agree."""
    return values[0] if len(set(values)) == 1 else values


def has_attention(model: Model) -> bool:
    """Whether any layer has keys and values of its own."""
    return any(_attention(layer) for layer in model.layers)


def has_states(model: Model) -> bool:
    """Whether any layer keeps a recurrent state alone."""
    return any(isinstance(layer, RecurrentState) for layer in model.layers)


def unknown(model: Model, reason: str) -> ConfigError:
    """The error for a model that the rules here do not cover."""
    msg = f"{model.where}: how llama.cpp converts this model is not known here: {reason}."
    return ConfigError(msg, "give the model's .gguf file; its metadata says what is needed.")
