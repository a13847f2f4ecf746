"""What differs between transformers versions, as data: the figure follows `engine_version`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvsize.errors import UsageError
from kvsize.layers import Layer
from kvsize.model import Model

NEWEST = "5.24.0"
VERSIONS = ("5.24.0",)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version.

    `latent_cache`: MLA layers keep the latent (from 5.15.0) instead of the keys and values it
    expands to. `own_state_dtype`: recurrent states keep their own dtype (from 5.14.0).
    """

    version: str
    latent_cache: bool
    own_state_dtype: bool

    def layers(self, model: Model, cache: str) -> Sequence[Layer]:  # noqa: ARG002
        """The model's layers as this version caches them."""
        return model.layers


def rules_for(version: str | None) -> Rules:
    """The rules of `version`, the newest modelled for None; UsageError beyond it."""
    wanted = version or NEWEST
    parts = wanted.split(".")
    if not all(part.isdigit() for part in parts) or len(parts) < 2:
        message = f"'{wanted}' is not a transformers version."
        raise UsageError(message, f"give one like {NEWEST}.")
    number = tuple(int(part) for part in parts)
    newest = tuple(int(part) for part in NEWEST.split("."))
    if number[:2] > newest[:2]:
        message = f"transformers {wanted} is newer than {NEWEST}, the newest kvsize models."
        raise UsageError(message, f"leave out the version to size for {NEWEST}.")
    return Rules(
        version=wanted,
        latent_cache=number >= (5, 15),
        own_state_dtype=number >= (5, 14),
    )
