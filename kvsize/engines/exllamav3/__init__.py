"""exllamav3: a fixed number of tokens in pages of 256, fp16 or 2 to 8 bits, and slots for states.

Source: exllamav3 1.4.1 (cache/cache.py and the modules named in layers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines._layers import compressed_rows, parts, served_layers, uncounted_note
from kvsize.engines._result import (
    Answer,
    Pool,
    Stored,
    assemble,
    filled,
    short_note,
    stored,
)
from kvsize.engines._settings import (
    named_dtype,
    no_pipeline,
    options_of,
    version_of,
    with_context,
)
from kvsize.engines.exllamav3 import layers as arithmetic
from kvsize.engines.exllamav3.layers import NAME, PAGE_SIZE
from kvsize.engines.options import Option
from kvsize.errors import EngineRefuses
from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    LatentAttention,
    RecurrentState,
    SlidingAttention,
)
from kvsize.parallel import latent_note, spread
from kvsize.units import pad

if TYPE_CHECKING:
    from kvsize.engines._layers import Attention
    from kvsize.engines._settings import Values
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Fit, Size

TITLE = "exllamav3: 256-token pages, fp16 or 2-8 bits for keys and values apart"
VERSIONS = ("1.4.1",)
OPTIONS = (
    Option("max_num_tokens", int, None, "tokens of the whole cache, a multiple of 256", least=1),
    Option("k_bits", int, None, "bits of quantized keys (and of an MLA latent), 2 to 8"),
    Option("v_bits", int, None, "bits of quantized values, 2 to 8; None: as k_bits"),
    Option("max_batch_size", int, 16, "slots of recurrent and sliding-window states", least=1),
    Option("max_history", int, 0, "past states per slot (the draft tokens)", least=0),
    Option("swa_full", bool, False, "pages for sliding layers too, instead of rings"),
)
NOT_MODELLED = (
    "Whether the engine has an architecture for the model.",
    "Full-size fp16 copies that attention kernels without online dequantization make.",
    "Checkpoints of states and pages in system memory.",
    "With tensor parallelism the loader spreads heads by free memory; kvsize spreads them evenly.",
)
# Architectures whose sliding layers are SlidingAttention modules with rings; everywhere else a
# sliding layer has pages like a full one (architecture/*.py of 1.4.1).
RING_MODELS = frozenset(
    {"gemma4", "gemma4_text", "gemma4_unified", "gpt_oss", "laguna", "step3p5", "step3p7"}
)


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits of keys and of values; None: fp16."""

    k: int
    v: int


DTYPES: dict[str, Bits | None] = {
    "auto": None,
    "float16": None,
    **{f"q{bits}": Bits(bits, bits) for bits in range(2, 9)},
}
KV_DTYPES = tuple(DTYPES)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the request settles: the cache's tokens, its packing, its slots and the devices."""

    values: Values
    bits: Bits | None
    tokens: int
    ranks: int
    rings: bool
    compressed: bool

    @property
    def dtype(self) -> str:
        """The packing's name."""
        if self.bits is None:
            return "float16"
        same = self.bits.k == self.bits.v
        return f"q{self.bits.k}" if same else f"k{self.bits.k}v{self.bits.v}"


