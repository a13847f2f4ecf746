"""How many bytes of storages are alive at once, on any device: torch's own operations watched."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class StorageTracker(TorchDispatchMode):
    """Counts the storages that operations make while it is active; `peak_bytes` is their most.

    A storage is alive while any tensor that the tracker has seen uses it. What is made inside
    `aside()` is somebody else's: the keys and values that a model computes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes: int = 0
        self.peak_bytes: int = 0
        self._tensors: Counter[int] = Counter()
        self._sizes: dict[int, int] = {}
        self._counting = True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation and watch what it returns."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._watch(leaf)
        return result

    def restart(self) -> None:
        """Let the peak begin anew, at what is alive now."""
        self.peak_bytes = self.live_bytes

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out of the count what is made inside."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    def _watch(self, tensor: torch.Tensor) -> None:
        key = _key(tensor)
        if key not in self._sizes:
            self._sizes[key] = tensor.untyped_storage().nbytes() if self._counting else 0
            self.live_bytes += self._sizes[key]
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self._tensors[key] += 1
        weakref.finalize(tensor, self._drop, key)

    def _drop(self, key: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            self.live_bytes -= self._sizes.pop(key)


def _key(tensor: torch.Tensor) -> int:
    """What identifies a storage: its object, as meta storages have no address."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001
