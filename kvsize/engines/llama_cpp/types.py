"""The ggml types that a llama.cpp KV cache can have, and their blocks.

Source: `ggml/src/ggml-common.h` (block structs) and `kv_cache_types` in `common/arg.cpp`,
llama.cpp 0c1e57098: `-ctk` and `-ctv` take these nine and no others.
"""

from __future__ import annotations

from kvsize.dtypes import KVDtype, canonical
from kvsize.errors import UsageError

CACHE_TYPES = {
    name: KVDtype(name, block_bytes, block_elements)
    for name, block_bytes, block_elements in (
        ("f32", 4, 1),
        ("f16", 2, 1),
        ("bf16", 2, 1),
        ("q8_0", 34, 32),
        ("q4_0", 18, 32),
        ("q4_1", 20, 32),
        ("iq4_nl", 18, 32),
        ("q5_0", 22, 32),
        ("q5_1", 24, 32),
    )
}
F32 = CACHE_TYPES["f32"]
_TORCH_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def cache_type(name: str) -> KVDtype:
    """The type called `name` (`float16` and `fp16` are f16, `auto` too); UsageError otherwise."""
    wanted = canonical(name)
    wanted = "f16" if wanted == "auto" else _TORCH_NAMES.get(wanted, wanted)
    if wanted not in CACHE_TYPES:
        msg = f"llama.cpp has no cache type '{name}'."
        raise UsageError(msg, f"use one of {', '.join(CACHE_TYPES)}.")
    return CACHE_TYPES[wanted]


def is_quantized(kind: KVDtype) -> bool:
    """Whether elements come in blocks (`ggml_is_quantized`)."""
    return kind.block_elements > 1
