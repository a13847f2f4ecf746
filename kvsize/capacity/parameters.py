"""How many parameters a decoder has, by part, counted from its config.json.

For models whose weight file is not at hand, and for saying which part of the weights a rank
holds whole. The shapes are those of the linear layers that the published architectures have in
common; norms, biases, convolutions and vision encoders are left out, which is well under one
percent of a text model (tests/capacity/test_parameters.py holds it against the presets).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kvsize.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HybridLayer,
    LatentAttention,
    RecurrentState,
)

if TYPE_CHECKING:
    from kvsize.config import Config
    from kvsize.layers import Layer
    from kvsize.model import Model

# Two matrices instead of three: models without a gate in their MLP.
_UNGATED = (
    *("bart", "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt"),
    *("apertus", "nemotron", "opt", "persimmon", "phi", "starcoder2", "t5", "whisper"),
)
_GATED = ("phi3", "phi4", "phimoe", "falcon3")
# Families whose classes tie input and output embeddings where the file does not say.
_TIED = (
    *("bloom", "cohere", "falcon", "gemma", "gpt2", "gpt_bigcode", "granite", "lfm2", "mpt"),
    *("opt", "starcoder2", "t5", "whisper"),
)
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Counts by part, of the whole model.

    `key_value`: projections to the keys and values of attention heads. `latent`: projections down
    to a latent, which every tensor-parallel rank holds whole.
    """

    embedding: int
    output: int
    key_value: int
    latent: int
    attention: int
    dense: int
    experts: int

    @property
    def total(self) -> int:
        """All of them."""
        ends = self.embedding + self.output
        return ends + self.key_value + self.latent + self.attention + self.dense + self.experts


def count(model: Model) -> Parameters | None:
    """The parameters of the text decoder; None where its config lacks vocabulary or width."""
    config = model.config
    hidden = config.optional_count("hidden_size") or config.optional_count("d_model")
    vocabulary = config.optional_count("vocab_size") or model.root.optional_count("vocab_size")
    if hidden is None or vocabulary is None:
        return None
    attention = [_attention(layer, hidden, config) for layer in model.layers]
    dense, experts = _mlps(model, hidden)
    embedding = vocabulary * hidden
    return Parameters(
        embedding=embedding,
        output=0 if _tied(model) else embedding,
        key_value=sum(kv for kv, _, _ in attention),
        latent=sum(latent for _, latent, _ in attention),
        attention=sum(rest for _, _, rest in attention),
        dense=dense,
        experts=experts,
    )


def expert_count(config: Config) -> int:
    """Routed experts per layer; 0 for a dense model."""
    return next((found for key in _EXPERTS if (found := config.count_or(key, 0))), 0)


def _tied(model: Model) -> bool:
    for section in (model.config, model.root):
        if section.has("tie_word_embeddings"):
            return section.flag("tie_word_embeddings")
    return model.config.model_type.startswith(_TIED)


def _attention(layer: Layer, hidden: int, config: Config) -> tuple[int, int, int]:
    """Parameters of one layer's attention: key and value projections, latent ones, the rest."""
    match layer:
        case HybridLayer():
            own = _attention(layer.attention, hidden, config)
            return own[0], own[1], own[2] + _recurrent(layer.recurrent, hidden)
        case RecurrentState():
            return 0, 0, _recurrent(layer, hidden)
        case LatentAttention():
            return _latent(layer, hidden, config)
        case CompressedAttention():
            width = layer.num_attention_heads * layer.head_dim
            rank = config.count_or("q_lora_rank", hidden)
            return 0, hidden * layer.head_dim, hidden * rank + rank * width + width * hidden // 8
        case FullAttention():
            heads = layer.num_attention_heads
            key_value = layer.num_key_value_heads * (layer.head_dim + layer.v_head_dim)
            gates = 2 if config.model_type.startswith(("qwen3_next", "qwen3_5")) else 1
            query = heads * (gates * layer.head_dim + layer.v_head_dim)
            return hidden * key_value, 0, hidden * query
        case CrossAttention():
            key_value = 2 * layer.num_key_value_heads * layer.head_dim
            return hidden * key_value, 0, 2 * hidden * layer.num_attention_heads * layer.head_dim
    return 0, 0, 0


def _latent(layer: LatentAttention, hidden: int, config: Config) -> tuple[int, int, int]:
    heads = layer.num_attention_heads
    query = heads * (layer.qk_nope_head_dim + layer.qk_rope_head_dim)
    rank = config.count_or("q_lora_rank", 0)
    down = hidden * (layer.kv_lora_rank + layer.qk_rope_head_dim) + hidden * rank
    up = layer.kv_lora_rank * heads * (layer.qk_nope_head_dim + layer.v_head_dim)
    rest = (rank or hidden) * query + up + heads * layer.v_head_dim * hidden
    return 0, down, rest


def _recurrent(layer: RecurrentState, hidden: int) -> int:
    """The projections into and out of a state: its convolved channels, a gate, its output."""
    shapes = [state.shape for state in layer.states]
    inner = max((prod(shape[:-1]) for shape in shapes if len(shape) > 2), default=0)
    channels = sum(
        shape[0] for state in layer.states if (shape := state.shape) and "conv" in state.name
    )
    inner = inner or max((shape[0] for shape in shapes), default=0)
    return hidden * (channels + inner) + inner * hidden


def _mlps(model: Model, hidden: int) -> tuple[int, int]:
    """Parameters of the dense MLPs (shared experts and routers too), and of routed experts."""
    config = model.config
    kinds = _mlp_kinds(model)
    matrices = 2 if _ungated(config) else 3
    width = _width(config, hidden)
    experts = expert_count(config)
    expert_width = config.optional_count("moe_intermediate_size") or width
    shared = config.count_or("n_shared_experts", 0) * expert_width
    shared += config.count_or("shared_expert_intermediate_size", 0)
    shared += config.count_or("shared_intermediate_size", 0)
    sparse = kinds.count("moe")
    dense = kinds.count("mlp") * matrices * hidden * width
    dense += sparse * (matrices * hidden * shared + hidden * experts)
    return dense, sparse * experts * matrices * hidden * expert_width


def _ungated(config: Config) -> bool:
    kind = config.model_type
    return kind.startswith(_UNGATED) and not kind.startswith(_GATED)


def _width(config: Config, hidden: int) -> int:
    names = (
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "d_ff",
        "encoder_ffn_dim",
    )
    found = next((value for name in names if (value := config.count_or(name, 0))), 0)
    return found or 4 * hidden


def _mlp_kinds(model: Model) -> list[str]:
    """For every layer "mlp", "moe" or nothing."""
    config = model.config
    layers = len(model.layers)
    pattern = config.text("hybrid_override_pattern")
    if pattern is not None:
        return [{"E": "moe", "-": "mlp"}.get(letter, "") for letter in pattern]
    if all(isinstance(layer, RecurrentState) for layer in model.layers):
        return [""] * layers  # Mamba: the state's projections are the whole block
    if not expert_count(config):
        return ["mlp"] * layers
    first = config.count_or("first_k_dense_replace", 0)
    step = config.count_or("decoder_sparse_step", 1) or 1
    offset = config.count_or("expert_layer_offset", step - 1)
    step = config.count_or("expert_layer_period", step)
    only = set(config.counts("mlp_only_layers") or ())
    if config.model_type == "jamba" and not config.has("expert_layer_period"):
        step, offset = 2, 1
    return [
        "moe" if index >= first and index % step == offset % step and index not in only else "mlp"
        for index in range(layers)
    ]
