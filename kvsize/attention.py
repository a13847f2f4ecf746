"""What a model's attention is called, and how many heads of which width it caches."""

from __future__ import annotations

from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    RecurrentState,
)

Heads = tuple[int | None, int | None, int | None]
"""num_attention_heads, num_key_value_heads, head_dim; None where layers differ or have none."""


Attention = FullAttention | LatentAttention | CompressedAttention


def attention_layers(layers: tuple[Layer, ...]) -> list[Attention]:
    """The self-attention in `layers`, the attention half of hybrid layers included."""
    halves = [layer.attention if isinstance(layer, HybridLayer) else layer for layer in layers]
    return [layer for layer in halves if isinstance(layer, Attention)]


def attention_name(layers: tuple[Layer, ...]) -> str:
    """`MHA`, `GQA`, `MQA`, `MLA`, `compressed`, `recurrent`, or `hybrid` and what of.

    MHA: every query head has its own KV head; MQA: all share one; GQA: groups share one
    (Ainslie et al. 2023, figure 2). MLA: all share a latent (DeepSeek-V2, section 2.1).
    """
    names = list(dict.fromkeys(_name(layer) for layer in attention_layers(layers)))
    if any(isinstance(layer, RecurrentState | HybridLayer) for layer in layers):
        return f"hybrid {' + '.join([*names, 'recurrent'])}" if names else "recurrent"
    if any(isinstance(layer, CrossAttention) for layer in layers):
        names.append("cross")
    return " + ".join(names) or "none"


def heads(layers: tuple[Layer, ...]) -> Heads:
    """The head counts that all self-attention layers have in common."""
    counts = {_counts(layer) for layer in attention_layers(layers)}
    queries, cached, widths = ({each[i] for each in counts} for i in range(3))
    return _only(queries), _only(cached), _only(widths)


def attention_short(name: str, num_attention_heads: int | None, cached: int | None) -> str:
    """A name and its heads where there is little room: `GQA 64:8`, `hybrid 16:2`, `MLA`."""
    short = "hybrid" if name.startswith("hybrid") else name
    return f"{short} {num_attention_heads}:{cached}" if num_attention_heads and cached else short


def attention_detail(layers: tuple[Layer, ...]) -> str:
    """Each kind of self-attention in words: `64 query heads : 8 KV heads, head_dim 128`."""
    found = [_detail(layer) for layer in attention_layers(layers)]
    kinds = list(dict.fromkeys(found))
    if len(kinds) == 1:
        return kinds[0]
    return "; ".join(f"{kind} ({_plural(found.count(kind), 'layer')})" for kind in kinds)


def _name(layer: Attention) -> str:
    match layer:
        case LatentAttention():
            return "MLA"
        case CompressedAttention():
            return "compressed"
        case FullAttention(num_attention_heads=queries, num_key_value_heads=cached):
            return "MHA" if cached >= queries else "MQA" if cached == 1 else "GQA"


def _counts(layer: Attention) -> Heads:
    match layer:
        case FullAttention():
            return layer.num_attention_heads, layer.num_key_value_heads, layer.head_dim
        case CompressedAttention():
            return layer.num_attention_heads, 1, layer.head_dim
        case LatentAttention():
            return layer.num_attention_heads, None, None


def _detail(layer: Attention) -> str:
    match layer:
        case FullAttention():
            width = str(layer.head_dim)
            if layer.v_head_dim != layer.head_dim:
                width += f" (values {layer.v_head_dim})"
            return _shared(layer.num_attention_heads, layer.num_key_value_heads, width)
        case CompressedAttention():
            return _shared(layer.num_attention_heads, 1, str(layer.head_dim))
        case LatentAttention():
            latent = f"{layer.kv_lora_rank} + {layer.qk_rope_head_dim}"
            return f"{_plural(layer.num_attention_heads, 'query head')} : one latent of {latent}"


def _shared(queries: int, cached: int, width: str) -> str:
    return f"{_plural(queries, 'query head')} : {_plural(cached, 'KV head')}, head_dim {width}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _only(values: set[int | None]) -> int | None:
    return values.pop() if len(values) == 1 else None
