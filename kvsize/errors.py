"""What can go wrong, each with its exit code and the next thing to do.

KvsizeError
├── EngineRefuses       exit 1   the engine itself refuses these settings
├── UsageError          exit 2   an option or argument that cannot be meant
├── ConfigError         exit 3   a config that cannot be read, or contradicts itself
│   └── GuessRefused    exit 3   `--strict`: the figure would rest on a guess
├── HubError            exit 4   the Hub is unreachable, or refused
└── MissingExtra        exit 5   needs an optional dependency

Anything else that is raised is a bug in kvsize: exit 70, as sysexits.h has it.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The process exit codes of the `kvsize` command."""

    OK = 0
    NO = 1
    USAGE = 2
    INPUT = 3
    HUB = 4
    MISSING_EXTRA = 5
    INTERNAL = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def printable(text: str) -> str:
    r"""`text` with what moves a terminal's cursor or cannot be encoded escaped: `\x1b`, `\ud800`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class KvsizeError(Exception):
    """A failure told in two lines: what is wrong and where, then what to do."""

    exit_code = Exit.INPUT

    def __init__(self, message: str, hint: str) -> None:
        # A file's values and names stand in both; whatever they hold, each is one line of text.
        self.message: str = printable(message)
        self.hint: str = printable(hint)
        super().__init__(self.message)


class EngineRefuses(KvsizeError):
    """The engine itself refuses these settings; the message says why."""

    exit_code = Exit.NO


class UsageError(KvsizeError):
    """An option or argument that cannot be meant."""

    exit_code = Exit.USAGE


class ConfigError(KvsizeError):
    """A config that cannot be read, is incomplete, or contradicts itself."""

    exit_code = Exit.INPUT


class GuessRefused(ConfigError):
    """The figure would rest on a guess, and `--strict` forbids guesses."""


class HubError(KvsizeError):
    """The Hub is unreachable, has no such file, or refused.

    `retry_after`: after how many seconds another try may do; None where it would not.
    """

    exit_code = Exit.HUB

    def __init__(self, message: str, hint: str, *, retry_after: int | None = None) -> None:
        super().__init__(message, hint)
        self.retry_after: int | None = retry_after


class MissingExtra(KvsizeError):
    """The command needs an optional dependency that is not installed."""

    exit_code = Exit.MISSING_EXTRA
