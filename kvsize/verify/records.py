"""Predicted tensors against real ones: rows of a comparison, and the first that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvsize.engines.transformers.tensors import CacheTensor


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that a cache layer really holds.

    `storage_bytes` is 0 where an earlier tensor of the layer shares the storage.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    total_bytes: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class HeldLayer:
    """A cache layer: its class, and its tensors in the order of their names' creation."""

    class_name: str
    tensors: tuple[Held, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all elements."""
        return sum(tensor.total_bytes for tensor in self.tensors)

    @property
    def storage_bytes(self) -> int:
        """Bytes of the storages behind them."""
        return sum(tensor.storage_bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a prediction and a real cache part."""

    layer: int
    tensor: str
    what: str
    predicted: object
    real: object

    def __str__(self) -> str:
        place = f"layer {self.layer}" + (f", {self.tensor}" if self.tensor else "")
        return f"{place}: {self.what} predicted {self.predicted}, real {self.real}"


def first_difference(
    predicted: Sequence[Sequence[CacheTensor]], real: Sequence[HeldLayer], *, prefill: bool = False
) -> Difference | None:
    """The first tensor that differs in shape, dtype, bytes or storage; None where all agree.

    `prefill`: the cache has seen one forward pass only, so storages are those after a prefill.
    """
    if len(predicted) != len(real):
        return Difference(min(len(predicted), len(real)), "", "layers", len(predicted), len(real))
    for index, (tensors, layer) in enumerate(zip(predicted, real, strict=True)):
        found = _layer_difference(index, tensors, layer, prefill=prefill)
        if found is not None:
            return found
    return None


def _layer_difference(
    index: int, predicted: Sequence[CacheTensor], real: HeldLayer, *, prefill: bool
) -> Difference | None:
    """Tensors are matched by name; those without elements hold nothing and count as absent."""
    wanted = {tensor.name: tensor for tensor in predicted if tensor.total_bytes}
    held = {tensor.name: tensor for tensor in real.tensors if tensor.total_bytes}
    for name, tensor in wanted.items():
        match = held.get(name)
        if match is None:
            return Difference(index, name, "shape", tensor.shape, None)
        for what in ("shape", "dtype", "total_bytes"):
            if getattr(tensor, what) != getattr(match, what):
                return Difference(index, name, what, getattr(tensor, what), getattr(match, what))
    for name, match in held.items():
        if name not in wanted:
            return Difference(index, name, "shape", None, match.shape)
    storage = sum(t.prefill_bytes if prefill else t.storage_bytes for t in predicted)
    if storage != real.storage_bytes:
        return Difference(index, "", "storage_bytes", storage, real.storage_bytes)
    return None
