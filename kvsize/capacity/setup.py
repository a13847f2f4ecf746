"""A deployment as its engine is asked about it: everything but memory, sequences and length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvsize.capacity.layout import Layout
from kvsize.capacity.rules import rules_for
from kvsize.engines._layers import recurrents
from kvsize.engines.options import Request

if TYPE_CHECKING:
    from kvsize.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything about a deployment but its memory, the sequences and their length."""

    model: Model
    engine: str
    layout: Layout = field(default_factory=Layout)
    engine_version: str | None = None
    kv_dtype: str = "auto"
    options: Mapping[str, object] = field(default_factory=dict)

    def request(self, context: int, sequences: int = 1) -> Request:
        """The engine's request for one replica."""
        return Request(
            context=context,
            sequences=sequences,
            kv_dtype=self.kv_dtype,
            engine_version=self.engine_version,
            options={**self.options, **self._layout_options(sequences)},
            tensor_parallel_size=self.layout.tensor_parallel_size,
            pipeline_parallel_size=self.layout.pipeline_parallel_size,
        )

    @property
    def chooses_batch(self) -> bool:
        """Whether the engine keeps a state per slot, and how many slots is left open.

        TensorRT-LLM keeps a state for each of max_batch_size sequences: it is then taken to be
        the number of sequences, as `--emit` states it.
        """
        open_ = self.engine == "tensorrt-llm" and "max_batch_size" not in self.options
        return open_ and bool(recurrents(self.model))

    def _layout_options(self, sequences: int) -> dict[str, object]:
        rules, layout = rules_for(self.engine), self.layout
        options: dict[str, object] = {}
        if layout.attention_dp and rules.attention_dp:
            options[rules.attention_dp] = True
            if self.engine == "sglang":
                options["dp_size"] = layout.data_parallel_size
        if layout.decode_context_parallel_size > 1 and rules.decode_context:
            options[rules.decode_context] = layout.decode_context_parallel_size
        if self.engine == "llama.cpp" and "n_seq_max" not in self.options:
            options["n_seq_max"] = sequences  # -np given: llama-server does not make it 4
        if self.chooses_batch:
            options["max_batch_size"] = sequences
        return options
