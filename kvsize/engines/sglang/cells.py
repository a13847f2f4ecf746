"""Bytes that one token takes on one rank, and what a pool of tokens allocates: no model.

Sources: SGLang 0.5.23, srt/model_executor/pool_configurator.py (cell sizes),
srt/mem_cache/memory_pool.py and index_key_cache.py (tensors),
srt/layers/quantization/fp4_kv_cache_quant_method.py (FP4 scales and workspace).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvsize.units import ceil_div

NAME = "sglang"
PAGE_SIZE = 1
_FP4_GROUP, _MXFP8_GROUP = 16, 32
_SCALE_BLOCK = 128  # DSATokenToKVPool.quant_block_size
_POINTER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A --kv-cache-dtype: bytes of an element (0: the model's), and what is kept beside it.

    `fp4`: two elements a byte with one-byte scales per 16, stored in `scale_layouts` layouts;
    `mxfp8`: a byte per 32 elements; `global_scales`: two float32 scales per layer.
    """

    itemsize: int = 1
    fp4: bool = False
    mxfp8: bool = False
    global_scales: bool = False
    scale_layouts: int = 1

    def resolved(self, model_itemsize: int, scale_layouts: int = 1) -> Packing:
        """With the model's own element size where it is asked for, and the layouts of scales."""
        itemsize = self.itemsize or model_itemsize
        return replace(self, itemsize=itemsize, scale_layouts=scale_layouts)


DTYPES = {
    "auto": Packing(itemsize=0),
    "bfloat16": Packing(itemsize=2),
    "fp8_e4m3": Packing(),
    "fp8_e5m2": Packing(),
    "mxfp8": Packing(mxfp8=True),
    "nvfp4": Packing(fp4=True, global_scales=True),
    "fp4_mx_block16": Packing(fp4=True),
}
SPELLINGS = {"bf16": "bfloat16", "fp4_e2m1": "fp4_mx_block16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Which block scales an NVFP4 pool stores, by the attention backends of the two phases."""

    linear: bool = True
    native: bool = False
    workspace: bool = False

    @property
    def layouts(self) -> int:
        """How many times the scales are stored."""
        return self.linear + self.native


def nvfp4_scales(prefill: str, decode: str, *, sm100: bool = False) -> Scales:
    """What NVFP4KVCacheMethod keeps for the two phases' attention backends.

    flashinfer prefill reads linear scales and an FP8 row shared by all layers; trtllm_mha reads
    its own layout on SM100, the linear one elsewhere.
    """
    native_access = "trtllm_mha" in {prefill, decode}
    workspace = prefill == "flashinfer"
    native = native_access and sm100
    return Scales(
        linear=workspace or (native_access and not sm100), native=native, workspace=workspace
    )


def mha_layer_bytes(heads: int, head_dim: int, v_head_dim: int, packing: Packing) -> int:
    """One layer's keys, values and block scales of one token."""
    elements = heads * (head_dim + v_head_dim)
    if packing.fp4:
        scales = packing.scale_layouts * heads * (head_dim // _FP4_GROUP) * 2
        return heads * (head_dim // 2) * 2 + scales
    scales = elements // _MXFP8_GROUP if packing.mxfp8 else 0
    return elements * packing.itemsize + scales


def workspace_bytes(heads: int, head_dim: int, scales: Scales) -> int:
    """The dequantized FP8 row that all layers of an NVFP4 pool share, per token."""
    return heads * head_dim * 2 if scales.workspace else 0


def latent_layer_bytes(
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    packing: Packing,
    *,
    scaled_rows: bool = False,
) -> int:
    """One MLA layer's row: latent and rotary key, on every rank.

    `scaled_rows`: FP8 rows of sparse attention (DSA) for kernels that read a scale per 128
    elements and a 16-bit rotary key: 512 + 16 + 128 = 656 bytes.
    """
    width = kv_lora_rank + qk_rope_head_dim
    if packing.fp4:
        return width // 2 + width // _FP4_GROUP
    if scaled_rows and packing.itemsize == 1:
        return kv_lora_rank + kv_lora_rank // _SCALE_BLOCK * 4 + qk_rope_head_dim * 2
    return width * packing.itemsize


def latent_scale_bytes(kv_lora_rank: int, qk_rope_head_dim: int, packing: Packing) -> int:
    """The scales within an FP4 latent row, which the engine's log line leaves out."""
    return (kv_lora_rank + qk_rope_head_dim) // _FP4_GROUP if packing.fp4 else 0


def index_row_bytes(index_head_dim: int, index_kpool: int = 1) -> int:
    """One token's row of an indexer's keys: FP8 elements and a float32 scale per 128."""
    return ceil_div(index_head_dim + index_head_dim // _SCALE_BLOCK * 4, index_kpool)


def with_draft(cell_bytes: int, draft_layers: int, layers: int) -> int:
    """The cell with an EAGLE/MTP draft, taken to cost what the target's layers cost on average."""
    return cell_bytes + int(cell_bytes * draft_layers / layers)


def pool_rows(tokens: int, page_size: int) -> int:
    """Rows a pool allocates for `tokens`: one page more, which no sequence uses."""
    return tokens + page_size


def index_rows(tokens: int, page_size: int) -> int:
    """Rows of an indexer's buffer, which is allocated in whole pages."""
    return (tokens + page_size + 1) // page_size * page_size


def pointer_table_bytes(layers: int, packing: Packing, *, latent: bool = False) -> int:
    """The tables of addresses and strides beside a pool (and NVFP4's two scales per layer)."""
    if latent:
        return layers * _POINTER_BYTES
    tables = 10 if packing.fp4 else 6
    scales = 2 * 4 if packing.global_scales else 0
    return layers * (tables * _POINTER_BYTES + scales)


def req_to_token_bytes(max_num_reqs: int, context_len: int, extra: int) -> int:
    """The table from requests to token slots (int32), outside the budget."""
    return (max_num_reqs + 1) * (context_len + extra) * 4


def req_to_token_extra(page_size: int, draft_tokens: int, steps: int, topk: int) -> int:
    """Columns of that table beyond the context (allocation_sizing.py)."""
    extra = 4 + draft_tokens
    if not draft_tokens or page_size == 1:
        return extra
    return max(extra, 2 * decode_alloc(page_size, draft_tokens, steps, topk) + page_size - 1)


def decode_alloc(page_size: int, draft_tokens: int, steps: int, topk: int) -> int:
    """Slots one request may take in a speculative decode step (get_alloc_len_per_decode)."""
    if page_size == 1 or topk == 1:
        return max(steps * topk, draft_tokens)
    pages = (page_size - 1 + steps + page_size - 1) // page_size
    return max(pages * page_size * topk, draft_tokens)
