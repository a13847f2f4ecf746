"""Where a command's text goes: standard output, or a file that is written all at once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kvsize.errors import UsageError


def write(content: str | bytes, file: str) -> None:
    """Write to standard output, or to `file` where one is named; UsageError where neither takes it.

    Bytes, a picture's, go to a file only.
    """
    try:
        if file or isinstance(content, bytes):
            replace(Path(file), content)
        else:
            to_stdout(content)
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


def replace(file: Path, content: str | bytes) -> None:
    """Put `content` in place of what `file` holds, so that no reader ever sees a part of it."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    file = file.resolve()  # a symbolic link stays one
    if file.exists() and not file.is_file():
        file.write_bytes(data)  # a device or a pipe
        return
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        if file.exists():
            shutil.copymode(file, part)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
