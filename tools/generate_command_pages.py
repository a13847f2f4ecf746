"""Write docs/commands/: a page for each command, from its own definition, and their index.

`python tools/generate_command_pages.py`. What a page says comes from the command's docstring, its
options, EXAMPLES and EXITS; a new module in kvsize/commands/ has its page by being there.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from kvsize import commands
from kvsize.errors import Exit

DOCS = Path(__file__).resolve().parents[1] / "docs"
FOLDER = DOCS / "commands"
NOTICE = "<!-- Made from kvsize/commands/{} by tools/generate_command_pages.py. -->\n"
MEANINGS = {
    Exit.OK: "done",
    Exit.NO: "the answer is no: the engine itself refuses these settings",
    Exit.USAGE: "an option, an argument or a name is wrong",
    Exit.INPUT: "a config cannot be read, is incomplete or contradicts itself",
    Exit.HUB: "the Hub is unreachable, has no such file, or refused",
    Exit.MISSING_EXTRA: "an optional dependency is missing",
}
LOADS = (Exit.INPUT, Exit.HUB)
HUB_VARIABLES = {
    "HF_TOKEN": "the access token for gated repositories",
    "HF_HOME": "where the Hub's local cache is",
    "HF_ENDPOINT": "another Hub than huggingface.co",
    "HF_HUB_OFFLINE": "`1` is `--offline`",
}
LOOK_VARIABLES = {
    "COLUMNS": "how wide text is",
    "NO_COLOR": "whatever it holds: no colours on a terminal",
}
DEBUG_VARIABLE = {"KVSIZE_DEBUG": "`1` adds the traceback to an error"}
# Click's sign that the lines which follow are not to be joined.
AS_IT_IS = "\b\n"


def pages() -> dict[Path, str]:
    """Every page by its path: one for each command, and README.md, which lists them."""
    built = typer.main.get_command(commands.application()).commands  # type: ignore[attr-defined]
    made = {FOLDER / f"{name}.md": _page(name, built) for name in commands.names()}
    return {**made, FOLDER / "README.md": _index(built)}


def _index(built: dict[str, Any]) -> str:
    rows = [(f"[{name}]({name}.md)", _paragraphs(built[name])[0]) for name in commands.names()]
    return f"{NOTICE.format('')}# Commands\n\n{_table(('command', 'what it does'), rows)}"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"kvsize.commands.{name}")


def _page(name: str, built: dict[str, Any]) -> str:
    module, command = _module(name), built[name]
    summary, *description = _paragraphs(command)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    parts = [
        f"{NOTICE.format(f'{name}.py')}# kvsize {name}",
        summary,
        f"```sh\n{_synopsis(name, arguments)}\n```",
        *description,
        *_section("Arguments", ("argument", "meaning"), map(_argument, arguments)),
        *_section(
            "Options",
            ("option", "value", "default", "meaning"),
            [*map(_option, options), ("`-h`, `--help`", "", "", "Show this message and exit.")],
        ),
        *_examples(module),
        *_section("Exit codes", ("code", "meaning"), _exits(module, command)),
        *_section("Environment", ("variable", "meaning"), _environment(command)),
        *_see_also(name, built),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _paragraphs(command: Any) -> list[str]:
    """The docstring's paragraphs, the first of which is its summary."""
    found = inspect.cleandoc(command.help or "").split("\n\n")
    return [
        f"```text\n{each.removeprefix(AS_IT_IS)}\n```" if each.startswith(AS_IT_IS) else _cell(each)
        for each in found
    ]


def _synopsis(name: str, arguments: list[Any]) -> str:
    words = [
        each.metavar if each.required or each.metavar.startswith("[") else f"[{each.metavar}]"
        for each in arguments
    ]
    return " ".join(["kvsize", name, "[OPTIONS]", *words])


def _argument(parameter: Any) -> tuple[str, ...]:
    return f"`{parameter.metavar}`", _cell(parameter.help or "")


def _option(parameter: Any) -> tuple[str, ...]:
    spellings = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f"`{parameter.metavar or 'TEXT'}`"
    default = parameter.default
    shown = f"`{default}`" if isinstance(default, str | int) and default and value else ""
    more = " May be given several times." if parameter.multiple else ""
    return spellings, value, shown, _cell(parameter.help or "") + more


def _examples(module: ModuleType) -> list[str]:
    lines = getattr(module, "EXAMPLES", "").removeprefix(AS_IT_IS).strip("\n")
    return ["## Examples", f"```sh\n{lines}\n```"] if lines else []


def _exits(module: ModuleType, command: Any) -> list[tuple[str, ...]]:
    """The codes the command can end with; EXITS gives its own words for them, or further ones."""
    flags = {each.name for each in command.params}
    codes = {Exit.OK, Exit.USAGE}
    if "Answer" in str(inspect.signature(module.command).return_annotation) or "engine" in flags:
        codes.add(Exit.NO)
    if "offline" in flags:  # it loads a model
        codes.update(LOADS)
    own: dict[Exit, str] = getattr(module, "EXITS", {})
    return [(str(code.value), own.get(code, MEANINGS[code])) for code in sorted({*codes, *own})]


def _environment(command: Any) -> list[tuple[str, ...]]:
    flags = {each.name for each in command.params}
    variables = {
        **(HUB_VARIABLES if "offline" in flags else {}),
        **(LOOK_VARIABLES if "format_name" in flags else {}),
        **DEBUG_VARIABLE,
    }
    return [(f"`{name}`", meaning) for name, meaning in variables.items()]


def _see_also(name: str, built: dict[str, Any]) -> list[str]:
    """The commands that the page names or that name it, and the documents about this one."""
    others = {each for each in built if name in _named(each, built[each])} - {name}
    named = (_named(name, built[name]) & built.keys()) - {name}
    links = [f"[kvsize {each}]({each}.md)" for each in sorted(named | others)]
    if (DOCS / f"{name}.md").exists():
        links.append(f"[{name}](../{name}.md)")
    if "strict" in {each.name for each in built[name].params}:
        links.append("[warnings](../warnings.md)")
    return ["## See also", ", ".join([*links, "[the command line](../cli.md)"]) + "."]


def _named(name: str, command: Any) -> set[str]:
    """What follows `kvsize` anywhere in a command's help."""
    helps = " ".join(each.help or "" for each in command.params)
    examples = getattr(_module(name), "EXAMPLES", "")
    return set(re.findall(r"kvsize ([a-z]+)", f"{command.help} {helps} {examples}"))


def _section(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    body = list(rows)
    return [f"## {title}", _table(header, body)] if body else []


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    """`text` on one line, so that Markdown shows it as it is; what is in backticks stays."""
    words = " ".join(text.split())
    return re.sub(r"(`[^`]*`)|([*_<>|\[\]])", lambda m: m[1] or f"\\{m[2]}", words)


def write() -> None:
    """Write every page, and remove those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in set(FOLDER.glob("*.md")) - made.keys():
        old.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write()
