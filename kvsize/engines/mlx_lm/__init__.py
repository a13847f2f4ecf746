"""MLX-LM: one pair of arrays per layer that grows in steps of 256 tokens, no pool.

Source: mlx_lm 0.32.2, models/cache.py, generate.py and the model files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.dtypes import TORCH_DTYPES, torch_dtype
from kvsize.engines._layers import parallel_notes, parts, served_layers
from kvsize.engines._result import Answer, Stored, assemble, stored
from kvsize.engines._settings import (
    named_dtype,
    no_pipeline,
    not_modelled,
    options_of,
    version_of,
    with_context,
)
from kvsize.engines.mlx_lm import models
from kvsize.engines.mlx_lm.growth import (
    NAME,
    PREFILL_STEP,
    Room,
    chunked,
    growing,
    prompt_steps,
    quantized_row_bytes,
    rotating,
)
from kvsize.engines.options import Option
from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    HybridLayer,
    LatentAttention,
    RecurrentState,
    SlidingAttention,
)
from kvsize.parallel import heads_per_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvsize.engines._layers import Attention
    from kvsize.engines._settings import Values
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Size

TITLE = "MLX-LM: arrays per layer that grow by 256 tokens, rotating or quantized"
VERSIONS = ("0.32.2",)
OPTIONS = (
    Option("prompt", int, None, "tokens of the context that are prompt (None: all)", least=1),
    Option("prefill_step_size", int, PREFILL_STEP, "tokens of one prefill step", least=1),
    Option("max_kv_size", int, None, "rotate at this size, keeping the first four", least=1),
    Option("kv_bits", int, None, "quantize keys and values", choices=(2, 3, 4, 5, 6, 8)),
    Option("kv_group_size", int, 64, "elements per scale and bias", choices=(32, 64, 128)),
    Option("quantized_kv_start", int, 5000, "tokens before quantizing", least=0),
)
NOT_MODELLED = (
    "DeepSeek-V4's cache.",
    "Prompt caches kept for later requests (mlx_lm.server's LRU).",
    "The transient copy while an array grows.",
    "Pipeline parallelism of mlx.launch.",
)
_DTYPES = {name: TORCH_DTYPES[name] for name in ("bfloat16", "float16", "float32")}
KV_DTYPES = ("auto", *_DTYPES)
_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What model and request settle: the steps in which tokens arrive, and how they are packed."""

    model: Model
    values: Values
    itemsize: int
    sequences: int
    ranks: int
    steps: Sequence[int]
    generated: int
    quantized: bool
    dtype: str

    def row_bytes(self, k_dim: int, v_dim: int, *, plain: bool = False) -> int:
        """Bytes of one head's key and value for one token; `plain` where nothing quantizes it."""
        if plain or not self.quantized:
            return (k_dim + v_dim) * self.itemsize
        bits, group = self.values.whole("kv_bits"), self.values.whole("kv_group_size")
        widths = [width for width in (k_dim, v_dim) if width]
        return sum(quantized_row_bytes(width, bits, group, self.itemsize) for width in widths)

    def grown(self, layer: Layer, heads: int, row_bytes: int, room: Room, then: Room) -> Stored:
        """A layer of `heads` rows with `room` in the end and `then` after the prompt."""
        per_token = self.sequences * heads * row_bytes
        used = [per_token * room.tokens] * self.ranks
        return stored(layer, self.dtype, used, used, [per_token * then.tokens] * self.ranks)


