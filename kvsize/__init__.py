"""kvsize: how many bytes a model's KV cache takes, to the byte, per engine and version."""

from kvsize._version import __version__
from kvsize.api import fit, size
from kvsize.errors import (
    ConfigError,
    EngineRefuses,
    GuessRefused,
    HubError,
    KvsizeError,
    MissingExtra,
    UsageError,
)
from kvsize.loading import load
from kvsize.model import Model
from kvsize.results import Fit, LayerGroup, Size

__all__ = [
    "ConfigError",
    "EngineRefuses",
    "Fit",
    "GuessRefused",
    "HubError",
    "KvsizeError",
    "LayerGroup",
    "MissingExtra",
    "Model",
    "Size",
    "UsageError",
    "__version__",
    "fit",
    "load",
    "size",
]
