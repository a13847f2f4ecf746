"""One module per dialect of config.json: a raw mapping in, a Model out."""

from __future__ import annotations

from itertools import repeat

from kvsize.config import Config
from kvsize.layers import FullAttention
from kvsize.model import Model, Raw


def build(raw: Raw) -> Model:
    """The model that `raw` describes."""
    config = Config(raw.config, raw.where, str(raw.config.get("model_type", "")))
    heads = config.count("num_attention_heads")
    head_dim = config.optional_count("head_dim") or config.count("hidden_size") // heads
    layer = FullAttention(
        num_attention_heads=heads,
        num_key_value_heads=config.count_or("num_key_value_heads", heads, least=1),
        head_dim=head_dim,
        v_head_dim=head_dim,
    )
    return Model(
        name=raw.name,
        source=raw.source,
        where=raw.where,
        model_type=config.model_type,
        config=config,
        root=config,
        layers=tuple(repeat(layer, config.count("num_hidden_layers"))),
        dtype="bfloat16",
        dtype_assumed=True,
        context_limit=config.optional_count("max_position_embeddings"),
        hub_id=raw.hub_id,
        revision=raw.revision,
        weight_bytes=raw.weight_bytes,
    )
