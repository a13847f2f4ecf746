"""What a shell offers while a command line is typed, without network and without a word of error.

The scripts of `kvsize completion` run kvsize with the line up to the cursor in VARIABLE. The answer
is a line for each offer: the whole word, a tab, and what it is. The word FILES stands for the
shell's own file names.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from kvsize import commands
from kvsize.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from kvsize.engines import Engine

VARIABLE = "_KVSIZE_COMPLETE"
FILES = ":files"
Offer = tuple[str, str]
"""A word and what it is."""


class Typed(Record):
    """What is known when a word is completed: the command, its options so far, the word's start."""

    module: ModuleType
    words: tuple[str, ...]
    given: Mapping[str, str]
    start: str

    def engine(self) -> Engine:
        """The engine that the options given so far mean."""
        from kvsize.engines import engine

        own = getattr(self.module, "DEFAULT_ENGINE", "transformers")
        if any(word.lower().endswith(".gguf") for word in self.words):
            own = "llama.cpp"
        return engine(self.given.get("--engine", own).rpartition(",")[2])


def answer() -> int:
    """Print what may stand at the end of the line in VARIABLE; always 0."""
    try:
        said = "".join(f"{word}\t{meaning}\n" for word, meaning in offers(os.environ[VARIABLE]))
        sys.stdout.write(said)
        sys.stdout.flush()
    except Exception:  # noqa: BLE001, S110 - what is being typed need not make sense yet
        pass
    return 0


def offers(line: str) -> list[Offer]:
    """What the last word of `line`, which starts with the program's name, may become."""
    words, start = _split(line)
    known = commands.names()
    name = words[0] if words and words[0] in known else "size"
    module = importlib.import_module(f"kvsize.commands.{name}")
    built: Any = typer.main.get_command(commands.application(name))
    if not words:
        first = Typed(module, (), {}, start)
        own = [(each, _summary(each)) for each in known]
        if start.startswith("-"):
            return _options([*built.params, *built.commands[name].params], start)
        return [*_starting(own, start), *_starting(_models(first), start)]
    rest = words[1:] if words[0] in known else words
    return _offers(module, built.commands[name].params, rest, start)


def _offers(module: ModuleType, params: list[Any], words: list[str], start: str) -> list[Offer]:
    options = {spelling: each for each in params for spelling in each.opts if spelling[0] == "-"}
    given: dict[str, str] = {}
    arguments: list[str] = []
    waiting = None  # the option whose value comes next
    only_arguments = False
    for word in words:
        name, equals, value = word.partition("=")
        if waiting is not None:
            given[waiting.opts[0]], waiting = word, None
        elif word == "--":
            only_arguments = True
        elif only_arguments or name not in options:
            arguments.append(word)
        elif equals:
            given[options[name].opts[0]] = value
        elif not options[name].is_flag:
            waiting = options[name]
    typed = Typed(module, tuple(arguments), given, start)
    if waiting is not None:
        return _values(waiting, typed)
    if start.startswith("-") and not only_arguments:
        return _option_or_its_value(params, options, typed)
    return _argument([each for each in params if each.param_type_name == "argument"], typed)


def _option_or_its_value(params: list[Any], options: dict[str, Any], typed: Typed) -> list[Offer]:
    """For `--en` the options, for `--engine=v` what it takes, the option before it."""
    name, equals, value = typed.start.partition("=")
    if not equals:
        return _options(params, typed.start)
    if name not in options:
        return []
    inside = Typed(typed.module, typed.words, typed.given, value)
    found = _values(options[name], inside)
    return [(f"{name}={word}", meaning) for word, meaning in found if word != FILES]


def _options(params: list[Any], start: str) -> list[Offer]:
    """Each option under its first name; its other names once none of those fits."""
    every = [each for each in params if each.param_type_name == "option"]
    first = [(each.opts[0], each.help or "") for each in every]
    others = [(name, each.help or "") for each in every for name in each.opts[1:]]
    own = [*first, ("--help", "Show this message and exit.")]
    return _starting(own, start) or _starting(others, start)


def _argument(arguments: list[Any], typed: Typed) -> list[Offer]:
    if not arguments:
        return []
    index = len(typed.words)
    last = arguments[-1]
    if index < len(arguments):
        return _values(arguments[index], typed)
    return _values(last, typed) if last.nargs == -1 else []


