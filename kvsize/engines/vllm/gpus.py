"""What vLLM asks a GPU: its compute capability, its size, and the defaults they decide.

Capabilities: NVIDIA's CUDA GPU list. Sizes: the driver's total, in whole GiB; vLLM compares them
with 70 and 160 GiB only (EngineArgs.get_batch_defaults in vllm/engine/arg_utils.py, 0.33.0).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU; `capability` 90 is compute capability 9.0."""

    name: str
    capability: int
    memory_gib: int

    @property
    def family(self) -> int:
        """The major compute capability: 8 Ampere and Ada, 9 Hopper, 10 and 12 Blackwell."""
        return self.capability // 10

    @property
    def batched_tokens(self) -> dict[str, int]:
        """The default of max_num_batched_tokens, by usage context."""
        if self.memory_gib >= 160:
            return {"server": 16384, "llm": 16384}
        if self._large:
            return {"server": 8192, "llm": 16384}
        return {"server": 2048, "llm": 8192}

    @property
    def sequences(self) -> int:
        """The default of max_num_seqs."""
        return 1024 if self.memory_gib >= 160 or self._large else 256

    @property
    def _large(self) -> bool:
        # A100 keeps the small defaults for speed, GB10 because it is small but for its memory.
        return self.memory_gib >= 70 and not self.name.startswith("a100") and self.capability != 121

    @property
    def flash_attention(self) -> tuple[int, ...]:
        """The versions of FlashAttention that run on it, the default one first.

        get_flash_attn_version in vllm/v1/attention/backends/fa_utils.py (0.33.0).
        """
        return {9: (3, 4, 2), 10: (4, 2)}.get(self.family, (2,) if self.family >= 8 else ())


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("h100", 90, 79),
        Gpu("h200", 90, 140),
        Gpu("h20", 90, 95),
        Gpu("gh200", 90, 95),
        Gpu("b200", 100, 178),
        Gpu("gb200", 100, 184),
        Gpu("b300", 103, 268),
        Gpu("gb300", 103, 276),
        Gpu("a100", 80, 79),
        Gpu("a100-40gb", 80, 39),
        Gpu("a30", 80, 23),
        Gpu("a10", 86, 22),
        Gpu("a40", 86, 44),
        Gpu("rtxa6000", 86, 47),
        Gpu("rtx3090", 86, 23),
        Gpu("l4", 89, 22),
        Gpu("l40s", 89, 44),
        Gpu("rtx6000ada", 89, 47),
        Gpu("rtx4090", 89, 23),
        Gpu("rtx5090", 120, 31),
        Gpu("rtxpro6000", 120, 95),
        Gpu("gb10", 121, 119),
    )
}
