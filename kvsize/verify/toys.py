"""Small configs of any model type: the class's own fields, with toy numbers for its dimensions.

Only the keys that have to change are given, as in files on the Hub: the class fills in the rest.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvsize.verify.specials import SPECIAL


@dataclass(frozen=True, slots=True)
class Dims:
    """The dimensions of one toy; what is None is left to the class."""

    hidden: int | None = 64
    heads: int | None = 4
    kv_heads: int | None = 2
    head_dim: int | None = 16
    layers: int | None = 4
    window: int | None = 8
    ffn: int = 48


VOCAB, POSITIONS = 128, 512
SMALL = Dims(hidden=32, heads=2, kv_heads=2, layers=2, ffn=32)


def _names(text: str, value: str | int) -> dict[str, str | int]:
    return dict.fromkeys(text.split(), value)


# Keys that size only what is computed and never what is cached.
FREE: dict[str, str | int] = {
    **_names(
        """intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff dim_ff dff n_inner
        moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size feed_forward_size
        expert_ffn_hidden_size shared_intermediate_size moe_shared_expert_intermediate_size
        intermediate_size_mlp dense_intermediate_size shared_experts_intermediate_size d_inner
        alignment_intermediate_size share_expert_dim""",
        "ffn",
    ),
    **_names("num_experts n_routed_experts num_local_experts moe_num_experts", 4),
    **_names("num_experts_per_tok num_experts_per_token moe_topk moe_k top_k_experts moe_top_k", 2),
    **_names(
        """n_group topk_group n_shared_experts num_shared_experts moe_num_shared_experts
        num_expert_group""",
        1,
    ),
}
# Field of a config class → the dimension it has in a toy, or a number.
FIELDS: dict[str, str | int] = FREE | {
    **_names(
        """hidden_size d_model n_embd emb_dim embed_dim embedding_size word_embed_proj_dim
        backbone_hidden_size input_embedding_size output_embedding_size""",
        "hidden",
    ),
    **_names(
        """num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads
        decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads
        encoder_num_attention_heads decoder_num_attention_heads linear_num_heads
        swa_num_attention_heads""",
        "heads",
    ),
    **_names(
        """num_key_value_heads num_kv_heads encoder_num_key_value_heads
        decoder_num_key_value_heads swa_num_key_value_heads cross_num_key_value_heads""",
        "kv_heads",
    ),
    **_names("head_dim d_kv dim_head kv_channels attention_head_dim", "head_dim"),
    **_names(
        """num_hidden_layers n_layer n_layers num_layers layers encoder_layers decoder_layers
        num_encoder_layers num_decoder_layers encoder_num_hidden_layers
        decoder_num_hidden_layers""",
        "layers",
    ),
    **_names(
        "sliding_window attention_chunk_size sliding_window_size attention_window_size", "window"
    ),
    **_names(
        """max_position_embeddings n_positions n_ctx max_target_positions max_source_positions
        max_seq_len max_sequence_length context_length""",
        POSITIONS,
    ),
    "kv_lora_rank": 24,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 10,
    "mamba_d_state": 8,
    "state_size": 8,
    "ssm_state_size": 8,
    "mamba_chunk_size": 16,
    "chunk_size": 16,
}
# Set only where the class has a value of its own: a number would switch something on.
OPTIONAL = {
    "head_dim",
    "sliding_window",
    "attention_chunk_size",
    "q_lora_rank",
    "n_inner",
    "encoder_num_key_value_heads",
    "decoder_num_key_value_heads",
}
TOWER = FIELDS | {"depth": 2, "image_size": 32, "patch_size": 8}
TOWERS = re.compile(
    r"vision|audio|speech|codec|acoustic|semantic|vocoder|qformer|talker|token2wav|image|vq"
    r"|encoder_config|bridge|projector|perceiver|resampler|depth|flow|diffusion|backbone|adaptor"
)
TOKEN = re.compile(r"token_id$|token_index$|_tok_id$")


def toy_config(model_type: str, dims: Dims, *, thin_towers: bool = False) -> dict[str, Any]:
    """A config.json's content for `model_type`, or for its decoder alone (`bart/causal`).

    `thin_towers`: only the layers of vision and audio towers are cut, where the class demands
    that their widths agree.
    """
    name, _, causal = model_type.partition("/")
    made = {
        "model_type": name,
        **_section(CONFIG_MAPPING[name], dims, "thin" if thin_towers else ""),
    }
    if causal:
        made |= {"is_decoder": True, "is_encoder_decoder": False}
    elif "is_decoder" in CONFIG_MAPPING[name].__dataclass_fields__ and not _seq2seq(name):
        # Without it, classes made for encoding let a token see what follows.
        made |= {"is_decoder": True}
    return made


def _seq2seq(name: str) -> bool:
    field = CONFIG_MAPPING[name].__dataclass_fields__["is_encoder_decoder"]
    return bool(field.default)


def _section(cls: Any, dims: Dims, tower: str) -> dict[str, Any]:
    made = dict(_fields(cls, dims, tower))
    if "kv_lora_rank" in made:
        # Latent attention has one key per head, and head_dim is the rotary part's.
        made |= (
            {"num_key_value_heads": made["num_attention_heads"]}
            if "num_key_value_heads" in made
            else {}
        )
        made |= {"head_dim": made["qk_rope_head_dim"]} if "head_dim" in made else {}
    for key, spec in cls.sub_configs_defaults.items():
        nested, fixed = spec.config_class, hasattr(spec.config_class, "model_type")
        if not fixed:
            nested = CONFIG_MAPPING[spec.model_type] if spec.model_type else None
        if nested is not None:
            inner = _inner(key, tower)
            made[key] = _section(nested, SMALL if inner == "tower" else dims, inner)
            made[key] |= {} if fixed else {"model_type": spec.model_type}
    special = SPECIAL.get(cls.model_type)
    return merged(made, special(dims)) if special else made


def _inner(key: str, tower: str) -> str:
    """Whether the section is a tower (all of it small, or thin: with few layers only)."""
    if tower in {"tower", "thin tower"} or not TOWERS.search(key):
        return tower
    return "thin tower" if tower == "thin" else "tower"


def _fields(cls: Any, dims: Dims, tower: str) -> Iterator[tuple[str, Any]]:
    tokens = iter(range(VOCAB - 1, 90, -1))
    for field in dataclasses.fields(cls):
        name, default = field.name, field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        rule = (TOWER if tower == "tower" else FIELDS).get(name)
        if tower == "thin tower" and rule != "layers":
            continue
        if rule is not None and not (default is None and name in OPTIONAL):
            value = getattr(dims, rule) if isinstance(rule, str) else rule
            if value is not None:
                yield name, value
        elif name.endswith("vocab_size") and isinstance(default, int):
            yield name, VOCAB
        elif TOKEN.search(name) and (isinstance(default, list) or _beyond(default)):
            yield name, next(tokens)


def _beyond(default: object) -> bool:
    return isinstance(default, int) and default >= VOCAB


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` in place, section by section; a change to ... removes the key."""
    result = dict(base)
    for key, value in changes.items():
        if value is ...:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result
