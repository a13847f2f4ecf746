"""`kvsize presets`: the models that come with kvsize."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._flags import Text

EXAMPLES = """\b
kvsize presets --search qwen
kvsize presets --json | jq .
"""


def command(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only names that contain this.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> Text:
    """List the models that come with kvsize."""
    from kvsize import listing

    return listing.presets_text(search, as_json=as_json), ""
