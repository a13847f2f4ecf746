"""A model as kvsize sees it: what its layers must remember, and where that is known from."""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.config import Config
from kvsize.layers import Layer
from kvsize.record import Record


class Raw(Record):
    """An untrusted config from some source, before any family has read it."""

    config: Mapping[str, object]
    name: str
    """What outputs call the model: a preset's name, a Hub id, a path."""
    where: str
    """What errors name: `./config.json`, `preset llama-3.1-70b`."""
    source: str
    """Which source found it: preset, hub, file, stdin, mapping, gguf."""
    hub_id: str | None = None
    revision: str | None = None
    weight_bytes: int | None = None


class Guess(Record):
    """Something that was assumed, not read; `--strict` turns it into an error."""

    code: str
    message: str


class Model(Record):
    """A model's layers in the order of its cache, with what sizing them needs.

    `layers` are the architecture as transformers caches it; `config` is the text decoder's
    section of the file and `root` the whole file, for engines that read further keys.
    """

    name: str
    source: str
    where: str
    model_type: str
    config: Config
    root: Config
    layers: tuple[Layer, ...]
    dtype: str
    dtype_assumed: bool
    context_limit: int | None
    hub_id: str | None = None
    revision: str | None = None
    weight_bytes: int | None = None
    encoder_tokens: int | None = None
    """The encoder's own length, for models with cross-attention."""
    prompt_tokens: int = 0
    """Learned tokens the model puts in front of every prompt (CPM-Ant)."""
    cache_class: str | None = None
    """The cache object of models that do not use DynamicCache."""
    no_static_cache: str | None = None
    """Why transformers has no StaticCache for it, where it has none."""
    guesses: tuple[Guess, ...] = ()
