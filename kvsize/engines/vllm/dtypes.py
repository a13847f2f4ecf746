"""vLLM's --kv-cache-dtype values as data: how they pack a token, and what "auto" means.

Sources: CacheDType in vllm/config/cache.py, STR_DTYPE_TO_TORCH_DTYPE and
get_kv_cache_quant_algo_string in vllm/utils/torch_utils.py, customize_spec of the backends and
vllm/model_executor/layers/quantization/turboquant/config.py (all 0.33.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from kvsize.config import Config
from kvsize.dtypes import canonical
from kvsize.errors import UsageError
from kvsize.units import ceil_div

_SCALE_BYTES = 4
"""A float32 scale per head and side (`*_per_token_head`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How one head's keys and values of one token are packed.

    `bits` per element; `group` elements share one scale of `scale_bytes`; `side_bytes` per head
    for K and V each; `key_bits`, `value_bits` and `slot_bytes`: TurboQuant's one slot for both.
    """

    name: str
    bits: int
    group: int = 0
    side_bytes: int = 0
    key_bits: int = 0
    slot_bytes: int = 0
    latent_bytes: int = 0
    """Bytes of a whole latent row, where the format fixes it (`*_ds_mla`)."""

    @property
    def quantized(self) -> bool:
        """Whether it is one of the formats that vLLM counts as quantized."""
        return self.name not in {"float32", "float16", "bfloat16"}

    def bytes_of(self, head_size: int, head_size_v: int) -> int:
        """Bytes of one head's keys and values of one token."""
        if self.key_bits:
            return self._slot(head_size)
        return sum(self._side(size) for size in (head_size, head_size_v) if size)

    def latent(self, head_size: int) -> int:
        """Bytes of one token's latent vector of `head_size` elements."""
        if self.latent_bytes:
            return self.latent_bytes
        if self.side_bytes:  # both scales stand beside the one vector
            return head_size * self.bits // 8 + 2 * self.side_bytes
        return self._side(head_size)

    def _side(self, elements: int) -> int:
        scales = elements // self.group if self.group else 0
        return elements * self.bits // 8 + scales + self.side_bytes

    def _slot(self, head_size: int) -> int:
        """TurboQuant's even number of bytes for a key and a value.

        Keys of `key_bits`, with a norm unless fp8; values of `bits`, with a scale and a zero.
        """
        keys = head_size if self.key_bits == 8 else ceil_div(head_size * self.key_bits, 8) + 2
        slot = keys + ceil_div(head_size * self.bits, 8) + 4
        return slot + slot % 2


PACKINGS = {
    packing.name: packing
    for packing in (
        Packing(name="float32", bits=32),
        Packing(name="float16", bits=16),
        Packing(name="bfloat16", bits=16),
        Packing(name="fp8", bits=8),
        Packing(name="fp8_e4m3", bits=8),
        Packing(name="fp8_e5m2", bits=8),
        Packing(name="fp8_inc", bits=8),
        # 512 bytes of latent, 16 of scales, 128 of bfloat16 rotary key; NVFP4: 256 + 32 + 64.
        Packing(name="fp8_ds_mla", bits=8, latent_bytes=656),
        Packing(name="nvfp4_ds_mla", bits=4, latent_bytes=352),
        Packing(name="int8_per_token_head", bits=8, side_bytes=_SCALE_BYTES),
        Packing(name="fp8_per_token_head", bits=8, side_bytes=_SCALE_BYTES),
        Packing(name="int4_per_token_head", bits=4, side_bytes=_SCALE_BYTES),
        Packing(name="nvfp4", bits=4, group=16),
        Packing(name="nvfp4_4over6", bits=4, group=16),
        Packing(name="turboquant_k8v4", bits=4, key_bits=8),
        Packing(name="turboquant_4bit_nc", bits=4, key_bits=4),
        Packing(name="turboquant_k3v4_nc", bits=4, key_bits=3),
        Packing(name="turboquant_3bit_nc", bits=3, key_bits=3),
    )
}
# float32 is a model dtype, not a --kv-cache-dtype.
KV_DTYPES = ("auto", *(name for name in PACKINGS if name != "float32"))


def checked(name: str) -> str:
    """`name` as vLLM writes it; UsageError names the dtypes that vLLM has."""
    wanted = "fp8_e4m3" if canonical(name) == "float8_e4m3fn" else canonical(name)
    wanted = "fp8_e5m2" if wanted == "float8_e5m2" else wanted
    if wanted not in KV_DTYPES:
        msg = f"vllm has no KV cache dtype '{name}'."
        raise UsageError(msg, f"use one of {', '.join(KV_DTYPES)}.")
    return wanted


def of_checkpoint(root: Config, *, latent: bool) -> str:
    """What "auto" means by the checkpoint's quantization: a format for the cache, or "auto".

    ModelOpt files name it in several ways; compressed-tensors files by `kv_cache_scheme`, which
    only plain (not `latent`) attention layers read.
    """
    stated = root.mapping("quantization_config") or {}
    if _method(stated).startswith("modelopt"):
        return _modelopt(stated)
    compressed = stated or root.mapping("compression_config") or _nested_quantization(root)
    if not latent and _method(compressed).replace("_", "-") == "compressed-tensors":
        return "fp8" if isinstance(compressed.get("kv_cache_scheme"), Mapping) else "auto"
    return "auto"


def _method(quantization: Mapping[str, object]) -> str:
    """`quant_method`; files by ModelOpt that nest theirs are known by their producer."""
    inner = quantization.get("quantization")
    producer = quantization.get("producer")
    by_modelopt = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    if by_modelopt and isinstance(inner, Mapping) and inner.get("quant_algo"):
        return "modelopt"
    return str(quantization.get("quant_method") or "").lower()


def _nested_quantization(root: Config) -> Mapping[str, object]:
    text = root.value("text_config")
    if not isinstance(text, Mapping):
        return {}
    section = Config(cast("Mapping[str, object]", text), root.where)
    return section.mapping("quantization_config") or section.mapping("compression_config") or {}


def _modelopt(quantization: Mapping[str, object]) -> str:
    inner = quantization.get("quantization")
    sections = (inner, quantization) if isinstance(inner, Mapping) else (quantization,)
    for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
        for section in sections:
            scheme = cast("Mapping[str, object]", section).get(key)
            if scheme:
                return _scheme(scheme)
    return "auto"


def _scheme(scheme: object) -> str:
    if isinstance(scheme, Mapping):
        bits, kind = scheme.get("num_bits"), scheme.get("type")
        if kind != "float":
            return "auto"
        if bits == 8 and scheme.get("dynamic") is False:
            return "fp8_e4m3"
        return "nvfp4" if bits == 4 else "auto"
    return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(str(scheme).lower(), "auto")
