"""How many f32 elements a recurrent layer keeps for one sequence.

Source: `llama_hparams::n_embd_r`, `n_embd_s` and `ple_conv_state` in `src/llama-hparams.cpp`,
llama.cpp 0c1e57098. The states are f32 whatever the cache types (`create_memory`).
"""

from __future__ import annotations

from kvsize.gguf.architectures import State
from kvsize.gguf.keys import Keys


def conv_elements(keys: Keys, state: State | None, n_head: int) -> int:
    """`llama_hparams::n_embd_r`: elements of one layer's convolution or token shift."""
    match state:
        case State.MAMBA | State.MAMBA2:
            groups = keys.count("ssm.group_count") if state is State.MAMBA2 else 0
            width = keys.count("ssm.inner_size") + 2 * groups * keys.count("ssm.state_size")
            return max(0, keys.count("ssm.conv_kernel") - 1) * width
        case State.RWKV:
            return keys.count("token_shift_count", 2) * keys.count("embedding_length")
        case State.SHORT_CONV:
            return keys.count("embedding_length") * max(0, keys.count("shortconv.l_cache") - 1)
        case State.KDA:
            kernel = keys.count("ssm.conv_kernel")
            width = n_head * keys.count("kda.head_dim")
            return 3 * (kernel - 1 if kernel > 0 else 3) * width
        case State.LINEAR | None:
            return 0


def state_elements(keys: Keys, state: State | None, n_head: int, n_embd_head_k: int) -> int:
    """`llama_hparams::n_embd_s`: elements of one layer's recurrent state."""
    match state:
        case State.MAMBA | State.MAMBA2:
            return keys.count("ssm.state_size") * keys.count("ssm.inner_size")
        case State.RWKV:
            return keys.count("embedding_length") * keys.count("wkv.head_size")
        case State.KDA:
            return keys.count("kda.head_dim") ** 2 * n_head
        case State.LINEAR:
            return n_embd_head_k**2 * n_head
        case State.SHORT_CONV | None:
            return 0


def ple_conv_state(keys: Keys, arch: str) -> int:
    """`llama_hparams::ple_conv_state`: elements of one PLE layer's n-gram history."""
    if arch != "qwen4exp" or not keys.has("ple.layers"):
        return 0
    rows = (keys.count("ple.conv_kernel") - 1) * keys.count("ple.ngram_size")
    return rows * keys.count("hyper_connection.count") * keys.count("embedding_length")
