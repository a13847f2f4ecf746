"""What a folder or repo without a config.json is, and what a JSON file is that is no config.json.

Both answers name the thing and the next step; `local` and `hub` ask the same questions.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvsize.errors import ConfigError, KvsizeError
from kvsize.suggest import shortened

CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
_WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".npz", ".msgpack", ".h5")
_TOKENIZER = re.compile(r"tokenizer.*|vocab\..*|merges\.txt|special_tokens_map\.json|spiece\.model")
# A multimodal projector (mmproj) is no language model.
_MODEL_GGUF = re.compile(r"(?!.*mmproj).*\.gguf", re.IGNORECASE)
_LATER_SHARD = re.compile(r"-(?!0*1-of-)\d+-of-\d+\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or repo: how errors name it, its file names, and how one of them is read.

    `prefix` is put before a file's name to make what the user types for it; `fetch` is the
    command that gets one of its files, where there is one.
    """

    shown: str
    prefix: str
    names: Sequence[str]
    read: Callable[[str], bytes]
    fetch: str | None = None


def without_config(place: Place) -> tuple[str, str]:
    """Message and hint for a place that holds no config.json."""
    if not place.names:
        return f"{place.shown} is empty.", "give a folder that holds a model's config.json."
    for look in (_gguf, _adapter, _made_for_other, _original, _below_top, _weights, _tokenizer):
        found = look(place)
        if found is not None:
            what, hint = found
            return f"{place.shown} has no config.json: {what}.", hint
    listed = shortened(sorted(place.names), 3)
    hint = "name a model's own folder or repo, or its config.json."
    return f"{place.shown} has no config.json, only {listed}.", hint


def _gguf(place: Place) -> tuple[str, str] | None:
    models = sorted(n for n in place.names if _MODEL_GGUF.fullmatch(n))
    first = [name for name in models if not _LATER_SHARD.search(name)] or models
    if not first:
        return None
    what = f"it holds GGUF files, {shortened(first, 3)}"
    return what, f"name one of them: {_command(place, first[0])}."


def _command(place: Place, name: str) -> str:
    return f"`kvsize {shlex.quote(place.prefix + name)}`"


def _adapter(place: Place) -> tuple[str, str] | None:
    if ADAPTER_CONFIG not in place.names:
        return None
    try:
        loaded = json.loads(place.read(ADAPTER_CONFIG))
    except (OSError, ValueError, RecursionError, KvsizeError):
        loaded = None
    return "it holds an adapter", _base_model(loaded)


def _base_model(adapter: object) -> str:
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, Mapping) else None
    if isinstance(base, str) and base:
        return f"the cache is its base model's: `kvsize {base}`."
    return "the cache is its base model's; give that model's name."


_NO_CACHE = "a diffusion pipeline keeps no KV cache; give a language model."
# A file that only one kind of place has, what that kind is, what to do.
_MARKERS = (
    ("model_index.json", "it is a diffusers pipeline", _NO_CACHE),
    ("mlc-chat-config.json", "it is compiled for MLC", "name the model that it was made from."),
    ("genai_config.json", "it is for ONNX Runtime", "name the model that it was made from."),
    (
        "modules.json",
        "it is a sentence-transformers model",
        "an embedding model keeps no KV cache; give a language model.",
    ),
)


def _made_for_other(place: Place) -> tuple[str, str] | None:
    return next(((what, hint) for name, what, hint in _MARKERS if name in place.names), None)


def _original(place: Place) -> tuple[str, str] | None:
    if "params.json" not in place.names:
        return None
    return "it is in its maker's original format (params.json)", _TRANSFORMERS_FORMAT


_TRANSFORMERS_FORMAT = (
    "fetch the model in transformers' format; its repo on the Hub has a config.json."
)


def _below_top(place: Place) -> tuple[str, str] | None:
    below = sorted(name for name in place.names if name.endswith(f"/{CONFIG}"))
    if not below:
        return None
    what = f"the file is further down, {shortened(below, 3)}"
    if place.fetch is None:
        return what, f"name it: {_command(place, below[0])}."
    return what, f"`{place.fetch} {below[0]}` prints where it is kept; give kvsize that path."


def _weights(place: Place) -> tuple[str, str] | None:
    if not any(name.endswith(_WEIGHTS) for name in place.names):
        return None
    return "it holds weights only", "get the config.json of the same model, and name that."


def _tokenizer(place: Place) -> tuple[str, str] | None:
    if not any(_TOKENIZER.fullmatch(name) for name in place.names):
        return None
    return "it holds a tokenizer only", "name the model that the tokenizer belongs to."


def refuse_other(config: Mapping[str, object], where: str) -> None:
    """ConfigError where `config` is another of a model's JSON files, told by the keys it has."""
    if "model_type" in config or "architectures" in config:
        return
    for keys, what, hint in _OTHER_FILES:
        if all(key in config for key in keys):
            told = _base_model(config) if "peft_type" in keys else hint
            msg = f"{where}: this is {what}, not a model's config.json."
            raise ConfigError(msg, told)


_BESIDE = "give the config.json beside it."
_OTHER_FILES = (
    (("peft_type",), "an adapter's config", _BESIDE),
    (("weight_map",), "an index of weight files", _BESIDE),
    (("_diffusers_version",), "a part of a diffusers pipeline", _NO_CACHE),
    (("dim", "n_layers", "n_heads"), "its maker's own params.json", _TRANSFORMERS_FORMAT),
    (("tokenizer_class",), "a tokenizer's config", _BESIDE),
    (("added_tokens", "model"), "a tokenizer", _BESIDE),
    (("image_processor_type",), "an image processor's config", _BESIDE),
    (("do_sample",), "a generation config", _BESIDE),
)
