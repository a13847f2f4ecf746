"""A GPU for tests: meta tensors, with a caching allocator of its own behind them.

The allocator follows torch's rules (sizes in c10/core/AllocatorConfig.h, best fit, splitting and
merging in c10/cuda/CUDACachingAllocator.cpp, torch 2.13), so what it counts is not what the checks
predict from sizes alone: blocks are reused, split, kept whole, and merged.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kvsize.verify.devices import Memory

SMALL, BLOCK = 2**20, 512


class Block:
    """A piece of a segment, with its neighbours in it."""

    def __init__(self, size: int, *, small: bool) -> None:
        self.size = size
        self.small = small
        self.requested = 0
        self.free = True
        self.before: Block | None = None
        self.behind: Block | None = None


class Allocator:
    """Blocks of segments, and torch's three counters with their peaks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: list[Block] = []
        self.now = {"allocated": 0, "requested": 0, "reserved": 0}
        self.peak = dict(self.now)

    def take(self, requested: int) -> Block:
        """The smallest free block that is large enough, or a new segment's."""
        size = -(-requested // BLOCK) * BLOCK
        small = size <= SMALL
        fitting = [b for b in self.blocks if b.free and b.small == small and b.size >= size]
        block = min(fitting, key=lambda b: b.size) if fitting else self._segment(size)
        rest = block.size - size
        if rest >= BLOCK if small else rest > SMALL:
            self._split(block, size)
        block.free, block.requested = False, requested
        self._count(allocated=block.size, requested=requested)
        return block

    def give(self, block: Block) -> None:
        """Free a block and merge it with its free neighbours."""
        self._count(allocated=-block.size, requested=-block.requested)
        block.free = True
        for neighbour in (block.before, block.behind):
            if neighbour is not None and neighbour.free:
                self._merge(block, neighbour)

    def empty(self) -> None:
        """Give whole free segments back to the driver."""
        for block in list(self.blocks):
            if block.free and block.before is None and block.behind is None:
                self.blocks.remove(block)
                self._count(reserved=-block.size)

    def _segment(self, size: int) -> Block:
        whole = 2 * SMALL if size <= SMALL else 20 * SMALL
        if size >= 10 * SMALL:
            whole = -(-size // (2 * SMALL)) * 2 * SMALL
        if self.now["reserved"] + whole > self.capacity:
            self.empty()
        if self.now["reserved"] + whole > self.capacity:
            raise torch.OutOfMemoryError
        block = Block(whole, small=size <= SMALL)
        self.blocks.append(block)
        self._count(reserved=whole)
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, small=block.small)
        rest.before, rest.behind = block, block.behind
        if block.behind is not None:
            block.behind.before = rest
        block.behind, block.size = rest, size
        self.blocks.append(rest)

    def _merge(self, block: Block, other: Block) -> None:
        first, second = (other, block) if other is block.before else (block, other)
        before, behind = first.before, second.behind
        block.size += other.size
        block.before, block.behind = before, behind
        if before is not None:
            before.behind = block
        if behind is not None:
            behind.before = block
        self.blocks.remove(other)

    def _count(self, **changes: int) -> None:
        for name, change in changes.items():
            self.now[name] += change
            self.peak[name] = max(self.peak[name], self.now[name])


class FakeGpu(TorchDispatchMode):
    """A device behind the seam of `kvsize.verify.devices`; used as a context around a check.

    `wrong`: changes each counter's value before it is told, by its name.
    """

    torch_device = "meta"

    def __init__(
        self,
        free_bytes: int = 2**40,
        *,
        settings: str = "",
        wrong: Mapping[str, Callable[[int], int]] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.wrong = wrong or {}
        self.allocator = Allocator(free_bytes)
        self.restarts: list[bool] = []
        self._blocks: dict[int, Block | None] = {}
        self._tensors: Counter[int] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                self._watch(leaf)
        return result

    def available(self) -> bool:
        return True

    def describe(self) -> dict[str, object]:
        return {"name": "fake", "allocator": "native", "allocator_settings": self.settings}

    def free_bytes(self) -> int:
        self.allocator.empty()
        return self.allocator.capacity - self.allocator.now["reserved"]

    def memory(self) -> Memory:
        told = [("", self.allocator.now), ("peak ", self.allocator.peak)]
        values = {label + name: value for label, found in told for name, value in found.items()}
        for name, change in self.wrong.items():
            values[name] = change(values[name])
        return Memory(
            allocated_bytes=values["allocated"],
            requested_bytes=values["requested"],
            reserved_bytes=values["reserved"],
            peak_bytes=values["peak allocated"],
            peak_requested_bytes=values["peak requested"],
            peak_reserved_bytes=values["peak reserved"],
        )

    def restart(self, *, empty: bool) -> None:
        self.restarts.append(empty)
        if empty:
            self.allocator.empty()
        self.allocator.peak = dict(self.allocator.now)

    def _watch(self, tensor: torch.Tensor) -> None:
        key = int(tensor.untyped_storage()._cdata)
        if key not in self._blocks:
            size = tensor.untyped_storage().nbytes()
            self._blocks[key] = self.allocator.take(size) if size else None
        self._tensors[key] += 1
        weakref.finalize(tensor, self._drop, key)

    def _drop(self, key: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            block = self._blocks.pop(key)
            if block is not None:
                self.allocator.give(block)
