"""A model's layers as serving engines see them: attention and state apart, named and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
)
from kvsize.parallel import latent_note, replication_note
from kvsize.record import replace

if TYPE_CHECKING:
    from kvsize.layers import Layer
    from kvsize.model import Model

Attention = FullAttention | LatentAttention | CompressedAttention | CrossAttention


def parts(layer: Layer) -> tuple[Attention | None, RecurrentState | None]:
    """A layer's attention and its recurrent state; either may be absent."""
    match layer:
        case HybridLayer():
            return layer.attention, layer.recurrent
        case RecurrentState():
            return None, layer
        case NoCache():
            return None, None
    return layer, None


def served_layers(model: Model) -> tuple[Layer, ...]:
    """The layers as serving engines cache them, where that differs from transformers.

    Falcon's new decoder architecture: transformers repeats each KV head for its query heads
    before caching, the engines store `num_kv_heads`.
    """
    config = model.config
    if model.model_type != "falcon" or not config.flag("new_decoder_architecture"):
        return model.layers
    heads = config.count("num_kv_heads")
    return tuple(
        replace(layer, num_key_value_heads=heads) if isinstance(layer, FullAttention) else layer
        for layer in model.layers
    )


def attentions(model: Model) -> tuple[Attention, ...]:
    """The attention of every layer that has one."""
    found = (parts(layer)[0] for layer in served_layers(model))
    return tuple(attention for attention in found if attention is not None)


def recurrents(model: Model) -> tuple[RecurrentState, ...]:
    """The recurrent state of every layer that has one."""
    found = (parts(layer)[1] for layer in model.layers)
    return tuple(state for state in found if state is not None)


def parallel_notes(model: Model, ranks: int, latent_remedy: str) -> tuple[str | None, ...]:
    """What tensor parallelism over `ranks` does not save for this model, in sentences."""
    found = attentions(model)
    latent = any(isinstance(attention, LatentAttention) for attention in found)
    heads = max((a.num_key_value_heads for a in found if isinstance(a, FullAttention)), default=0)
    return (
        latent_note(ranks, latent_remedy) if latent else None,
        replication_note(heads, ranks) if heads else None,
    )


def uncounted_note(model: Model) -> str | None:
    """A sentence for models with cross-attention, in engines whose figure leaves it out."""
    if not any(isinstance(attention, CrossAttention) for attention in attentions(model)):
        return None
    return "The keys and values of encoder or image tokens are not counted."


def sixteen_bit(model: Model) -> str:
    """The model's dtype as these engines run it: 32-bit checkpoints in float16, Gemma's in bfloat16.

    SGLang 0.5.23 `_get_and_verify_dtype`; LMDeploy 0.18.0 `_update_torch_dtype` halves them too.
    """
    if model.dtype not in {"float32", "float64"}:
        return model.dtype
    return "bfloat16" if model.model_type.startswith("gemma") else "float16"


def checkpoint_kv_dtype(model: Model) -> str | None:
    """What "auto" means for a ModelOpt checkpoint with an FP8 cache: fp8; None otherwise.

    SGLang 0.5.23 layers/quantization/modelopt_quant.py; TensorRT-LLM reads the same section.
    """
    section = model.root.mapping("quantization_config") or {}
    scheme = section.get("kv_cache_scheme")
    if section.get("quant_method") != "modelopt":
        return None
    if isinstance(scheme, Mapping):
        return "fp8" if (scheme.get("type"), scheme.get("num_bits")) == ("float", 8) else None
    return "fp8" if str(section.get("kv_cache_quant_algo")).upper() == "FP8" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedRows:
    """A layer of DeepSeek-V4: a window of rows, and compressed ones unless the rate is None."""

    head_dim: int
    sliding_window: int
    compress_rate: int | None = None
    index_head_dim: int = 0


def compressed_rows(model: Model) -> tuple[CompressedRows, ...]:
    """The layers of a DeepSeek-V4 model, () for any other.

    Its plain sliding layers keep one row per token, as the layers that compress do.
    """
    found = attentions(model)
    if not any(isinstance(attention, CompressedAttention) for attention in found):
        return ()
    return tuple(
        CompressedRows(
            head_dim=attention.head_dim,
            sliding_window=attention.sliding_window,
            compress_rate=getattr(attention, "compress_rate", None),
            index_head_dim=getattr(attention, "index_head_dim", 0),
        )
        for attention in found
        if isinstance(attention, CompressedAttention | SlidingAttention)
    )


def tensors_of(layer: Layer, dtype: str) -> tuple[str, ...]:
    """What a layer keeps, as shapes in words; heads are those of the whole model."""
    attention, recurrent = parts(layer)
    words: list[str] = []
    match attention:
        case LatentAttention():
            width = attention.kv_lora_rank + attention.qk_rope_head_dim
            words.append(f"latent and rotary key [tokens, {width}] {dtype}")
            words += [f"{x.name} [tokens, {x.width}]" for x in attention.extras]
        case CompressedAttention():
            rate = attention.compress_rate
            words.append(f"rows [window {attention.sliding_window}, {attention.head_dim}]")
            words.append(f"compressed rows [tokens / {rate}, {attention.head_dim}]")
        case FullAttention():
            heads = attention.num_key_value_heads
            words.append(f"keys [tokens, {heads}, {attention.head_dim}] {dtype}")
            words.append(f"values [tokens, {heads}, {attention.v_head_dim}] {dtype}")
            words += [f"{x.name} [tokens, {x.width}]" for x in attention.extras]
        case CrossAttention():
            heads = attention.num_key_value_heads
            words.append(f"keys and values [encoder tokens, {heads}, {attention.head_dim}] {dtype}")
    states = recurrent.states if recurrent else ()
    return (*words, *(f"{state.name} {list(state.shape)}" for state in states))


def kind_of(layer: Layer) -> str:
    """What a group of such layers is called, such as `full attention`."""
    attention, recurrent = parts(layer)
    names = {
        "FullAttention": "full attention",
        "SlidingAttention": "sliding attention",
        "ChunkedAttention": "chunked attention",
        "ReferenceAttention": "full attention",
        "LatentAttention": "latent attention",
        "CompressedAttention": "compressed attention",
        "CrossAttention": "cross attention",
        "NoneType": "",
    }
    name = names[type(attention).__name__]
    match attention:
        case CompressedAttention(compress_rate=rate):
            name += f", ratio {rate}"
        case FullAttention(extras=(_, *_)) | LatentAttention(extras=(_, *_)):
            name += " with indexer"
    words = [name, "recurrent state" if recurrent else ""]
    return " and ".join(word for word in words if word) or "nothing kept"
