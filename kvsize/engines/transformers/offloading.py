"""What an offloaded cache keeps on the device, and what it moves to the CPU between uses.

Cache.update moves a layer's tensors to the CPU when the layer is done and fetches the next
offloaded layer meanwhile; after the last layer that is the first one again. Layers with a
recurrent state alone never move, nor do sliding layers with offload_only_non_sliding (transformers
5.24.0, cache_utils.py, read; it runs on CUDA only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvsize.engines.transformers.form import Form
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.engines.transformers.versions import CachedLayer
from kvsize.layers import (
    ChunkedAttention,
    HybridLayer,
    LatentAttention,
    NoCache,
    RecurrentState,
    SlidingAttention,
)


def offloading_details(
    layers: Sequence[CachedLayer], per_layer: Sequence[tuple[CacheTensor, ...]], form: Form
) -> Mapping[str, object]:
    """`device_bytes` and `cpu_bytes` between forward passes, `device_peak_bytes` during one."""
    moving = [
        sum(tensor.storage_bytes for tensor in held if _moves(layer, tensor, form))
        for layer, held in zip(layers, per_layer, strict=True)
    ]
    total = sum(tensor.storage_bytes for held in per_layer for tensor in held)
    staying = total - sum(moving)
    moved = [size_bytes for size_bytes in moving if size_bytes]
    if not moved:
        return {"device_bytes": total, "cpu_bytes": 0, "device_peak_bytes": total}
    # The layer in use and the one being fetched, which after the last is the first.
    pairs = zip(moved, [*moved[1:], moved[0]], strict=True)
    in_use = moved[0] if len(moved) == 1 else max(this + following for this, following in pairs)
    return {
        "device_bytes": staying + moved[0],
        "cpu_bytes": sum(moved) - moved[0],
        "device_peak_bytes": staying + in_use,
    }


def _moves(layer: CachedLayer, tensor: CacheTensor, form: Form) -> bool:
    """Whether the layer class's `offload` moves the tensor."""
    match layer:
        case RecurrentState() | NoCache():
            return False
        case HybridLayer(attention=attention) if _slides(attention):
            # The class of sliding hybrids inherits the states' offload, so its keys stay.
            return not form.offload_only_non_sliding and "states" in tensor.name
        case HybridLayer():
            return True
        case _:
            if _slides(layer) and form.offload_only_non_sliding:
                return False
            indexed = tensor.name == "indexer_keys" and form.cache == "dynamic"
            return indexed or tensor.name in {"keys", "values"}


def _slides(layer: CachedLayer) -> bool:
    if isinstance(layer, LatentAttention):
        return layer.sliding_window is not None
    return isinstance(layer, SlidingAttention | ChunkedAttention)