def size(model: Model, request: Request) -> Size:
    """The cache for `sequences` sequences of `context` tokens, or for `max_num_tokens`.

    Raises UsageError for a dtype exllamav3 lacks, EngineRefuses for bits or a token count that
    the engine refuses.
    """
    request = with_context(model, request, NAME)
    needed = request.sequences * pad(request.context, PAGE_SIZE)
    plan = _plan(model, request, needed)
    layers = [_stored(layer, plan) for layer in served_layers(model)]
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="pages of 256 tokens",
        kv_dtype=plan.dtype,
        details={"max_num_tokens": plan.tokens},
        notes=(
            *_notes(model, plan),
            short_note(plan.tokens, needed, "tokens in pages of 256", "longer jobs are refused"),
        ),
    )
    return assemble(answer, request, layers, [range(len(layers))])


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """The pages that `kv_memory` bytes per device hold beside the slots of states.

    The fullest device decides. Raises EngineRefuses for a model without pages, and where the slots
    alone do not fit.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request, PAGE_SIZE)
    devices = _devices(model, request, plan)
    paged = [device for device in devices if device.page_bytes]
    if not paged:
        msg = f"{NAME}: no layer of {model.name} has pages, so there are none to count."
        raise EngineRefuses(msg, "use size: its cache is made of slots.")
    slot_bytes = max(device.slot_bytes for device in devices)
    if slot_bytes > kv_memory:
        msg = f"{NAME}: the slots of states alone take {slot_bytes:,} bytes."
        raise EngineRefuses(msg, "give more memory, or a smaller max_batch_size.")
    blocks = min((kv_memory - device.slot_bytes) // device.page_bytes for device in paged)
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="pages of 256 tokens",
        kv_dtype=plan.dtype,
        details={"max_num_tokens": blocks * PAGE_SIZE, "slot_bytes": slot_bytes},
        notes=_notes(model, plan),
    )
    pool = Pool(
        blocks=blocks,
        block_bytes=max(device.page_bytes for device in paged),
        block_tokens=PAGE_SIZE,
        needed=pad(request.context, PAGE_SIZE) // PAGE_SIZE,
        short="longer jobs are refused",
        name="pages",
    )
    return filled(answer, request, kv_memory, pool)


@dataclass(frozen=True, slots=True)
class _Device:
    slot_bytes: int
    page_bytes: int


def _devices(model: Model, request: Request, one_page: Plan) -> list[_Device]:
    """What slots and a page take on each device: the figures for one page and for two."""
    two_pages = _plan(model, request, 2 * PAGE_SIZE)
    layers = served_layers(model)
    devices = []
    for rank in range(one_page.ranks):
        one = sum(_stored(layer, one_page).used[rank] for layer in layers)
        page_bytes = sum(_stored(layer, two_pages).used[rank] for layer in layers) - one
        devices.append(_Device(one - page_bytes, page_bytes))
    return devices


def _plan(model: Model, request: Request, tokens: int) -> Plan:
    no_pipeline(
        NAME, request, "the loader spreads whole layers by free memory; the figures are the total."
    )
    values = options_of(NAME, OPTIONS, request)
    stated = values.whole_or_none("max_num_tokens")
    if stated is not None:
        arithmetic.check_pages(stated)
    types = {model.model_type, model.config.model_type}
    rings = bool(types & RING_MODELS) and not values.flag("swa_full")
    return Plan(
        values,
        _bits(values, request),
        stated or tokens,
        request.tensor_parallel_size,
        rings,
        bool(compressed_rows(model)),
    )


def _bits(values: Values, request: Request) -> Bits | None:
    k_bits = values.whole_or_none("k_bits")
    if k_bits is None:
        return named_dtype(NAME, DTYPES, request.kv_dtype)
    v_bits = values.whole_or_none("v_bits")
    bits = Bits(k_bits, k_bits if v_bits is None else v_bits)
    arithmetic.check_bits(bits.k, bits.v)
    return bits


def _stored(layer: Layer, plan: Plan) -> Stored:
    attention, recurrent = parts(layer)
    used = [0] * plan.ranks
    if attention is not None:
        used = _attention_bytes(attention, plan)
    if recurrent is not None:
        states = _state_bytes(recurrent, plan)
        used = [kept + state for kept, state in zip(used, states, strict=True)]
    return stored(layer, plan.dtype, used)


def _attention_bytes(attention: Attention, plan: Plan) -> list[int]:
    """Per device: heads are spread, latents and compressed rows are replicated."""
    match attention:
        case CrossAttention():
            return [0] * plan.ranks
        case LatentAttention():
            return [_latent_bytes(attention, plan)] * plan.ranks
        case CompressedAttention():
            return [_compressed_bytes(attention, plan)] * plan.ranks
        case SlidingAttention() if plan.compressed:
            return [_compressed_bytes(attention, plan)] * plan.ranks
    heads = spread(attention.num_key_value_heads, plan.ranks)
    return [_head_bytes(attention, count, plan) for count in heads]


def _head_bytes(attention: FullAttention, heads: int, plan: Plan) -> int:
    """One device's heads: a ring where the layer slides in one, else pages."""
    if isinstance(attention, SlidingAttention) and plan.rings:
        slots = plan.values.whole("max_batch_size")
        return arithmetic.ring_bytes(heads, attention.head_dim, attention.sliding_window, slots)
    if plan.bits is None:
        return arithmetic.fp16_bytes(heads, attention.head_dim, plan.tokens)
    k, v = plan.bits.k, plan.bits.v
    return arithmetic.quantized_bytes(heads, attention.head_dim, plan.tokens, k, v)


