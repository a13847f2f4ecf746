"""From a model and a request to TensorRT-LLM's layers, pools and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import canonical
from kvsize.engines._layers import checkpoint_kv_dtype, parts, served_layers, sixteen_bit
from kvsize.engines._settings import Values, named_dtype, not_modelled, options_of
from kvsize.engines.options import Option
from kvsize.engines.tensorrt_llm.blocks import (
    ELEMENTS,
    NAME,
    TOKENS_PER_BLOCK,
    index_row_bytes,
    latent_token_bytes,
    layer_token_bytes,
    state_bytes,
)
from kvsize.errors import UsageError
from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    LatentAttention,
    RecurrentState,
    SlidingAttention,
)
from kvsize.parallel import stages

if TYPE_CHECKING:
    from kvsize.engines._layers import Attention
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model

DSA_TOKENS_PER_BLOCK = 64
OPTIONS = (
    Option("tokens_per_block", int, None, "32, and 64 with sparse attention (DSA)", least=1),
    Option(
        "free_gpu_memory_fraction",
        float,
        None,
        "share of free memory the pools take (the engine's default is 0.9); when given, kv_memory "
        "is the memory available after the profiling run, else the pools' own budget",
    ),
    Option(
        "free_memory",
        int,
        None,
        "bytes free when the final manager is made, where they differ from kv_memory",
        least=1,
    ),
    Option("max_tokens", int, None, "a limit on the pool's tokens", least=1),
    Option("max_gpu_total_bytes", int, 0, "a limit on the pool's bytes; 0: none", least=0),
    Option(
        "max_attention_window",
        str,
        None,
        "windows per layer, separated by commas, repeated over the layers; None: the model's own",
    ),
    Option("window_size_shares", str, None, "TRTLLM_WINDOW_SIZE_SHARES, such as 0.4,0.6"),
    Option("enable_attention_dp", bool, False, "every rank serves its own requests whole"),
    Option("max_batch_size", int, 2048, "sequences run at once: live recurrent states", least=1),
    Option("mamba_state_cache_interval", int, 256, "tokens between state snapshots", least=0),
    Option("enable_block_reuse", bool, True, "keep blocks and state snapshots for prefixes"),
    Option("max_draft_len", int, 0, "draft tokens, each with a state slot", least=0),
    Option("num_nextn_predict_layers", int, 0, "draft layers on the last pipeline rank", least=0),
    Option(
        "mamba_ssm_cache_dtype",
        str,
        "float32",
        "recurrent states",
        choices=("float32", "bfloat16", "float16"),
    ),
    Option("indexer_k_cache_use_fp4", bool, False, "FP4 instead of FP8 indexer keys"),
    Option("cross_kv_cache_fraction", float, 0.5, "share of memory for cross attention"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """What one layer costs a rank: bytes of a token, bytes of a live state, and its window."""

    layer: Layer
    token_bytes: int
    state_bytes: int = 0
    window: int | None = None
    cross: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What model and request settle."""

    values: Values
    dtype: str
    tokens_per_block: int
    layers: tuple[LayerCost, ...]
    stages: tuple[range, ...]
    tensor_ranks: int
    attention_dp: bool

    @property
    def fullest(self) -> tuple[LayerCost, ...]:
        """The layers of the pipeline stage whose tokens cost most: it decides what fits."""
        by_stage = [tuple(self.layers[i] for i in stage) for stage in self.stages]
        return max(by_stage, key=lambda layers: sum(layer.token_bytes for layer in layers))

    def windows(self, layers: tuple[LayerCost, ...], max_seq_len: int) -> dict[int, list[int]]:
        """The layers' indices under each distinct window, capped at the longest sequence."""
        found: dict[int, list[int]] = {}
        for index, layer in enumerate(layers):
            if layer.token_bytes and not layer.cross:
                window = min(layer.window or max_seq_len, max_seq_len)
                found.setdefault(window, []).append(index)
        return found


