"""The tensors that a transformers cache object really holds, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kvsize.verify.records import Held, HeldLayer

# Lengths and positions of the cache itself, not of the model: 8 bytes each.
BOOKKEEPING = ("_sliding_window_tensor", "cumulative_length")

# Lists of tensors in 5.24.0, a single one in 5.13.1.
STATES = {"conv_states", "recurrent_states"}


def read_cache(cache: Any) -> list[HeldLayer]:
    """Every layer of `cache`; an encoder-decoder's self-attention layers, then its cross ones.

    RWKV's list of tensors has the layers as its last axis; xLSTM keeps a tuple of states for each
    layer, and MiniMax a list of them beside the layers (modeling files, transformers 5.24.0).
    """
    if isinstance(cache, list):
        return [
            _own("list", "state", [tensor[..., i] for tensor in cache])
            for i in range(cache[0].shape[-1])
        ]
    if hasattr(cache, "rnn_state"):
        return [_own("xLSTMCache", "rnn_state", states) for states in cache.rnn_state.values()]
    if hasattr(cache, "linear_cache"):
        return _minimax(cache)
    if hasattr(cache, "self_attention_cache"):
        return read_cache(cache.self_attention_cache) + read_cache(cache.cross_attention_cache)
    return [read_layer(layer) for layer in cache.layers]


def read_layer(layer: Any) -> HeldLayer:
    """The tensors among a layer's attributes, each storage counted once."""
    seen: set[int] = set()
    held: list[Held] = []
    shown: set[tuple[int, int, tuple[int, ...]]] = set()
    for name, tensor in named_tensors(layer):
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - meta storages have no address; the object has one
        place = (key, tensor.storage_offset(), tuple(tensor.shape))
        if place in shown:
            continue  # one tensor under two names
        shown.add(place)
        new = key not in seen
        seen.add(key)
        held.append(_held(name, tensor, storage.nbytes() if new else 0))
    return HeldLayer(type(layer).__name__, tuple(held))


def _own(class_name: str, name: str, states: Sequence[torch.Tensor]) -> HeldLayer:
    """A layer of states; a slice of a larger tensor counts with its own share of the storage."""
    named = ((f"{name}[{i}]", tensor) for i, tensor in enumerate(states))
    return HeldLayer(
        class_name,
        tuple(
            _held(label, tensor, tensor.numel() * tensor.element_size()) for label, tensor in named
        ),
    )


def _minimax(cache: Any) -> list[HeldLayer]:
    layers = {index: read_layer(layer) for index, layer in enumerate(cache.layers)}
    for index, state in enumerate(cache.linear_cache):
        if isinstance(state, torch.Tensor):
            layers[index] = _own("MiniMaxCache", "recurrent_states", [state])
    return [layers[index] for index in sorted(layers)]


def _held(name: str, tensor: torch.Tensor, storage_bytes: int) -> Held:
    return Held(
        name=name,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        total_bytes=tensor.numel() * tensor.element_size(),
        storage_bytes=storage_bytes,
    )


def named_tensors(owner: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor an object keeps in its attributes, in dicts and lists of them."""
    for name, value in vars(owner).items():
        if name.startswith("_quantized_"):
            yield from _quantized(name, value)
        elif name in STATES and isinstance(value, torch.Tensor):
            yield f"{name}[0]", value
        elif not name.endswith(BOOKKEEPING):
            yield from _tensors(name, value)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    match value:
        case torch.Tensor():
            yield name, value
        case dict():
            for key, item in value.items():
                yield from _tensors(f"{name}[{key}]", item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _tensors(f"{name}[{index}]", item)
        case _:
            return


def _quantized(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The packed elements, scale and zero point of quanto, hqq and fp8 layers."""
    match value:
        case None:
            return
        case (torch.Tensor() as packed, dict() as meta):
            parts = {"": packed, " scale": meta["scale"], " zero": meta["zero"]}
        case (torch.Tensor() as packed, torch.Tensor() as scale):
            parts = {"": packed, " scale": scale}
        case _:
            # quanto's tensor wraps a packed one (optimum-quanto 0.2.7, tensor/weights/qbits.py).
            packed = value._data._data  # noqa: SLF001
            parts = {"": packed, " scale": value._scale, " shift": value._shift}  # noqa: SLF001
    for part, tensor in parts.items():
        yield name + part, tensor
