"""What one layer keeps in vLLM's paged pool: one record per kind, which knows its own pages.

The pool is cut into blocks; a layer stores `block_size` tokens in each block it owns, in one
page of `page_bytes`. Rules and names follow vllm/v1/kv_cache_interface.py (0.33.0); all sizes
are per rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from kvsize.units import ceil_div, pad


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one request of the longest length may hold at once.

    `in_flight_tokens`: tokens scheduled but not settled (a window's blocks are freed late).
    `retained_tokens`: tokens kept below a window for multi-module speculation.
    """

    max_model_len: int
    in_flight_tokens: int
    encoder_tokens: int
    retained_tokens: int = 0
    decode_context_parallel_size: int = 1
    checkpoints_states: bool = False
    """Prefix caching keeps copies of recurrent states ("align" mode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One layer's cache: `block_size` tokens to a page, `padded_bytes` where it is padded."""

    block_size: int
    padded_bytes: int | None = None
    dcp_sharded: bool = False

    @property
    def natural_bytes(self) -> int:
        """Bytes of one page before padding."""
        raise NotImplementedError

    @property
    def page_bytes(self) -> int:
        """Bytes of one page as allocated."""
        return self.natural_bytes if self.padded_bytes is None else self.padded_bytes

    @property
    def family(self) -> str:
        """Specs of one family may share a block table although their pages differ."""
        raise NotImplementedError

    @property
    def stride_alignment(self) -> int:
        """Bytes that the distance between two blocks must be a multiple of."""
        return 1

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks that one request of `demand.max_model_len` tokens holds."""
        raise NotImplementedError

    def resized(self, block_size: int) -> Spec:
        """The same spec with another number of tokens to a page."""
        return replace(self, block_size=block_size)

    def padded(self, page_bytes: int) -> Spec:
        """The same spec with its page padded to `page_bytes`."""
        return replace(self, padded_bytes=page_bytes)

    def merge_key(self) -> object:
        """Specs with equal keys become one group; a full layer's window does not matter."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec(Spec):
    """Keys and values of `head_size` and `head_size_v` per head and token.

    `cell_bytes`: bytes of one stored state (a token, or `tokens_per_state` tokens) over all
    heads of this rank. `packing`: how they are packed, so that layers of different dtypes do
    not merge. `alignment`: pages are rounded up to it (DeepSeek-V4).
    """

    dcp_sharded: bool = True
    num_kv_heads: int
    head_size: int
    head_size_v: int
    cell_bytes: int
    packing: str
    tokens_per_state: int = 1
    alignment: int | None = None
    row_bytes: int | None = None
    """Kernels that read the cache as flat rows need blocks whole rows apart."""
    kernel_block: int | None = None
    """Kernels that split a block read pieces of up to this many tokens."""

    @property
    def natural_bytes(self) -> int:
        """Bytes of one page before padding."""
        page = self.block_size // self.tokens_per_state * self.cell_bytes
        return page if self.alignment is None else pad(page, self.alignment)

    @property
    def stride_alignment(self) -> int:
        """Bytes that the distance between two blocks must be a multiple of."""
        if self.row_bytes is not None:
            return self.row_bytes
        if self.kernel_block is None:
            return 1
        piece = gcd(self.kernel_block, self.block_size)
        return 1 if piece == self.block_size else self.resized(piece).page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    """Keeps every token.

    `sliding_window` and `attention_chunk_size` only record how a layer attends that is cached as
    a full one (hybrid KV cache manager off).
    """

    sliding_window: int | None = None
    attention_chunk_size: int | None = None

    @property
    def family(self) -> str:
        """All full layers, latent ones included, share a block table."""
        return "full"

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks for every token; a DCP rank keeps its share of them."""
        shards = demand.decode_context_parallel_size if self.dcp_sharded else 1
        return ceil_div(ceil_div(demand.max_model_len, shards), self.block_size)

    def merge_key(self) -> object:
        """Full layers merge whatever window they record."""
        return replace(self, sliding_window=None, attention_chunk_size=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    """One latent vector per token, the same on every tensor-parallel rank.

    `role`: "index" for a sparse indexer's keys; "leader" for a layer with its own indexer.
    """

    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """Keeps the last `sliding_window` tokens."""

    sliding_window: int

    @property
    def family(self) -> str:
        """Windows of one size share a block table."""
        return f"{type(self).__name__} {self.sliding_window}"

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks of the window and of what is in flight; it may start inside one, hence + 1."""
        tokens = self.sliding_window - 1 + demand.retained_tokens + demand.in_flight_tokens
        return ceil_div(min(tokens, demand.max_model_len), self.block_size) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    """A window over latent vectors (DeepSeek-V4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """Keeps the current chunk of `attention_chunk_size` tokens (Llama 4)."""

    attention_chunk_size: int

    @property
    def family(self) -> str:
        """Chunks of one size share a block table."""
        return f"chunked {self.attention_chunk_size}"

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks of one chunk and of what is in flight."""
        tokens = self.attention_chunk_size + demand.in_flight_tokens
        return ceil_div(min(tokens, demand.max_model_len), self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec):
    """Keys and values of the encoder's tokens."""

    @property
    def family(self) -> str:
        """Cross-attention layers share a block table."""
        return "cross"

    def blocks_needed(self, demand: Demand) -> int:
        """Blocks for as many encoder tokens as one step may hold."""
        return ceil_div(demand.encoder_tokens, self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec(Spec):
    """A recurrent state of fixed size, one page whatever the block size.

    `state_shapes` and `state_dtypes` only tell states apart; `state_bytes` is their size.
    """

    state_shapes: tuple[tuple[int, ...], ...]
    state_bytes: int
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0

    @property
    def natural_bytes(self) -> int:
        """Bytes of the states."""
        return self.state_bytes

    @property
    def family(self) -> str:
        """States of one page size share a block table."""
        return f"mamba {self.page_bytes} {self.speculative_blocks} {self.checkpoint_blocks}"

    def blocks_needed(self, demand: Demand) -> int:
        """The running state and one per speculative token.

        With prefix caching one more, and the checkpoint that the prefill kernel exports.
        """
        if demand.checkpoints_states:
            return 2 + self.speculative_blocks + self.checkpoint_blocks
        return 1 + self.speculative_blocks
