"""The options of a llama.cpp context, and what each program in front of it sets by default.

Sources, llama.cpp 0c1e57098: `common/common.h` (the command-line tools),
`tools/server/server.cpp` (auto slots), `llama_context_default_params` (the API);
llama-cpp-python 0.3.36 `llama.py` (passes flash_attn disabled and no swa_full);
ollama `llm/llama_server.go` (starts llama-server with -c num_ctx × parallel, -np parallel and
-b = -ub = num_batch, 512 by default).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvsize.engines.llama_cpp.types import CACHE_TYPES
from kvsize.engines.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontend:
    """A program's defaults. `auto_slots`: the slots it opens, unified, when not told a number."""

    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: str = "auto"
    swa_full: bool = False
    auto_slots: int | None = None


FRONTENDS = {
    "llama-cli": Frontend(),
    "llama-server": Frontend(auto_slots=4),
    "llama-cpp-python": Frontend(n_batch=512, flash_attn="off", swa_full=True),
    "ollama": Frontend(n_batch=512),
    "api": Frontend(swa_full=True),
}

OPTIONS = (
    Option(
        "frontend",
        str,
        "llama-cli",
        "whose defaults the other options have",
        choices=tuple(FRONTENDS),
    ),
    Option(
        "n_seq_max",
        int,
        None,
        "-np: sequences the context is made for; by default the sequences asked for "
        "(llama-server: 4 slots that share one unified cache, for one sequence)",
        least=1,
    ),
    Option("n_batch", int, None, "-b: logical batch; 2048, or the frontend's", least=1),
    Option("n_ubatch", int, None, "-ub: physical batch; 512, or the frontend's", least=0),
    Option("type_k", str, None, "-ctk: type of the keys; f16", choices=tuple(CACHE_TYPES)),
    Option("type_v", str, None, "-ctv: type of the values; f16", choices=tuple(CACHE_TYPES)),
    Option(
        "flash_attn",
        str,
        None,
        "-fa: auto, or the frontend's; auto lays the cache out as on does",
        choices=("auto", "on", "off"),
    ),
    Option("swa_full", bool, None, "--swa-full: windows keep every token; the frontend's default"),
    Option("kv_unified", bool, None, "-kvu: one buffer for all sequences instead of one each"),
    Option("n_rs_seq", int, 0, "snapshots of recurrent states, for speculative decoding", least=0),
)
