"""What each layer of a model must remember: one small record per kind.

A record states dimensions in config.json's words and nothing about how an engine stores them:
how many tokens a window keeps, what is rounded and what is a view are the engine's business.
Shapes are per sequence; `None` means "no limit" or "the model's own dtype".
"""

from __future__ import annotations

from kvsize.record import Record


class TokenTensor(Record, kw_only=True):
    """One more vector a layer keeps for every token it remembers (an indexer's keys, positions).

    `positions`: token positions, which one forward pass shares among all sequences and axes, and
    which are kept for the tokens seen even in a cache of fixed length.
    """

    name: str
    width: int
    dtype: str | None = None
    shape: str = "[batch, seq_len, {width}]"
    positions: bool = False


class State(Record, kw_only=True):
    """One tensor of fixed size that a layer keeps for a sequence, however long it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None = None


class FullAttention(Record, kw_only=True):
    """Keys `[batch, num_key_value_heads, seq_len, head_dim]` and values, of every token."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    extras: tuple[TokenTensor, ...] = ()


class SlidingAttention(FullAttention, kw_only=True):
    """Full attention whose queries look back at most `sliding_window` tokens."""

    sliding_window: int


class ChunkedAttention(FullAttention, kw_only=True):
    """Attention inside chunks of `attention_chunk_size` tokens (Llama 4)."""

    attention_chunk_size: int


class LatentAttention(Record, kw_only=True):
    """MLA: one latent of kv_lora_rank and one rotary key of qk_rope_head_dim per token.

    The head dimensions say what the latent expands to (DeepSeek-V2 paper, section 2.1).
    """

    num_attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    sliding_window: int | None = None
    extras: tuple[TokenTensor, ...] = ()


class CompressedAttention(Record, kw_only=True):
    """DeepSeek-V4: a window of raw keys plus one compressed row per `compress_rate` tokens.

    `index_head_dim` > 0: the overlapping kind (CSA), which also keeps an indexer's rows.
    """

    num_attention_heads: int
    head_dim: int
    sliding_window: int
    compress_rate: int
    index_head_dim: int = 0


class ReferenceAttention(FullAttention, kw_only=True):
    """Keeps the whole prompt for ever and a window of what is generated (Unlimited-OCR)."""

    sliding_window: int


class RecurrentState(Record, kw_only=True):
    """Linear attention, SSM or convolution: states of fixed size instead of keys and values."""

    states: tuple[State, ...]


class HybridLayer(Record, kw_only=True):
    """Attention and a recurrent state side by side in one layer (Falcon-H1, Zamba, Zaya)."""

    attention: FullAttention
    recurrent: RecurrentState


class CrossAttention(Record, kw_only=True):
    """Keys and values of the encoder's (or an image's) tokens, stored once, never growing.

    `sliding_window`: of the decoder's own layer, where the cache keeps no more of the encoder.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int | None = None


class NoCache(Record, kw_only=True):
    """Remembers nothing; `reason` says why (an MLP block, keys shared with another layer)."""

    reason: str


Layer = (
    FullAttention
    | LatentAttention
    | CompressedAttention
    | RecurrentState
    | HybridLayer
    | CrossAttention
    | NoCache
)
"""Any kind above; sliding, chunked and reference attention are kinds of FullAttention."""
