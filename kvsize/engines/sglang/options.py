"""SGLang's server arguments that decide the cache, with its own names and defaults."""

from __future__ import annotations

from kvsize.engines.options import Option

OPTIONS = (
    Option("page_size", int, None, "tokens of a page: 1, DSA 64, DeepSeek-V4 256", least=1),
    Option(
        "mem_fraction_static",
        float,
        None,
        "with pre_model_load_memory, kv_memory is the memory free after loading; without, the "
        "budget of the pools themselves",
    ),
    Option("pre_model_load_memory", int, None, "bytes free before the weights were loaded"),
    Option("max_total_tokens", int, None, "a limit on the pool's tokens", least=1),
    Option("max_running_requests", int, None, "requests run at once, over all DP ranks", least=1),
    Option("chunked_prefill_size", int, 8192, "tokens of one prefill chunk; -1: none"),
    Option("swa_full_tokens_ratio", float, None, "length of the sliding pool: 0.8, or the model's"),
    Option("disable_hybrid_swa_memory", bool, False, "one pool for sliding layers too"),
    Option("disable_radix_cache", bool, False, "keep no prefixes"),
    Option("disable_overlap_schedule", bool, False, "schedule and run in turns"),
    Option("enable_dp_attention", bool, False, "DP ranks serve their own requests"),
    Option("dp_size", int, 1, "DP ranks, with enable_dp_attention", least=1),
    Option("max_mamba_cache_size", int, None, "recurrent states, over all DP ranks", least=1),
    Option("mamba_full_memory_ratio", float, 0.9, "states' memory to keys' and values'"),
    Option(
        "mamba_ssm_dtype",
        str,
        None,
        "recurrent states (None: the config's, else float32)",
        choices=("float32", "bfloat16", "float16"),
    ),
    Option(
        "mamba_scheduler_strategy",
        str,
        "no_buffer",
        "snapshots of states for prefixes",
        choices=("no_buffer", "extra_buffer", "extra_buffer_lazy"),
    ),
    Option(
        "speculative_algorithm",
        str,
        None,
        "drafting",
        choices=("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"),
    ),
    Option("speculative_num_draft_tokens", int, 4, "tokens verified per step", least=1),
    Option("speculative_num_steps", int, 3, "draft steps", least=1),
    Option("speculative_eagle_topk", int, 1, "branches of the draft", least=1),
    Option("eagle_draft_num_layers", int, None, "layers of the draft (None: the model's)", least=1),
    Option("dsa_prefill_backend", str, None, "trtllm and tilelang read unscaled FP8 rows"),
    Option("dsa_decode_backend", str, None, "trtllm and tilelang read unscaled FP8 rows"),
    Option("prefill_attention_backend", str, None, "nvfp4: flashinfer or trtllm_mha"),
    Option("decode_attention_backend", str, None, "nvfp4: trtllm_mha"),
    Option("native_scale_layout", bool, False, "NVFP4 scales as trtllm_mha reads them on SM100"),
)
