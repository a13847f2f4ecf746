"""What differs between transformers versions, as data: the figure follows `engine_version`.

Held against the real classes of 5.24.0, 5.13.1 and 4.57.6; the boundaries between them were read
in the releases' cache_utils.py and modeling files.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvsize.errors import EngineRefuses, UsageError
from kvsize.layers import (
    FullAttention,
    HybridLayer,
    LatentAttention,
    Layer,
    NoCache,
    RecurrentState,
    SlidingAttention,
)
from kvsize.model import Model
from kvsize.record import Record

NEWEST = "5.24.0"
VERSIONS = ("5.24.0", "5.13.1", "4.57.6")
OLDEST = (4, 57)
# Why 4.57's Gemma 3n has an entry without tensors of its own.
VIEWS = "views of other layers' tensors"


class ReturnedWindow(Record, kw_only=True):
    """What 4.57's Gemma 3n keeps of its last sliding layer for the layers that share it.

    The tensors that `update` returned: the window with the newest token, a second view of the
    same storage.
    """

    attention: SlidingAttention


CachedLayer = Layer | ReturnedWindow


class Rules(Record):
    """The rules of one version."""

    version: str
    number: tuple[int, ...]

    @property
    def latent_cache(self) -> bool:
        """MLA layers keep the latent, from 5.15.0; before, the keys and values it expands to."""
        return self.number >= (5, 15)

    @property
    def own_state_dtype(self) -> bool:
        """Recurrent states keep their own dtype, from 5.14.0; before, the convolution's."""
        return self.number >= (5, 14)

    def layers(self, model: Model, cache: str) -> Sequence[CachedLayer]:
        """The model's layers as this version caches them; EngineRefuses where it cannot."""
        self._refuse(model, cache)
        layers: list[CachedLayer] = list(model.layers)
        if self._forgets_windows(model, cache):
            layers = [_without_window(layer) for layer in model.layers]
        if self.number < (5, 0) and model.config.model_type == "recurrent_gemma":
            # Up to 4.57 its windows lived on the modules too.
            layers = [NoCache(reason="keys live on the module")] * len(layers)
        if self.number < (5, 23):
            layers = self._without_shared(model, layers, cache)
        return layers

    def _refuse(self, model: Model, cache: str) -> None:
        kinds = {type(layer) for layer in model.layers}
        if self.number < (5, 5) and kinds & {RecurrentState, HybridLayer}:
            message = (
                f"transformers {self.version} keeps the states of {model.name} in a cache class "
                "of its own, which kvsize does not model."
            )
            raise EngineRefuses(message, "use --engine-version 5.13.1 or newer.")
        if self.number < (5, 14) and cache == "static" and HybridLayer in kinds:
            message = (
                f"a StaticCache of transformers {self.version} has no layer that keeps attention "
                f"and a state side by side, as those of {model.name} do."
            )
            raise EngineRefuses(message, "use the dynamic cache, or --engine-version 5.14.1.")
        indexed = any(getattr(layer, "extras", ()) for layer in model.layers)
        if self.number < (5, 13) and indexed:
            message = f"transformers {self.version} has no cache for the indexer of {model.name}."
            raise EngineRefuses(message, "use --engine-version 5.13.1 or newer.")
        if self.number < (5, 0) and cache == "static" and LatentAttention in kinds:
            message = (
                f"a StaticCache of transformers {self.version} takes values as wide as keys, "
                f"which those of {model.name} are not."
            )
            raise EngineRefuses(message, "use the dynamic cache, or a newer version.")

    def _forgets_windows(self, model: Model, cache: str) -> bool:
        """Up to 5.13, `num_kv_shared_layers` 0 emptied the list of layer types (`[:-0]`).

        Every layer became a DynamicLayer; in 4.57 a StaticLayer too.
        """
        affected = self.number < (5, 14) and (cache == "dynamic" or self.number < (5, 0))
        return affected and model.config.value("num_kv_shared_layers") == 0

    def _without_shared(
        self, model: Model, layers: list[CachedLayer], cache: str
    ) -> list[CachedLayer]:
        """Before 5.23 layers that share another's keys had no entry in the cache."""
        if not model.config.value("num_kv_shared_layers"):
            return layers
        own: list[CachedLayer] = [layer for layer in layers if not isinstance(layer, NoCache)]
        if self.number >= (5, 0):
            return own
        window = next((x for x in reversed(own) if isinstance(x, SlidingAttention)), None)
        if window is None or cache == "static":
            return [*own, NoCache(reason=VIEWS)]
        return [*own, ReturnedWindow(attention=window)]


def _without_window(layer: Layer) -> Layer:
    if not isinstance(layer, SlidingAttention):
        return layer
    return FullAttention(
        num_attention_heads=layer.num_attention_heads,
        num_key_value_heads=layer.num_key_value_heads,
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim,
        extras=layer.extras,
    )


def rules_for(version: str | None) -> Rules:
    """The rules of `version`, the newest modelled for None; UsageError outside the range."""
    wanted = version or NEWEST
    parts = wanted.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        message = f"'{wanted}' is not a transformers version."
        raise UsageError(message, f"give one like {NEWEST}.")
    number = tuple(int(part) for part in parts)
    newest = tuple(int(part) for part in NEWEST.split("."))
    if number[:2] > newest[:2] or number < OLDEST:
        message = f"transformers {wanted} is outside the versions kvsize models."
        raise UsageError(message, f"give one from 4.57 to {NEWEST}, or leave it out.")
    return Rules(wanted, number)
