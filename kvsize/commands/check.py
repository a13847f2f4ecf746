"""`kvsize check`: assertions about caches, for CI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsize.commands._check_flags import (
    Config,
    Context,
    Fits,
    Format,
    Gpus,
    Lock,
    Locked,
    MaxSequence,
    MaxToken,
    MaxTotal,
    MinContext,
    MinHeadroom,
    MinSequences,
    ModelName,
    Schema,
    SequenceBytes,
    Sequences,
    TokenBytes,
    TotalBytes,
    Update,
)
from kvsize.commands._fit_flags import (
    DataParallel,
    DecodeContext,
    EngineOptions,
    Fraction,
    GpuMemory,
    GpuName,
    KVMemory,
    Reserve,
    WeightsSize,
)
from kvsize.commands._flags import (
    Answer,
    AsJson,
    EngineName,
    EngineVersion,
    KVDtype,
    Offline,
    Output,
    PipelineParallel,
    Strict,
    TensorParallel,
)
from kvsize.errors import Exit

if TYPE_CHECKING:
    from kvsize.checks.session import Manner

EXAMPLES = """\b
kvsize check --model llama-3.1-8b --ctx 32k --max-kv-per-sequence 4GiB
kvsize check --model llama-3.1-8b --ctx 32k --sequences 8 --gpu h100 --fits --min-headroom 10%
kvsize check --model gemma-3-27b --ctx 8k --token-bytes 81920 --format json
kvsize check --schema
"""


def command(
    config: Config = "",
    model: ModelName = "",
    ctx: Context = "",
    sequences: Sequences = "",
    engine: EngineName = "",
    engine_version: EngineVersion = "",
    kv_dtype: KVDtype = "",
    option: EngineOptions = None,
    gpu: GpuName = "",
    gpus: Gpus = "",
    gpu_memory: GpuMemory = "",
    kv_memory: KVMemory = "",
    weights: WeightsSize = "",
    reserve: Reserve = "",
    memory_fraction: Fraction = "",
    tp: TensorParallel = "",
    pp: PipelineParallel = "",
    dp: DataParallel = "",
    dcp: DecodeContext = "",
    strict: Strict = False,
    fits: Fits = None,
    min_headroom: MinHeadroom = "",
    min_sequences: MinSequences = "",
    min_context: MinContext = "",
    max_kv_per_token: MaxToken = "",
    max_kv_per_sequence: MaxSequence = "",
    max_total: MaxTotal = "",
    token_bytes: TokenBytes = "",
    sequence_bytes: SequenceBytes = "",
    total_bytes: TotalBytes = "",
    format_name: Format = "table",
    as_json: AsJson = False,
    update: Update = False,
    lock: Lock = False,
    locked: Locked = False,
    offline: Offline = False,
    schema: Schema = False,
    output: Output = "",
) -> Answer:
    """Hold a file of assertions about caches: kvsize.toml, or [tool.kvsize] in pyproject.toml.

    Exit 0 where all hold, 1 where one does not, 2 where the file is wrong. What is said to fit
    fits at both ends of an estimated memory. With --model: one check, from the options.
    """
    given = dict(locals())
    from kvsize.checks import session
    from kvsize.checks.schema import schema_text

    if schema:
        return schema_text(), output, Exit.OK
    manner = session.Manner(offline=offline, locked=locked, lock=lock, update=update)
    return _run(given, manner, "json" if as_json else format_name, output)


def _run(given: dict[str, object], manner: Manner, name: str, output: str) -> Answer:
    """The checks, and what they say in the format called `name`."""
    from kvsize.checks import line, session
    from kvsize.checks.formats import writer
    from kvsize.checks.records import FileError

    if manner.offline:
        import os

        os.environ["HF_HUB_OFFLINE"] = "1"  # what the Hub client itself reads
    write = writer(name)
    stated = line.check(given, manner)
    try:
        if stated is not None:
            report, code = session.of_line(stated, offline=manner.offline)
        else:
            report, code = session.of_file(str(given["config"]), manner)
    except FileError as error:
        if name != "github":
            raise
        from kvsize.checks.formats import github

        return f"{github.of_file(error)}\n", output, Exit.USAGE
    if name == "github":
        from kvsize.checks.formats import github

        github.summarise(report)
    return write(report), output, code