def plan_of(model: Model, request: Request) -> Plan:
    """The plan for `model` and `request`; raises UsageError for what cannot be meant."""
    values = options_of(NAME, OPTIONS, request)
    own = checkpoint_kv_dtype(model) or sixteen_bit(model)
    dtype = own if request.kv_dtype == "auto" else canonical(request.kv_dtype)
    named_dtype(NAME, ELEMENTS, dtype)
    attention_dp = values.flag("enable_attention_dp")
    ranks = 1 if attention_dp else request.tensor_parallel_size
    windows = _windows(model, values)
    layers = [
        _cost(layer, dtype, ranks, window, values)
        for layer, window in zip(served_layers(model), windows, strict=True)
    ]
    split = list(stages(len(layers), request.pipeline_parallel_size, extra="first"))
    drafts = values.whole("num_nextn_predict_layers")
    if drafts:
        layers += [layers[-1]] * drafts
        split[-1] = range(split[-1].start, len(layers))
    return Plan(
        values=values,
        dtype=dtype,
        tokens_per_block=_tokens_per_block(model, values),
        layers=tuple(layers),
        stages=tuple(split),
        tensor_ranks=request.tensor_parallel_size,
        attention_dp=attention_dp,
    )


def _tokens_per_block(model: Model, values: Values) -> int:
    indexed = any(
        isinstance(parts(layer)[0], LatentAttention) and getattr(parts(layer)[0], "extras", ())
        for layer in served_layers(model)
    )
    default = DSA_TOKENS_PER_BLOCK if indexed else TOKENS_PER_BLOCK
    return values.whole_or_none("tokens_per_block") or default


def _windows(model: Model, values: Values) -> list[int | None]:
    """One window per layer: as given, else the model's where sliding and full layers mix.

    `_derive_layer_type_attention_windows` leaves a model of one window alone, and takes chunked
    layers for full ones.
    """
    stated = values.text("max_attention_window")
    if stated is not None:
        pattern = _whole_numbers(stated)
        return [pattern[index % len(pattern)] for index in range(len(model.layers))]
    found = [
        attention.sliding_window if isinstance(attention, SlidingAttention) else None
        for attention, _ in map(parts, served_layers(model))
    ]
    attending = {
        window
        for window, layer in zip(found, served_layers(model), strict=True)
        if parts(layer)[0] is not None
    }
    return found if len(attending) > 1 else [None] * len(found)


def _whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        msg = f"{NAME}: max_attention_window cannot be '{text}'."
        raise UsageError(msg, "give whole numbers separated by commas, such as 128,131072.")
    return numbers


def _cost(layer: Layer, dtype: str, ranks: int, window: int | None, values: Values) -> LayerCost:
    attention, recurrent = parts(layer)
    return LayerCost(
        layer=layer,
        token_bytes=_token_bytes(attention, dtype, ranks, values),
        state_bytes=_state_bytes(recurrent, ranks, values),
        window=window,
        cross=isinstance(attention, CrossAttention),
    )


def _token_bytes(attention: Attention | None, dtype: str, ranks: int, values: Values) -> int:
    match attention:
        case None:
            return 0
        case CompressedAttention():
            raise not_modelled(NAME, "DeepSeek-V4's cache", "use vllm or sglang.")
        case LatentAttention():
            fp4 = values.flag("indexer_k_cache_use_fp4")
            index = sum(index_row_bytes(extra.width, fp4=fp4) for extra in attention.extras)
            latent = latent_token_bytes(attention.kv_lora_rank, attention.qk_rope_head_dim, dtype)
            return latent + index
    heads, head_dim = attention.num_key_value_heads, attention.head_dim
    return layer_token_bytes(heads, head_dim, dtype, tensor_parallel_size=ranks)


def _state_bytes(recurrent: RecurrentState | None, ranks: int, values: Values) -> int:
    if recurrent is None:
        return 0
    itemsize = ELEMENTS[str(values.text("mamba_ssm_cache_dtype"))].block_bytes
    convolutions, recurrences = [], []
    for state in recurrent.states:
        if state.name.startswith("conv"):
            convolutions.append((state.shape[0] // ranks, state.shape[-1]))
        else:
            elements = itemsize
            for length in (state.shape[0] // ranks, *state.shape[1:]):
                elements *= length
            recurrences.append(elements)
    return state_bytes(convolutions, recurrences)
