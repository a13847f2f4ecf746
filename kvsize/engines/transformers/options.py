"""The options of engine `transformers`, in the words of its cache classes and of `generate`."""

from __future__ import annotations

from kvsize.engines.options import Option
from kvsize.engines.transformers.implementations import IMPLEMENTATIONS

_CACHES = ("dynamic", "static", "quantized", "offloaded", "offloaded_static")

OPTIONS = (
    Option(
        name="cache",
        kind=str,
        default="dynamic",
        help=f"{', '.join(_CACHES)}, or any other cache_implementation",
        choices=(*_CACHES, *(name for name in IMPLEMENTATIONS if name not in _CACHES)),
    ),
    Option(
        name="cache_implementation",
        kind=str,
        default=None,
        help="the name that generate() takes; another spelling of `cache`",
        choices=tuple(IMPLEMENTATIONS),
    ),
    Option(
        name="max_cache_len",
        kind=int,
        default=None,
        help="tokens a static cache is allocated for (default: the context)",
        least=1,
    ),
    Option(
        name="prompt",
        kind=int,
        default=None,
        help="tokens of the first forward pass; an encoder-decoder's go to its encoder",
        least=1,
    ),
    Option(
        name="new_tokens",
        kind=int,
        default=None,
        help="max_new_tokens of generate(): the last one is never fed back, so never cached",
        least=1,
    ),
    Option(
        name="encoder_tokens",
        kind=int,
        default=None,
        help="tokens of the encoder, for cross-attention (default: the model's own length)",
        least=0,
    ),
    Option(
        name="offload_only_non_sliding",
        kind=bool,
        default=None,
        help="keep sliding layers on the device (default: false dynamic, true static)",
    ),
    Option(
        name="backend",
        kind=str,
        default="quanto",
        help="what quantizes a quantized cache",
        choices=("quanto", "hqq", "fp8"),
    ),
    Option(
        name="nbits",
        kind=int,
        default=4,
        help="bits per quantized element: 2 or 4 (quanto), 1, 2, 3, 4 or 8 (hqq)",
        least=1,
    ),
    Option(
        name="axis_key",
        kind=int,
        default=0,
        help="axis of the keys' groups: 0 or -1 (quanto), 0 or 1 (hqq)",
        least=-1,
    ),
    Option(
        name="axis_value",
        kind=int,
        default=0,
        help="axis of the values' groups, as axis_key",
        least=-1,
    ),
    Option(
        name="q_group_size",
        kind=int,
        default=64,
        help="elements that share a scale and a zero point",
        least=1,
    ),
    Option(
        name="residual_length",
        kind=int,
        default=128,
        help="newest tokens kept unquantized until there are this many",
        least=0,
    ),
)
