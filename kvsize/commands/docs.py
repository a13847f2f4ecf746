"""`kvsize docs`: tables and figures in documents, kept current."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._flags import Answer, Offline
from kvsize.errors import Exit

EXAMPLES = """\b
kvsize docs README.md docs/*.md
kvsize docs --check README.md
"""


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            show_default=False,
            help="Markdown (.md), MDX (.mdx) or reStructuredText (.rst) files.",
        ),
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit 1 with a diff where a file is stale."),
    ] = False,
    offline: Offline = False,
) -> Answer:
    """Keep the tables and figures between markers in documents current.

    A marker holds what would be typed after `kvsize`; what follows, up to the closing marker, is
    replaced: <!-- kvsize: llama-3.1-70b --ctx 32k --> … <!-- /kvsize -->, and inside a line
    <!-- kvsize:value llama-3.1-70b ctx=32k total -->…<!-- /kvsize:value -->. Markers in code are
    left alone. Nothing is written in any file where one of the blocks is wrong.
    """
    from kvsize import commands
    from kvsize.documents.current import document
    from kvsize.output import write

    found = [document(file, commands, offline=offline) for file in dict.fromkeys(files)]
    stale = [each for each in found if each.stale]
    if check:
        return "".join(each.diff() for each in stale), "", Exit.NO if stale else Exit.OK
    for each in stale:
        write(each.new, each.file)
    said = (
        f"{each.file}: {each.stale} of {each.filled} written anew.\n"
        if each.stale
        else f"{each.file}: {each.filled} current.\n"
        for each in found
    )
    return "".join(said), "", Exit.OK
