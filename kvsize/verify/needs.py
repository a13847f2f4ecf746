"""The optional dependencies of `kvsize verify`."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from kvsize.errors import MissingExtra


def require() -> None:
    """Raise MissingExtra where torch or transformers is not installed."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        message = (
            f"`kvsize verify` builds real tensors and needs {' and '.join(missing)}, which {verb} "
            "not installed."
        )
        raise MissingExtra(message, "pip install 'kvsize[verify]'")


def require_architectures() -> None:
    """Raise MissingExtra where transformers is too old to build architectures made small.

    Its config classes must state their sections (`sub_configs_defaults`): 5.24.0 does, 5.13.1 and
    4.57.6 do not.
    """
    from transformers import PretrainedConfig

    if not hasattr(PretrainedConfig, "sub_configs_defaults"):
        message = (
            f"transformers {version('transformers')} is installed, whose configs do not state "
            "their sections: no architecture can be made small with it."
        )
        raise MissingExtra(message, "pip install -U transformers, or use --level cache.")
