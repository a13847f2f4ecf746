"""How many GPUs do what: one way to lay a model out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """TP × PP × DP (× DCP); a replica is `ranks` GPUs.

    `attention_dp`: the data-parallel ranks are the tensor-parallel ones (SGLang's
    enable_dp_attention, TensorRT-LLM's enable_attention_dp), so they need no further GPUs.
    `shared_experts`: the data-parallel replicas of a MoE model share its routed experts (vLLM).
    `layer_split`: GPUs over which the layers of one process spread, their memory one budget
    (llama.cpp).
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    attention_dp: bool = False
    shared_experts: bool = False
    layer_split: int = 1

    @property
    def ranks(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        replicas = 1 if self.attention_dp else self.data_parallel_size
        return self.ranks * replicas * self.layer_split

    @property
    def attention_ranks(self) -> int:
        """Tensor-parallel ranks that share the heads of one sequence."""
        if self.attention_dp:
            return max(1, self.tensor_parallel_size // self.data_parallel_size)
        return self.tensor_parallel_size

    @property
    def expert_ranks(self) -> int:
        """Ranks of one pipeline stage that share the routed experts."""
        replicas = self.data_parallel_size if self.shared_experts and not self.attention_dp else 1
        return self.tensor_parallel_size * replicas

    @property
    def label(self) -> str:
        """`TP 4 × PP 2 × DP 1`, parts of 1 left out."""
        dp = "DP attention" if self.attention_dp else "DP"
        parts = [
            f"{name} {size}"
            for name, size in (
                ("TP", self.tensor_parallel_size),
                ("PP", self.pipeline_parallel_size),
                (dp, self.data_parallel_size),
                ("DCP", self.decode_context_parallel_size),
                ("layer split", self.layer_split),
            )
            if size > 1
        ]
        return " × ".join(parts) or "one GPU"
