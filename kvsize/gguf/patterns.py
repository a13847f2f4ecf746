"""Which layers slide, recur or own an indexer, from GGUF keys and the architecture's rules."""

from __future__ import annotations

from kvsize.gguf.architectures import Architecture, Memory, Pattern, Recurrent, When, Window
from kvsize.gguf.keys import Keys

_WINDOW = "attention.sliding_window"
_WINDOW_PATTERN = "attention.sliding_window_pattern"
_INDEXER_TYPES = "attention.indexer.types"
# GLM models of this context length and more share indexers between layers; files that do not
# say which get the published model's 78 (src/models/glm-dsa.cpp, GLM_5_2_DEFAULT_INDEXER_TYPES).
_GLM_SHARED_INDEXER_CONTEXT = 1048576
_GLM_SHARED_INDEXER_LAYERS = 78


def window_size(keys: Keys, window: Window | None, trunk: int) -> int | None:
    """The window in tokens (`n_swa`), or None where no sliding window is in force."""
    if window is None or window.trunk not in {None, trunk}:
        return None
    stated = keys.has(_WINDOW)
    size = keys.count(_WINDOW, window.default)
    if window.when is When.POSITIVE and size == 0:
        return None
    if window.when is When.UNLESS_ZERO and stated and size == 0:
        return None
    return size if window.fixed is None else window.fixed


def swa_layers(keys: Keys, window: Window, trunk: int, recurrent: list[bool]) -> list[bool]:
    """Which layers have the window (`set_swa_pattern`, `load_swa_pattern`)."""
    layers = len(recurrent)
    if window.pattern is Pattern.ALL:
        return [True] * layers
    if window.pattern is Pattern.ATTENTION:
        return [il < trunk and not recurrent[il] for il in range(layers)]
    if window.pattern is Pattern.LISTED or keys.is_array(_WINDOW_PATTERN):
        return _flags(keys.array(_WINDOW_PATTERN), layers)
    period = keys.count(_WINDOW_PATTERN, window.period)
    return [il < trunk and _slides(il, period, window) for il in range(layers)]


def _slides(il: int, period: int, window: Window) -> bool:
    if period == 0:
        return True
    return il % period != 0 if window.dense_first else il % period < period - 1


def recurrent_layers(
    keys: Keys, traits: Architecture, trunk: int, head_count_kv: list[int], n_ff: list[int]
) -> list[bool]:
    """Which layers keep a recurrent state (`is_recr`)."""
    layers = len(head_count_kv)
    if traits.memory is Memory.RECURRENT:
        return [True] * layers
    in_trunk = [il < trunk for il in range(layers)]
    match traits.recurrent:
        case None:
            return [False] * layers
        case Recurrent.EVERY:
            return [True] * layers
        case Recurrent.NO_KV_HEADS:
            return [ok and kv == 0 for ok, kv in zip(in_trunk, head_count_kv, strict=True)]
        case Recurrent.NO_KV_HEADS_NO_FFN:
            return [
                ok and kv == ff == 0
                for ok, kv, ff in zip(in_trunk, head_count_kv, n_ff, strict=True)
            ]
        case Recurrent.INTERVAL:
            return _by_interval(keys, traits.interval, in_trunk)


def _by_interval(keys: Keys, default: int, in_trunk: list[bool]) -> list[bool]:
    interval = keys.count("full_attention_interval", default)
    if interval == 0:
        raise keys.contradiction("`full_attention_interval` is 0")
    rule = [int(ok and (il + 1) % interval != 0) for il, ok in enumerate(in_trunk)]
    stated = keys.per_layer("attention.recurrent_layers", len(in_trunk), rule)
    return [bool(flag) for flag in stated]


def indexer_layers(keys: Keys, arch: str, trunk: int, layers: int) -> list[bool]:
    """Which layers own a sparse-attention indexer (`is_indexer_full`)."""
    match arch:
        case "dots3note":
            found = keys.array(_INDEXER_TYPES)
        case "glm-dsa":
            found = keys.per_layer(_INDEXER_TYPES, trunk, _glm_indexers(keys, trunk))
        case "glm5-next":
            found = keys.per_layer(_INDEXER_TYPES, trunk, [1] * trunk)
        case "hy_v4" if keys.count("attention.indexer.top_k", 0) > 0:
            found = keys.per_layer(_INDEXER_TYPES, trunk, [0] * trunk)
        case _:
            found = [1] * layers
    return _flags(found, layers)


def _glm_indexers(keys: Keys, trunk: int) -> list[int]:
    if keys.count("context_length") < _GLM_SHARED_INDEXER_CONTEXT:
        return [1] * trunk
    return [
        int(il < 2 or (il - 2) % 4 == 0) if il < _GLM_SHARED_INDEXER_LAYERS else 0
        for il in range(trunk)
    ]


def _flags(values: list[int], layers: int) -> list[bool]:
    """`values` as one flag per layer; layers past the list's end are off."""
    return [bool(value) for value in values[:layers]] + [False] * (layers - len(values))
