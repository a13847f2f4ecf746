"""Recurrent states as vLLM keeps them on one tensor-parallel rank.

Shapes and dtypes of MambaStateShapeCalculator and MambaStateDtypeCalculator in
vllm/model_executor/layers/mamba/mamba_utils.py, checkpoints of the layers' own classes
(0.33.0). transformers keeps other widths, so nothing here is taken from its cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from kvsize.config import Config
from kvsize.dtypes import canonical, torch_dtype
from kvsize.engines.vllm.gpus import Gpu
from kvsize.errors import EngineRefuses

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class States:
    """The states of one layer and rank; `checkpoint_alignment` binds the block size."""

    shapes: Shapes
    dtypes: tuple[str, ...]
    checkpoint_blocks: int = 0
    checkpoint_alignment: int | None = None

    @property
    def state_bytes(self) -> int:
        """Bytes of all states together."""
        return sum(
            prod(shape) * torch_dtype(dtype).block_bytes
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """What the user and the GPU decide about states."""

    dtype: str
    tensor_parallel_size: int
    speculative_tokens: int
    mamba_cache_dtype: str
    mamba_ssm_cache_dtype: str
    gpu: Gpu
    aligned: bool
    """Prefix caching keeps states at block boundaries."""

    @property
    def conv_dtype(self) -> str:
        """The dtype of convolution states."""
        stated = self.mamba_cache_dtype
        return self.dtype if stated == "auto" else stated


def states(config: Config, options: StateOptions) -> States | None:
    """The states of the model's recurrent layers; None where vLLM knows no such layers."""
    reader = READERS.get(config.model_type)
    return None if reader is None else reader(config, options)


def _share(value: int, ranks: int) -> int:
    if value % ranks:
        msg = f"vllm: {value} channels or heads of a recurrent state cannot be split {ranks} ways."
        raise EngineRefuses(msg, "choose a tensor_parallel_size that divides them.")
    return value // ranks


def _mamba1(config: Config, o: StateOptions) -> States:
    """Jamba, Mamba: no wider for speculation."""
    if config.model_type == "jamba":
        inner = config.count("mamba_expand") * config.count("hidden_size")
        width, state = config.count("mamba_d_conv"), config.count("mamba_d_state")
    else:
        inner = config.optional_count("intermediate_size") or (
            config.count("expand") * config.count("hidden_size")
        )
        width, state = config.count("conv_kernel"), config.count("state_size")
    own = _share(inner, o.tensor_parallel_size)
    return States(((width - 1, own), (own, state)), (o.conv_dtype, _ssm_dtype(config, o)))


def _mamba2(config: Config, o: StateOptions) -> States:
    """Mamba-2: groups are replicated up to the ranks; every prefill can export a checkpoint."""
    heads, dim, groups, state, width, inner = _mamba2_sizes(config)
    ranks = o.tensor_parallel_size
    if groups % ranks and groups != 1:
        msg = f"vllm: {groups} groups of a Mamba-2 state cannot be split {ranks} ways."
        raise EngineRefuses(msg, "choose a tensor_parallel_size that divides them.")
    groups = groups if groups % ranks == 0 else ranks
    channels = _share(inner + 2 * groups * state, ranks)
    return States(
        ((width - 1 + o.speculative_tokens, channels), (_share(heads, ranks), dim, state)),
        (o.conv_dtype, _ssm_dtype(config, o)),
        checkpoint_blocks=1,
    )


def _mamba2_sizes(config: Config) -> tuple[int, int, int, int, int, int]:
    """Heads, head size, groups, state size, convolution width, channels."""
    hidden = config.count("hidden_size")
    match config.model_type:
        case "granitemoehybrid" | "falcon_h1" | "bamba":
            inner = config.optional_count("mamba_d_ssm") or config.count("mamba_expand") * hidden
            names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
            width = config.count("mamba_d_conv")
        case "nemotron_h":
            inner = config.count("mamba_num_heads") * config.count("mamba_head_dim")
            names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size")
            width = config.count("conv_kernel")
        case "zamba2":
            inner = config.count("mamba_expand") * hidden
            names = ("n_mamba_heads", "mamba_headdim", "mamba_ngroups", "mamba_d_state")
            width = config.count("mamba_d_conv")
        case _:
            inner = config.count("expand") * hidden
            names = ("num_heads", "head_dim", "n_groups", "state_size")
            width = config.count("conv_kernel")
    heads, dim, groups, state = (_headed(config, name, inner) for name in names)
    return heads, dim, groups, state, width, inner


def _headed(config: Config, name: str, inner: int) -> int:
    """A count; a head size that is "auto" or left out is the channels over the heads."""
    if name == "mamba_d_head" and config.value(name) == "auto":
        return inner // config.count("mamba_n_heads")
    if name == "mamba_headdim" and config.value(name) is None:
        return inner // config.count("n_mamba_heads")
    return config.count(name)


