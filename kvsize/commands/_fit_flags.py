"""The options of `kvsize fit` that no other command has, and those it means otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", show_default=False, help="A preset, a Hub id, a path or a GGUF file."
    ),
]
GpuName = Annotated[
    str, typer.Option("--gpu", metavar="NAME", help="See `kvsize gpus`; local: this machine's.")
]
Gpus = Annotated[str, typer.Option("--gpus", metavar="N", help="How many; left out: see --ctx.")]
GpuMemory = Annotated[
    str, typer.Option("--gpu-memory", metavar="BYTES", help="A GPU that has no name here: 24GiB.")
]
KVMemory = Annotated[
    str,
    typer.Option(
        "--kv-memory",
        "--kv-cache-memory-bytes",
        metavar="BYTES",
        help="The cache's memory per GPU, from a log: the answer is then exact.",
    ),
]
WeightsSize = Annotated[
    str, typer.Option("--weights", metavar="SIZE", help="140GB, or a dtype: fp8, int4, bf16.")
]
Reserve = Annotated[
    str, typer.Option("--reserve", metavar="BYTES", help="Instead of the modelled runtime reserve.")
]
Fraction = Annotated[
    str,
    typer.Option(
        "--memory-fraction",
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        "--free-gpu-memory-fraction",
        metavar="SHARE",
        help="The engine's share of its own base: of the total, of what is free before or after.",
    ),
]
Contexts = Annotated[
    str,
    typer.Option(
        "--ctx",
        "--context",
        "--max-model-len",
        metavar="TOKENS",
        help="Tokens of one sequence, several with commas. With --sequences and without --gpus: "
        "the fewest GPUs.",
    ),
]
MaxContext = Annotated[bool, typer.Option("--max-ctx", help="Ask for the longest context instead.")]
Sequences = Annotated[
    str,
    typer.Option(
        "--sequences",
        "--batch",
        "--parallel",
        "--max-num-seqs",
        metavar="N",
        help="Sequences at once: yes or no (exit 0 or 1); without --ctx, the longest context.",
    ),
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="See `kvsize engines`; vllm by default.")
]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="In the engine's own words."),
]
DataParallel = Annotated[
    str,
    typer.Option(
        "--dp",
        "--data-parallel-size",
        metavar="N",
        help="Replicas; inside --tp where --gpus says there are no more (DP attention).",
    ),
]
DecodeContext = Annotated[
    str,
    typer.Option(
        "--dcp",
        "--decode-context-parallel-size",
        metavar="N",
        help="Ranks that share a sequence's tokens (vllm).",
    ),
]
LengthsFile = Annotated[
    str,
    typer.Option(
        "--lengths", metavar="WHAT", help="2k:70,8k:25,32k:5, a CSV file, or a .jsonl trace."
    ),
]
Overflow = Annotated[
    str,
    typer.Option(
        "--overflow", metavar="P", help="With --lengths: how often the cache may overflow."
    ),
]
Emit = Annotated[
    str,
    typer.Option(
        "--emit", metavar="NAME", help="Print a command: vllm, sglang, llama.cpp, trtllm."
    ),
]