def size(model: Model, request: Request) -> Size:
    """The arrays after `context` tokens per sequence, of which `prompt` came as a prompt.

    Raises UsageError for a dtype that is not a plain one, EngineRefuses for rotating caches that
    are asked to be quantized and for groups that do not divide a head.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request)
    layers = [_stored(layer, plan) for layer in served_layers(model)]
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="prompt cache",
        kv_dtype=plan.dtype,
        details={"prompt": request.context - plan.generated, "generated": plan.generated},
        notes=_notes(model, request, plan),
    )
    return assemble(answer, request, layers, [range(len(layers))])


def _plan(model: Model, request: Request) -> Plan:
    no_pipeline(NAME, request, "set tensor_parallel_size, or leave it to mlx.launch.")
    values = options_of(NAME, OPTIONS, request)
    prompt = values.whole_or_none("prompt") or request.context
    if prompt > request.context:
        msg = f"{NAME}: prompt {prompt:,} is longer than the context {request.context:,}."
        raise UsageError(msg, "the context counts the prompt and what is generated.")
    dtype = model.dtype if request.kv_dtype == "auto" else request.kv_dtype
    bits = values.whole_or_none("kv_bits")
    quantized = bits is not None and request.context >= values.whole("quantized_kv_start")
    return Plan(
        model=model,
        values=values,
        itemsize=named_dtype(NAME, _DTYPES, dtype).block_bytes,
        sequences=request.sequences,
        ranks=request.tensor_parallel_size,
        steps=prompt_steps(prompt, values.whole("prefill_step_size")),
        generated=request.context - prompt,
        quantized=quantized,
        dtype=f"{bits}-bit" if quantized else torch_dtype(dtype).name,
    )


def _stored(layer: Layer, plan: Plan) -> Stored:
    attention, recurrent = parts(layer)
    if attention is None and recurrent is None:
        return stored(layer, plan.dtype, [0] * plan.ranks)
    if attention is None:
        return stored(layer, plan.dtype, [_state_bytes(recurrent, plan)] * plan.ranks)
    kept = _attention(layer, attention, plan)
    states = _state_bytes(recurrent, plan)
    used = [bytes_ + states for bytes_ in kept.used]
    return stored(layer, plan.dtype, used, used, [bytes_ + states for bytes_ in kept.prefill])


def _attention(layer: Layer, attention: Attention, plan: Plan) -> Stored:
    match attention:
        case CompressedAttention():
            raise not_modelled(NAME, "DeepSeek-V4's cache", "use another engine for the figure.")
        case CrossAttention():
            raise not_modelled(NAME, "cross-attention", "use engine transformers.")
        case LatentAttention():
            heads, row = _latent_row(attention, plan)
        case _:
            # maybe_quantize_kv_cache passes over caches without to_quantized: ChunkedKVCache,
            # and the CacheList that holds attention beside a state.
            plain = isinstance(attention, ChunkedAttention) or isinstance(layer, HybridLayer)
            heads = heads_per_rank(attention.num_key_value_heads, plan.ranks)
            row = plan.row_bytes(attention.head_dim, attention.v_head_dim, plain=plain)
    return plan.grown(layer, heads, row, *_rooms(attention, plan))


def _rooms(attention: Attention, plan: Plan) -> tuple[Room, Room]:
    """Room in the end and after the prompt, by the kind of cache the layer gets."""
    if isinstance(attention, ChunkedAttention):
        chunk = attention.attention_chunk_size
        rooms = [chunked(plan.steps, count, chunk) for count in (plan.generated, 0)]
        return Room(rooms[0], rooms[0]), Room(rooms[1], rooms[1])
    window = None
    if not models.makes_cache(plan.model):
        window = plan.values.whole_or_none("max_kv_size")
    if isinstance(attention, SlidingAttention) and models.rotates(plan.model):
        window = attention.sliding_window
    if window is None:
        rooms = [growing(plan.steps, count) for count in (plan.generated, 0)]
        return Room(rooms[0], rooms[0]), Room(rooms[1], rooms[1])
    if plan.quantized:
        msg = f"{NAME}: a RotatingKVCache cannot be quantized, and {plan.model.name} has some."
        raise EngineRefuses(msg, "leave kv_bits out.")
    return rotating(plan.steps, plan.generated, window), rotating(plan.steps, 0, window)


def _latent_row(attention: LatentAttention, plan: Plan) -> tuple[int, int]:
    """Heads and bytes of a latent's row: K holds the latent, V the rotary key.

    deepseek_v32.py keeps the indexer's keys with an array of zeros of the same size as values.
    """
    rope = attention.qk_rope_head_dim
    if models.expands_latent(plan.model):
        heads = heads_per_rank(attention.num_attention_heads, plan.ranks)
        # minicpm3.py computes the width of its values, which the file does not state.
        hidden = plan.model.config.count_or("hidden_size", 0)
        v_head_dim = attention.v_head_dim or hidden // attention.num_attention_heads
        return heads, plan.row_bytes(attention.qk_nope_head_dim + rope, v_head_dim)
    listed = bool(attention.extras)  # in a CacheList, which is never quantized
    index = sum(2 * extra.width * plan.itemsize for extra in attention.extras)
    return 1, plan.row_bytes(attention.kv_lora_rank, rope, plain=listed) + index


def _state_bytes(recurrent: RecurrentState | None, plan: Plan) -> int:
    """ArraysCache: kernel - 1 columns of a convolution, states of heads in float32.

    mamba.py and jamba.py keep a Mamba-1 state, which has no heads, in the activations' dtype.
    """
    total = 0
    for state in recurrent.states if recurrent else ():
        shape = state.shape
        if state.name.startswith("conv"):
            shape = (*shape[:-1], shape[-1] - 1)
        itemsize = plan.itemsize if len(shape) == 2 else _FLOAT32_BYTES
        elements = plan.sequences
        for length in (shape[0] // plan.ranks, *shape[1:]):
            elements *= length
        total += elements * itemsize
    return total


def _notes(model: Model, request: Request, plan: Plan) -> tuple[str | None, ...]:
    bits = plan.values.whole_or_none("kv_bits")
    late = bits is not None and not plan.quantized
    start = plan.values.whole("quantized_kv_start")
    ignored = plan.values.whole_or_none("max_kv_size") and models.makes_cache(model)
    return (
        *parallel_notes(model, request.tensor_parallel_size, "each keeps a copy"),
        f"Nothing is quantized before {start:,} tokens (quantized_kv_start)." if late else None,
        f"max_kv_size has no effect: the file of {model.model_type} makes its own caches."
        if ignored
        else None,
    )
