"""The `kvsize` command: options in, pipeline called, text out; no arithmetic, no layout.

A command returns its whole output, and `main` writes it: nothing is on standard output when
something fails. What a command needs is imported inside it, so that each starts fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kvsize.errors import Exit, KvsizeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvsize.advice import Ask
    from kvsize.model import Model
    from kvsize.render import Look

EXAMPLES = """\b
kvsize llama-3.1-70b --ctx 32k              a preset, offline
kvsize meta-llama/Llama-3.1-70B --ctx 32k   the Hub (org/name@revision too)
kvsize ./config.json; cat config.json | kvsize -
kvsize llama-3.1-70b qwen3-32b --ctx 8k,32k --batch 1,16 --format markdown
kvsize deepseek-v3 --json | jq .
kvsize explain gemma-3-27b --ctx 32k
kvsize fit llama-3.1-70b --gpu h100 --gpus 8 --ctx 32k
"""


Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        show_default=False,
        help="A preset, a Hub id (org/name, org/name@revision), a path, or - for standard input.",
    ),
]
Contexts = Annotated[
    str,
    typer.Option(
        "--ctx",
        "--context",
        "--max-model-len",
        metavar="TOKENS",
        help="Tokens of one sequence, several with commas: 32768, 32k (= 32 × 1024), 8k,32k.",
    ),
]
Sequences = Annotated[
    str,
    typer.Option("--batch", "--sequences", metavar="N", help="Concurrent sequences: 1, or 1,16."),
]
KVDtype = Annotated[
    str,
    typer.Option(
        "--kv-dtype", "--kv-cache-dtype", metavar="DTYPE", help="auto is the model's own dtype."
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Whose cache; see `kvsize engines`. Default: transformers, for a GGUF file llama.cpp.",
    ),
]
EngineVersion = Annotated[
    str, typer.Option("--engine-version", metavar="X.Y.Z", help="Default: the newest modelled.")
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the engine, in its own words; see `kvsize engines NAME`.",
    ),
]
Cache = Annotated[
    str,
    typer.Option("--cache", metavar="KIND", help="Short for -o cache=KIND (dynamic, static)."),
]
TensorParallel = Annotated[
    str, typer.Option("--tp", "--tensor-parallel-size", metavar="N", help="GPUs that share heads.")
]
PipelineParallel = Annotated[
    str, typer.Option("--pp", "--pipeline-parallel-size", metavar="N", help="Stages of layers.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Make every guess an error (exit 3), for CI.")
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Use the Hub's local cache only, never the network.")
]
Output = Annotated[
    str, typer.Option("--output", metavar="FILE", help="Write there instead, all at once.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
Unit = Annotated[
    str, typer.Option("--unit", metavar="UNIT", help="B, KiB, MiB, GiB or TiB for all figures.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help="table, markdown, csv or json.")
]
Text = tuple[str, str]
"""A command's whole output, and the file it goes to (empty: standard output)."""
# typer does not export what it raises for arguments it cannot parse, only this kind of it.
BadArguments: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> int:
    """Run the command line; the exit code. Errors are two lines on standard error."""
    try:
        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more; what is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a bug: told in two lines, like every failure
        kind = type(error).__name__
        hint = "this is a bug in kvsize; set KVSIZE_DEBUG=1 for the traceback, and report it."
        return _fail(f"internal: {kind}: {error}.", hint, Exit.INTERNAL)


def run(arguments: list[str]) -> int:
    """Run one command and write what it says; the exit code.

    Whatever does not start with a command's name is for `size`: models, or its options.
    """
    named = arguments and arguments[0] in {*COMMANDS, *ELSEWHERE, "-h", "--help", "--version"}
    words = arguments if named or not arguments else ["size", *arguments]
    try:
        command = typer.main.get_command(application(words[0] if words else ""))
        said = command.main(words or ["--help"], prog_name="kvsize", standalone_mode=False)
        if isinstance(said, tuple):
            from kvsize.output import write

            write(*said)
    except KvsizeError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except BadArguments as error:
        return _fail(*_in_our_words(error), Exit.USAGE)
    return said if isinstance(said, int) else Exit.OK


def application(wanted: str = "") -> typer.Typer:
    """The typer app; with `wanted` it has that command alone, since each takes time to build."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    settings = {"help_option_names": ["-h", "--help"]}
    app.callback(epilog=EXAMPLES, context_settings=settings)(_root)
    everything = wanted not in {*COMMANDS, *ELSEWHERE}
    for name, (function, epilog) in COMMANDS.items():
        if everything or name == wanted:
            app.command(name, epilog=epilog, context_settings=settings)(function)
    for name, module in ELSEWHERE.items():
        if everything or name == wanted:
            function, epilog = importlib.import_module(module).COMMANDS[name]
            app.command(name, epilog=epilog, context_settings=settings)(function)
    return app


def _fail(message: str, hint: str, code: int) -> int:
    if os.environ.get("KVSIZE_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    if sys.stderr is not None:  # print would take standard output for a closed one
        print(f"error: {message}\nhint: {hint}", file=sys.stderr)
    return code


def _in_our_words(error: Exception) -> tuple[str, str]:
    """A message of typer's, in the shape of ours."""
    told = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "kvsize")
    message = told[:1].lower() + told[1:].rstrip(".") + "."
    return message, f"`{command} --help` shows what it takes."


