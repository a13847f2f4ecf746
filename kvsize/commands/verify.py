"""The `verify` sub-command: a real cache is built and held against the figure.

torch and transformers are imported only once the command runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kvsize.commands._flags import Answer, KVDtype
from kvsize.errors import Exit, UsageError

if TYPE_CHECKING:
    from kvsize.verify.evidence import Evidence

DEVICES = ("auto", "cuda", "cpu", "meta")
LEVELS = ("cache", "model")
CHOICES: dict[str, tuple[str, ...]] = {
    "--device": DEVICES,
    "--level": LEVELS,
    "--cache": ("dynamic", "static", "quantized"),
}
# Without --ctx: a cache's windows and pages show at 4k; a forward pass takes its time.
CACHE_CONTEXT, MODEL_CONTEXT = 4096, 48
EXAMPLES = """\b
kvsize verify llama-3.1-8b --ctx 4k
kvsize verify gemma-3-27b --ctx 32k --cache static --batch 4 --device meta
kvsize verify deepseek-v3 --ctx 128k --device meta --json
kvsize verify qwen3-next-80b --level model
kvsize verify --all --state verify.jsonl
"""
EXITS = {
    Exit.OK: "every tensor agrees",
    Exit.NO: "a tensor differs, or transformers itself refuses these settings",
    Exit.MISSING_EXTRA: "torch or transformers is missing: `pip install 'kvsize[verify]'`",
}


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help="As for size.")
    ] = "",
    ctx: Annotated[
        str,
        typer.Option(
            "--ctx",
            "--context",
            "--max-model-len",
            metavar="TOKENS",
            help="Tokens of one sequence. Default: 4k, for --level model 48.",
        ),
    ] = "",
    batch: Annotated[
        str, typer.Option("--batch", "--sequences", metavar="N", help="Concurrent sequences.")
    ] = "1",
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            metavar="KIND",
            help="dynamic (default), static, quantized; offloaded, offloaded_static (cuda).",
        ),
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            "--level",
            metavar="NAME",
            help="cache (the cache object, filled) or model (the architecture, run).",
        ),
    ] = "cache",
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
    full_depth: Annotated[
        bool, typer.Option("--full-depth", help="Build all layers, not one of each kind.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every model type that the installed transformers has.")
    ] = False,
    only: Annotated[
        str, typer.Option("--only", metavar="TEXT", help="With --all: types that contain this.")
    ] = "",
    wide: Annotated[
        bool, typer.Option("--wide", help="With --all: seven sets of dimensions, not three.")
    ] = False,
    state: Annotated[
        str, typer.Option("--state", metavar="FILE", help="With --all: results so far, resumed.")
    ] = "",
    kv_dtype: KVDtype = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the cache."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The evidence as JSON.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="No network.")] = False,
) -> Answer:
    """Hold a figure against transformers' own cache, tensor by tensor.

    The cache class is the real one, filled with tensors of the model's shapes: a prompt, then a
    few single tokens. With --level model the real architecture fills it, with random weights.
    Exit 0 where every tensor agrees, 1 where one differs.

    On a CUDA device it also compares the allocator's figures; that path has been tested with a
    stand-in for the device, and has not yet run on one.
    """
    from kvsize.verify import needs

    for flag, value, legal in (("--device", device, DEVICES), ("--level", level, LEVELS)):
        if value not in legal:
            raise UsageError(f"{flag} is '{value}'.", f"use one of {', '.join(legal)}.")
    if everything == bool(model):
        message = "verify takes one MODEL, or --all." if model else "no model is named, nor --all."
        raise UsageError(message, "write `kvsize verify llama-3.1-8b`, or `kvsize verify --all`.")
    if not everything and (only or state or wide):
        message = "--only, --state and --wide belong to --all."
        raise UsageError(message, "write `kvsize verify --all --only llama --state verify.jsonl`.")
    chosen = ctx or option or full_depth or (batch, cache, kv_dtype) != ("1", "", "auto")
    if everything and chosen:
        message = "--all chooses contexts, batches, caches and dtypes itself."
        raise UsageError(message, "leave out all options but --only, --wide, --state and --json.")
    needs.require()
    if everything or level == "model":
        needs.require_architectures()
    if everything:
        return _all(only, state, wide=wide, as_json=as_json)
    evidence = _one(
        model, ctx, batch, cache, level, device, steps, kv_dtype, option, offline, full_depth
    )
    from kvsize.verify.text import evidence_text

    said = json.dumps(evidence.as_json(), indent=2) + "\n" if as_json else evidence_text(evidence)
    return said, "", Exit.OK if evidence.exact else Exit.NO


def _one(
    name: str,
    ctx: str,
    batch: str,
    cache: str,
    level: str,
    device: str,
    steps: str,
    kv_dtype: str,
    option: list[str] | None,
    offline: bool,
    full_depth: bool,
) -> Evidence:
    from kvsize import arguments
    from kvsize.engines.options import Request
    from kvsize.loading import load
    from kvsize.progress import progress
    from kvsize.verify.installed import installed_rules

    default = CACHE_CONTEXT if level == "cache" else MODEL_CONTEXT
    request = Request(
        context=arguments.one("--ctx", arguments.tokens(ctx)) or default,
        sequences=arguments.count("--batch", batch),
        kv_dtype=kv_dtype,
        engine_version=installed_rules(),
        options=arguments.engine_options(option or (), cache),
    )
    count = arguments.count("--steps", steps)
    if level == "model" and device not in {"auto", "cpu"}:
        raise UsageError("the model level runs on the CPU.", "use --device cpu, or --level cache.")
    found = load(name, offline=offline)
    if level == "model":
        from kvsize.verify.modellevel import verify_model

        return verify_model(found, request, steps=count, full_depth=full_depth)
    from kvsize.verify import devices
    from kvsize.verify.cachelevel import verify_cache

    with progress(count + 1) as step:
        return verify_cache(
            found, request, device=device, steps=count, gpu=devices.Cuda(), step=step
        )


def _all(only: str, state: str, *, wide: bool, as_json: bool) -> Answer:
    """Every model type; progress on standard error, the table at the end."""
    import signal
    from dataclasses import asdict
    from pathlib import Path

    from kvsize.progress import progress
    from kvsize.verify.evidence import versions
    from kvsize.verify.state import State
    from kvsize.verify.sweep import selected, sweep
    from kvsize.verify.text import sweep_text
    from kvsize.verify.variants import VARIANTS, WIDE

    names = selected(only)
    if not names:
        message = f"no model type of transformers contains '{only}'."
        raise UsageError(message, "leave out --only to run them all.")
    # Stopped like by Ctrl-C: processes ended, what was found kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    variants = WIDE if wide else VARIANTS
    kept = State(Path(state), variants) if state else None
    known = kept.results() if kept else {}
    results = []
    with progress(len(names)) as step:
        for result in sweep(names, known, variants):
            if kept and result.model_type not in known:
                kept.add(result)
            results.append(result)
            step(result.model_type)
    differs = any(result.status == "differs" for result in results)
    code = Exit.NO if differs else Exit.OK
    if as_json:
        made = {"versions": versions(), "types": [asdict(result) for result in results]}
        return json.dumps(made, indent=2) + "\n", "", code
    return sweep_text(results), "", code
