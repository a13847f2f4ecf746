"""The options that several commands share: spellings of ours and of the engines.

Counts and sizes are text here, and read by `kvsize.arguments`, whose messages name what is legal.
"""

from __future__ import annotations

from typing import Annotated

import typer

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
ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", show_default=False, help="As for `kvsize size`.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="table, markdown, html, latex, rst, tsv, csv or json."
    ),
]
TextFormat = Annotated[
    str, typer.Option("--format", metavar="NAME", help="text, markdown or json.")
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="NAMES",
        help="The table alone, with these columns: model,kv-heads,total; auto: those that differ.",
    ),
]
Copy = Annotated[bool, typer.Option("--copy", help="Put it on the clipboard, too.")]
Text = tuple[str, str]
"""A command's whole output, and the file it goes to (empty: standard output)."""
Answer = tuple[str, str, int]
"""The same with the exit code, of a command whose answer may be no."""
Partial = tuple[str, str, int, str]
"""The same with what went wrong with a part of it, for standard error."""
