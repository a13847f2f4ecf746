"""How many layers of a cache a GPU has room for, with the copies made while they are filled."""

from __future__ import annotations

from kvsize.errors import UsageError
from kvsize.units import format_bytes
from kvsize.verify import allocator
from kvsize.verify.devices import Gpu
from kvsize.verify.peaks import peaks, temporary_bytes
from kvsize.verify.plan import Plan

# Kept free on a GPU for its context, kernels and fragmentation.
SPARE_GPU_BYTES = 512 * 2**20
# A quantizer unpacks a layer, joins the newest tokens to it, and packs it anew.
QUANTIZER_COPIES = 3


def needed_bytes(plan: Plan) -> int:
    """What filling the planned layers takes on a GPU at most, in whole blocks."""
    most = peaks(plan, allocator.block_bytes)
    tensors = [t.storage_bytes for layer in plan.at_end() for t in layer]
    unsplit = sum(size > allocator.SMALL_BYTES for size in tensors) * allocator.SMALL_BYTES
    needed = max(most.prefill, most.growth) + unsplit + temporary_bytes(plan)
    if plan.form.cache != "quantized":
        return needed
    layer = max(sum(t.total_bytes for t in layer) for layer in plan.handed_over())
    return needed + QUANTIZER_COPIES * layer * plan.form.tokens


def fitting(plan: Plan, gpu: Gpu) -> tuple[Plan, dict[str, object], list[str]]:
    """The plan for as many of the first layers as fit, with figures and a note if not all do.

    UsageError where not even one layer fits.
    """
    free = gpu.free_bytes() - SPARE_GPU_BYTES
    needed = needed_bytes(plan)
    figures: dict[str, object] = {"needed_bytes": needed, "free_bytes": max(free, 0)}
    count = _largest(plan, free)
    if count == plan.count:
        return plan, figures, []
    if count == 0:
        message = (
            f"one layer needs {format_bytes(needed_bytes(plan.first(1)))} with its copies, and "
            f"{format_bytes(max(free, 0))} of the GPU are free."
        )
        raise UsageError(message, "use a shorter --ctx, or --device meta.")
    part = plan.first(count)
    whole_bytes = _storage_bytes(plan)
    # Layers that hold nothing of their own can be all that fits.
    scale = round(whole_bytes / max(_storage_bytes(part), 1), 4)
    figures |= {"whole_cache_bytes": whole_bytes, "scale": scale}
    note = (
        f"The whole cache needs {format_bytes(needed)} with its copies, and {format_bytes(free)} "
        f"of the GPU are free: the first {count} of {plan.count} layers were filled, and every "
        f"figure here is theirs. The whole cache holds {scale:g} times as much."
    )
    return part, figures, [note]


def _largest(plan: Plan, free: int) -> int:
    """The most layers that fit: needs grow with every layer, so halve the range."""
    low, high = 0, plan.count
    while low < high:
        middle = (low + high + 1) // 2
        if needed_bytes(plan.first(middle)) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def _storage_bytes(plan: Plan) -> int:
    return sum(t.storage_bytes for layer in plan.at_end() for t in layer)
