"""Fills a real cache as a model would: a prompt in one pass, then token by token, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.errors import UsageError
from kvsize.layers import CompressedAttention, CrossAttention
from kvsize.model import Model
from kvsize.verify.filling_compressed import feed_compressed
from kvsize.verify.plan import Plan

STATE = re.compile(r"(conv|recurrent)_states\[(\d+)\]")


def check_fillable(model: Model) -> None:
    """Raise UsageError for caches that only their model's own code makes: no class takes a config.

    MiniMaxCache, xLSTMCache and RWKV's list (modeling files, transformers 5.24.0).
    """
    if model.cache_class is not None:
        message = f"the cache of {model.name} ({model.cache_class}) is made by its model's code."
        raise UsageError(message, "use --level model, which runs that code.")


class Filler:
    """Feeds the planned layers of `cache` with tensors of the shapes that a model hands over.

    `aside` wraps the making of what a model would hand over.
    """

    def __init__(
        self,
        cache: Any,
        plan: Plan,
        device: str,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.own: Any = getattr(cache, "self_attention_cache", cache)
        self.cross: Any = getattr(cache, "cross_attention_cache", None)
        self.plan = plan
        self.is_cross: list[bool] = [isinstance(x, CrossAttention) for x in plan.layers]
        self.shapes: Sequence[tuple[CacheTensor, ...]] = plan.handed_over()
        self.device = device
        # A quantizer's scales need numbers.
        self.new: Callable[..., Any] = (
            torch.randn if plan.form.cache == "quantized" else torch.zeros
        )
        self.aside = aside
        self.seen: int = 0

    def feed(self, tokens: int) -> None:
        """One forward pass over `tokens` more tokens."""
        for index in range(self.plan.count):
            parts = {tensor.name: tensor for tensor in self.shapes[index]}
            layer = self.plan.layers[index]
            if isinstance(layer, CompressedAttention):
                feed_compressed(self.own.layers[index], layer, self.plan.form, tokens, self._make)
            elif not self.is_cross[index]:
                self._feed_layer(index, parts, tokens)
            elif self.seen == 0 and "keys" in parts and self.cross is not None:
                keys, values = self._keys_and_values(parts, self.plan.form.encoder_tokens)
                self.cross.update(keys, values, index - self.is_cross.index(True))
        self.seen += tokens

    def _feed_layer(self, index: int, parts: dict[str, CacheTensor], tokens: int) -> None:
        if "keys" in parts:
            keys, values = self._keys_and_values(parts, tokens)
            self.own.update(keys, values, index)
            del keys, values
        if "indexer_keys" in parts:
            batch, _, width = parts["indexer_keys"].shape
            self.own.update_indexer(self._new(parts["indexer_keys"], (batch, tokens, width)), index)
        if "idx_keys" in parts:
            batch, heads, _, width = parts["idx_keys"].shape
            new = self._new(parts["idx_keys"], (batch, heads, tokens, width))
            self.own.layers[index].update_index(new)
        if "indexer_position_ids" in parts:
            self._feed_positions(self.own.layers[index], parts["indexer_position_ids"], tokens)
        for name, part in parts.items():
            if match := STATE.fullmatch(name):
                self._feed_state(index, match[1], int(match[2]), part)

    def _keys_and_values(
        self, parts: dict[str, CacheTensor], tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        made = []
        for name in ("keys", "values"):
            batch, heads, _, width = parts[name].shape
            made.append(self._new(parts[name], (batch, heads, tokens, width)))
        return made[0], made[1]

    def _feed_positions(self, layer: Any, part: CacheTensor, tokens: int) -> None:
        """As the model's code does: one row for all, a view; then longer copies."""
        axes, batch, _ = part.shape
        row = torch.arange(self.seen, self.seen + tokens, device=self.device)
        positions = row.expand(axes, batch, tokens)
        if layer.indexer_position_ids is not None:
            positions = torch.cat([layer.indexer_position_ids, positions], dim=-1)
        layer.indexer_position_ids = positions

    def _feed_state(self, index: int, kind: str, state: int, part: CacheTensor) -> None:
        """A convolution gets its whole kernel from a prompt, and one column from a token."""
        if kind == "recurrent":
            self.own.update_recurrent_state(self._new(part, part.shape), index, state_idx=state)
            return
        columns = part.shape[-1] if self.seen == 0 else 1
        states = self._new(part, (*part.shape[:-1], columns))
        self.own.update_conv_state(states, index, state_idx=state)

    def _new(self, part: CacheTensor, shape: tuple[int, ...]) -> torch.Tensor:
        return self._make(shape, part.dtype)

    def _make(self, shape: tuple[int, ...], dtype_name: str) -> torch.Tensor:
        """Random numbers where they matter, else zeros."""
        dtype = getattr(torch, dtype_name)
        new = self.new if dtype.is_floating_point else torch.zeros
        with self.aside():
            made: torch.Tensor = new(shape, dtype=dtype, device=self.device)
        return made
