"""What a verification found, as data: versions, device, every comparison, and the verdict."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import kvsize
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.verify.records import Difference, HeldLayer


@dataclass(frozen=True, slots=True)
class Row:
    """Equal layers together: what was predicted for one of them, and what one really holds."""

    class_name: str
    first: int
    layers: int
    tensors: tuple[tuple[CacheTensor, int | None, int | None], ...]
    """Each predicted tensor, with the real one's `nbytes` and its storage's."""

    @property
    def predicted_bytes(self) -> int:
        """Bytes predicted for all of the row's layers."""
        return self.layers * sum(tensor.total_bytes for tensor, _, _ in self.tensors)

    @property
    def real_bytes(self) -> int:
        """Bytes of the real tensors in all of the row's layers."""
        return self.layers * sum(nbytes or 0 for _, nbytes, _ in self.tensors)


@dataclass(slots=True)
class Evidence:
    """One comparison of a predicted cache with a real one."""

    level: str
    model: str
    cache: str
    context: int
    sequences: int
    dtype: str
    device: dict[str, object]
    predicted_bytes: int
    real_bytes: int
    predicted_storage_bytes: int
    real_storage_bytes: int
    rows: list[Row]
    difference: Difference | None
    compared_layers: int
    all_layers: int
    figures: dict[str, object] = field(default_factory=dict)
    """Measured beside the tensors: the allocator's counters, peak memory, emitted token ids."""
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What else did not hold, in whole sentences."""

    @property
    def exact(self) -> bool:
        """Whether every tensor and every further check agreed."""
        return self.difference is None and not self.failures

    @property
    def verdict(self) -> str:
        """`exact`, or what differs first."""
        if self.difference is not None:
            return f"differs: {self.difference}"
        return f"differs: {self.failures[0]}" if self.failures else "exact"

    def as_json(self) -> dict[str, object]:
        """Everything, in plain types."""
        plain = {
            name: getattr(self, name)
            for name in (
                "level", "model", "cache", "context", "sequences", "dtype", "device",
                "predicted_bytes", "real_bytes", "predicted_storage_bytes", "real_storage_bytes",
                "compared_layers", "all_layers", "figures", "notes", "failures",
            )
        }  # fmt: skip
        layers = [
            {
                "class": row.class_name,
                "first_layer": row.first,
                "layers": row.layers,
                "tensors": [
                    {**vars(tensor), "real_bytes": nbytes, "real_storage_bytes": storage}
                    for tensor, nbytes, storage in row.tensors
                ],
            }
            for row in self.rows
        ]
        return {"versions": versions(), **plain, "layers": layers, "verdict": self.verdict}


def versions() -> dict[str, str]:
    """The versions that the evidence holds for."""
    return {
        "kvsize": kvsize.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }


def rows(predicted: Sequence[tuple[CacheTensor, ...]], real: Sequence[HeldLayer]) -> list[Row]:
    """Layers with equal predictions and equal tensors together, in order of first appearance."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, (tensors, layer) in enumerate(zip(predicted, real, strict=False)):
        found.setdefault((tensors, layer), []).append(index)
    return [
        Row(
            class_name=real[indices[0]].class_name,
            first=indices[0],
            layers=len(indices),
            tensors=_pairs(predicted[indices[0]], real[indices[0]]),
        )
        for indices in found.values()
    ]


def _pairs(
    predicted: Sequence[CacheTensor], layer: HeldLayer
) -> tuple[tuple[CacheTensor, int | None, int | None], ...]:
    held = {tensor.name: tensor for tensor in layer.tensors}
    return tuple(
        (
            tensor,
            held[tensor.name].total_bytes if tensor.name in held else None,
            held[tensor.name].storage_bytes if tensor.name in held else None,
        )
        for tensor in predicted
    )
