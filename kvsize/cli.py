"""The `kvsize` command: one command is run, its text written; failures in two lines, exit codes.

A command returns its whole output, and `run` writes it: nothing is on standard output when
something fails.
"""

from __future__ import annotations

import os
import sys

from kvsize import commands
from kvsize.errors import Exit, KvsizeError


def main() -> int:
    """Run the command line; the exit code. Errors are two lines on standard error."""
    try:
        if "_KVSIZE_COMPLETE" in os.environ:
            from kvsize.completing import answer

            return answer()
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; what is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a bug: told in two lines, like every failure
        kind = type(error).__name__
        hint = "this is a bug in kvsize; set KVSIZE_DEBUG=1 for the traceback, and report it."
        return _fail(f"internal: {kind}: {error}.", hint, Exit.INTERNAL)


def run(arguments: list[str]) -> int:
    """Run one command and write what it says; the exit code.

    Whatever does not start with a command's name is for `size`: models, or its options.
    """
    words = arguments or ["--help"]
    if words[0] not in {*commands.names(), "-h", "--help", "--version"}:
        words = ["size", *words]
    try:
        said = commands.said(words)
        if isinstance(said, tuple):
            from kvsize.output import write

            text, file, *rest = said
            write(text, file)
            if rest[1:] and sys.stderr is not None:
                sys.stderr.write(rest[1])
            return rest[0] if rest else Exit.OK
    except KvsizeError as error:
        return _fail(error.message, error.hint, error.exit_code)
    return said if isinstance(said, int) else Exit.OK


def _fail(message: str, hint: str, code: int) -> int:
    if os.environ.get("KVSIZE_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    if sys.stderr is not None:  # print would take standard output for a closed one
        print(f"error: {message}\nhint: {hint}", file=sys.stderr)
    return code
