"""`kvsize engines`: the engines, or one with its options."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._flags import Text

EXAMPLES = """\b
kvsize engines
kvsize engines vllm
"""


def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[ENGINE]", show_default=False, help="One engine, with its options."
        ),
    ] = "",
) -> Text:
    """List the engines, or one engine's options, versions and limits."""
    from kvsize import listing

    return listing.engine_text(name) if name else listing.engines_text(), ""
