"""The optional dependencies of `kvsize verify`."""

from __future__ import annotations

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
