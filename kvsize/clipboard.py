"""Text onto the clipboard: by the desktop's own program, or by the terminal itself (OSC 52).

OSC 52 is a control sequence of xterm (ctlseqs, "Manipulate Selection Data") that most terminals know
and that works over ssh: the clipboard is that of the screen one sits at.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kvsize.errors import UsageError

TERMINAL = Path("/dev/tty")
# What xterm and hterm take of base64 in one sequence.
_MOST = 74_994
_WITHOUT = {"", "dumb", "linux", "unknown"}
"""Values of TERM for screens that have no clipboard."""
_PATIENCE_S = 5


class Program(NamedTuple):
    """A program that reads the clipboard's new text; `needs` must be in the environment."""

    command: tuple[str, ...]
    needs: str = ""
    encoding: str = "utf-8"


PROGRAMS = (
    Program(("pbcopy",)),
    Program(("clip.exe",), encoding="utf-16-le"),
    Program(("clip",), "WINDIR", "utf-16-le"),
    Program(("wl-copy",), "WAYLAND_DISPLAY"),
    Program(("xclip", "-selection", "clipboard"), "DISPLAY"),
    Program(("xsel", "--clipboard", "--input"), "DISPLAY"),
)


def put(text: str) -> None:
    """Put `text` on the clipboard; UsageError where there is none, or it is too small."""
    remote = bool(os.environ.get("SSH_TTY") or os.environ.get("SSH_CONNECTION"))
    ways = (_by_terminal, _by_program) if remote else (_by_program, _by_terminal)
    if not any(way(text) for way in ways):
        message = "--copy: there is no clipboard: no terminal, no wl-copy, xclip, xsel or pbcopy."
        raise UsageError(message, "leave out --copy, or install one of these programs.")


def _by_program(text: str) -> bool:
    for program in PROGRAMS:
        path = shutil.which(program.command[0])
        if path is None or (program.needs and not os.environ.get(program.needs)):
            continue
        try:
            done = subprocess.run(  # noqa: S603 - a fixed list of programs
                [path, *program.command[1:]],
                input=text.encode(program.encoding),
                check=False,
                # Some stay to serve the text: they must not hold the user's own streams.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return True
    return False


def _by_terminal(text: str) -> bool:
    if os.environ.get("TERM", "") in _WITHOUT or sys.platform == "win32":
        return False
    encoded = base64.b64encode(text.encode())
    try:
        # Not Path.open, which would make a file where there is no terminal.
        terminal = os.open(TERMINAL, os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return False
    with os.fdopen(terminal, "wb") as out:
        if len(encoded) > _MOST:
            message = (
                f"--copy: {len(text):,} characters are more than a terminal's clipboard takes."
            )
            raise UsageError(message, "choose fewer rows or --columns, or copy it from a file.")
        out.write(b"\x1b]52;c;" + encoded + b"\x07")
    return True
