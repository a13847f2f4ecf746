"""`--copy`: the desktop's programs, the terminal's own sequence, and neither."""

from __future__ import annotations

import base64
import os
import pty
from pathlib import Path

import pytest
from command import run

from kvsize import clipboard
from kvsize.errors import UsageError

TEXT = "10.00 GiB × 2\n"
NAMES = ("SSH_TTY", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "WINDIR")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a clipboard; the folder is its PATH."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(clipboard, "TERMINAL", tmp_path / "no-terminal")
    return programs


def program(folder: Path, name: str, code: int = 0) -> Path:
    """A program that keeps what it reads."""
    kept = folder / f"{name}.txt"
    script = folder / name
    script.write_text(f'#!/bin/sh\n/bin/cat > "{kept}"\necho noise\nexit {code}\n', "utf-8")
    script.chmod(0o755)
    return kept


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """A terminal; calling it gives what was written there."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(clipboard, "TERMINAL", Path(os.ttyname(theirs)))
    monkeypatch.setenv("TERM", "xterm-256color")
    yield lambda: os.read(ours, 100_000)
    os.close(ours)
    os.close(theirs)


SEQUENCE = b"\x1b]52;c;" + base64.b64encode(TEXT.encode()) + b"\x07"


@pytest.mark.parametrize(
    ("name", "needs"),
    [("pbcopy", ""), ("wl-copy", "WAYLAND_DISPLAY"), ("xclip", "DISPLAY"), ("xsel", "DISPLAY")],
)
def test_a_program_gets_the_text(bare, monkeypatch, capfd, name, needs):
    kept = program(bare, name)
    if needs:
        with pytest.raises(UsageError, match="there is no clipboard"):
            clipboard.put(TEXT)
        monkeypatch.setenv(needs, ":0")
    clipboard.put(TEXT)
    assert kept.read_text("utf-8") == TEXT
    assert capfd.readouterr() == ("", "")


def test_windows_takes_utf_16(bare):
    kept = program(bare, "clip.exe")
    clipboard.put(TEXT)
    assert kept.read_bytes() == TEXT.encode("utf-16-le")


def test_a_terminal_gets_a_sequence(terminal):
    clipboard.put(TEXT)
    assert terminal() == SEQUENCE


def test_a_program_that_fails_is_passed_over(bare, terminal):
    kept = program(bare, "pbcopy", code=1)
    clipboard.put(TEXT)
    assert kept.exists()
    assert terminal() == SEQUENCE


def test_over_ssh_the_terminal_comes_first(bare, terminal, monkeypatch):
    kept = program(bare, "pbcopy")
    monkeypatch.setenv("SSH_TTY", "/dev/pts/0")
    clipboard.put(TEXT)
    assert terminal() == SEQUENCE
    assert not kept.exists()


def test_a_terminal_without_a_clipboard(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "linux")
    with pytest.raises(UsageError, match="there is no clipboard"):
        clipboard.put(TEXT)


def test_more_than_a_terminal_takes(terminal):
    with pytest.raises(UsageError, match=r"^--copy: 60,000 characters are more than a terminal's"):
        clipboard.put("x" * 60_000)


def test_the_command_copies_what_it_prints(bare, capsys):
    kept = program(bare, "pbcopy")
    said = run(capsys, "llama-3.1-70b", "--ctx", "32k", "--columns", "model,total", "--copy")
    assert (said.code, said.err) == (0, "")
    assert said.out == kept.read_text("utf-8") != ""


def test_without_a_clipboard_the_text_is_printed_all_the_same(capsys):
    said = run(capsys, "llama-3.1-70b", "--ctx", "32k", "--columns", "total", "--copy")
    assert said == (
        *(2, "whole batch\n  10.00 GiB\n"),
        "error: --copy: there is no clipboard: no terminal, no wl-copy, xclip, xsel or pbcopy.\n"
        "hint: leave out --copy, or install one of these programs.\n",
    )
