"""The options of `kvsize check`: those that state one check on the line, and those of a run."""

from __future__ import annotations

from typing import Annotated

import typer

Config = Annotated[
    str,
    typer.Option("--config", metavar="FILE", help="A kvsize.toml or pyproject.toml; else upwards."),
]
ModelName = Annotated[str, typer.Option("--model", metavar="MODEL", help="One check, on the line.")]
Context = Annotated[
    str,
    typer.Option(
        "--ctx", "--context", "--max-model-len", metavar="TOKENS", help="Tokens of one sequence."
    ),
]
Gpus = Annotated[str, typer.Option("--gpus", metavar="N", help="How many; 1 by default.")]
Sequences = Annotated[
    str, typer.Option("--sequences", "--batch", metavar="N", help="Sequences at once; default 1.")
]
Fits = Annotated[bool | None, typer.Option("--fits/--no-fits", help="It must fit, or must not.")]
MinHeadroom = Annotated[
    str, typer.Option("--min-headroom", metavar="SIZE", help="Left over at least: 10%, 4GiB.")
]
MinSequences = Annotated[
    str, typer.Option("--min-sequences", metavar="N", help="Sequences that fit at least.")
]
MinContext = Annotated[
    str, typer.Option("--min-context", metavar="TOKENS", help="Context that fits at least.")
]
MaxToken = Annotated[
    str, typer.Option("--max-kv-per-token", metavar="BYTES", help="One more token, at most.")
]
MaxSequence = Annotated[
    str, typer.Option("--max-kv-per-sequence", metavar="BYTES", help="One sequence, at most.")
]
MaxTotal = Annotated[
    str, typer.Option("--max-total", metavar="BYTES", help="All sequences together, at most.")
]
TokenBytes = Annotated[
    str, typer.Option("--token-bytes", metavar="BYTES", help="One more token, exactly.")
]
SequenceBytes = Annotated[
    str, typer.Option("--sequence-bytes", metavar="BYTES", help="One sequence, exactly.")
]
TotalBytes = Annotated[
    str, typer.Option("--total-bytes", metavar="BYTES", help="All sequences, exactly.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="NAME", help="table, json, junit, github or markdown.")
]
Update = Annotated[bool, typer.Option("--update", help="Rewrite the pinned figures in the file.")]
Lock = Annotated[
    bool, typer.Option("--lock", help="Write kvsize.lock: commit and hash of each Hub model.")
]
Locked = Annotated[
    bool,
    typer.Option("--locked", help="Fail where a Hub model is not locked, or has changed since."),
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the file.")]
