"""`kvsize gpus`: the accelerators that come with kvsize."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._flags import AsJson, Text, TextFormat

EXAMPLES = """\b
kvsize gpus --search h100
kvsize gpus --json | jq .
"""


def command(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only those that contain this.")
    ] = "",
    format_name: TextFormat = "text",
    as_json: AsJson = False,
) -> Text:
    """List the accelerators that --gpu knows, with their memory and where the figure is from."""
    from kvsize.capacity.gpus import gpus as catalogue
    from kvsize.capacity.render import gpus_text

    wanted = search.lower()
    found = [each for each in catalogue() if wanted in f"{each.name} {each.title}".lower()]
    return gpus_text(found, "json" if as_json else format_name), ""
