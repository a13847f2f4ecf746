"""The `kvsize` command as tests call it: in this process, or as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from kvsize import cli

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Said(NamedTuple):
    """What a run left behind."""

    code: int
    out: str
    err: str


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """Run the command line in this process."""
    code = cli.run(list(arguments))
    return Said(int(code), *capsys.readouterr())


def program(*arguments: str, stdin: str = "", cwd: Path | None = None, **env: str) -> Said:
    """Run the command line as a program, 100 columns wide and without colours."""
    done = subprocess.run(
        [sys.executable, "-m", "kvsize", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=120,
        cwd=cwd,
        env={
            **{key: value for key, value in os.environ.items() if key != "KVSIZE_DEBUG"},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "100",
            "NO_COLOR": "1",
            **env,
        },
    )
    return Said(done.returncode, done.stdout, done.stderr)
