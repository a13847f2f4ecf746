"""How cache elements are packed. A new dtype is one entry here."""

from __future__ import annotations

from kvsize.errors import UsageError
from kvsize.record import Record
from kvsize.units import ceil_div


class KVDtype(Record):
    """How cache elements are packed: `block_bytes` hold `block_elements` of them."""

    name: str
    block_bytes: int
    block_elements: int = 1

    def bytes_of(self, elements: int) -> int:
        """Bytes that hold `elements` elements, the last block padded."""
        return ceil_div(elements, self.block_elements) * self.block_bytes


# torch's dtypes, by torch's names (torch 2.13, `torch.dtype.itemsize`).
TORCH_DTYPES = {
    name: KVDtype(name, itemsize)
    for name, itemsize in {
        "float64": 8,
        "float32": 4,
        "bfloat16": 2,
        "float16": 2,
        "float8_e4m3fn": 1,
        "float8_e5m2": 1,
        "int64": 8,
        "int32": 4,
        "uint8": 1,
        "int8": 1,
    }.items()
}
# What people and config files write for them.
ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "f16": "float16",
    "fp32": "float32",
    "float": "float32",
    "f32": "float32",
    "fp64": "float64",
    "double": "float64",
}


def canonical(name: str) -> str:
    """`torch.bfloat16`, `BF16` and `bfloat16` are one name: `bfloat16`."""
    bare = name.removeprefix("torch.").strip().lower()
    return ALIASES.get(bare, bare)


def torch_dtype(name: str) -> KVDtype:
    """The torch dtype called `name`, in any of its spellings; UsageError when torch has none."""
    found = TORCH_DTYPES.get(canonical(name))
    if found is None:
        msg = f"'{name}' is not a dtype that a plain tensor can have."
        raise UsageError(msg, f"use one of {', '.join(TORCH_DTYPES)}, or auto.")
    return found
