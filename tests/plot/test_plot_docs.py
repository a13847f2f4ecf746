"""docs/plot.md and its picture are what the tool makes; `--update` writes them anew."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from console import furnish, typed

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "plot.md", DOCS / "plot.svg"
BLOCK = re.compile(r"(?<=^```console\n)\$ (.*?)\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```sh\n(kvsize plot .* --out) docs/plot\.svg\n```$", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return furnish(tmp_path)


def test_the_charts_are_what_the_tool_prints(folder, request) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(BLOCK.findall(page)) == 2
    now = BLOCK.sub(lambda found: f"$ {found[1]}\n{typed(found[1], folder).stdout}", page)
    if request.config.getoption("--update"):
        PAGE.write_text(now, encoding="utf-8")
    assert page == now or request.config.getoption("--update")


def said(svg: Path) -> list[str]:
    """The description and every label: all figures that the picture has in words."""
    root = ET.parse(svg).getroot()
    texts = (element for element in root.iter() if element.tag.endswith(("}text", "}desc")))
    return ["".join(element.itertext()).strip() for element in texts]


def test_the_picture_is_current(folder, request) -> None:
    command = COMMAND.search(PAGE.read_text(encoding="utf-8"))
    assert command is not None
    done = typed(f"{command[1]} plot.svg", folder)
    assert (done.returncode, done.stdout) == (0, "")
    if request.config.getoption("--update"):
        PICTURE.write_bytes((folder / "plot.svg").read_bytes())
    assert said(PICTURE) == said(folder / "plot.svg")
    assert any("llama-3.1-8b fits to 327,680 tokens" in words for words in said(PICTURE))
