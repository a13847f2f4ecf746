"""LMDeploy's TurboMind backend: blocks of 64 tokens cut from slabs of an object cache.

Sources: lmdeploy src/turbomind (git 1263d5cd, 0.16.0): models/llama/block.h (bytes of a block),
memory/slab.h, memory/page.h and memory/object.cc (slabs and pages), turbomind.cc (the budget).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.engines._layers import (
    parallel_notes,
    parts,
    recurrents,
    served_layers,
    sixteen_bit,
    uncounted_note,
)
from kvsize.engines._result import Answer, Pool, assemble, filled, stored
from kvsize.engines._settings import (
    Values,
    named_dtype,
    no_pipeline,
    options_of,
    version_of,
    with_context,
)
from kvsize.engines.options import Option
from kvsize.errors import EngineRefuses
from kvsize.layers import CompressedAttention, CrossAttention, LatentAttention
from kvsize.parallel import heads_per_rank
from kvsize.units import GIB, MIB, ceil_div

if TYPE_CHECKING:
    from kvsize.engines.options import Request
    from kvsize.layers import Layer
    from kvsize.model import Model
    from kvsize.results import Fit, Size

NAME = "lmdeploy-turbomind"
TITLE = "LMDeploy TurboMind: 64-token blocks in the slabs of an object cache"
VERSIONS = ("0.16.0", "0.14.0")
OPTIONS = (
    Option("cache_block_seq_len", int, 64, "tokens in one block", least=1),
    Option(
        "cache_max_entry_count",
        float,
        None,
        "share of free memory the cache takes (the engine's default is 0.8); when given, "
        "kv_memory is the free memory after loading, else the cache's own region",
    ),
    Option("quant_policy", int, None, "0 none, 4 int4, 8 int8", choices=(0, 4, 8, 16, 17)),
)
NOT_MODELLED = (
    "The recurrent states of Qwen3.5 layers, which are further objects of the same region.",
    "Sliding windows save nothing: TurboMind keeps every block of a sequence.",
    "The start of the region is taken to be aligned to 32 MiB; a page is lost where it is not.",
)

# memory/object.cc: pages of 32 MiB, slabs from 32 MiB up to 1 GiB, doubled below 95 % use.
PAGE_BYTES = 32 * MIB
LARGEST_SLAB_BYTES = GIB
_FILL_NUMERATOR, _FILL_DENOMINATOR = 15938355, 2**24  # .95f as the nearest binary32


@dataclass(frozen=True, slots=True)
class Packing:
    """Bits of one element, and the bytes of scale and zero point each head adds per token."""

    bits: int
    param_bytes: int = 0


DTYPES = {
    "auto": Packing(16),
    "bfloat16": Packing(16),
    "float16": Packing(16),
    "int8": Packing(8, 4),
    "int4": Packing(4, 4),
}
KV_DTYPES = tuple(DTYPES)
_POLICY_DTYPES = {0: "auto", 4: "int4", 8: "int8"}


def layer_block_bytes(
    kv_heads: int, head_dim: int, packing: Packing, *, block_len: int = 64, tensors: int = 2
) -> int:
    """Bytes of one layer's block on one rank; `tensors` is 1 where keys and values are one (MLA).

    block.h: for each head, key or value, and token, the elements and their 2 × 16-bit parameters.
    """
    row_bytes = ceil_div(head_dim * packing.bits, 8) + packing.param_bytes
    return kv_heads * tensors * block_len * row_bytes


@dataclass(frozen=True, slots=True)
class Slabs:
    """How a region holds blocks: whole slabs of `slab_bytes`, each with `blocks_per_slab`."""

    pages: int
    slab_bytes: int
    blocks_per_slab: int
    usable_blocks: int
    free_pages_left: int


def slabs(region_bytes: int, block_bytes: int) -> Slabs:
    """The blocks that fit in a region of the object cache (0.15 and newer).

    slab.h starts at the smallest power-of-two number of pages that holds one block and doubles
    while less than 95 % is used and the double is at most 1 GiB; page.h is a buddy allocator, so
    every aligned run of pages can become a slab.
    """
    pages = region_bytes // PAGE_BYTES
    slab_pages = 1 << (ceil_div(block_bytes, PAGE_BYTES) - 1).bit_length()
    slab_bytes = slab_pages * PAGE_BYTES
    while (
        slab_bytes // block_bytes * block_bytes * _FILL_DENOMINATOR < slab_bytes * _FILL_NUMERATOR
        and slab_bytes * 2 <= LARGEST_SLAB_BYTES
    ):
        slab_bytes *= 2
    count = pages // (slab_bytes // PAGE_BYTES)
    per_slab = slab_bytes // block_bytes
    left = pages - count * (slab_bytes // PAGE_BYTES)
    return Slabs(pages, slab_bytes, per_slab, count * per_slab, left)


def region_bytes(free_bytes: int, cache_max_entry_count: float) -> int:
    """The cache's region: a share of the free memory, cut as the engine casts its double."""
    return int(free_bytes * cache_max_entry_count)


def local_heads(num_key_value_heads: int, tensor_parallel_size: int) -> int:
    """KV heads of one rank, repeated below one; EngineRefuses where neither count divides."""
    larger = max(num_key_value_heads, tensor_parallel_size)
    if larger % min(num_key_value_heads, tensor_parallel_size):
        msg = f"{NAME}: {num_key_value_heads} KV heads cannot be cut over {tensor_parallel_size}."
        raise EngineRefuses(msg, "use a tensor_parallel_size that divides the KV heads.")
    return heads_per_rank(num_key_value_heads, tensor_parallel_size)


