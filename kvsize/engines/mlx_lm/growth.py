"""How many tokens MLX-LM's cache arrays have room for after a prompt and some generated tokens.

Source: mlx_lm 0.32.2, models/cache.py. The arrays grow as tokens arrive, so the room depends on
the steps: `generate_step` feeds all but the last prompt token in chunks, then one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.errors import EngineRefuses
from kvsize.units import pad

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "mlx-lm"
STEP = 256
PREFILL_STEP = 2048
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens the arrays have room for in the end, and the most on the way there."""

    tokens: int
    peak: int


def prompt_steps(prompt: int, prefill_step_size: int = PREFILL_STEP) -> list[int]:
    """The sizes in which a prompt is fed: chunks of all but the last token, then that token."""
    whole, rest = divmod(prompt - 1, prefill_step_size)
    chunks = [prefill_step_size] * whole + ([rest] if rest else [])
    return [*chunks, 1] if prompt else []


def growing(steps: Sequence[int], generated: int = 0) -> int:
    """KVCache, QuantizedKVCache and BatchKVCache: room after `steps` and `generated` tokens.

    On overflow a part-filled last step is cut off first, then whole steps of 256 that hold the
    new tokens are appended.
    """
    offset = room = 0
    for count in steps:
        if offset + count > room:
            kept = offset if offset % STEP else room
            room = kept + pad(count, STEP)
        offset += count
    missing = offset + generated - room
    return room + pad(missing, STEP) if missing > 0 else room


def rotating(steps: Sequence[int], generated: int, max_size: int) -> Room:
    """RotatingKVCache: a chunk is appended to the last max_size - 1 tokens; a token reuses room."""
    offset = room = peak = 0
    for count in steps:
        if count > 1:
            room = min(room, max_size - 1) + count if offset else count
        else:
            room = _rotating_token(offset, room, max_size)
        offset += count
        peak = max(peak, room)
    if generated:
        room = _rotating_token(offset, room, max_size)
        missing = offset + generated - room
        room = min(max_size, room + pad(missing, STEP)) if missing > 0 else room
    return Room(room, max(peak, room))


def _rotating_token(offset: int, room: int, max_size: int) -> int:
    if offset >= room and room < max_size:
        room += min(STEP, max_size - offset)
    return min(room, max_size)


def chunked(steps: Sequence[int], generated: int, chunk_size: int) -> int:
    """ChunkedKVCache (Llama 4): before each step the front is cut to the last chunk_size tokens."""
    valid = room = 0
    # After chunk_size single tokens every further one meets the same arrays.
    for count in [*steps, *[1] * min(generated, chunk_size + 2)]:
        if valid > chunk_size:
            valid = room = chunk_size
        if valid + count > room:
            kept = valid if valid % STEP else room
            room = kept + pad(count, STEP)
        valid += count
    return room


def quantized_row_bytes(head_dim: int, bits: int, group_size: int, itemsize: int) -> int:
    """Bytes of one head's row in a quantized array: 32-bit words, a scale and a bias per group.

    Raises EngineRefuses where `mx.quantize` does: a head that groups do not divide.
    """
    if head_dim % group_size:
        msg = f"{NAME}: groups of {group_size} do not divide a head of {head_dim}."
        raise EngineRefuses(msg, "choose kv_group_size 32, 64 or 128, one that divides the head.")
    return head_dim * bits // _WORD_BITS * 4 + head_dim // group_size * 2 * itemsize


def fresh_quantized_row_bytes(head_dim: int, bits: int, group_size: int, itemsize: int) -> int:
    """The same for a cache that starts quantized, whose words hold 32 // bits elements each.

    Raises EngineRefuses where that differs from what `mx.quantize` packs (6 bits), since storing
    into the array then fails.
    """
    words = head_dim // (_WORD_BITS // bits)
    if words != head_dim * bits // _WORD_BITS:
        msg = f"{NAME}: a QuantizedKVCache of {bits} bits cannot hold heads of {head_dim}."
        raise EngineRefuses(msg, "use kv_bits 2, 4 or 8.")
    return quantized_row_bytes(head_dim, bits, group_size, itemsize)