def _latent_bytes(attention: LatentAttention, plan: Plan) -> int:
    rank, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
    if plan.bits is None:
        return arithmetic.latent_bytes(rank, rope, plan.tokens)
    return arithmetic.latent_quantized_bytes(rank, rope, plan.tokens, plan.bits.k)


def _compressed_bytes(attention: CompressedAttention | SlidingAttention, plan: Plan) -> int:
    rate, index = None, 0
    if isinstance(attention, CompressedAttention):
        rate, index = attention.compress_rate, attention.index_head_dim
    slots = plan.values.whole("max_batch_size")
    total = arithmetic.compressed_state_bytes(
        attention.head_dim, attention.sliding_window, rate, index, slots
    )
    if rate is None:
        return total
    return total + arithmetic.compressed_pool_bytes(attention.head_dim, rate, index, plan.tokens)


def _state_bytes(recurrent: RecurrentState, plan: Plan) -> list[int]:
    """Per device: channels and heads divide (the fullest device takes the remainder)."""
    convolutions = [s for s in recurrent.states if s.name.startswith("conv")]
    recurrences = [s for s in recurrent.states if not s.name.startswith("conv")]
    slots, history = plan.values.whole("max_batch_size"), plan.values.whole("max_history")
    totals = [0] * plan.ranks
    for index, state in enumerate(convolutions):
        channels = spread(state.shape[0], plan.ranks)
        heads = spread(recurrences[0].shape[0], plan.ranks) if recurrences and not index else ()
        for rank in range(plan.ranks):
            if heads:
                shape = (heads[rank], *recurrences[0].shape[1:])
                totals[rank] += arithmetic.delta_bytes(
                    channels[rank],
                    state.shape[-1],
                    shape,
                    max_batch_size=slots,
                    max_history=history,
                )
            else:
                totals[rank] += arithmetic.short_conv_bytes(
                    channels[rank], state.shape[-1], max_batch_size=slots, max_history=history
                )
    return totals


def _notes(model: Model, plan: Plan) -> tuple[str | None, ...]:
    found = [parts(layer)[0] for layer in served_layers(model)]
    heads = max((a.num_key_value_heads for a in found if isinstance(a, FullAttention)), default=0)
    latent = any(isinstance(a, LatentAttention | CompressedAttention) for a in found)
    sliding = any(isinstance(a, SlidingAttention) for a in found)
    rings = "Sliding layers keep fp16 rings for max_batch_size slots, whatever the cache's tokens."
    return (
        latent_note(plan.ranks, "a layer split over the devices stores it once")
        if latent
        else None,
        f"{heads} KV heads are fewer than the {plan.ranks} devices: some hold none of them."
        if 0 < heads < plan.ranks
        else None,
        rings if sliding and plan.rings else None,
        uncounted_note(model),
    )
