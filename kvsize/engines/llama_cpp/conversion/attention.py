"""Head counts, head lengths and windows, as llama.cpp's converter writes them.

Each rule names the class in `conversion/` (llama.cpp 0c1e57098) that it follows.
"""

from __future__ import annotations

from kvsize.config import Config
from kvsize.engines.llama_cpp.conversion.common import Metadata, attention_of, same, slides
from kvsize.families import family, patterns
from kvsize.layers import ChunkedAttention
from kvsize.model import Model


def plain(model: Model) -> Metadata:
    """TextModel.set_gguf_parameters: sizes, head counts and head lengths."""
    config = model.config
    attention = [attention_of(layer) for layer in model.layers]
    known = [layer for layer in attention if layer is not None]
    fallback = config.count_or("num_attention_heads", 0)
    found: Metadata = {
        "block_count": len(model.layers),
        "context_length": model.context_limit or 0,
        "embedding_length": config.count_or("hidden_size", 0),
        "attention.head_count": same(
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
    return {"attention.sliding_window_pattern": [slides(layer) for layer in model.layers]}


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
