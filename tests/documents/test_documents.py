"""Documents whose tables are kept current: what changes, what does not, and what is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from command import run
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsize import commands
from kvsize.documents.blocks import blocks
from kvsize.documents.current import document
from kvsize.documents.dialects import DIALECTS, dialect_of
from kvsize.errors import Exit, UsageError

MARKDOWN, MDX, RST = DIALECTS
OPEN = "<!-- kvsize: llama-3.1-70b --ctx 32k --columns model,sequence -->"
TABLE = "| model | per sequence |\n| :--- | ---: |\n| llama-3.1-70b | 10.00 GiB |\n"
CLOSE = "<!-- /kvsize -->"
STALE = f"# Title\n\n{OPEN}\n{CLOSE}\n\nAfter.\n"
CURRENT = f"# Title\n\n{OPEN}\n\n{TABLE}\n{CLOSE}\n\nAfter.\n"
VALUE = "Takes <!-- kvsize:value llama-3.1-70b ctx=32k total -->{}<!-- /kvsize:value --> of it."


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8", newline="") as out:  # noqa: PTH123 - no translation
        out.write(text)


def read(name: str) -> str:
    with open(name, encoding="utf-8", newline="") as file:  # noqa: PTH123
        return file.read()


def filled(name: str, text: str) -> str:
    write(name, text)
    return document(name, commands).new


# -- what is filled in -------------------------------------------------------------------------
def test_a_table_is_written_between_its_markers(capsys):
    write("a.md", STALE)
    assert run(capsys, "docs", "a.md") == (0, "a.md: 1 of 1 written anew.\n", "")
    assert read("a.md") == CURRENT
    assert run(capsys, "docs", "a.md") == (0, "a.md: 1 current.\n", "")
    assert read("a.md") == CURRENT


def test_check_shows_a_diff_and_writes_nothing(capsys):
    write("a.md", STALE)
    said = run(capsys, "docs", "--check", "a.md")
    assert (said.code, said.err) == (Exit.NO, "")
    assert said.out == (
        "--- a.md\n+++ a.md (current)\n@@ -1,6 +1,11 @@\n # Title\n \n"
        f" {OPEN}\n+\n+| model | per sequence |\n+| :--- | ---: |\n"
        f"+| llama-3.1-70b | 10.00 GiB |\n+\n {CLOSE}\n \n After.\n"
    )
    assert read("a.md") == STALE
    write("a.md", CURRENT)
    assert run(capsys, "docs", "--check", "a.md") == (0, "", "")


def test_the_diff_of_a_file_without_a_last_newline():
    write("a.md", f"{OPEN}{CLOSE}")
    assert document("a.md", commands).diff().splitlines()[3:5] == [
        f"-{OPEN}{CLOSE}",
        "\\ No newline at end of file",
    ]


def test_a_figure_inside_a_line(capsys):
    write("a.md", VALUE.format("9 GiB") + "\n")
    assert run(capsys, "docs", "a.md").code == 0
    assert read("a.md") == VALUE.format("10.00 GiB") + "\n"


def test_figures_and_tables_of_one_file():
    text = f"{VALUE.format('')} {VALUE.format('?')}\n\n{OPEN}\nold\n{CLOSE}\n"
    new = f"{VALUE.format('10.00 GiB')} {VALUE.format('10.00 GiB')}\n\n{OPEN}\n\n{TABLE}\n{CLOSE}\n"
    assert filled("a.md", text) == new
    assert (document("a.md", commands).filled, document("a.md", commands).stale) == (3, 3)


@pytest.mark.parametrize("value", ["--ctx 32k", "--ctx=32k", "ctx=32k"])
def test_an_option_may_be_spelled_without_dashes(value):
    text = f"a <!-- kvsize:value llama-3.1-70b {value} total -->x<!-- /kvsize:value -->"
    assert filled("a.md", text) == text.replace("x<", "10.00 GiB<")


def test_an_engine_option_keeps_its_own_equals_sign():
    text = (
        "a <!-- kvsize:value llama-3.1-70b ctx=32k -o cache=static total -->x<!-- /kvsize:value -->"
    )
    assert "10.00 GiB<" in filled("a.md", text)


def test_words_over_several_lines():
    wrapped = OPEN.replace(" --ctx 32k", "\n     --ctx 32k")
    assert filled("a.md", f"{wrapped}\n{CLOSE}\n") == f"{wrapped}\n\n{TABLE}\n{CLOSE}\n"


@pytest.mark.parametrize("prefix", ["> ", "  ", "> > ", "\t"])
def test_a_table_in_a_quote_or_a_list_keeps_its_place(prefix):
    lead = "1. item\n\n" if prefix.isspace() else ""
    before = f"{lead}{prefix}{OPEN}\n{prefix}{CLOSE}\n"
    if prefix == "\t":
        before = before.replace("1. item", "* item")
    rows = "".join(f"{prefix}{row}".rstrip() + "\n" for row in ["", *TABLE.splitlines(), ""])
    after = before.replace(f"{prefix}{CLOSE}", f"{rows}{prefix}{CLOSE}")
    assert filled("a.md", before) == after
    assert filled("a.md", after) == after


def test_mdx():
    text = (
        "export const a = 1\n\n{/* kvsize: llama-3.1-70b --ctx 32k --columns model,sequence */}\n"
        "{/* /kvsize */}\n\n    {/* kvsize:value llama-3.1-70b --ctx 32k total */}x"
        "{/* /kvsize:value */}\n"
    )
    new = text.replace("*/}\n{/* /kvsize", f"*/}}\n\n{TABLE}\n{{/* /kvsize")
    assert filled("a.mdx", text) == new.replace("}x{", "}10.00 GiB{")


def test_restructured_text():
    text = (
        "Title\n=====\n\n.. note::\n\n   .. kvsize: llama-3.1-70b --ctx 32k --columns "
        "model,sequence\n\n   .. /kvsize\n\nAfter.\n"
    )
    new = filled("a.rst", text)
    assert "   10.00 GiB" not in text
    assert "10.00 GiB" in new
    assert new.startswith(text.partition("\n\n   .. /kvsize")[0])
    assert new.endswith("\n   .. /kvsize\n\nAfter.\n")
    inside = new.partition("model,sequence\n")[2].partition("   .. /kvsize")[0]
    assert all(line == "" or line.startswith("   ") for line in inside.splitlines())
    assert filled("a.rst", new) == new


def test_another_format_that_the_document_shows():
    new = filled("a.md", STALE.replace(" -->\n<", " --format html -->\n<"))
    assert "<table" in new
    assert "| model" not in new


# -- what is left alone ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        f"```\n{OPEN}\n{CLOSE}\n```\n",
        f"~~~~ md\n```\n{OPEN}\n{CLOSE}\n~~~\n~~~~\n",
        f"- item\n\n  ```html\n  {OPEN}\n  {CLOSE}\n  ```\n",
        f"> ```\n> {OPEN}\n> {CLOSE}\n> ```\n",
        f"Text.\n\n    {OPEN}\n    {CLOSE}\n",
        f"```\n{OPEN}\n",
        f"Write `{OPEN}` and `{CLOSE}`.\n",
        f"Write ``{OPEN} ` {CLOSE}``.\n",
        "<!-- kvsize is our tool -->\n<!-- about /kvsize -->\n<!-- kvsizer: x -->\n",
        "",
        "No marker.",
    ],
)
def test_code_and_prose_are_no_markers(text, capsys):
    write("a.md", text)
    assert run(capsys, "docs", "--check", "a.md") == (0, "", "")
    assert document("a.md", commands).filled == 0


@pytest.mark.parametrize(
    "text",
    [
        "Write::\n\n   .. kvsize: nothing\n   .. /kvsize\n",
        ".. code-block:: rst\n\n   .. kvsize: nothing\n\n   .. /kvsize\n",
        ".. kvsize is a tool\n",
    ],
)
def test_literal_blocks_are_no_markers(text):
    assert list(blocks(text, RST, "a.rst")) == []


def test_an_unpaired_backtick_hides_no_block():
    assert filled("a.md", f"A ` in text\n{OPEN}\n{CLOSE}\nand ` again\n").count(TABLE) == 1


@pytest.mark.parametrize("newline", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_endings_and_byte_order_marks_are_kept(newline, bom, capsys):
    write("a.md", bom + STALE.replace("\n", newline))
    assert run(capsys, "docs", "a.md").code == 0
    assert read("a.md") == bom + CURRENT.replace("\n", newline)


def test_the_file_mode_and_a_symbolic_link_are_kept(tmp_path, capsys):
    write("real.md", STALE)
    (tmp_path / "real.md").chmod(0o640)
    (tmp_path / "link.md").symlink_to("real.md")
    assert run(capsys, "docs", "link.md").code == 0
    assert (tmp_path / "link.md").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.md").stat().st_mode) == 0o640
    assert read("real.md") == CURRENT


TEXT = st.text(st.sampled_from("ab `~>-#*|<!{}/\\\n\r\t:.kvsize"), max_size=60)


@settings(deadline=None)
@given(before=TEXT, after=TEXT)
def test_all_outside_the_markers_is_kept(before, after, tmp_path_factory):
    """Whatever stands around a block, only what is between its markers changes, and only once."""
    file = str(tmp_path_factory.getbasetemp() / "law.md")
    text = f"{before}\n\n{OPEN}\n{CLOSE}\n\n{after}"
    write(file, text)
    try:
        found = document(file, commands)
    except UsageError:  # the text around it made a wrong marker
        return
    if found.filled == 0:  # or code of it
        assert found.new == text
        return
    assert found.new.startswith(f"{before}\n\n{OPEN}")
    assert found.new.endswith(f"{CLOSE}\n\n{after}")
    write(file, found.new)
    assert document(file, commands).stale == 0


# -- what is wrong -----------------------------------------------------------------------------
WRONG = {
    f"\n{OPEN}\n": (
        "a.md:2: kvsize is not closed to the end of the file.",
        "add a marker with /kvsize after what it stands for.",
    ),
    f"{CLOSE}\n": (
        "a.md:1: /kvsize closes nothing.",
        "open a block before it: <!-- kvsize: llama-3.1-70b --ctx 32k -->, and <!-- /kvsize --> "
        "after the table.",
    ),
    f"{OPEN}\n{OPEN}\n{CLOSE}\n": (
        "a.md:1: kvsize is not closed before line 2, where another marker stands.",
        "add a marker with /kvsize after what it stands for.",
    ),
    f"{OPEN}\n<!-- /kvsize:value -->\n": (
        "a.md:1: kvsize is not closed before line 2, where another marker stands.",
        "add a marker with /kvsize after what it stands for.",
    ),
    f"See {OPEN}{CLOSE}\n": (
        "a.md:1: a table's markers share a line with other text.",
        "give each a line of its own; kvsize:value puts a figure into a line.",
    ),
    f"\n\n<!-- kvsize: -->\n{CLOSE}\n": (
        "a.md:3: the marker names no model.",
        "write what you would type after `kvsize`: llama-3.1-70b --ctx 32k.",
    ),
    f"<!-- kvsize: llama-3.1-70b 'x -->\n{CLOSE}\n": (
        "a.md:1: the quotes in 'llama-3.1-70b 'x' are not closed.",
        "close them, or leave them out.",
    ),
    f"<!-- kvsize: lama-3.1-70b -->\n{CLOSE}\n": (
        "a.md:1: no preset named 'lama-3.1-70b'.",
        "did you mean llama-3.1-70b or llama-3.3-70b? `kvsize presets` lists all of them.",
    ),
    f"<!-- kvsize: llama-3.1-70b --cttx 1k -->\n{CLOSE}\n": (
        "a.md:1: no such option: --cttx (Possible options: --context, --ctx, --tp).",
        "`kvsize size --help` shows what it takes.",
    ),
    f"<!-- kvsize: llama-3.1-70b --output x -->\n{CLOSE}\n": (
        "a.md:1: --output has no place in a document.",
        "leave it out.",
    ),
    f"<!-- kvsize: llama-3.1-70b --format csv -->\n{CLOSE}\n": (
        "a.md:1: --format csv cannot stand in Markdown.",
        "leave it out, or use markdown or html.",
    ),
    "x <!-- kvsize:value total --> <!-- /kvsize:value -->": (
        "a.md:1: a figure is a model, options, and last the name of a column.",
        "write kvsize:value llama-3.1-70b ctx=32k total.",
    ),
    "x <!-- kvsize:value llama-3.1-70b ctx=1k,2k total --> <!-- /kvsize:value -->": (
        "a.md:1: a figure is one, and this asks for 2.",
        "name one model, one context (ctx=32k) and one batch.",
    ),
    "x <!-- kvsize:value llama-3.1-70b --format markdown total --> <!-- /kvsize:value -->": (
        "a.md:1: a figure has one column, the last word, and no format.",
        "leave out --format and --columns.",
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_block_is_named_with_its_line_and_changes_nothing(text, capsys):
    message, hint = WRONG[text]
    write("good.md", STALE)
    write("a.md", text)
    said = run(capsys, "docs", "good.md", "a.md")
    assert said == (Exit.USAGE, "", f"error: {message}\nhint: {hint}\n")
    assert (read("good.md"), read("a.md")) == (STALE, text)


def test_commands_that_print_no_table_are_refused():
    write("a.md", f"<!-- kvsize: presets -->\n{CLOSE}\n")
    with pytest.raises(UsageError, match=r"^a\.md:1: kvsize presets prints no table for documents"):
        document("a.md", commands)


def test_a_figure_has_no_place_in_restructured_text():
    write("a.rst", ".. kvsize:value llama-3.1-70b ctx=32k total\n\n.. /kvsize:value\n")
    with pytest.raises(
        UsageError, match=r"^a\.rst:1: reStructuredText has no comments inside a line"
    ):
        document("a.rst", commands)


def test_the_exit_code_is_that_of_the_wrong_block(capsys):
    write("config.json", "{}")
    write("a.md", f"<!-- kvsize: ./config.json -->\n{CLOSE}\n")
    said = run(capsys, "docs", "a.md")
    assert said.code == Exit.INPUT
    assert said.err.startswith("error: a.md:1: ./config.json: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.md", None, "cannot read missing.md: No such file or directory."),
        ("a.txt", b"", "a.txt is no document that kvsize docs knows."),
        ("a.md", b"ok \xff", "a.md is not UTF-8: byte 3 is 0xff."),
    ],
)
def test_files_that_are_no_documents(name, content, message, tmp_path, capsys):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    said = run(capsys, "docs", name)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert said.err.splitlines()[0] == f"error: {message}"
    assert said.err.splitlines()[1].startswith("hint: ")


def test_every_kind_of_document_is_known_by_its_name():
    assert [dialect_of(f"x{suffix.upper()}").name for suffix in (".md", ".mdx", ".rst")] == [
        "Markdown",
        "MDX",
        "reStructuredText",
    ]