# -- from a model to the figures above ------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Plan:
    """What the request settles: the packing of an element, the block and the ranks."""

    values: Values
    dtype: str
    packing: Packing
    tensor_parallel_size: int

    @property
    def block_len(self) -> int:
        """Tokens of one block."""
        return self.values.whole("cache_block_seq_len")

    def layer_block_bytes(self, layer: Layer) -> int:
        """Bytes of `layer`'s part of a block on one rank."""
        attention, _ = parts(layer)
        match attention:
            case None | CrossAttention():
                return 0
            case CompressedAttention():
                msg = f"{NAME} does not run DeepSeek-V4's compressed attention."
                raise EngineRefuses(msg, "use lmdeploy-pytorch, vllm or sglang.")
            case LatentAttention():
                width = attention.kv_lora_rank + attention.qk_rope_head_dim
                return layer_block_bytes(
                    1, width, self.packing, block_len=self.block_len, tensors=1
                )
        heads = local_heads(attention.num_key_value_heads, self.tensor_parallel_size)
        return layer_block_bytes(heads, attention.head_dim, self.packing, block_len=self.block_len)


def _plan(model: Model, request: Request) -> Plan:
    no_pipeline(NAME, request, "set tensor_parallel_size instead.")
    values = options_of(NAME, OPTIONS, request)
    policy = values.whole_or_none("quant_policy")
    if policy in {16, 17}:
        msg = f"{NAME} refuses quant_policy {policy} (fp8)."
        raise EngineRefuses(msg, "use quant_policy 8 or 4, or the PyTorch engine.")
    dtype = request.kv_dtype if policy is None else _POLICY_DTYPES[policy]
    packing = named_dtype(NAME, DTYPES, dtype)
    shown = sixteen_bit(model) if dtype == "auto" else dtype
    return Plan(values, shown, packing, request.tensor_parallel_size)


def size(model: Model, request: Request) -> Size:
    """The blocks that `sequences` sequences of `context` tokens take, on every rank.

    Raises UsageError for a dtype TurboMind lacks, EngineRefuses for what it cannot run.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request)
    blocks = request.sequences * ceil_div(request.context, plan.block_len)
    ranks = request.tensor_parallel_size
    layers = [
        stored(layer, plan.dtype, [blocks * plan.layer_block_bytes(layer)] * ranks)
        for layer in served_layers(model)
    ]
    answer = Answer(
        engine=NAME,
        version=version_of(NAME, VERSIONS, request.engine_version),
        cache="object cache blocks",
        kv_dtype=plan.dtype,
        details={
            "blocks": blocks,
            "block_bytes": sum(plan.layer_block_bytes(layer) for layer in served_layers(model)),
            "cache_block_seq_len": plan.block_len,
        },
        notes=_notes(model, request),
    )
    return assemble(answer, request, layers, [range(len(layers))])


def fit(model: Model, request: Request, kv_memory: int) -> Fit:
    """The blocks that fit in `kv_memory` bytes per rank.

    `kv_memory` is the cache's region, or the free memory when `cache_max_entry_count` is given.
    Raises EngineRefuses for a ratio outside 0 to 1 and for a model without blocks.
    """
    request = with_context(model, request, NAME)
    plan = _plan(model, request)
    version = version_of(NAME, VERSIONS, request.engine_version)
    region = _region(plan.values.number_or_none("cache_max_entry_count"), kv_memory)
    block_bytes = sum(plan.layer_block_bytes(layer) for layer in served_layers(model))
    if not block_bytes:
        msg = f"{NAME}: {model.name} keeps no keys and values, so there are no blocks to count."
        raise EngineRefuses(msg, "use a model with attention layers.")
    blocks, details = _blocks(version, region, block_bytes)
    answer = Answer(
        engine=NAME,
        version=version,
        cache="object cache blocks",
        kv_dtype=plan.dtype,
        details=details,
        notes=_notes(model, request),
    )
    pool = Pool(
        blocks=blocks,
        block_bytes=block_bytes,
        block_tokens=plan.block_len,
        needed=ceil_div(request.context, plan.block_len),
        short="TurboMind cuts longer requests",
    )
    return filled(answer, request, kv_memory, pool)


def _blocks(version: str, region: int, block_bytes: int) -> tuple[int, dict[str, object]]:
    """Blocks and how they came about: slabs since 0.15, before that the plain quotient."""
    naive = region // block_bytes
    details: dict[str, object] = {"region_bytes": region, "naive_blocks": naive}
    if version != VERSIONS[0]:
        return naive, details
    found = slabs(region, block_bytes)
    details |= {
        "slab_bytes": found.slab_bytes,
        "blocks_per_slab": found.blocks_per_slab,
        "pages": found.pages,
    }
    return found.usable_blocks, details


def _region(ratio: float | None, kv_memory: int) -> int:
    if ratio is None:
        return kv_memory
    if not 0 < ratio < 1:
        msg = f"{NAME}: cache_max_entry_count is {ratio}, and must lie between 0 and 1."
        raise EngineRefuses(msg, "give a share of the free memory, such as 0.8.")
    return region_bytes(kv_memory, ratio)


def _notes(model: Model, request: Request) -> tuple[str | None, ...]:
    return (
        *parallel_notes(
            model,
            request.tensor_parallel_size,
            "with `attn_tp_size` 1 each serves its own requests",
        ),
        "The recurrent states of its linear layers come from the same region and are not counted."
        if recurrents(model)
        else None,
        uncounted_note(model),
    )
