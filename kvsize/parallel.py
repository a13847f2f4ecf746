"""How a model's layers, heads and sequences spread over GPUs: arithmetic only, no engine.

Ranks are numbered as the engines number them: rank = stage × tensor_parallel_size + shard.
"""

from __future__ import annotations

from kvsize.units import ceil_div


def heads_per_rank(num_key_value_heads: int, tensor_parallel_size: int) -> int:
    """KV heads one rank holds where fewer heads than ranks are replicated: never below one.

    This is the rule of SGLang (`ModelConfig.get_num_kv_heads`, 0.5.23) and vLLM: the division is
    floored, so a count that does not divide loses its remainder.
    """
    return max(1, num_key_value_heads // tensor_parallel_size)


def heads_per_rank_ceil(num_key_value_heads: int, tensor_parallel_size: int) -> int:
    """KV heads on the fullest rank where the division is rounded up (TensorRT-LLM, exllamav3)."""
    return ceil_div(num_key_value_heads, tensor_parallel_size)


def spread(count: int, parts: int) -> tuple[int, ...]:
    """`count` things over `parts` ranks as evenly as it goes, the first ranks taking one more."""
    whole, rest = divmod(count, parts)
    return tuple(whole + (part < rest) for part in range(parts))


def stages(num_layers: int, pipeline_parallel_size: int, *, extra: str) -> tuple[range, ...]:
    """The layers of each pipeline stage; `extra` says which stages take the remainder.

    "last": the last stages (SGLang's `get_pp_indices`); "first": the first ones (TensorRT-LLM's
    `Mapping.pp_layers`).
    """
    counts = spread(num_layers, pipeline_parallel_size)
    if extra == "last":
        counts = counts[::-1]
    starts = [sum(counts[:stage]) for stage in range(pipeline_parallel_size)]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))


def replication_note(num_key_value_heads: int, tensor_parallel_size: int) -> str | None:
    """A sentence when tensor parallelism beyond the KV heads saves no cache, else None."""
    if tensor_parallel_size <= num_key_value_heads:
        return None
    return (
        f"{num_key_value_heads} KV heads over {tensor_parallel_size} tensor-parallel ranks: each "
        f"head is stored {ceil_div(tensor_parallel_size, num_key_value_heads)} times, and a rank "
        f"holds as much as with {num_key_value_heads} ranks."
    )


def latent_note(tensor_parallel_size: int, remedy: str) -> str | None:
    """A sentence when tensor parallelism replicates an MLA latent, else None."""
    if tensor_parallel_size == 1:
        return None
    return (
        f"The MLA latent cannot be split by heads: all {tensor_parallel_size} tensor-parallel "
        f"ranks store it whole; {remedy}."
    )


def fullest_rank_note(rank_bytes: tuple[int, ...]) -> str | None:
    """A sentence that names the rank with the most bytes when ranks differ, else None."""
    most = max(rank_bytes, default=0)
    if len(set(rank_bytes)) <= 1:
        return None
    return (
        f"Rank {rank_bytes.index(most)} of {len(rank_bytes)} is the fullest, with {most:,} bytes; "
        f"the emptiest holds {min(rank_bytes):,}."
    )
