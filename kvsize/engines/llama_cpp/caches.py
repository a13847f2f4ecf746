"""The caches of a context: which tensors each layer has, their bytes, and the engine's log line.

Source: `src/llama-kv-cache.cpp`, `llama-memory-recurrent.cpp` and `llama-kv-cache-dsv4.cpp`
(`llama_dsv4_comp_state`), llama.cpp 0c1e57098. A tensor's bytes are `ggml_nbytes`, which is
the same on every backend; a backend may pad its buffers further.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from kvsize.dtypes import KVDtype
from kvsize.engines.llama_cpp.types import F32
from kvsize.errors import EngineRefuses
from kvsize.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCache:
    """Keys, and values unless it is K-only, of `cells` tokens in each of `streams`.

    `widths`: per cached layer its index in the model and the elements of its K and V rows.
    """

    tag: str
    cells: int
    streams: int
    n_seq_max: int
    type_k: KVDtype
    type_v: KVDtype
    widths: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        for il, k_width, v_width in self.widths:
            _check_row(il, "K", self.type_k, k_width)
            _check_row(il, "V", self.type_v, v_width)

    @property
    def layers(self) -> int:
        """How many layers the log counts."""
        return len(self.widths)

    @property
    def k_bytes(self) -> int:
        """Bytes of all K tensors."""
        return sum(self._rows(self.type_k, k_width) for _, k_width, _ in self.widths)

    @property
    def v_bytes(self) -> int:
        """Bytes of all V tensors."""
        return sum(self._rows(self.type_v, v_width) for _, _, v_width in self.widths)

    @property
    def total_bytes(self) -> int:
        """Bytes of all its tensors."""
        return self.k_bytes + self.v_bytes

    @property
    def layer_bytes(self) -> Mapping[int, int]:
        """Bytes per model layer."""
        return {
            il: self._rows(self.type_k, k_width) + self._rows(self.type_v, v_width)
            for il, k_width, v_width in self.widths
        }

    @property
    def tensors(self) -> tuple[str, ...]:
        """The distinct shapes, in words."""
        shape = f"{self.cells:,} cells"
        if self.streams > 1:
            shape += f", {self.streams} streams"
        k = {f"K [{width}, {shape}] {self.type_k.name}": None for _, width, _ in self.widths}
        v = {
            f"V [{width}, {shape}] {self.type_v.name}": None for _, _, width in self.widths if width
        }
        return (*k, *v)

    @property
    def figures(self) -> dict[str, object]:
        """The figures in the engine's words."""
        return {
            "cache": self.tag,
            "cells": self.cells,
            "streams": self.streams,
            "layers": self.layers,
            "k_bytes": self.k_bytes,
            "v_bytes": self.v_bytes,
        }

    @property
    def log_line(self) -> str:
        """The line llama.cpp prints for it."""
        return (
            f"llama_kv_cache: size = {mib(self.total_bytes)} MiB "
            f"({self.cells:6d} cells, {self.layers:3d} layers, "
            f"{self.n_seq_max:2d}/{self.streams} seqs), "
            f"K ({self.type_k.name}): {mib(self.k_bytes)} MiB, "
            f"V ({self.type_v.name}): {mib(self.v_bytes)} MiB"
        )

    def _rows(self, kind: KVDtype, width: int) -> int:
        return kind.bytes_of(width) * self.cells * self.streams


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentMemory:
    """f32 states of `cells` sequences, `1 + n_rs_seq` rows for each.

    `r`, `s` and `p` are elements per row: convolution or token shift, state, and the PLE
    history of the layers in `ple`. The log counts all `trunk` layers, with a state or not.
    """

    cells: int
    n_seq_max: int
    n_rs_seq: int
    trunk: int
    recurrent: tuple[int, ...]
    ple: tuple[int, ...]
    r: int
    s: int
    p: int
    tag: str = "recurrent"

    @property
    def layers(self) -> int:
        """How many layers have a state."""
        return len(self.recurrent)

    @property
    def r_bytes(self) -> int:
        """Bytes of the convolution or token-shift states."""
        return self.layers * self._row_bytes(self.r)

    @property
    def s_bytes(self) -> int:
        """Bytes of the recurrent states proper."""
        return self.layers * self._row_bytes(self.s)

    @property
    def p_bytes(self) -> int:
        """Bytes of the PLE histories."""
        return len(self.ple) * self._row_bytes(self.p)

    @property
    def total_bytes(self) -> int:
        """Bytes of all its tensors."""
        return self.r_bytes + self.s_bytes + self.p_bytes

    @property
    def layer_bytes(self) -> Mapping[int, int]:
        """Bytes per model layer."""
        state = self._row_bytes(self.r) + self._row_bytes(self.s)
        history = self._row_bytes(self.p)
        return {il: state + history * (il in self.ple) for il in self.recurrent}

    @property
    def tensors(self) -> tuple[str, ...]:
        """The distinct shapes, in words."""
        rows = self.cells * (1 + self.n_rs_seq)
        named = (("R", self.r), ("S", self.s), ("P", self.p if self.ple else 0))
        return tuple(f"{name} [{width}, {rows} rows] f32" for name, width in named if width)

    @property
    def figures(self) -> dict[str, object]:
        """The figures in the engine's words."""
        return {
            "cache": self.tag,
            "cells": self.cells,
            "layers": self.layers,
            "r_bytes": self.r_bytes,
            "s_bytes": self.s_bytes,
            "p_bytes": self.p_bytes,
        }

    @property
    def log_line(self) -> str:
        """The line llama.cpp prints for it."""
        return (
            f"llama_memory_recurrent: size = {mib(self.total_bytes)} MiB "
            f"({self.cells:6d} cells, {self.trunk:3d} layers, "
            f"{self.n_seq_max:2d} seqs {self.n_rs_seq:2d} rs_seq), "
            f"R (f32): {mib(self.r_bytes)} MiB, S (f32): {mib(self.s_bytes)} MiB, "
            f"P (f32): {mib(self.p_bytes)} MiB"
        )

    def _row_bytes(self, elements: int) -> int:
        return F32.bytes_of(elements) * self.cells * (1 + self.n_rs_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorState:
    """DeepSeek-V4: the keys and scores a compressor still gathers, f32, per stream."""

    tag: str
    ratio: int
    state_size: int
    width: int
    streams: int
    n_rs_seq: int
    compressed: tuple[int, ...]

    @property
    def layers(self) -> int:
        """How many layers have one."""
        return len(self.compressed)

    @property
    def total_bytes(self) -> int:
        """Bytes of all its tensors."""
        return self.layers * self._layer_bytes

    @property
    def layer_bytes(self) -> Mapping[int, int]:
        """Bytes per model layer."""
        return dict.fromkeys(self.compressed, self._layer_bytes)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The distinct shapes, in words."""
        planes = self.streams * (1 + self.n_rs_seq)
        shape = f"[{self.width}, {self.state_size}, {planes} planes] f32"
        return (f"keys {shape}", f"scores {shape}")

    @property
    def figures(self) -> dict[str, object]:
        """The figures in the engine's words."""
        return {
            "cache": f"{self.tag} state",
            "streams": self.streams,
            "layers": self.layers,
            "bytes": self.total_bytes,
        }

    @property
    def log_line(self) -> str:
        """The line llama.cpp prints for it."""
        return (
            f"llama_dsv4_comp_state: {self.tag} ratio = {self.ratio}, "
            f"state = {self.state_size} x {self.width}, streams = {self.streams}, "
            f"rs_seq = {self.n_rs_seq}, layers = {self.layers}, "
            f"size = {self.total_bytes / MIB:7.2f} MiB"
        )

    @property
    def _layer_bytes(self) -> int:
        planes = self.streams * (1 + self.n_rs_seq)
        return 2 * F32.bytes_of(self.width * self.state_size * planes)


Cache = AttentionCache | RecurrentMemory | CompressorState


def mib(size_bytes: int) -> str:
    """Bytes as llama.cpp prints them: through a C float, as MiB with two decimals."""
    as_float: float = struct.unpack("f", struct.pack("f", size_bytes))[0]
    return f"{as_float / MIB:7.2f}"


def _check_row(il: int, which: str, kind: KVDtype, width: int) -> None:
    """Refuses a row that is not whole blocks, on which ggml aborts (`ggml_row_size`)."""
    if width % kind.block_elements:
        msg = (
            f"llama.cpp: layer {il} has {which} rows of {width} elements, which blocks of "
            f"{kind.block_elements} ({kind.name}) do not divide."
        )
        raise EngineRefuses(msg, "choose an unquantized cache type; ggml aborts on this one.")