def _gated_delta(config: Config, o: StateOptions) -> States:
    """Qwen3-Next, Qwen3.5, OLMo hybrid: FlashInfer's prefill exports checkpoints every 64."""
    keys, values = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_dim, value_dim = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    width = config.count("linear_conv_kernel_dim")
    ranks = o.tensor_parallel_size
    channels = _share(2 * keys * key_dim + values * value_dim, ranks)
    exports = o.aligned and config.model_type != "olmo_hybrid" and _flashinfer(o.gpu, key_dim)
    return States(
        (
            (width - 1 + o.speculative_tokens, channels),
            (_share(values, ranks), value_dim, key_dim),
        ),
        (o.conv_dtype, _ssm_dtype(config, o)),
        checkpoint_blocks=int(exports),
        checkpoint_alignment=64 if exports else None,
    )


def _flashinfer(gpu: Gpu, key_dim: int) -> bool:
    """Whether FlashInfer's gated delta kernel runs (_resolve_gdn_prefill_backend)."""
    return gpu.family == 9 or (gpu.family in {10, 12} and key_dim == 128)


def _kimi_delta(config: Config, o: StateOptions) -> States:
    """Kimi delta attention: queries, keys and values convolved; the state is float32.

    FlashKDA exports checkpoints where the gate is bounded (resolve_kda_prefill_backend).
    """
    stated = config.mapping("linear_attn_config") or {}
    section = config.derived(stated)
    heads = (
        section.count("num_heads")
        if "num_heads" in stated
        else config.count("linear_num_heads", "num_attention_heads")
    )
    dim = (
        section.count("head_dim")
        if "head_dim" in stated
        else config.count("linear_head_dim", "head_dim")
    )
    width = section.count("short_conv_kernel_size", "linear_conv_kernel_dim")
    ranks = o.tensor_parallel_size
    bounded = any(
        source.value(key) is not None
        for source in (section, config)
        for key in ("gate_lower_bound", "kda_gate_lower_bound", "lower_bound")
    )
    exports = bounded and dim == 128 and o.dtype == "bfloat16" and o.gpu.family in {9, 10, 12}
    stated_dtype = o.mamba_ssm_cache_dtype
    return States(
        (
            (width - 1 + o.speculative_tokens, _share(3 * heads * dim, ranks)),
            (_share(heads, ranks), dim, dim),
        ),
        (o.conv_dtype, "float32" if stated_dtype == "auto" else stated_dtype),
        checkpoint_blocks=int(exports),
    )


def _short_conv(config: Config, o: StateOptions) -> States:
    """LFM2: one convolution."""
    channels = config.optional_count("conv_dim") or config.count("hidden_size")
    shape = (config.count("conv_L_cache") - 1, _share(channels, o.tensor_parallel_size))
    return States((shape,), (o.conv_dtype,))


def _lightning(config: Config, o: StateOptions) -> States:
    """Ling 2.5: linear attention, a square state per head."""
    heads = config.count("num_attention_heads")
    dim = config.optional_count("head_dim") or config.count("hidden_size") // heads
    return States(((_share(heads, o.tensor_parallel_size), dim, dim),), (o.conv_dtype,))


def _ssm_dtype(config: Config, o: StateOptions) -> str:
    """The dtype of the SSM part: stated, else by the model's hook, else the convolution's.

    NemotronHForCausalLMConfig and Qwen3_5ForConditionalGenerationConfig in
    vllm/model_executor/models/config.py.
    """
    if o.mamba_ssm_cache_dtype != "auto":
        return o.mamba_ssm_cache_dtype
    if config.model_type == "nemotron_h":
        return canonical(config.text("mamba_ssm_cache_dtype") or "float32")
    if config.model_type.startswith("qwen3_5"):
        stated = config.text("mamba_ssm_dtype")
        return canonical(stated) if stated else o.conv_dtype
    return o.conv_dtype


READERS: dict[str, Callable[[Config, StateOptions], States]] = {
    "bailing_hybrid": _lightning,
    "falcon_h1": _mamba2,
    "falcon_mamba": _mamba1,
    "glm5_next_text": _kimi_delta,
    "granitemoehybrid": _mamba2,
    "jamba": _mamba1,
    "kimi_linear": _kimi_delta,
    "lfm2": _short_conv,
    "lfm2_moe": _short_conv,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "nemotron_h": _mamba2,
    "olmo_hybrid": _gated_delta,
    "qwen3_5_moe_text": _gated_delta,
    "qwen3_5_text": _gated_delta,
    "qwen3_next": _gated_delta,
    "zamba2": _mamba2,
}
