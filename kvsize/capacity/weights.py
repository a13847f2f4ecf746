"""How many bytes a model's weights take, and where that is known from.

In this order: what the user states, the size a source gave (a preset, a GGUF file), the
safetensors files beside a local config.json, the Hub's list of files for a model that was named
by its Hub id, and last an estimate from config.json. A preset's name is never looked up on the
Hub: it works offline.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from kvsize.capacity import parameters
from kvsize.dtypes import TORCH_DTYPES, canonical
from kvsize.errors import UsageError
from kvsize.units import ceil_div, parse_bytes

if TYPE_CHECKING:
    from kvsize.model import Model

# Bits of one parameter. NVFP4: 4 bits and an FP8 scale per 16 (NVIDIA's format); MXFP4: a scale
# byte per 32 (OCP Microscaling 1.0); int4: AWQ's and GPTQ's group of 128 with a 16-bit scale and a
# 4-bit zero point; the q formats: block_q8_0, block_q6_K, block_q5_K, block_q4_K and block_q4_0 of
# llama.cpp's ggml-common.h.
DTYPE_BITS = {
    "float32": Fraction(32),
    "bfloat16": Fraction(16),
    "float16": Fraction(16),
    "fp8": Fraction(8),
    "int8": Fraction(8),
    "nvfp4": Fraction(9, 2),
    "mxfp4": Fraction(17, 4),
    "int4": Fraction(133, 32),
    "q8_0": Fraction(17, 2),
    "q6_k": Fraction(105, 16),
    "q5_k": Fraction(11, 2),
    "q4_k": Fraction(9, 2),
    "q4_0": Fraction(9, 2),
}
# quant_method of a config.json, for methods with one width.
_METHOD_BITS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
_GROUP_SIZE = 128
_STATE_IT = "state it: --weights 140GB, or a dtype such as --weights fp8."


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Bytes of all weights; `estimated` where no file and no published figure says so."""

    total_bytes: int
    source: str
    estimated: bool = False


def weights_of(model: Model, stated: str | None = None) -> Weights:
    """The weights of `model`, or what `stated` (`140GB`, `fp8`) makes of them.

    Raises UsageError where nothing says how many there are, HubError as the Hub client fails.
    """
    if stated:
        return _stated(model, stated)
    if model.weight_bytes is not None:
        where = "the GGUF file" if model.source == "gguf" else model.where
        return Weights(total_bytes=model.weight_bytes, source=where)
    found = _beside(model) or _on_hub(model) or _estimate(model)
    if found is None:
        msg = f"{model.where}: the size of its weights is not known."
        raise UsageError(msg, _STATE_IT)
    return found


def in_dtype(model: Model, dtype: str) -> Weights | None:
    """The weights if every parameter were kept as `dtype`; None where their number is unknown."""
    total = _parameter_count(model)
    if total is None:
        return None
    size = _bytes(total, DTYPE_BITS[dtype])
    source = f"{total:,} parameters as {dtype}, embeddings and scales included"
    return Weights(total_bytes=size, source=source, estimated=True)


def _stated(model: Model, stated: str) -> Weights:
    if re.match(r"\s*[\d.]", stated):
        return Weights(total_bytes=parse_bytes(stated), source="--weights")
    dtype = canonical(stated)
    if dtype.startswith("float8"):
        dtype = "fp8"
    if dtype not in DTYPE_BITS:
        msg = f"--weights is '{stated}', which is neither a size nor a dtype of weights."
        raise UsageError(msg, f"write 140GB, or one of {', '.join(DTYPE_BITS)}.")
    found = in_dtype(model, dtype)
    if found is None:
        msg = f"{model.where}: how many parameters it has is not known."
        raise UsageError(msg, "state the bytes of the weights: --weights 140GB.")
    return found


def _parameter_count(model: Model) -> int | None:
    """From the weights' bytes where they are in one dtype, else counted from config.json."""
    plain = model.source != "gguf" and model.root.mapping("quantization_config") is None
    if model.weight_bytes is not None and plain and model.dtype in TORCH_DTYPES:
        return model.weight_bytes // TORCH_DTYPES[model.dtype].block_bytes
    found = parameters.count(model) if model.source != "gguf" else None
    return found.total if found else None


def _beside(model: Model) -> Weights | None:
    """The safetensors files in the folder of a local config.json, without their headers."""
    if model.source != "file":
        return None
    folder = Path(model.where).expanduser().parent
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    try:
        total = sum(_tensor_bytes(file) for file in files)
    except (OSError, struct.error):
        return None
    source = f"{len(files)} safetensors files in {folder}"
    return Weights(total_bytes=total, source=source) if total else None


def _tensor_bytes(file: Path) -> int:
    """What follows the header, whose length is the file's first eight bytes."""
    with file.open("rb") as opened:
        (header,) = struct.unpack("<Q", opened.read(8))
    return max(0, file.stat().st_size - 8 - int(header))


def _on_hub(model: Model) -> Weights | None:
    if model.source != "hub" or model.hub_id is None:
        return None
    from kvsize.sources.hub import weight_bytes

    total = weight_bytes(model.hub_id, model.revision)
    if total is None:
        return None
    return Weights(total_bytes=total, source=f"the weight files of {model.hub_id} on the Hub")


def _estimate(model: Model) -> Weights | None:
    if model.source == "gguf":
        return None
    found = parameters.count(model)
    if found is None:
        return None
    bits, how = checkpoint_bits(model)
    # Quantized checkpoints keep their embeddings in 16 bits.
    ends = found.embedding + found.output
    kept = max(bits, DTYPE_BITS["bfloat16"])
    total = _bytes(found.total - ends, bits) + _bytes(ends, kept)
    source = f"estimated from config.json: {found.total:,} parameters, {how}"
    return Weights(total_bytes=total, source=source, estimated=True)


def checkpoint_bits(model: Model) -> tuple[Fraction, str]:
    """Bits of a linear layer's parameter in the checkpoint, and that in words."""
    scheme = model.root.mapping("quantization_config")
    if scheme is None:
        name = model.dtype if model.dtype in DTYPE_BITS else "bfloat16"
        return DTYPE_BITS[name], name
    method = str(scheme.get("quant_method") or "").lower()
    algorithm = str(scheme.get("quant_algo") or "").lower()
    known = _METHOD_BITS.get(method) or _METHOD_BITS.get(algorithm)
    if known:
        return DTYPE_BITS[known], known
    if "fp4" in f"{method} {algorithm} {scheme.get('format')}".lower():
        return DTYPE_BITS["nvfp4"], "nvfp4"
    bits, group = _integer_bits(scheme)
    return bits + Fraction(16 + int(bits), group), f"{method or 'quantized'} with {bits} bits"


def _integer_bits(scheme: Mapping[str, object]) -> tuple[Fraction, int]:
    """Bits and group size of AWQ, GPTQ, bitsandbytes and compressed-tensors; 4 and 128 unstated."""
    groups = scheme.get("config_groups")
    if isinstance(groups, Mapping) and groups:
        first = next(iter(groups.values()))
        inner = first.get("weights") if isinstance(first, Mapping) else None
        scheme = inner if isinstance(inner, Mapping) else scheme
    bits = next(
        (
            value
            for key in ("bits", "w_bit", "num_bits")
            if isinstance(value := scheme.get(key), int)
        ),
        8 if scheme.get("load_in_8bit") else 4,
    )
    group = scheme.get("group_size")
    return Fraction(bits), group if isinstance(group, int) and group > 0 else _GROUP_SIZE


def _bytes(count: int, bits: Fraction) -> int:
    return ceil_div(count * bits.numerator, 8 * bits.denominator)
