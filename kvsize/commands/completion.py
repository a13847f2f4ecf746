"""`kvsize completion`: what teaches a shell to complete."""

from __future__ import annotations

from typing import Annotated

import typer

from kvsize.commands._flags import Text
from kvsize.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
CHOICES = {"SHELL": SHELLS}
EXAMPLES = """\b
eval "$(kvsize completion bash)"                         # in ~/.bashrc; the same with zsh
kvsize completion zsh > _kvsize                          # for a folder of zsh's fpath
kvsize completion fish > kvsize.fish                     # for ~/.config/fish/completions
"""


def command(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish.")
    ],
) -> Text:
    """Print the script that lets a shell complete what kvsize takes.

    Commands, options, presets and their aliases, files, engines with their versions and options,
    dtypes, GPUs and formats. While completing, nothing is asked of the network.
    """
    from pathlib import Path

    if shell not in SHELLS:
        msg = f"there is no completion for the shell '{shell}'."
        raise UsageError(msg, f"use one of {', '.join(SHELLS)}.")
    file = Path(__file__).parents[1] / "data" / "completion" / f"kvsize.{shell}"
    return file.read_text(encoding="utf-8"), ""
