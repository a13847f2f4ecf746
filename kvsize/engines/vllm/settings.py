"""What a request means in vLLM: every setting resolved, before any layer is looked at.

Defaults of EngineArgs.create_engine_config and VllmConfig.__post_init__ (vllm/engine/
arg_utils.py, vllm/config/vllm.py, 0.33.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from kvsize.config import Config
from kvsize.dtypes import canonical
from kvsize.engines.options import Request, resolve
from kvsize.engines.vllm import architectures, context, dtypes
from kvsize.engines.vllm.gpus import GPUS, Gpu
from kvsize.engines.vllm.options import OPTIONS
from kvsize.engines.vllm.specs import Demand
from kvsize.engines.vllm.states import READERS
from kvsize.engines.vllm.versions import Rules, rules_for
from kvsize.errors import EngineRefuses, UsageError
from kvsize.model import Model

_WITHOUT_FLOAT16 = {"gemma2", "gemma3", "gemma3_text", "glm4"}
_ATTENTION_FREE = {"falcon_mamba", "mamba", "mamba2"}
_GEMMA4_VIDEO_TOKENS = 32 * (70 + 2 + 6)
"""32 frames of 70 soft tokens, two marks and a time stamp (gemma4_mm.py, 0.33.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """speculative_config: how drafts are made."""

    method: str
    num_speculative_tokens: int
    model: Mapping[str, object] | str | None = None
    tensor_parallel_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One vLLM engine: the model, the machine, and every option resolved."""

    model: Model
    rules: Rules
    gpu: Gpu
    options: Mapping[str, object]
    dtype: str
    kv_dtype: str
    latent: bool
    """Whether latent attention is cached as latents."""
    max_model_len: int
    auto_fit: bool
    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_batched_tokens: int
    max_in_flight_tokens: int
    prefix_caching: bool
    speculation: Speculation | None

    @property
    def config(self) -> Config:
        """The text decoder's section."""
        return self.model.config

    @property
    def stored_dtype(self) -> str:
        """What the cache holds: `kv_dtype`, with "auto" as the dtype it stands for."""
        return self.dtype if self.kv_dtype == "auto" else self.kv_dtype

    @property
    def decode_context_parallel_size(self) -> int:
        """Ranks that share a sequence's tokens."""
        return cast("int", self.options["decode_context_parallel_size"])

    @property
    def latent_allowed(self) -> bool:
        """Whether latent attention is cached as latents where a model has it."""
        return not self.options["VLLM_MLA_DISABLE"]

    @property
    def block_size(self) -> int | None:
        """The block size the user fixed."""
        return cast("int | None", self.options["block_size"])

    @property
    def hybrid(self) -> bool:
        """Whether recurrent states stand beside attention."""
        return is_hybrid(self.model)

    @property
    def demand(self) -> Demand:
        """What one request of the longest length may hold."""
        return Demand(
            max_model_len=self.max_model_len,
            in_flight_tokens=self.max_in_flight_tokens,
            encoder_tokens=self.max_num_batched_tokens,
            retained_tokens=_retained_tokens(self),
            decode_context_parallel_size=self.decode_context_parallel_size,
            checkpoints_states=self.prefix_caching,
        )

    @property
    def hybrid_manager(self) -> bool:
        """Whether windowed layers give blocks back."""
        stated = self.options["disable_hybrid_kv_cache_manager"]
        if stated is not None:
            return not stated
        if self.config.optional_count("attention_chunk_size") is None:
            return self.rules.windows
        if "mimo_v2" in self.config.model_type:
            return self.rules.windows  # a stray key that vLLM strips
        allowed = self.options["VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"]
        drafts = self.speculation is not None and "eagle" in self.speculation.method
        return not drafts and bool(self.rules.chunks if allowed is None else allowed)


def _retained_tokens(settings: Settings) -> int:
    """Tokens kept below a window: each further MTP head re-reads one more."""
    speculation = settings.speculation
    if speculation is None or speculation.method != "mtp":
        return 0
    heads = settings.config.optional_count("num_nextn_predict_layers", least=0) or 0
    return max(0, speculation.num_speculative_tokens - 1) if heads > 1 else 0


def is_hybrid(model: Model) -> bool:
    """Whether the model mixes recurrent states with attention (ModelConfig.is_hybrid)."""
    if model.config.model_type not in READERS or attention_free(model):
        return False
    kinds = model.root.texts("layer_types")
    return kinds is None or any(kind not in {"attention", "full_attention"} for kind in kinds)


def attention_free(model: Model) -> bool:
    """Whether the model's class has no attention (Mamba), whatever its layers."""
    return model.config.model_type in _ATTENTION_FREE


def settle(model: Model, request: Request) -> Settings:
    """`request` resolved for `model`; UsageError and EngineRefuses where it cannot be."""
    options = resolve("vllm", OPTIONS, request.options)
    rules = rules_for(request.engine_version)
    gpu = GPUS[str(options["gpu"])]
    architectures.check(model, rules.version)
    latent = architectures.is_latent(model) and not options["VLLM_MLA_DISABLE"]
    dtype = _dtype(model, str(options["dtype"]), gpu)
    speculation = _speculation(options)
    max_model_len = context.longest(model.config, request.context)
    prefix_caching = _prefix_caching(model, options, rules)
    batched = _batched_tokens(model, options, gpu, max_model_len)
    return Settings(
        model=model,
        rules=rules,
        gpu=gpu,
        options=options,
        dtype=dtype,
        kv_dtype=_kv_dtype(model, dtypes.checked(request.kv_dtype), dtype, gpu, latent=latent),
        latent=latent,
        max_model_len=max_model_len,
        auto_fit=request.context == context.AUTO_FIT,
        tensor_parallel_size=request.tensor_parallel_size,
        pipeline_parallel_size=request.pipeline_parallel_size,
        max_num_batched_tokens=batched,
        max_in_flight_tokens=batched * _concurrent_batches(options, request, rules, speculation),
        prefix_caching=prefix_caching,
        speculation=speculation,
    )


def _dtype(model: Model, wanted: str, gpu: Gpu) -> str:
    """The model's dtype: float32 weights run as bfloat16 unless float32 is asked for."""
    stated = "float32" if model.dtype_assumed else model.dtype
    refused = model.root.model_type in _WITHOUT_FLOAT16
    if wanted != "auto":
        dtype = canonical(wanted)
        if dtype == "float16" and refused:
            msg = f"vllm: model type '{model.root.model_type}' does not run in float16."
            raise EngineRefuses(msg, "use bfloat16 or float32.")
        return dtype
    supported = ["bfloat16", "float16", "float32"] if gpu.capability >= 80 else ["float16"]
    if refused:
        supported.remove("float16")
    preferred = supported[0]
    if stated == "float32":
        return preferred
    return stated if stated in supported else preferred


def _kv_dtype(model: Model, wanted: str, dtype: str, gpu: Gpu, *, latent: bool) -> str:
    """The cache's dtype, "auto" for the model's own."""
    if wanted == "auto":
        wanted = dtypes.of_checkpoint(model.root, latent=latent)
    if wanted in {"float16", "bfloat16"}:
        if wanted != dtype:
            msg = f"vllm: kv dtype {wanted} does not go with the model's dtype {dtype}."
            raise EngineRefuses(msg, f"use auto, or set dtype to {wanted}.")
        return wanted
    if (
        wanted == "auto"
        and gpu.family == 10
        and architectures.name(model) == "GlmMoeDsaForCausalLM"
    ):
        return "fp8_e4m3"  # GlmMoeDsaForCausalLM in vllm/model_executor/models/config.py
    if latent and wanted.startswith("nvfp4") and not wanted.endswith("_ds_mla"):
        msg = f"vllm: {wanted} does not fit latent attention."
        raise EngineRefuses(msg, "use fp8, auto, or nvfp4_ds_mla with a sparse model.")
    return wanted


def _speculation(options: Mapping[str, object]) -> Speculation | None:
    stated = cast("Mapping[str, object] | None", options["speculative_config"])
    if stated is None:
        return None
    tokens = stated.get("num_speculative_tokens", 1)
    method = stated.get("method") or ("draft_model" if "model" in stated else "mtp")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not isinstance(method, str):
        msg = "vllm: speculative_config needs a method and a whole num_speculative_tokens."
        raise UsageError(msg, '{"method": "mtp", "num_speculative_tokens": 1} is an example.')
    ranks = stated.get("draft_tensor_parallel_size")
    return Speculation(
        method=method,
        num_speculative_tokens=tokens,
        model=cast("Mapping[str, object] | str | None", stated.get("model")),
        tensor_parallel_size=ranks if isinstance(ranks, int) else None,
    )


def _prefix_caching(model: Model, options: Mapping[str, object], rules: Rules) -> bool:
    stated = options["enable_prefix_caching"]
    if isinstance(stated, bool):
        return stated
    if attention_free(model) or model.root.flag("is_encoder_decoder"):
        return False
    return rules.hybrid_prefix_caching if is_hybrid(model) else True


def _batched_tokens(
    model: Model, options: Mapping[str, object], gpu: Gpu, max_model_len: int
) -> int:
    """max_num_batched_tokens: stated, or the GPU's default within what can come at once."""
    stated = cast("int | None", options["max_num_batched_tokens"])
    chunked = options["enable_chunked_prefill"]
    if chunked is None:
        chunked = not model.root.flag("is_encoder_decoder")
    sequences = cast("int | None", options["max_num_seqs"]) or gpu.sequences
    if stated is None:
        tokens = gpu.batched_tokens[str(options["usage_context"])]
        if not chunked:
            tokens = max(max_model_len, tokens)
        tokens = max(tokens, _largest_item(model, options))
        return min(sequences * max_model_len, tokens)
    if not chunked and stated < max_model_len:
        msg = (
            f"vllm: max_num_batched_tokens {stated} is smaller than max_model_len {max_model_len}."
        )
        raise EngineRefuses(msg, "raise it, or turn chunked prefill on.")
    return stated


def _largest_item(model: Model, options: Mapping[str, object]) -> int:
    """Tokens of the largest image or video of a model that attends both ways inside one.

    Such a model takes an item in one step (EngineArgs._get_min_mm_batched_tokens).
    """
    serves = architectures.multimodal(model) and architectures.multimodal_prefix(model)
    # With audio the size depends on the processor's files; without them vLLM sets no floor.
    audio = model.root.value("audio_config") is not None
    if not serves or audio or options["language_model_only"]:
        return 0
    return _GEMMA4_VIDEO_TOKENS if model.root.model_type.startswith("gemma4") else 0


def _concurrent_batches(
    options: Mapping[str, object],
    request: Request,
    rules: Rules,
    speculation: Speculation | None,
) -> int:
    """Batches in flight at once (VllmConfig.max_concurrent_batches)."""
    if not rules.concurrent_steps:
        return 1
    stages = request.pipeline_parallel_size
    # The old model runner serves these methods, without asynchronous scheduling.
    old = speculation is not None and speculation.method in {"suffix", "custom_class"}
    overlapped = not old if options["async_scheduling"] is None else options["async_scheduling"]
    return stages + 1 if overlapped else stages