def _version(value: bool) -> None:
    if value:
        from kvsize import __version__

        typer.echo(f"kvsize {__version__}")
        raise typer.Exit


def _ask(  # noqa: PLR0913, PLR0917 - the options that every figure shares
    kv_dtype: str,
    engine: str,
    engine_version: str,
    option: list[str] | None,
    cache: str,
    tp: str,
    pp: str,
) -> Ask:
    from kvsize import arguments

    return {
        "kv_dtype": kv_dtype,
        "engine": engine,
        "engine_version": engine_version or None,
        "options": arguments.engine_options(option or (), cache),
        "tensor_parallel_size": arguments.count("--tp", tp),
        "pipeline_parallel_size": arguments.count("--pp", pp),
    }


def _load(names: Iterable[str], ask: Ask, *, strict: bool, offline: bool) -> list[Model]:
    from kvsize.advice import refuse_guesses
    from kvsize.loading import load

    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # what the Hub client itself reads, when it is imported
    models = [load(name) for name in names]
    for model in models if strict else ():
        refuse_guesses(model, ask)
    return models


def _look(unit: str, output: str) -> Look:
    import shutil

    from kvsize import arguments
    from kvsize.render import Look

    # A closed standard output is None.
    terminal = bool(not output and sys.stdout and sys.stdout.isatty())
    return Look(arguments.unit(unit), shutil.get_terminal_size().columns, terminal)


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """How many bytes a model's KV cache takes, to the byte, per engine and version.

    `kvsize MODEL...` is short for `kvsize size MODEL...`; `kvsize size --help` has its options.
    """


def size(  # noqa: PLR0913, PLR0917 - the command's options
    models: Models,
    ctx: Contexts = "",
    batch: Sequences = "1",
    kv_dtype: KVDtype = "auto",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    tp: TensorParallel = "1",
    pp: PipelineParallel = "1",
    format_name: Format = "table",
    as_json: AsJson = False,
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
) -> Text:
    """Size the KV cache of one or more models; the default command.

    Without --ctx: a few contexts up to the model's limit. The figure per token is what each of the
    next 256 tokens adds on average: a sliding window that is full adds nothing.
    """
    from kvsize import arguments, render, report

    look = _look(unit, output)
    writer = render.writer("json" if as_json else format_name)
    contexts, sequences = arguments.tokens(ctx), arguments.counts("--batch", batch)
    ask = _ask(kv_dtype, engine, engine_version, option, cache, tp, pp)
    found = _load(models, ask, strict=strict, offline=offline)
    people = not as_json and format_name in {"table", "markdown"}
    made = report.build(found, ask, contexts, sequences, compare=people)
    return render.text(writer, made, look), output


def explain(  # noqa: PLR0913, PLR0917 - the command's options
    model: Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="As for size.")],
    ctx: Contexts = "",
    batch: Sequences = "1",
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="TOKENS", help="Prompt to count query rows for.")
    ] = "12",
    new: Annotated[
        str, typer.Option("--new", metavar="TOKENS", help="New tokens to count query rows for.")
    ] = "20",
    kv_dtype: KVDtype = "auto",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    option: EngineOptions = None,
    cache: Cache = "",
    format_name: Annotated[
        str, typer.Option("--format", metavar="NAME", help="text, markdown or json.")
    ] = "text",
    as_json: AsJson = False,
    unit: Unit = "",
    strict: Strict = False,
    offline: Offline = False,
    output: Output = "",
) -> Text:
    """Show where a figure comes from: keys, tensors, the multiplication, what is not cached."""
    from kvsize import arguments
    from kvsize.explain import explain as explained
    from kvsize.render import _explain
    from kvsize.report import for_model

    look = _look(unit, output)
    draw = _explain.drawing("json" if as_json else format_name)
    ask = _ask(kv_dtype, engine, engine_version, option, cache, "1", "1")
    context = arguments.one("--ctx", arguments.tokens(ctx))
    sequences = arguments.one("--batch", arguments.counts("--batch", batch)) or 1
    example = (arguments.count("--prompt", prompt), arguments.count("--new", new))
    found = _load([model], ask, strict=strict, offline=offline)[0]
    own = for_model(found, ask)
    return draw(explained(found, own, context, sequences, example), look), output


def presets(
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Only names that contain this.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> Text:
    """List the models that come with kvsize."""
    from kvsize import listing

    return listing.presets_text(search, as_json=as_json), ""


def engines(
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", show_default=False, help="One engine, with its options."),
    ] = "",
) -> Text:
    """List the engines, or one engine's options, versions and limits."""
    from kvsize import listing

    return listing.engine_text(name) if name else listing.engines_text(), ""


def schema() -> Text:
    """Print the JSON schema of the report that --json writes."""
    from kvsize import listing

    return listing.schema_text(), ""


COMMANDS: dict[str, tuple[Callable[..., Text], str | None]] = {
    "size": (size, EXAMPLES),
    "explain": (explain, None),
    "presets": (presets, None),
    "engines": (engines, None),
    "schema": (schema, None),
}
# Commands that live beside what they run; only the one in use is imported.
ELSEWHERE = {
    "fit": "kvsize.capacity.command",
    "gpus": "kvsize.capacity.command",
    "verify": "kvsize.verify.command",
}
