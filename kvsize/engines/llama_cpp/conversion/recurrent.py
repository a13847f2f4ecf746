"""Recurrent states, as llama.cpp's converter writes them.

Each rule names the class in `conversion/` (llama.cpp 0c1e57098) that it follows.
"""

from __future__ import annotations

from kvsize.config import Config
from kvsize.engines.llama_cpp.conversion.common import Metadata, has_states, stated, unknown
from kvsize.layers import FullAttention, RecurrentState
from kvsize.model import Model

# The context length that the converter writes for models without positions.
_UNLIMITED = 2**20


def mamba(model: Model) -> Metadata:
    """MambaModel: it reads the file itself, without the class's defaults."""
    config = model.config
    hidden = config.count("hidden_size")
    return {
        "context_length": _UNLIMITED,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": stated(config, "conv_kernel", 4),
        "ssm.inner_size": stated(config, "intermediate_size", 2 * hidden),
        "ssm.state_size": stated(config, "state_size", 16),
    }


def mamba2(model: Model) -> Metadata:
    """Mamba2Model: it reads the file itself, without the class's defaults."""
    config = model.config
    inner = stated(config, "expand", 2) * config.count("hidden_size")
    return {
        "context_length": _UNLIMITED,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": stated(config, "conv_kernel", 4),
        "ssm.inner_size": stated(config, "intermediate_size", inner),
        "ssm.state_size": stated(config, "state_size", 128),
        "ssm.group_count": stated(config, "n_groups", 1),
    }


def falcon_h1(model: Model) -> Metadata:
    """FalconH1Model: attention and a Mamba 2 state in every layer."""
    config = model.config
    inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
    return _mamba_keys(config) | {"ssm.inner_size": config.count_or("mamba_d_ssm", inner, least=1)}


def granite_hybrid(model: Model) -> Metadata:
    """GraniteHybridModel: a model without state layers becomes plain granite."""
    config = model.config
    if not has_states(model):
        return {}
    inner = config.count_or("mamba_expand", 2) * config.count("hidden_size")
    rope = config.model_type == "bamba"
    found = _mamba_keys(config) | {"ssm.inner_size": inner}
    return found if rope else found | {"context_length": _UNLIMITED}


def jamba(model: Model) -> Metadata:
    """JambaModel: Mamba 1 states between attention layers."""
    config = model.config
    return {
        "ssm.conv_kernel": config.count_or("mamba_d_conv", 4),
        "ssm.inner_size": config.count_or("mamba_expand", 2) * config.count("hidden_size"),
        "ssm.state_size": config.count_or("mamba_d_state", 16),
    }


def nemotron_h(model: Model) -> Metadata:
    """NemotronHModel: blocks with neither a state nor heads have a feed-forward length."""
    config = model.config
    feed_forward = config.count("intermediate_size", "moe_intermediate_size")
    return {
        "feed_forward_length": [
            0 if isinstance(layer, RecurrentState | FullAttention) else feed_forward
            for layer in model.layers
        ],
        "ssm.conv_kernel": config.count("conv_kernel", "mamba_d_conv"),
        "ssm.inner_size": config.count("mamba_num_heads") * config.count("mamba_head_dim"),
        "ssm.state_size": config.count("ssm_state_size"),
        "ssm.group_count": config.count("n_groups", "mamba_n_groups"),
    }


def short_conv(model: Model) -> Metadata:
    """LFM2Model, LFM2MoeModel: a short convolution where there is no attention."""
    return {"shortconv.l_cache": model.config.count("conv_L_cache")}


def delta_net(model: Model) -> Metadata:
    """Qwen3NextModel: gated delta net layers, listed one by one."""
    config = model.config
    values = config.count("linear_num_value_heads") * config.count("linear_value_head_dim")
    return {
        "ssm.conv_kernel": config.count("linear_conv_kernel_dim"),
        "ssm.inner_size": values,
        "ssm.state_size": config.count("linear_key_head_dim"),
        "ssm.group_count": config.count("linear_num_key_heads"),
        "attention.recurrent_layers": [isinstance(layer, RecurrentState) for layer in model.layers],
        # Unlike in other hybrids, every layer states the attention's heads.
        "attention.head_count_kv": config.count("num_key_value_heads"),
    }


def qwen4_exp(model: Model) -> Metadata:
    """Qwen4ExpTextModel: an indexer, and n-gram layers (numbered from 1 in the file)."""
    config = model.config
    found: Metadata = {
        "attention.indexer.key_length": config.count("indexer_head_dim", "index_head_dim"),
        "hyper_connection.count": config.count("hc_count"),
    }
    layers = config.counts("ple_layer_ids", least=1)
    if layers:
        found |= {
            "ple.layers": [number - 1 for number in layers],
            "ple.ngram_size": config.count("ngram_size"),
            "ple.conv_kernel": config.count("ple_conv_kernel_size"),
        }
    return found


def kimi_delta(model: Model) -> Metadata:
    """KimiLinearModel: square states per head, a convolution over queries, keys and values."""
    states = next(
        (layer.states for layer in model.layers if isinstance(layer, RecurrentState)), None
    )
    if states is None:
        raise unknown(model, "it has no layers of Kimi delta attention")
    convolution, square = states
    return {"ssm.conv_kernel": convolution.shape[-1], "kda.head_dim": square.shape[-1]}


def _mamba_keys(config: Config) -> Metadata:
    return {
        "ssm.conv_kernel": config.count("mamba_d_conv"),
        "ssm.state_size": config.count("mamba_d_state"),
        "ssm.group_count": config.count("mamba_n_groups"),
    }
