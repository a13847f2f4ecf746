"""Serve commands with the numbers filled in, and above each what its flags buy.

Flag names: vLLM 0.33.0, SGLang 0.5.23, llama.cpp 0c1e57098 and TensorRT-LLM 1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.errors import UsageError
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvsize.capacity.layout import Layout
    from kvsize.model import Model

ENGINES = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama.cpp", "trtllm": "tensorrt-llm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """What a serve command is made from; `fraction` None leaves the engine its default."""

    model: Model
    layout: Layout
    context: int
    sequences: int
    sequence_bytes: int
    kv_dtype: str
    fraction: Fraction | None
    kv_memory: int | None
    tokens: int | None


Flag = tuple[str, str]
"""A flag as it is typed, and what it buys (nothing: it speaks for itself)."""


def engine_of(name: str) -> str:
    """The engine whose command `--emit name` prints; UsageError for one without."""
    if name not in ENGINES:
        msg = f"--emit {name}: there is no serve command of that name."
        raise UsageError(msg, f"use one of {', '.join(ENGINES)}.")
    return ENGINES[name]


def command(name: str, serve: Serve) -> str:
    """The command as lines to paste, comments first."""
    start, flags, after = _COMMANDS[name](serve)
    comments = [f"# {flag}: {buys}" for flag, buys in flags if buys]
    lines = " \\\n  ".join([start, *(flag for flag, _ in flags)])
    return "\n".join([*comments, lines, *after])


def _name(model: Model) -> str:
    return model.hub_id or model.name


def _length(serve: Serve, flag: str) -> Flag:
    each = format_bytes(serve.sequence_bytes)
    return f"{flag} {serve.context}", f"one such sequence takes {each} of each GPU's cache"


def _most(serve: Serve, flag: str) -> Flag:
    return f"{flag} {serve.sequences}", "as many at full length as the cache holds; more would wait"


def _share(serve: Serve, flag: str) -> list[Flag]:
    if serve.fraction is None:
        return []
    return [(f"{flag} {float(serve.fraction):g}", "the share of memory this answer counts on")]


def _dtype(serve: Serve, flag: str) -> list[Flag]:
    if serve.kv_dtype == "auto":
        return []
    return [(f"{flag} {serve.kv_dtype}", "the cache's dtype this answer counts on")]


def _parallel(layout: Layout, tensor: str, pipeline: str, data: str) -> list[Flag]:
    sizes = (
        (tensor, layout.tensor_parallel_size),
        (pipeline, layout.pipeline_parallel_size),
        (data, layout.data_parallel_size),
    )
    return [(f"{flag} {size}", "") for flag, size in sizes if size > 1]


def _vllm(serve: Serve) -> tuple[str, list[Flag], list[str]]:
    layout = serve.layout
    flags = _parallel(
        layout, "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
    )
    if layout.decode_context_parallel_size > 1:
        shards = layout.decode_context_parallel_size
        buys = "each rank keeps its part of the tokens instead of all of them"
        flags.append((f"--decode-context-parallel-size {shards}", buys))
    if layout.shared_experts and layout.data_parallel_size > 1:
        flags.append(("--enable-expert-parallel", "routed experts spread over all ranks"))
    flags += [_length(serve, "--max-model-len"), _most(serve, "--max-num-seqs")]
    flags += _dtype(serve, "--kv-cache-dtype")
    if serve.kv_memory is None:
        flags += _share(serve, "--gpu-memory-utilization")
    else:
        buys = "exactly this much cache on each GPU, whatever profiling says"
        flags.append((f"--kv-cache-memory-bytes {serve.kv_memory}", buys))
    return f"vllm serve {_name(serve.model)}", flags, []


def _sglang(serve: Serve) -> tuple[str, list[Flag], list[str]]:
    layout = serve.layout
    flags = _parallel(layout, "--tp", "--pp", "--dp")
    if layout.attention_dp:
        flags.append(("--enable-dp-attention", "each group of ranks keeps its own requests' cache"))
    flags += [_length(serve, "--context-length"), _most(serve, "--max-running-requests")]
    flags += _dtype(serve, "--kv-cache-dtype")
    if serve.kv_memory is not None and serve.tokens is not None:
        buys = f"what {format_bytes(serve.kv_memory)} hold"
        flags.append((f"--max-total-tokens {serve.tokens}", buys))
    else:
        flags += _share(serve, "--mem-fraction-static")
    return f"python -m sglang.launch_server --model-path {_name(serve.model)}", flags, []


def _llama_cpp(serve: Serve) -> tuple[str, list[Flag], list[str]]:
    where = f"-m {serve.model.where}" if serve.model.source == "gguf" else "-m MODEL.gguf"
    total = serve.context * serve.sequences
    slots = f"{serve.sequences} slots × {format_tokens(serve.context)} tokens"
    flags = [
        (f"-c {total}", f"the tokens of all slots together: {slots}"),
        (f"-np {serve.sequences}", "slots; left out, the server makes four"),
        ("-ngl 999", "all layers on the GPU"),
    ]
    if serve.kv_dtype != "auto":
        flags.append((f"-ctk {serve.kv_dtype} -ctv {serve.kv_dtype}", "the cache's types"))
    return f"llama-server {where}", flags, []


def _trtllm(serve: Serve) -> tuple[str, list[Flag], list[str]]:
    layout = serve.layout
    flags = _parallel(layout, "--tp_size", "--pp_size", "--dp_size")
    flags = [flag for flag in flags if not flag[0].startswith("--dp_size")]
    flags += [_length(serve, "--max_seq_len"), _most(serve, "--max_batch_size")]
    flags += _share(serve, "--kv_cache_free_gpu_memory_fraction")
    settings = []
    if layout.attention_dp:
        settings.append("enable_attention_dp: true")
    if serve.kv_dtype != "auto":
        settings += ["kv_cache_config:", f"  dtype: {serve.kv_dtype}"]
    if settings:
        flags.append(("--extra_llm_api_options kvsize.yaml", "the file that follows"))
        settings = ["# kvsize.yaml", *settings]
    return f"trtllm-serve {_name(serve.model)}", flags, settings


_COMMANDS: dict[str, Callable[[Serve], tuple[str, list[Flag], list[str]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "trtllm": _trtllm,
}
