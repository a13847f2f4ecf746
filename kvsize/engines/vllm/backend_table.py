"""Attention backends as data: what each serves, and the block sizes its kernels take.

Constraints read in validate_configuration of vllm/v1/attention/backends/ (0.33.0), with every
optional kernel package installed. Other platforms than CUDA are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvsize.engines.vllm.gpus import Gpu

FLOATS = ("auto", "float16", "bfloat16")
FP8 = ("fp8", "fp8_e4m3")
_HALF = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one layer asks of a backend."""

    head_size: int
    dtype: str
    kv_dtype: str
    latent: bool = False
    sparse: bool = False
    sink: bool = False
    mm_prefix: bool = False
    sliding: bool = False
    heads: int = 0
    """Query heads per rank."""
    grouped: bool = False
    """Several query heads share a KV head."""
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    index_topk: int | None = None
    block_size: int | None = None
    """The block size that the user fixed."""
    dcp: int = 1
    flash_version: int | None = None
    """A version of FlashAttention that the model forces."""
    softcap: bool = False
    encoder_decoder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One attention backend; `blocks` are the block sizes that its kernel reads."""

    name: str
    blocks: tuple[int, ...]
    any_multiple: bool = True
    """The kernel itself takes every multiple (`MultipleOf`), not only the sizes listed."""
    kv_dtypes: tuple[str, ...]
    dtypes: tuple[str, ...] = _HALF
    families: tuple[int, ...] = (8, 9, 10, 11, 12)
    head_sizes: tuple[int, ...] = ()
    latent: bool = False
    sparse: bool = False
    sink: bool = False
    mm_prefix: bool = False
    packs: tuple[str, ...] = ()
    """Starts of the dtypes that it packs itself."""
    rows: bool = False
    """Reads the cache as flat rows, so blocks stand whole rows apart."""
    refuses: Callable[[Need, Gpu], bool] = lambda _need, _gpu: False

    def takes_block(self, block_size: int) -> bool:
        """Whether blocks of `block_size` tokens can be cut into its kernel blocks."""
        return any(block_size % size == 0 for size in self.blocks)

    def accepts(self, need: Need, gpu: Gpu) -> bool:
        """Whether it serves the layer on that GPU."""
        return (
            self.latent == need.latent
            and self.sparse == need.sparse
            and gpu.family in self.families
            and need.dtype in self.dtypes
            and need.kv_dtype in self.kv_dtypes
            and (not self.head_sizes or need.head_size in self.head_sizes)
            and (self.sink or not need.sink)
            and (self.mm_prefix or not need.mm_prefix)
            and (need.block_size is None or self.takes_block(need.block_size))
            and not self.refuses(need, gpu)
        )


def flash_version(need: Need, gpu: Gpu) -> int | None:
    """The FlashAttention version a layer gets (get_flash_attn_version in fa_utils.py)."""
    if not gpu.flash_attention:
        return None
    version = need.flash_version or gpu.flash_attention[0]
    if version not in gpu.flash_attention:
        return None
    if gpu.family == 9 and version == 3 and need.head_size > 256:
        return 4
    if version == 4 and gpu.family >= 10:
        if need.head_size == 256:
            # The dedicated kernel for 256 does without these (_fa4_hd256_fallback_reason).
            odd = need.sink or need.softcap or need.kv_dtype not in FLOATS or need.mm_prefix
            odd = odd or need.dcp > 1 or bool(need.block_size and need.block_size % 128)
            return 2 if odd else 4
        return 4 if need.head_size <= 128 else 2
    return version


def _flash_refuses(need: Need, gpu: Gpu) -> bool:
    if need.head_size % 8 or need.head_size > (512 if 4 in gpu.flash_attention else 256):
        return True
    if need.sink and gpu.family < 9:
        return True
    version = flash_version(need, gpu)
    if need.kv_dtype in FP8:
        hopper = gpu.family == 9 and (version == 3 or (version == 4 and need.head_size == 512))
        if not (hopper or (gpu.family == 10 and version == 4)):
            return True
        if gpu.family == 9 and need.mm_prefix:
            return True
    return (need.sink and version not in {3, 4}) or (need.mm_prefix and version != 4)


def _flashinfer_refuses(need: Need, gpu: Gpu) -> bool:
    if need.sink and gpu.family not in {9, 10, 12}:
        return True
    if not need.kv_dtype.startswith("nvfp4"):
        return False
    if gpu.family == 10:
        return False
    # fa2 reads NVFP4 elsewhere, but not at head size 64, with sinks, or with scale search.
    return need.kv_dtype != "nvfp4" or need.head_size == 64 or need.sink


def _composite_refuses(need: Need, gpu: Gpu) -> bool:
    plain = flash_version(need, gpu)
    return not need.mm_prefix or (gpu.family == 9 and plain not in {3, 4})


def _fa4_sparse_refuses(need: Need, _: Gpu) -> bool:
    heads = need.heads * need.dcp
    counts = {8, 16, 32, 64} if need.dcp > 1 else {8, 16, 32, 64, 128}
    return need.index_topk is None or need.index_topk % 128 != 0 or heads not in counts


_TURBOQUANT = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
BACKENDS = {
    backend.name: backend
    for backend in (
        Backend(
            name="FLASH_ATTN",
            blocks=(16,),
            kv_dtypes=FLOATS + FP8,
            sink=True,
            mm_prefix=True,
            refuses=_flash_refuses,
        ),
        Backend(
            name="FLASHINFER",
            blocks=(16, 32, 64),
            any_multiple=False,
            kv_dtypes=(*FLOATS, *FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
            head_sizes=(64, 128, 256, 512),
            sink=True,
            packs=("nvfp4",),
            refuses=_flashinfer_refuses,
        ),
        Backend(
            name="TRITON_ATTN",
            blocks=(16,),
            kv_dtypes=(
                *FLOATS,
                *FP8,
                "fp8_e5m2",
                "int4_per_token_head",
                "int8_per_token_head",
                "fp8_per_token_head",
            ),
            dtypes=(*_HALF, "float32"),
            families=(7, 8, 9, 10, 11, 12),
            sink=True,
            mm_prefix=True,
            packs=("int4_", "int8_", "fp8_per_token"),
            refuses=lambda need, _: need.head_size < 32,
        ),
        Backend(
            name="FLEX_ATTENTION",
            blocks=(16,),
            kv_dtypes=FLOATS,
            dtypes=(*_HALF, "float32"),
            families=(7, 8, 9, 10, 11, 12),
            mm_prefix=True,
            refuses=lambda need, _: need.encoder_decoder,
        ),
        Backend(
            name="TURBOQUANT",
            blocks=(16, 32, 64, 128),
            any_multiple=False,
            kv_dtypes=_TURBOQUANT,
            packs=("turboquant_",),
            refuses=lambda need, _: need.sliding,
        ),
        # Triton for image spans beside a causal backend (mm_prefix models).
        Backend(
            name="TRITON_FLASH_ATTN",
            blocks=(16,),
            kv_dtypes=FLOATS + FP8,
            families=(9,),
            head_sizes=(256, 512),
            mm_prefix=True,
            sink=True,
            refuses=_composite_refuses,
        ),
        Backend(
            name="TRITON_FLASHINFER",
            blocks=(64,),
            any_multiple=False,
            kv_dtypes=(*FLOATS, *FP8, "fp8_e5m2"),
            families=(10,),
            head_sizes=(256, 512),
            mm_prefix=True,
            sink=True,
            refuses=_composite_refuses,
        ),
        Backend(
            name="FLASH_ATTN_MLA",
            blocks=(16,),
            kv_dtypes=FLOATS,
            families=(9,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="FLASHMLA",
            blocks=(64,),
            any_multiple=False,
            kv_dtypes=FLOATS + FP8,
            families=(9,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="FLASHINFER_MLA",
            blocks=(32, 64),
            any_multiple=False,
            kv_dtypes=FLOATS + FP8,
            families=(10,),
            head_sizes=(320, 512, 576),
            latent=True,
            refuses=lambda need, _: need.qk_nope_head_dim not in {64, 128, 192},
        ),
        Backend(
            name="TOKENSPEED_MLA",
            blocks=(32, 64),
            any_multiple=False,
            kv_dtypes=FP8,
            families=(10,),
            head_sizes=(320, 512, 576),
            latent=True,
            refuses=lambda need, _: (
                (need.qk_nope_head_dim, need.qk_rope_head_dim, need.v_head_dim) != (128, 64, 128)
            ),
        ),
        Backend(
            name="CUTLASS_MLA",
            blocks=(128,),
            any_multiple=False,
            kv_dtypes=FLOATS + FP8,
            families=(10,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="TRITON_MLA",
            blocks=(16,),
            kv_dtypes=FLOATS + FP8,
            families=(7, 8, 9, 10, 11, 12),
            latent=True,
        ),
        Backend(
            name="FLASH_ATTN_MLA_SPARSE",
            blocks=(64,),
            kv_dtypes=FLOATS,
            families=(9,),
            latent=True,
            sparse=True,
            rows=True,
            refuses=lambda need, _: need.dcp > 1 or need.index_topk is None,
        ),
        Backend(
            name="FLASHMLA_SPARSE",
            blocks=(64,),
            kv_dtypes=("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
            dtypes=("bfloat16",),
            families=(9, 10),
            head_sizes=(576, 512),
            latent=True,
            sparse=True,
            rows=True,
            refuses=lambda need, gpu: (
                (need.kv_dtype == "nvfp4_ds_mla" and gpu.family != 10)
                or (need.head_size == 512 and (gpu.family != 9 or need.qk_rope_head_dim != 0))
            ),
        ),
        Backend(
            name="FLASHINFER_MLA_SPARSE_SM90",
            blocks=(64,),
            kv_dtypes=("auto", "bfloat16", *FP8),
            dtypes=("bfloat16",),
            families=(9,),
            head_sizes=(512, 576),
            latent=True,
            sparse=True,
            rows=True,
        ),
        Backend(
            name="FLASHINFER_MLA_SPARSE",
            blocks=(32,),
            kv_dtypes=FLOATS + FP8,
            families=(10,),
            latent=True,
            sparse=True,
            rows=True,
            refuses=lambda need, _: (
                need.index_topk is None
                or (need.qk_rope_head_dim != 0 and need.qk_nope_head_dim not in {128, 192})
            ),
        ),
        Backend(
            name="FLASH_ATTN_MLA_SPARSE_FA4",
            blocks=(64,),
            kv_dtypes=("auto", "bfloat16"),
            dtypes=("bfloat16",),
            families=(10,),
            head_sizes=(576,),
            latent=True,
            sparse=True,
            rows=True,
            refuses=_fa4_sparse_refuses,
        ),
        Backend(
            name="FLASHINFER_MLA_SPARSE_SM120",
            blocks=(64,),
            kv_dtypes=("auto", *FP8, "fp8_ds_mla"),
            dtypes=("bfloat16",),
            families=(12,),
            latent=True,
            sparse=True,
            rows=True,
            refuses=lambda need, _: need.index_topk is None,
        ),
    )
}
