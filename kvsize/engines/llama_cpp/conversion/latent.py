"""Latents and indexers, as llama.cpp's converter writes them.

Each rule names the class in `conversion/` (llama.cpp 0c1e57098) that it follows.
"""

from __future__ import annotations

from kvsize.engines.llama_cpp.conversion.common import Metadata, same, slides, unknown
from kvsize.layers import CompressedAttention, FullAttention, LatentAttention
from kvsize.model import Model


def latent(model: Model) -> Metadata:
    """DeepseekV2Model: latents as the keys of one head; no window's latent among them."""
    layers = [layer for layer in model.layers if isinstance(layer, LatentAttention)]
    if not layers:
        raise unknown(model, "no layer of it attends")
    full = next((layer for layer in layers if layer.sliding_window is None), layers[0])
    return {
        "attention.head_count": same(
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
        "attention.sliding_window_pattern": [slides(layer) for layer in model.layers],
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
    return {"attention.indexer.types": [not slides(layer) for layer in model.layers]}


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
