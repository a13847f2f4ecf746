"""Our own pages state figures between markers, and they are current."""

from __future__ import annotations

from pathlib import Path

from command import run

from kvsize import commands
from kvsize.documents.current import document

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_our_own_pages_are_current(capsys):
    assert run(capsys, "docs", "--check", *map(str, PAGES)) == (0, "", "")


def test_our_own_pages_have_blocks():
    filled = {page.name: document(str(page), commands).filled for page in PAGES}
    assert {name: count for name, count in filled.items() if count} == {
        "README.md": 2,
        "documents.md": 2,
    }


def test_a_table_stands_alone_unless_it_chooses_columns(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- kvsize: gemma-3-27b --ctx 8k -->\n<!-- /kvsize -->\n", "utf-8")
    assert document(str(page), commands).new == (
        "<!-- kvsize: gemma-3-27b --ctx 8k -->\n\n"
        "| model | context | per token | per sequence | as MHA |\n"
        "| :--- | ---: | ---: | ---: | ---: |\n"
        "| gemma-3-27b | 8,192 | 80.00 KiB | 1.03 GiB | 7.52× |\n\n"
        "<!-- /kvsize -->\n"
    )
