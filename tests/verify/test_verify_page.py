"""docs/verify.md shows what the command prints; `--update` writes its outputs anew."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from command import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verify.md"
BLOCK = re.compile(r"(?<=^```console\n)\$ kvsize (.*)\n(?:.*\n)*?(?=^```$)", re.MULTILINE)

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None,
        reason="torch and transformers are not installed",
    ),
]


def test_outputs_are_what_the_command_prints(capsys, request):
    text = PAGE.read_text(encoding="utf-8")

    def block(found):
        said = run(capsys, *found[1].split())
        # A build for the CPU says so in torch's version.
        told = re.sub(r"(torch \d+\.\d+\.\d+)\S*", r"\1", said.out + said.err)
        return f"$ kvsize {found[1]}\n{told}"

    current = BLOCK.sub(block, text)
    if request.config.getoption("--update"):
        PAGE.write_text(current, encoding="utf-8")
    else:
        assert text == current
