"""What one run of level `cache` will fill, and what is predicted for every moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvsize.engines.options import Request
from kvsize.engines.transformers import cached, held, peak_bytes
from kvsize.engines.transformers.form import Form, form_of
from kvsize.engines.transformers.implementations import IMPLEMENTATIONS
from kvsize.engines.transformers.tensors import CacheTensor
from kvsize.engines.transformers.versions import VIEWS, CachedLayer, ReturnedWindow
from kvsize.layers import NoCache
from kvsize.model import Model
from kvsize.record import replace

Layers = Sequence[tuple[CacheTensor, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A prompt in one forward pass, then token by token, into the first `count` of all layers."""

    model: Model
    form: Form
    layers: tuple[CachedLayer, ...]
    count: int

    @property
    def prompt(self) -> int:
        """Tokens of the first forward pass."""
        return self.form.tokens if self.form.prompt is None else self.form.prompt

    @property
    def steps(self) -> int:
        """Single tokens that follow."""
        return self.form.tokens - self.prompt

    def first(self, count: int) -> Plan:
        """The same for the first `count` layers."""
        return Plan(self.model, self.form, self.layers, count)

    def after(self, tokens: int) -> Layers:
        """The filled layers' tensors when they have seen `tokens` tokens."""
        return held(self.layers[: self.count], self.form.after(tokens))

    def at_end(self) -> Layers:
        """The filled layers' tensors after the last token."""
        return self.after(self.form.tokens)

    def whole(self) -> Layers:
        """All layers' tensors after the last token."""
        return held(self.layers, self.form)

    def peak_bytes(self) -> int | None:
        """The most that the filled layers and their copies hold, as `size` says it."""
        return peak_bytes(self.model, self.layers[: self.count], self.form)

    def handed_over(self) -> Layers:
        """What a model hands over for one token; heads and widths are what counts."""
        dynamic = IMPLEMENTATIONS["dynamic"]
        form = replace(self.form, made=dynamic, tokens=1, prompt=1)
        layers = self.form.rules.layers(self.model, "dynamic")
        return held([layer for layer in layers if not _kept_by_model(layer)], form)


def plan_of(model: Model, request: Request, steps: int) -> Plan:
    """The run that `request` asks for; the last `steps` tokens come one by one.

    Unless the request says what its prompt is. Raises what `kvsize.size` raises.
    """
    form = form_of(model, request)
    if not {"prompt", "new_tokens"} & set(request.options):
        # An encoder-decoder's own prompt is one token, yet a decoder can be given more at once.
        form = replace(form, prompt=max(form.tokens - steps, 1))
    layers = tuple(layer for layer in cached(model, form) if not _kept_by_model(layer))
    return Plan(model, form, layers, len(layers))


def _kept_by_model(layer: CachedLayer) -> bool:
    """What 4.57's Gemma 3n model, not the class, keeps beside the cache's layers."""
    views = isinstance(layer, NoCache) and layer.reason == VIEWS
    return views or isinstance(layer, ReturnedWindow)
