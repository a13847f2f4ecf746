"""One module per command; its file name is the command's name.

A command module defines `command`, a function for typer whose docstring is the help, and may define
EXAMPLES, which end the help and are run by the tests, and EXITS, its own words for exit codes on its
page in docs/commands/, and CHOICES, what an option or argument takes: completion offers it.
Modules that start with `_` are shared parts. What a command needs is imported inside the function,
so that each starts fast.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated

import typer

from kvsize.errors import UsageError

# typer does not export what it raises for arguments it cannot parse, only this kind of it.
BadArguments: type[Exception] = typer.BadParameter.__bases__[0]


def names() -> list[str]:
    """The names of all commands."""
    # os.scandir: Path.glob costs a third more of the start-up.
    files = (entry.name for entry in os.scandir(Path(__file__).parent))
    return sorted(
        name[: -len(".py")] for name in files if name.endswith(".py") and not name.startswith("_")
    )


def said(words: list[str]) -> object:
    """What the command line `words`, which starts with a command's name, returns.

    Raises what the command raises, and UsageError for arguments that cannot be parsed.
    """
    command = typer.main.get_command(application(words[0]))
    try:
        return command.main(words, prog_name="kvsize", standalone_mode=False)
    except BadArguments as error:
        raise UsageError(*_in_our_words(error)) from error


def application(wanted: str = "") -> typer.Typer:
    """The typer app; with `wanted` it has that command alone, since each takes time to build."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    settings = {"help_option_names": ["-h", "--help"]}
    known = names()
    chosen = [wanted] if wanted in known else known
    modules = {name: importlib.import_module(f"kvsize.commands.{name}") for name in chosen}
    examples = getattr(modules.get("size"), "EXAMPLES", None)
    app.callback(epilog=examples, context_settings=settings)(_root)
    for name, module in modules.items():
        epilog = getattr(module, "EXAMPLES", None)
        app.command(name, epilog=epilog, context_settings=settings)(module.command)
    return app


def _version(value: bool) -> None:
    if value:
        from kvsize import __version__

        typer.echo(f"kvsize {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """How many bytes a model's KV cache takes, to the byte, per engine and version.

    `kvsize MODEL...` is short for `kvsize size MODEL...`; `kvsize size --help` has its options.
    """


def _in_our_words(error: Exception) -> tuple[str, str]:
    """A message of typer's, in the shape of ours."""
    told = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "kvsize")
    message = told[:1].lower() + told[1:].rstrip(".") + "."
    return message, f"`{command} --help` shows what it takes."