def _values(param: Any, typed: Typed) -> list[Offer]:
    """What an option or argument takes; after a comma, another of the same."""
    keys = (*param.opts, (param.metavar or "").strip("[]."))
    choices = getattr(typed.module, "CHOICES", {})
    for key in keys:
        if key in choices:
            found: Iterable[Offer] = [(each, "") for each in choices[key]]
            break
        if key in VALUES:
            found = VALUES[key](typed)
            break
    else:
        return []
    if param.param_type_name == "argument" or "--option" in keys:
        return _starting(found, typed.start)
    before, comma, start = typed.start.rpartition(",")
    return [
        (word if word == FILES else f"{before}{comma}{word}", meaning)
        for word, meaning in _starting(found, start)
    ]


def _starting(found: Iterable[Offer], start: str) -> list[Offer]:
    wanted = start.lower()
    return [each for each in found if each[0].lower().startswith(wanted) or each[0] == FILES]


def _split(line: str) -> tuple[list[str], str]:
    """The words after the program's name, and the start of the one that is being typed."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            words.append(word)  # noqa: PERF402 - what came before a quote that is open is kept
    except ValueError:
        words.append(str(lexer.token))
    else:
        if line[-1:].isspace():
            words.append("")
    return words[1:-1], words[-1]


def _summary(command: str) -> str:
    module = importlib.import_module(f"kvsize.commands.{command}")
    return str(module.command.__doc__).partition("\n")[0]


# -- what each kind of word may be -----------------------------------------------------------------
def _models(typed: Typed) -> list[Offer]:
    """Presets, their aliases where no preset starts so, and files."""
    from kvsize.sources import preset

    found = _starting([(name, "") for name in preset.presets()], typed.start)
    if not found:
        aliases = preset.aliases().items()
        found = [(alias, name) for alias, name in aliases]
    return [*found, (FILES, "")]


def _engines(_: Typed) -> list[Offer]:
    from kvsize.engines import engines

    return [(name, "") for name in engines()]


def _versions(typed: Typed) -> list[Offer]:
    return [(version, "") for version in typed.engine().VERSIONS]


def _kv_dtypes(typed: Typed) -> list[Offer]:
    return [(name, "") for name in typed.engine().KV_DTYPES]


def _engine_options(typed: Typed) -> list[Offer]:
    """`NAME=`, and after it the option's values where they are few."""
    known = typed.engine().OPTIONS
    name, equals, _ = typed.start.partition("=")
    if not equals:
        return [(f"{option.name}=", option.help) for option in known]
    return [
        (f"{name}={str(choice).lower() if isinstance(choice, bool) else choice}", "")
        for option in known
        if option.name == name
        for choice in option.choices or ((True, False) if option.kind is bool else ())
    ]


def _caches(typed: Typed) -> list[Offer]:
    known = typed.engine().OPTIONS
    return [
        (str(each), "") for option in known if option.name == "cache" for each in option.choices
    ]


def _gpus(_: Typed) -> list[Offer]:
    from kvsize.capacity.gpus import gpus

    return [("local", "this machine's"), *((each.name, each.title) for each in gpus())]


def _formats(typed: Typed) -> list[Offer]:
    """The report's formats where a table is the usual one; other commands answer in text."""
    from kvsize.render import formats

    default = typed.module.command.__defaults__ or ()
    found = formats() if "table" in default else ("text", "markdown", "json")
    return [(name, "") for name in found]


def _units(_: Typed) -> list[Offer]:
    from kvsize.units import UNITS

    return [(name, "") for name in UNITS]


def _emitted(_: Typed) -> list[Offer]:
    from kvsize.capacity.emit import ENGINES

    return [(name, "") for name in ENGINES]


def _files(_: Typed) -> list[Offer]:
    return [(FILES, "")]


VALUES: dict[str, Callable[[Typed], list[Offer]]] = {
    "--engine": _engines,
    "--engine-version": _versions,
    "--kv-dtype": _kv_dtypes,
    "--option": _engine_options,
    "--cache": _caches,
    "--gpu": _gpus,
    "--format": _formats,
    "--unit": _units,
    "--emit": _emitted,
    "MODEL": _models,
    "ENGINE": _engines,
    "FILE": _files,
}
"""By an option's name, or by the metavar of an option or argument; a command's CHOICES go first."""
