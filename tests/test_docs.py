"""The documents are held against the tool: every command's output, every name that exists.

`pytest tests/test_docs.py --update` writes the outputs anew.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import typer
from console import furnish, typed

from kvsize import commands as registry
from kvsize.engines import engines
from kvsize.errors import Exit
from kvsize.render import formats
from tools import generate_command_pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = {page: (ROOT / page).read_text("utf-8") for page in ("README.md", "docs/cli.md")}
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
COMMANDS = registry.names()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the documented commands run: a config.json, and `kvsize` on the path."""
    return furnish(tmp_path_factory.mktemp("docs"))


def output(command: str, folder: Path) -> str:
    """What a reader sees who types `command`."""
    return typed(command, folder).stdout


def current(text: str, folder: Path) -> str:
    """`text` with the output of every command as it is now."""

    def block(found: re.Match[str]) -> str:
        return "".join(f"$ {each}\n{output(each, folder)}" for each in commands(found[0]))

    return BLOCK.sub(block, text)


def commands(block: str) -> list[str]:
    """The commands of a console block, in order."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", PAGES)
def test_outputs_are_what_the_tool_prints(page, folder, request):
    text = current(PAGES[page], folder)
    if request.config.getoption("--update"):
        (ROOT / page).write_text(text, encoding="utf-8")
    else:
        assert PAGES[page] == text


def test_the_library_examples():
    found = doctest.DocTestParser().get_doctest(PAGES["README.md"], {}, "README.md", None, 0)
    assert len(found.examples) >= 5
    runner = doctest.DocTestRunner()
    runner.run(found)
    assert runner.failures == 0


def test_readme_opens_with_a_sentence_and_the_main_job():
    lines = PAGES["README.md"].splitlines()
    assert lines[0] == "# kvsize"
    assert lines[2].startswith("`kvsize` tells ")
    first = BLOCK.search(PAGES["README.md"])
    assert first is not None
    assert commands(first[0]) == ["kvsize llama-3.1-70b --ctx 32k"]


def options(name: str) -> set[str]:
    """Every spelling of every option of a command."""
    command = typer.main.get_command(registry.application()).commands[name]
    return {spelling for param in command.params for spelling in param.opts if spelling[0] == "-"}


COMMAND_PAGES = generate_command_pages.pages()


@pytest.mark.parametrize("page", COMMAND_PAGES, ids=lambda page: page.stem)
def test_every_command_has_its_page_and_it_is_current(page, request):
    if request.config.getoption("--update"):
        generate_command_pages.write()
    assert page.read_text("utf-8") == COMMAND_PAGES[page]


def test_no_page_is_of_a_command_that_is_gone():
    assert set(generate_command_pages.FOLDER.glob("*.md")) == set(COMMAND_PAGES)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_its_page_and_says_what_it_does(name):
    page = COMMAND_PAGES[generate_command_pages.FOLDER / f"{name}.md"]
    assert {each for each in options(name) if f"`{each}`" not in page} == set()
    assert f"[{name}]({name}.md)" in COMMAND_PAGES[generate_command_pages.FOLDER / "README.md"]
    command = typer.main.get_command(registry.application()).commands[name]
    assert [each.name for each in command.params if not each.help] == []


def test_nothing_is_documented_that_is_not_there():
    documented = set(re.findall(r"`(--?[a-z][a-z-]*)`", PAGES["docs/cli.md"]))
    known = set().union(*map(options, COMMANDS)) | {"--help", "-h"}
    assert len(documented) >= 20
    assert documented - known == set()


@pytest.mark.parametrize("name", formats())
def test_every_format_is_documented(name):
    assert all(f"`{name}`" in text for text in PAGES.values())


@pytest.mark.parametrize("code", Exit)
def test_every_exit_code_is_documented(code):
    assert f"\n| {code.value} | " in PAGES["docs/cli.md"]


def test_every_engine_is_listed_by_the_documented_command(folder):
    listed = output("kvsize engines", folder)
    assert [line.split()[0] for line in listed.splitlines()] == engines()


LINKED = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
