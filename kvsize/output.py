"""Where a command's text goes: standard output, or a file that is written all at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kvsize.errors import UsageError


def write(text: str, file: str) -> None:
    """Write `text` to standard output, or to `file` where one is named; UsageError where neither
    takes it.
    """
    try:
        if file:
            replace(Path(file), text)
        else:
            to_stdout(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = file or "standard output"
        msg = f"cannot write to {where}: {error.strerror}."
        raise UsageError(msg, "name a file in a folder that exists and can be written.") from error


def to_stdout(text: str) -> None:
    """Write and flush; a character the encoding lacks is written as `?`.

    Raises UsageError where standard output is closed.
    """
    stdout = sys.stdout
    if stdout is None:
        msg = "standard output is closed."
        raise UsageError(msg, "name a file to write to: --output FILE.")
    encoding = stdout.encoding or "utf-8"
    stdout.write(text.encode(encoding, "replace").decode(encoding))
    stdout.flush()


def replace(file: Path, text: str) -> None:
    """Put `text` in place of what `file` holds, so that no reader ever sees a part of it."""
    file = file.resolve()  # a symbolic link stays one
    if file.exists() and not file.is_file():
        file.write_text(text, encoding="utf-8", newline="")  # a device or a pipe
        return
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
