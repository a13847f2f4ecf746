"""The GPUs a model is put on, and the memory they leave for its cache in each layout."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvsize.capacity import budget as ledger
from kvsize.capacity.gpus import bare
from kvsize.capacity.rules import default_fraction
from kvsize.engines._layers import attentions
from kvsize.layers import LatentAttention
from kvsize.units import GIB, MIB

if TYPE_CHECKING:
    from kvsize.capacity.budget import Budget
    from kvsize.capacity.gpus import Gpu
    from kvsize.capacity.layout import Layout
    from kvsize.capacity.sharding import Shares
    from kvsize.capacity.weights import Weights
    from kvsize.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One kind of GPU and what is to be on it; with `kv_memory` the budget itself is known.

    `fraction`, `reserve_bytes`: what the user states instead of the engine's default share and
    the modelled reserve.
    """

    gpu: Gpu | None = None
    weights: Weights | None = None
    shares: Shares | None = None
    fraction: Fraction | None = None
    reserve_bytes: int | None = None
    kv_memory: int | None = None

    @property
    def estimates(self) -> bool:
        """Whether the budget is worked out from a GPU, and so known for any layout."""
        return self.gpu is not None and self.kv_memory is None


def budget_of(
    machine: Machine, model: Model, engine: str, engine_version: str | None, layout: Layout
) -> Budget:
    """The ledger of one rank of `layout`."""
    if machine.kv_memory is not None or machine.gpu is None:
        return ledger.known(machine.kv_memory or 0)
    share, why = _share(machine, model, engine, engine_version, layout)
    costs = ledger.Costs(
        weights_bytes=_rank_weights(machine, layout),
        weights_source=_weights_source(machine, layout),
        fraction=share,
        fraction_source=why,
        reserve_bytes=machine.reserve_bytes,
    )
    gpu = machine.gpu
    if layout.layer_split > 1:
        return ledger.pooled(engine, gpu, costs, layout.layer_split)
    return ledger.budget(engine, gpu, costs)


def _rank_weights(machine: Machine, layout: Layout) -> int:
    if machine.weights is None or machine.shares is None:
        return 0
    if layout.layer_split > 1:
        return machine.weights.total_bytes
    return machine.shares.rank_bytes(machine.weights.total_bytes, layout)


def _weights_source(machine: Machine, layout: Layout) -> str:
    if machine.weights is None or machine.shares is None:
        return "none"
    if layout.ranks == 1 and layout.expert_ranks == 1:
        return machine.weights.source
    return f"{machine.weights.source}; {machine.shares.assumption}"


def _share(
    machine: Machine, model: Model, engine: str, engine_version: str | None, layout: Layout
) -> tuple[Fraction | None, str]:
    """The share of memory the engine takes, and where that is known from."""
    if machine.fraction is not None:
        return machine.fraction, "as stated"
    if engine == "sglang" and machine.gpu is not None:
        return _sglang_share(machine.gpu, model, layout), "SGLang's default for this GPU"
    return default_fraction(engine, engine_version), "the engine's default"


def _sglang_share(gpu: Gpu, model: Model, layout: Layout) -> Fraction:
    from kvsize.engines.sglang.memory import Launch, default_mem_fraction_static

    launch = Launch(
        tensor_parallel_size=layout.tensor_parallel_size,
        pipeline_parallel_size=layout.pipeline_parallel_size,
        attn_dp_size=layout.data_parallel_size if layout.attention_dp else 1,
        latent=any(isinstance(attention, LatentAttention) for attention in attentions(model)),
    )
    share = default_mem_fraction_static(gpu.memory_bytes // MIB, launch)
    return Fraction(str(share))


def vllm_gpu(gpu: Gpu) -> str:
    """The kind of GPU whose defaults vLLM is taken to have on `gpu`.

    Its own where the engine module knows it, else the nearest in memory of those with the same
    compute capability, or of all.
    """
    from kvsize.engines.vllm.gpus import GPUS

    own = _known_to_vllm(gpu)
    if own is not None:
        return own
    capability = (gpu.compute_capability or "").replace(".", "")
    alike = [kind for kind in GPUS.values() if str(kind.capability) == capability]
    nearest = min(
        alike or GPUS.values(), key=lambda kind: abs(kind.memory_gib * GIB - gpu.memory_bytes)
    )
    return nearest.name


def stand_in_note(gpu: Gpu, kind: str) -> str | None:
    """A sentence where vLLM's defaults are another GPU's, else None."""
    if _known_to_vllm(gpu) is not None:
        return None
    return f"vLLM's defaults on {gpu.title} are taken to be those of its kind '{kind}' (-o gpu=…)."


def _known_to_vllm(gpu: Gpu) -> str | None:
    from kvsize.engines.vllm.gpus import GPUS

    names = {bare(name) for name in (gpu.name, *gpu.aliases, gpu.title)}
    return next((name for name in GPUS if bare(name) in names), None)
