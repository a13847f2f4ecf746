"""Documents as they should be: every block filled anew, everything else byte for byte."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvsize.documents.blocks import blocks
from kvsize.documents.code import lines
from kvsize.documents.dialects import dialect_of
from kvsize.documents.filling import filled
from kvsize.errors import UsageError

if TYPE_CHECKING:
    from kvsize.documents.filling import CommandLine

_BOM = "\ufeff"
_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Document:
    """A file as it is and as it should be; `filled` counts its blocks, `stale` those that differ."""

    file: str
    old: str
    new: str
    filled: int
    stale: int

    def diff(self) -> str:
        """A unified diff from the file to what it should be; nothing where it is current."""
        made = difflib.unified_diff(
            lines(self.old), lines(self.new), self.file, f"{self.file} (current)"
        )
        return "".join(
            line if line.endswith(("\n", "\r")) else f"{line}\n{_NO_NEWLINE}\n" for line in made
        )


def document(file: str, commands: CommandLine, *, offline: bool = False) -> Document:
    """The document in `file`, its blocks answered by `commands`; nothing is written.

    Raises UsageError, with file and line, for a wrong marker, a file that cannot be read or is not
    UTF-8, and whatever the command line in a marker raises.
    """
    dialect, old = dialect_of(file), _read(file)
    bom, text = (_BOM, old[1:]) if old.startswith(_BOM) else ("", old)
    parts, position, stale = [bom], 0, 0
    found = blocks(text, dialect, file)
    for block in found:
        content = filled(block, dialect, file, commands, offline=offline)
        stale += content != text[block.start : block.end]
        parts += [text[position : block.start], content]
        position = block.end
    return Document(file, old, "".join([*parts, text[position:]]), len(found), stale)


def _read(file: str) -> str:
    try:
        return Path(file).read_bytes().decode("utf-8")
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror}."
        raise UsageError(msg, "name Markdown, MDX or reStructuredText files that exist.") from error
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}."
        raise UsageError(msg, "save it as UTF-8; nothing was changed.") from error
