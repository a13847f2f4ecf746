"""From a request to llama.cpp's context parameters, and the settings the engine refuses.

Source: `llama_init_from_model` and the constructor of `llama_context` in
`src/llama-context.cpp`, llama.cpp 0c1e57098.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from kvsize.dtypes import KVDtype
from kvsize.engines.llama_cpp.frontends import FRONTENDS, OPTIONS, Frontend
from kvsize.engines.llama_cpp.types import cache_type, is_quantized
from kvsize.engines.options import Request, resolve
from kvsize.errors import EngineRefuses, UsageError
from kvsize.gguf.architectures import Memory
from kvsize.gguf.hparams import Hparams
from kvsize.units import pad

CELL_PADDING = 256  # GGML_PAD(cparams.n_ctx, 256)
LARGEST_N_SEQ_MAX = 256  # LLAMA_MAX_SEQ in src/llama-cparams.h
LARGEST_N_CTX = 2**31 - 1  # -c is a C int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context parameters as the engine resolves them.

    `n_ctx_seq` is the cells of one stream, and `streams` how many it allocates.
    """

    n_ctx: int
    n_ctx_seq: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    type_k: KVDtype
    type_v: KVDtype
    flash_attn: bool
    swa_full: bool
    kv_unified: bool
    n_rs_seq: int

    @property
    def streams(self) -> int:
        """One buffer for all sequences, or one for each."""
        return 1 if self.kv_unified else self.n_seq_max


def context_for(hparams: Hparams, request: Request) -> Context:
    """The context that llama.cpp makes for `request`.

    `-c` is the total of all sequences, so it is context × sequences here; 0 is the model's own
    context length for each. Raises EngineRefuses where context creation fails, UsageError for
    an option or type that llama.cpp does not have.
    """
    options = resolve("llama.cpp", OPTIONS, request.options)
    frontend = FRONTENDS[str(options["frontend"])]
    n_seq_max, kv_unified = _sequences(options, frontend, request.sequences)
    n_ctx = (request.context or hparams.n_ctx_train) * request.sequences
    _check_counts(n_ctx, n_seq_max)
    n_batch = _int(options["n_batch"], frontend.n_batch)
    n_batch = min(n_ctx, n_batch) if hparams.causal else n_batch
    if n_batch < n_seq_max:
        raise _refuses(f"a batch of {n_batch} has no room for {n_seq_max} sequences")
    n_ubatch = min(n_batch, _int(options["n_ubatch"], frontend.n_ubatch) or n_batch)
    cells = pad(n_ctx, CELL_PADDING)
    n_ctx_seq = cells if kv_unified else pad(cells // n_seq_max, CELL_PADDING)
    if n_ctx_seq == 0:
        raise _refuses(f"{cells} cells leave none for each of {n_seq_max} sequences")
    context = Context(
        n_ctx=n_ctx_seq if kv_unified else n_ctx_seq * n_seq_max,
        n_ctx_seq=n_ctx_seq,
        n_seq_max=n_seq_max,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        type_k=cache_type(str(options["type_k"] or request.kv_dtype)),
        type_v=cache_type(str(options["type_v"] or request.kv_dtype)),
        flash_attn=hparams.traits.flash_attn
        and (options["flash_attn"] or frontend.flash_attn) != "off",
        swa_full=bool(_or(options["swa_full"], frontend.swa_full)),
        kv_unified=kv_unified,
        n_rs_seq=_int(options["n_rs_seq"], 0) if hparams.traits.rollback else 0,
    )
    _check_types(hparams, context)
    return context


def _sequences(options: dict[str, object], frontend: Frontend, sequences: int) -> tuple[int, bool]:
    """n_seq_max and kv_unified."""
    stated = options["n_seq_max"]
    auto = stated is None and sequences == 1 and frontend.auto_slots is not None
    n_seq_max = _int(stated, (frontend.auto_slots if auto else None) or sequences)
    if n_seq_max < sequences:
        msg = f"llama.cpp: n_seq_max {n_seq_max} does not hold {sequences} sequences."
        raise UsageError(msg, f"give n_seq_max {sequences} or more, or leave it out.")
    return n_seq_max, bool(_or(options["kv_unified"], auto))


def _check_counts(n_ctx: int, n_seq_max: int) -> None:
    if n_ctx == 0:
        raise _refuses("n_ctx and the model's context_length are both 0")
    if n_ctx > LARGEST_N_CTX:
        raise _refuses(f"n_ctx {n_ctx:,} does not fit in 31 bits")
    if n_seq_max > LARGEST_N_SEQ_MAX:
        raise _refuses(f"n_seq_max is {n_seq_max}, and must be <= {LARGEST_N_SEQ_MAX}")


def _check_types(hparams: Hparams, context: Context) -> None:
    """The order is the engine's: each check below is a refusal of `llama_init_from_model`."""
    if hparams.traits.memory is Memory.DRAFT:
        raise _refuses(f"a {hparams.arch} draft model needs its target model's context")
    type_k, type_v = context.type_k, context.type_v
    k_only = hparams.is_mla or hparams.traits.memory is Memory.DSV4
    if k_only and type_k != type_v:
        raise _refuses(
            f"type_k {type_k.name} and type_v {type_v.name} differ, and {hparams.arch} keeps "
            "latents, which are both",
            "give both the same type.",
        )
    if is_quantized(type_v) and not context.flash_attn:
        raise _refuses(f"a {type_v.name} V cache needs flash attention, which is off")
    if context.flash_attn:
        for il, block in enumerate(hparams.blocks[: hparams.n_layer]):
            _check_head(il, "K", type_k, block.n_embd_head_k)
            _check_head(il, "V", type_v, block.n_embd_head_v)


def _check_head(il: int, which: str, kind: KVDtype, n_embd_head: int) -> None:
    if n_embd_head % kind.block_elements:
        raise _refuses(
            f"type {kind.name} has blocks of {kind.block_elements}, which do not divide the "
            f"{which} head size {n_embd_head} of layer {il}"
        )


def _refuses(
    reason: str, hint: str = "choose other settings; llama.cpp makes no context."
) -> EngineRefuses:
    return EngineRefuses(f"llama.cpp: {reason}.", hint)


def _or(value: object, default: object) -> object:
    return default if value is None else value


def _int(value: object, default: int) -> int:
    return default if value is None else cast("int", value)
