"""vLLM's options in vLLM's own names, with vLLM's defaults (engine_args of 0.33.0).

Names in capitals are environment variables. The longest sequence (max_model_len) is `context`.
"""

from __future__ import annotations

from kvsize.engines.options import Option
from kvsize.engines.vllm.backend_table import BACKENDS
from kvsize.engines.vllm.gpus import GPUS

_STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")

OPTIONS = (
    Option("gpu", str, "h100", "the kind of GPU, which decides defaults", tuple(GPUS)),
    Option("usage_context", str, "server", "vllm serve, or the LLM class", ("server", "llm")),
    Option(
        "dtype",
        str,
        "auto",
        "the model's dtype",
        ("auto", "half", "float16", "bfloat16", "float", "float32"),
    ),
    Option("block_size", int, None, "tokens per block; None: what the backend takes", least=1),
    Option("attention_backend", str, None, "fixes the attention backend", tuple(BACKENDS)),
    Option("max_num_batched_tokens", int, None, "tokens per step; None: by GPU", least=1),
    Option("max_num_seqs", int, None, "sequences per step; None: by GPU", least=1),
    Option("enable_chunked_prefill", bool, None, "None: on, but for encoder-decoder models"),
    Option("enable_prefix_caching", bool, None, "None: on where the model supports it"),
    Option("async_scheduling", bool, None, "overlap scheduling with running; None: on"),
    Option("disable_hybrid_kv_cache_manager", bool, None, "cache windowed layers as full ones"),
    Option("disable_sliding_window", bool, False, "cap the length at the window instead"),
    Option("decode_context_parallel_size", int, 1, "ranks that share a sequence's tokens", least=1),
    Option("data_parallel_size", int, 1, "engines; every figure is for one of them", least=1),
    Option("enable_expert_parallel", bool, False, "does not change the cache"),
    Option("num_gpu_blocks_override", int, None, "fixes the number of blocks", least=1),
    Option("kv_cache_memory_bytes", int, None, "replaces the memory given, per rank", least=1),
    Option("gpu_memory_utilization", float, 0.92, "decides the memory, not what it holds"),
    Option("enforce_eager", bool, False, "decides the memory, not what it holds"),
    Option("kv_cache_dtype_skip_layers", list, (), "layers kept in the model's dtype"),
    Option("mamba_cache_dtype", str, "auto", "dtype of recurrent states", _STATE_DTYPES),
    Option("mamba_ssm_cache_dtype", str, "auto", "dtype of their SSM part", _STATE_DTYPES),
    Option("mamba_block_size", int, None, "tokens per state; None: the block size", least=1),
    Option("speculative_config", dict, None, "method, model, num_speculative_tokens"),
    Option("language_model_only", bool, False, "serve a multimodal model without its inputs"),
    Option("VLLM_KV_CACHE_LAYOUT", str, None, "LBNHC, LBHNC or a block-outermost layout"),
    Option("VLLM_PP_LAYER_PARTITION", str, None, "layers per pipeline stage, as in 10,22"),
    Option("VLLM_MLA_DISABLE", bool, False, "cache latent attention as padded heads"),
    Option(
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
        bool,
        None,
        "let chunked layers give blocks back; None: by version",
    ),
)
