"""Reference rows beside the repository (`../shared/oracles`), and the models they name."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kvsize

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "oracles"

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840,
}
DEEPSEEK_V4 = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "sliding_window": 128,
    "hidden_size": 4096,
    "compress_ratios": [0, 4, 128, 4],
    "max_position_embeddings": 1048576,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama2_7b": LLAMA
    | {
        "torch_dtype": "float16",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "hidden_size": 4096,
        "max_position_embeddings": 4096,
        "vocab_size": 32000,
    },
    "llama3_8b": LLAMA
    | {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
    },
    "llama3_70b": LLAMA
    | {
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 8192,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
    },
    "qwen2_5_0_5b": {
        "model_type": "qwen2",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "hidden_size": 896,
        "max_position_embeddings": 32768,
        "vocab_size": 151936,
    },
    "qwen3_30b_a3b": {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "hidden_size": 2048,
        "max_position_embeddings": 40960,
        "vocab_size": 151936,
    },
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK
    | {
        "model_type": "deepseek_v32",
        "architectures": ["DeepseekV32ForCausalLM"],
        "index_head_dim": 128,
        "index_n_heads": 64,
        "index_topk": 2048,
    },
    "deepseek_v4": DEEPSEEK_V4,
    "gpt_oss_20b": {
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_size": 2880,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "max_position_embeddings": 131072,
        "vocab_size": 201088,
    },
    "gemma3_12b": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "hidden_size": 3840,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
        "vocab_size": 262208,
    },
    "qwen3_next_80b": {
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2048,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 262144,
        "vocab_size": 151936,
    },
}


@cache
def _loaded(config: str) -> kvsize.Model:
    return kvsize.load(json.loads(config))


def load(model: str | dict[str, Any]) -> kvsize.Model:
    """The model of a name above, or of a config; loaded once."""
    return _loaded(json.dumps(MODELS[model] if isinstance(model, str) else model))


def rows(engine: str) -> list[dict[str, Any]]:
    """The reference rows of `engine`; empty where the file is not there."""
    path = FOLDER / f"{engine}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def replay(engine: str, counter: str = "case") -> pytest.MarkDecorator:
    """Parametrize a test over `row`; one skipped case where the file is not there."""
    found = rows(engine)
    reason = f"{FOLDER}/{engine}.jsonl is not there"
    if not found:
        return pytest.mark.parametrize("row", [pytest.param({}, marks=pytest.mark.skip(reason))])
    ids = [f"{index}-{row[counter]}" for index, row in enumerate(found)]
    return pytest.mark.parametrize("row", found, ids=ids)
