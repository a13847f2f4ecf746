"""The `verify` sub-command: a real cache is built and held against the figure.

torch and transformers are imported only once the command runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kvsize.errors import Exit, UsageError
from kvsize.units import format_bytes, format_exact, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvsize.verify.evidence import Evidence

DEVICES = ("auto", "cuda", "cpu", "meta")
EXAMPLES = """\b
kvsize verify llama-3.1-8b --ctx 4k
kvsize verify gemma-3-27b --ctx 32k --cache static --batch 4 --device meta
kvsize verify deepseek-v3 --ctx 128k --device meta --json
"""


def verify(  # noqa: PLR0913, PLR0917 - the command's options
    model: Annotated[str, typer.Argument(metavar="MODEL", show_default=False, help="As for size.")],
    ctx: Annotated[
        str, typer.Option("--ctx", "--context", "--max-model-len", metavar="TOKENS")
    ] = "4k",
    batch: Annotated[
        str, typer.Option("--batch", "--sequences", metavar="N", help="Concurrent sequences.")
    ] = "1",
    cache: Annotated[
        str, typer.Option("--cache", metavar="KIND", help="dynamic, static or quantized.")
    ] = "dynamic",
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="cuda, cpu or meta (shapes only, no memory); auto: the first that fits.",
        ),
    ] = "auto",
    steps: Annotated[
        str, typer.Option("--steps", metavar="N", help="Last tokens that are added one by one.")
    ] = "8",
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", "--kv-cache-dtype")] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the cache."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The evidence as JSON.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="No network.")] = False,
) -> tuple[str, str] | int:
    """Hold a figure against transformers' own cache, tensor by tensor.

    The cache class is the real one, filled with tensors of the model's shapes: a prompt, then a
    few single tokens. Exit 0 where every tensor agrees, 1 where one differs.
    """
    from kvsize import arguments
    from kvsize.engines.options import Request
    from kvsize.loading import load
    from kvsize.verify import needs

    needs.require()
    if device not in DEVICES:
        raise UsageError(f"--device is '{device}'.", f"use one of {', '.join(DEVICES)}.")
    context = arguments.one("--ctx", arguments.tokens(ctx)) or 4096
    request = Request(
        context=context,
        sequences=arguments.count("--batch", batch),
        kv_dtype=kv_dtype,
        options=arguments.engine_options(option or (), cache),
    )
    found = load(model, offline=offline)
    from kvsize.verify import devices
    from kvsize.verify.cachelevel import verify_cache

    count = arguments.count("--steps", steps)
    evidence = verify_cache(found, request, device=device, steps=count, gpu=devices.Cuda())
    text = json.dumps(evidence.as_json(), indent=2) + "\n" if as_json else _text(evidence)
    if evidence.exact:
        return text, ""
    from kvsize.output import write

    write(text, "")
    return Exit.NO


def _text(found: Evidence) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Evidence) -> Iterator[str]:
    from kvsize.verify.evidence import versions

    known = versions()
    sequences = f"{found.sequences} sequence{'s' if found.sequences > 1 else ''}"
    yield (
        f"{found.model}: {found.cache} of transformers {known['transformers']} on "
        f"{found.device['kind']}, torch {known['torch']}"
    )
    yield f"  {sequences} of {format_tokens(found.context)} tokens, {found.dtype}"
    yield ""
    for row in found.rows:
        yield f"{row.layers} × {row.class_name}"
        for tensor, nbytes, storage in row.tensors:
            real = "missing" if nbytes is None else f"{nbytes:,} B, storage {storage:,} B"
            shape = list(tensor.shape)
            yield f"  {tensor.name} {shape} {tensor.dtype}: predicted {tensor.total_bytes:,} B"
            yield f"    real {real}"
    yield ""
    yield f"predicted {format_exact(found.predicted_bytes)}"
    yield f"real      {format_exact(found.real_bytes)}"
    yield f"storage   {format_bytes(found.real_storage_bytes)}"
    yield from (f"note: {note}" for note in found.notes)
    yield found.verdict


COMMANDS: dict[str, tuple[Callable[..., tuple[str, str] | int], str | None]] = {
    "verify": (verify, EXAMPLES),
}
