"""A real config made small in what cannot touch its cache: vocabulary, MLPs, experts, towers, depth.

Hidden size, heads and every width of the cache stay as published.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvsize.errors import ConfigError
from kvsize.layers import Layer
from kvsize.loading import load
from kvsize.model import Model
from kvsize.verify.toys import FIELDS, FREE, TOKEN, TOWERS, VOCAB, merged

FFN = 64
# Their inner width is the state's.
STATE_IS_FFN = {"mamba", "falcon_mamba"}
# Text that says nothing about layers, however long.
NOT_LAYERS = {"model_type", "architectures", "_name_or_path", "transformers_version", "auto_map"}


def shrunk(model: Model, *, full_depth: bool) -> tuple[dict[str, Any], int]:
    """The model's file with small free parts, and how many of its layers are kept.

    Layers are cut to the shortest prefix that has every kind of layer the model has, and that
    kvsize reads from the smaller file just as from the whole one. Raises ConfigError where even
    the whole depth reads differently.
    """
    small = _free_parts(dict(model.root.raw))
    if not full_depth:
        for layers in range(_period(model.layers), len(model.layers)):
            cut = _cut(small, model, layers)
            read = _layers(cut)
            if read == model.layers[: len(read)] and set(read) == set(model.layers):
                return cut, len(read)
    if _layers(small) != model.layers:
        message = f"{model.where} cannot be made smaller without changing its cache."
        raise ConfigError(message, "use --level cache.")
    return small, len(model.layers)


def _layers(raw: Mapping[str, Any]) -> tuple[Layer, ...]:
    """What kvsize reads; nothing where it refuses the file, as some depths contradict others."""
    try:
        return load(raw).layers
    except ConfigError:
        return ()


def _period(layers: tuple[Layer, ...]) -> int:
    """The length of the shortest prefix that holds every kind of layer."""
    kinds = set(layers)
    seen: set[Layer] = set()
    for index, layer in enumerate(layers):
        seen.add(layer)
        if seen == kinds:
            return index + 1
    return len(layers)


def _cut(raw: Mapping[str, Any], model: Model, layers: int) -> dict[str, Any]:
    """The file with `layers` layers: their count under every name, and lists of one per layer."""
    whole = len(model.layers)

    def walk(section: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in section.items():
            if isinstance(value, Mapping) and not TOWERS.search(key):
                made[key] = walk(value)
            elif FIELDS.get(key) == "layers" and value == whole:
                made[key] = layers
            elif isinstance(value, list | str) and len(value) >= whole and key not in NOT_LAYERS:
                made[key] = value[:layers]
            else:
                made[key] = value
        return made

    cut = walk(raw)
    if cut == dict(raw):
        # The count is the class's default: state it where the decoder is.
        inner = [k for k, v in raw.items() if isinstance(v, Mapping) and not TOWERS.search(k)]
        change: dict[str, Any] = {"num_hidden_layers": layers}
        cut = merged(raw, {inner[0]: change} if len(inner) == 1 else change)
    return cut


def _free_parts(raw: dict[str, Any]) -> dict[str, Any]:
    """Small vocabulary, MLPs, experts and towers."""
    small = copy.deepcopy(raw)
    for key in ("quantization_config", "dtype", "torch_dtype"):
        small.pop(key, None)
    cls = CONFIG_MAPPING[str(raw["model_type"])]
    return _free_section(small, cls, str(raw["model_type"]))


def _free_section(section: dict[str, Any], cls: Any, name: str) -> dict[str, Any]:
    section = dict(section)
    for key in ("rope_scaling", "rope_parameters"):
        section.pop(key, None)
    section |= _free_fields(section, cls, name)
    for key, spec in cls.sub_configs_defaults.items():
        nested = spec.config_class
        if not hasattr(nested, "model_type"):
            nested = CONFIG_MAPPING[spec.model_type] if spec.model_type else None
        if nested is None or (key not in section and "num_hidden_layers" in section):
            continue  # a flat file has its decoder's keys at the top
        if TOWERS.search(key):
            section[key] = merged(section.get(key) or {}, {"num_hidden_layers": 1, "depth": 1})
        else:
            section[key] = _free_section(section.get(key) or {}, nested, nested.model_type)
    return section


def _free_fields(section: Mapping[str, Any], cls: Any, name: str) -> dict[str, Any]:
    """Small values for the fields that are free, where the file or the class has a number."""
    made: dict[str, Any] = {}
    tokens = iter(range(VOCAB - 1, 0, -1))
    for field in dataclasses.fields(cls):
        stated = section.get(field.name, field.default)
        number = isinstance(stated, int)
        if field.name.endswith("vocab_size"):
            made[field.name] = VOCAB
        elif field.name in FREE and name not in STATE_IS_FFN and number:
            made[field.name] = FFN if FREE[field.name] == "ffn" else FREE[field.name]
        elif TOKEN.search(field.name) and (
            isinstance(stated, list) or (number and stated >= VOCAB)
        ):
            made[field.name] = next(tokens)
    return made
