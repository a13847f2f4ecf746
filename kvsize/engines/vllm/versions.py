"""What changed between vLLM versions, where it is certain: epochs as data.

Sources: the wheels of the versions named, and the public threads vllm#40691 (token line of
hybrid models) and vllm#43308 (Gemma 4 between 0.20 and 0.21).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from kvsize.errors import UsageError

LATEST = "0.33.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one vLLM version that decide blocks and the logged figures."""

    version: str
    capacity_line: str = "blocks"
    """How "GPU KV cache size" is made: `blocks` × block size (one group), `groups` (blocks //
    groups × smallest block size), or `concurrency` × longest length."""
    balance: Fraction | None = None
    """Group buckets closer in size than this factor are padded to the larger one."""
    windows: bool = False
    """Windowed layers give blocks back (the hybrid KV cache manager)."""
    chunks: bool = False
    """Chunked layers do too."""
    concurrent_steps: bool = False
    """In-flight tokens count every concurrent batch, not one."""
    null_block: int = 0
    """Blocks held back in the check whether one request fits."""
    hybrid_prefix_caching: bool = False
    """Prefix caching is on by default for models with recurrent states."""
    checkpoints: bool = False
    """Prefill kernels may export a checkpoint of recurrent states."""
    backend_block_size: bool = False
    """The default block size is the attention backend's, not always 16."""
    latent_alignment: int = 64
    """Hybrid models with latent attention: the block size is a multiple of this."""


# Each epoch: the first version with these values. Later entries keep what earlier ones set.
_EPOCHS: tuple[tuple[tuple[int, ...], dict[str, object]], ...] = (
    ((0, 8), {}),
    ((0, 9, 2), {"capacity_line": "groups", "windows": True}),
    ((0, 12), {"balance": Fraction(5, 4)}),
    ((0, 14), {"chunks": True}),
    ((0, 18), {"balance": Fraction(3, 2), "backend_block_size": True}),
    ((0, 21), {"capacity_line": "concurrency"}),
    ((0, 26), {"concurrent_steps": True}),
    ((0, 28), {"hybrid_prefix_caching": True}),
    ((0, 29), {"null_block": 1, "checkpoints": True}),
    ((0, 33), {"latent_alignment": 128}),
)
VERSIONS = tuple(
    LATEST if since == (0, 33) else ".".join(map(str, (*since, 0)[:3]))
    for since, _ in reversed(_EPOCHS)
)


def release(version: str) -> tuple[int, ...]:
    """`0.27.1` as numbers to compare; UsageError for what is no version."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        msg = f"vllm: '{version}' is not a version."
        raise UsageError(msg, f"modelled are 0.8.0 to {LATEST}.")
    return tuple(int(part) for part in found.groups(default="0"))


def rules_for(version: str | None) -> Rules:
    """The rules of a vLLM `version` (None: the newest modelled).

    Raises UsageError for what is no version, or is older than 0.8 or newer than modelled.
    """
    text = version or LATEST
    numbers = release(text)
    if not _EPOCHS[0][0] <= numbers < (0, 34):
        msg = f"vllm: version '{text}' is not modelled."
        raise UsageError(msg, f"modelled are 0.8.0 to {LATEST}.")
    rules = Rules(version=text)
    for since, values in _EPOCHS:
        if since <= numbers:
            rules = replace(rules, **values)  # type: ignore[arg-type]
    return rules
