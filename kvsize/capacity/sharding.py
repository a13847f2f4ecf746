"""How a model's weights spread over ranks: what is cut, and what every rank holds whole.

Assumed of all engines: linear layers are cut evenly over the tensor-parallel ranks, key and value
projections as their heads are (never below one head, so they repeat beyond the KV heads), and
projections down to a latent are whole on every rank. Layers spread over pipeline stages as evenly
as they go, the embedding on the first stage and the output on the last. Routed experts spread
over all ranks of a stage, data-parallel ones included.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from kvsize.capacity import parameters
from kvsize.engines._layers import attentions
from kvsize.layers import FullAttention
from kvsize.units import ceil_div

if TYPE_CHECKING:
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.parameters import Parameters
    from kvsize.model import Model

EVENLY = "cut evenly over the ranks"
BY_PART = (
    "cut over the ranks; latent projections and key and value heads below one a rank are held whole"
)


@dataclass(frozen=True, slots=True)
class Shares:
    """Each part of the weights as a share of all, and what decides how it is cut."""

    parts: Parameters | None
    num_key_value_heads: int
    num_hidden_layers: int

    @property
    def assumption(self) -> str:
        """How the weights are taken to be cut, in words."""
        return EVENLY if self.parts is None else BY_PART

    @property
    def experts(self) -> bool:
        """Whether there are routed experts."""
        return self.parts is not None and self.parts.experts > 0

    def rank_bytes(self, total_bytes: int, layout: Layout) -> int:
        """Bytes of the weights on the fullest rank."""
        if self.parts is None or not self.parts.total:
            return ceil_div(total_bytes, layout.ranks)
        return ceil(total_bytes * self._fullest(self.parts, layout) / self.parts.total)

    def _fullest(self, parts: Parameters, layout: Layout) -> Fraction:
        """Parameters on the fullest rank."""
        stages = layout.pipeline_parallel_size
        tensor, attention = layout.tensor_parallel_size, layout.attention_ranks
        heads = max(self.num_key_value_heads, 1)
        key_value = Fraction(max(1, heads // attention), heads)
        layers = (
            parts.key_value * key_value
            + parts.latent
            + Fraction(parts.attention, attention)
            + Fraction(parts.dense, tensor)
            + Fraction(parts.experts, layout.expert_ranks)
        )
        stage = layers * Fraction(
            ceil_div(self.num_hidden_layers, stages), max(self.num_hidden_layers, 1)
        )
        ends = (Fraction(parts.embedding, attention), Fraction(parts.output, tensor))
        return stage + (sum(ends) if stages == 1 else max(ends))


def shares(model: Model) -> Shares:
    """The shares of `model`; parts are unknown where its config lacks vocabulary or width."""
    heads = [a.num_key_value_heads for a in attentions(model) if isinstance(a, FullAttention)]
    return Shares(
        parts=parameters.count(model) if model.source != "gguf" else None,
        num_key_value_heads=max(heads, default=1),
        num_hidden_layers=len(model.layers),
    )
