"""Attention backends: which one vLLM picks for a layer, and the block sizes its kernels take.

Constraints as data, read in validate_configuration of vllm/v1/attention/backends/ and in
_get_backend_priorities of vllm/platforms/cuda.py (0.33.0), with every optional kernel package
installed. Other platforms than CUDA are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import lcm

from kvsize.engines.vllm.gpus import Gpu
from kvsize.errors import EngineRefuses

_FLOATS = ("auto", "float16", "bfloat16")
_FP8 = ("fp8", "fp8_e4m3")
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
    """One attention backend. `blocks`: kernel block sizes; a multiple of any of them is taken,
    unless `multiples` is False (then the sizes are whole pages that a kernel reads)."""

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
            odd = need.sink or need.softcap or need.kv_dtype not in _FLOATS or need.mm_prefix
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
    if need.kv_dtype in _FP8:
        hopper = gpu.family == 9 and (
            version == 3 or (version == 4 and need.head_size in {512})
        )
        if not (hopper or (gpu.family == 10 and version == 4)):
            return True
        if gpu.family == 9 and need.mm_prefix:
            return True
    return need.sink and version not in {3, 4} or need.mm_prefix and version != 4


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
            kv_dtypes=_FLOATS + _FP8,
            sink=True,
            mm_prefix=True,
            refuses=_flash_refuses,
        ),
        Backend(
            name="FLASHINFER",
            blocks=(16, 32, 64),
            any_multiple=False,
            kv_dtypes=(*_FLOATS, *_FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
            head_sizes=(64, 128, 256, 512),
            sink=True,
            packs=("nvfp4",),
            refuses=_flashinfer_refuses,
        ),
        Backend(
            name="TRITON_ATTN",
            blocks=(16,),
            kv_dtypes=(
                *_FLOATS,
                *_FP8,
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
            kv_dtypes=_FLOATS,
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
            kv_dtypes=_FLOATS + _FP8,
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
            kv_dtypes=(*_FLOATS, *_FP8, "fp8_e5m2"),
            families=(10,),
            head_sizes=(256, 512),
            mm_prefix=True,
            sink=True,
            refuses=_composite_refuses,
        ),
        Backend(
            name="FLASH_ATTN_MLA",
            blocks=(16,),
            kv_dtypes=_FLOATS,
            families=(9,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="FLASHMLA",
            blocks=(64,),
            any_multiple=False,
            kv_dtypes=_FLOATS + _FP8,
            families=(9,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="FLASHINFER_MLA",
            blocks=(32, 64),
            any_multiple=False,
            kv_dtypes=_FLOATS + _FP8,
            families=(10,),
            head_sizes=(320, 512, 576),
            latent=True,
            refuses=lambda need, _: need.qk_nope_head_dim not in {64, 128, 192},
        ),
        Backend(
            name="TOKENSPEED_MLA",
            blocks=(32, 64),
            any_multiple=False,
            kv_dtypes=_FP8,
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
            kv_dtypes=_FLOATS + _FP8,
            families=(10,),
            head_sizes=(320, 512, 576),
            latent=True,
        ),
        Backend(
            name="TRITON_MLA",
            blocks=(16,),
            kv_dtypes=_FLOATS + _FP8,
            families=(7, 8, 9, 10, 11, 12),
            latent=True,
        ),
        Backend(
            name="FLASH_ATTN_MLA_SPARSE",
            blocks=(64,),
            kv_dtypes=_FLOATS,
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
            kv_dtypes=("auto", "bfloat16", *_FP8),
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
            kv_dtypes=_FLOATS + _FP8,
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
            kv_dtypes=("auto", *_FP8, "fp8_ds_mla"),
            dtypes=("bfloat16",),
            families=(12,),
            latent=True,
            sparse=True,
            rows=True,
            refuses=lambda need, _: need.index_topk is None,
        ),
    )
}


def _priorities(need: Need, gpu: Gpu) -> list[str]:
    """Backends in the order vLLM tries them."""
    if need.latent:
        return _latent_priorities(need, gpu)
    rest = ["TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT"]
    if gpu.family == 10:
        first = ["TRITON_FLASHINFER"] if need.mm_prefix else []
        return [*first, "FLASHINFER", "FLASH_ATTN", *rest]
    first = ["TRITON_FLASH_ATTN"] if need.mm_prefix and gpu.family == 9 else []
    return [*first, "FLASH_ATTN", "FLASHINFER", *rest]


def _latent_priorities(need: Need, gpu: Gpu) -> list[str]:
    if gpu.family == 12:
        return ["TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120"]
    if gpu.family == 10:
        if need.kv_dtype not in _FLOATS:
            sparse = ["FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        elif need.heads <= 16:
            sparse = ["FLASH_ATTN_MLA_SPARSE_FA4", "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"]
        else:
            sparse = ["FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"]
        dense = ["FLASHINFER_MLA", "TOKENSPEED_MLA", "CUTLASS_MLA", "FLASH_ATTN_MLA", "FLASHMLA"]
        return [*dense, "TRITON_MLA", *sparse]
    sparse = ["FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"]
    flashinfer = "FLASHINFER_MLA_SPARSE_SM90"
    sparse = [flashinfer, *sparse] if need.head_size == 512 else [*sparse, flashinfer]
    return ["FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA", *sparse]


def select(need: Need, gpu: Gpu, wanted: str | None) -> Backend:
    """The backend of a layer: `wanted` if it serves, else the first that does.

    Raises EngineRefuses where none does.
    """
    names = _priorities(need, gpu) if wanted is None else [wanted]
    for name in names:
        if BACKENDS[name].accepts(need, gpu):
            return BACKENDS[name]
    kind = "sparse latent" if need.sparse else "latent" if need.latent else "plain"
    fixed = f", block_size {need.block_size}" if need.block_size else ""
    named = f"attention backend {wanted}" if wanted else "no attention backend"
    msg = (
        f"vllm: {named} serves {kind} attention with head size {need.head_size}, dtype "
        f"{need.dtype}, kv dtype {need.kv_dtype}{fixed} on {gpu.name}."
    )
    if wanted:
        msg = msg.replace(" serves ", " does not serve ")
    raise EngineRefuses(msg, "choose another kv dtype, block_size, attention_backend or gpu.")


@dataclass(frozen=True, slots=True)
class Kernel:
    """Block sizes a kernel reads: those listed, or every multiple of the one listed."""

    sizes: tuple[int, ...]
    multiples: bool

    def takes(self, block_size: int) -> bool:
        """Whether blocks of `block_size` tokens can be cut into the kernel's."""
        return any(block_size % size == 0 for size in self.sizes)

    def largest_within(self, block_size: int) -> int:
        """The largest size not above `block_size`, the smallest where none is."""
        if self.multiples:
            base = self.sizes[0]
            return max(base, block_size // base * base)
        fitting = [size for size in self.sizes if size <= block_size]
        return max(fitting) if fitting else min(self.sizes)


def kernel(backend: Backend, need: Need, gpu: Gpu) -> Kernel:
    """The kernel of a backend for one layer on one GPU."""
    if backend.name in {"FLASH_ATTN", "TRITON_FLASH_ATTN"}:
        version = flash_version(need, gpu)
        if gpu.family == 9 and need.kv_dtype in _FP8 and need.head_size == 512 and version == 4:
            return Kernel((64,), multiples=False)
        if gpu.family == 10 and need.head_size == 256 and version == 4:
            return Kernel((128,), multiples=False)
    if backend.name == "FLASHINFER" and gpu.family == 10 and need.grouped:
        # trtllm-gen kernels also take large pages, for grouped queries only.
        return Kernel((16, 32, 64, 128, 256, 512, 1024), multiples=False)
    return Kernel(backend.blocks, backend.any_multiple)


def common_block(kernels: list[Kernel], default: int) -> int:
    """The smallest block size that every kernel takes; `default` where they all do."""
    if all(own.takes(default) for own in kernels):
        return default
    candidates = (lcm(*sizes) for sizes in product(*(own.sizes for own in kernels)))
    return min(c for c in candidates if all(own.takes(c) for own in kernels))
