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

STATE = re.compile(r"(conv|recurrent)_states\[(\d+)\]")


def check_fillable(model: Model) -> None:
    """Raise UsageError for caches whose tensors only their model's own code can make."""
    compressed = any(isinstance(layer, CompressedAttention) for layer in model.layers)
    if compressed or model.cache_class is not None:
        message = f"the cache of {model.name} is filled by its model's own code alone."
        raise UsageError(message, "`kvsize MODEL` sizes it; there is nothing to fill from outside.")


class Filler:
    """Feeds the first `layers` layers of `cache` with tensors of the shapes in `shapes`.

    `shapes` are those of one token in a dynamic cache: heads and widths are what counts. `aside`
    wraps the making of what a model would hand over.
    """

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        cache: Any,
        model: Model,
        shapes: Sequence[tuple[CacheTensor, ...]],
        device: str,
        layers: int,
        *,
        random: bool,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.own: Any = getattr(cache, "self_attention_cache", cache)
        self.cross: Any = getattr(cache, "cross_attention_cache", None)
        self.is_cross: list[bool] = [isinstance(layer, CrossAttention) for layer in model.layers]
        self.shapes = shapes
        self.device = device
        self.layers = layers
        self.new: Callable[..., Any] = torch.randn if random else torch.zeros
        self.aside = aside
        self.seen: int = 0

    def feed(self, tokens: int, encoder_tokens: int = 0) -> None:
        """One forward pass over `tokens` more tokens."""
        own = 0
        for index in range(self.layers):
            parts = {tensor.name: tensor for tensor in self.shapes[index]}
            if not self.is_cross[index]:
                self._feed_layer(index, parts, tokens)
                own += 1
            elif self.seen == 0 and "keys" in parts and self.cross is not None:
                keys, values = self._keys_and_values(parts, encoder_tokens)
                self.cross.update(keys, values, index - self.is_cross.index(True))
        self.seen += tokens

    def _feed_layer(self, index: int, parts: dict[str, CacheTensor], tokens: int) -> None:
        layer = self.own.layers[index]
        if "keys" in parts:
            keys, values = self._keys_and_values(parts, tokens)
            self.own.update(keys, values, index)
            del keys, values
        if "indexer_keys" in parts:
            batch, _, width = parts["indexer_keys"].shape
            self.own.update_indexer(self._new(parts["indexer_keys"], (batch, tokens, width)), index)
        if "idx_keys" in parts:
            batch, heads, _, width = parts["idx_keys"].shape
            layer.update_index(self._new(parts["idx_keys"], (batch, heads, tokens, width)))
        if "indexer_position_ids" in parts:
            self._feed_positions(layer, parts["indexer_position_ids"], tokens)
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
        """Random numbers where they matter (a quantizer's scales), else zeros."""
        dtype = getattr(torch, part.dtype)
        new = self.new if dtype.is_floating_point else torch.zeros
        with self.aside():
            return new(shape, dtype=dtype, device=self.device)
