"""One section of a config.json, read key by key: types checked, origins remembered.

A key that the file leaves out may stand in it under an older name, or be filled from the class
that transformers has for the model type; both are data in `data/class_defaults.json`, which
`tools/generate_class_defaults.py` makes from the installed transformers. The reader notes which
of them happened, so that `explain` and the warnings can say where every number came from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from kvsize.errors import ConfigError
from kvsize.record import NOTHING, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

# Larger than any dimension or context of a real model; past it a value is an error.
LARGEST_COUNT = 10**9
# As for layers, each of which becomes a record; Llama-3.1-405B has 126.
LARGEST_LAYERS = 10**4
_MISSING = object()
# Model types of published files whose config has the words of a class that transformers has.
KNOWN_AS = {
    "deepseek_ref": "deepseek_v4",
    "exaone4_5_text": "exaone4",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minimax_m3": "minimax_m3_vl_text",
    "phi3_v": "phi3",
}
# Older names that a class still takes for a key (`__post_init__` of BloomConfig and FalconConfig,
# transformers 5.24.0); the published BLOOM files have no hidden_size, only n_embed.
OLDER_NAMES = {"bloom": {"hidden_size": "n_embed"}, "falcon": {"hidden_size": "n_embed"}}


class SectionFacts(TypedDict, total=False):
    """What a composite class fills in for one of its nested configs.

    `fixed`: the class reads the section as `model_type`, whatever the section itself states.
    `merged`: its defaults also fill a section that the file states in part.
    """

    model_type: str
    defaults: dict[str, object]
    fixed: bool
    merged: bool


class ClassFacts(TypedDict, total=False):
    """What transformers' config class of one model type adds to a config.json."""

    name: str
    attribute_map: dict[str, str]
    defaults: dict[str, object]
    sections: dict[str, SectionFacts]


class Origin(Record):
    """Where a value came from: `config.json`, `class default` or `rule`, and by which key."""

    key: str
    value: object
    kind: str
    detail: str


class ClassFile(TypedDict):
    """`data/class_defaults.json`."""

    transformers: str
    without_cache: list[str]
    classes: dict[str, ClassFacts]


@cache
def _class_file() -> ClassFile:
    # importlib.resources would find the same file, for a quarter of Python's own start-up more.
    text = (Path(__file__).parent / "data" / "class_defaults.json").read_text(encoding="utf-8")
    return cast("ClassFile", json.loads(text))


def defaults_version() -> str:
    """The transformers version whose class defaults are built in."""
    return _class_file()["transformers"]


def class_facts(model_type: str) -> ClassFacts | None:
    """The built-in facts of one model type, or None when transformers does not know it."""
    return _class_file()["classes"].get(model_type)


def known_model_types() -> list[str]:
    """Every model type whose class defaults are built in, sorted."""
    return sorted(_class_file()["classes"])


def without_cache() -> list[str]:
    """Model types that transformers knows and that do not generate text."""
    return _class_file()["without_cache"]


class Config:
    """A config.json section with the aliases and defaults of its model type.

    `extra_defaults` are what a composite class fills in for this section; `origins` says, for
    every key that was read, where its value came from.
    """

    def __init__(
        self,
        raw: Mapping[str, object],
        where: str = "config.json",
        model_type: str = "",
        extra_defaults: Mapping[str, object] = NOTHING,
    ) -> None:
        self.raw = raw
        self.where = where
        self.model_type: str = KNOWN_AS.get(model_type, model_type)
        self.extra_defaults = extra_defaults
        self.origins: dict[str, Origin] = {}
        facts = class_facts(self.model_type)
        self.known: bool = facts is not None
        self._facts: ClassFacts = facts or {}
        older = OLDER_NAMES.get(self.model_type, {})
        attribute_map = {**self._facts.get("attribute_map", {}), **older}
        self._names: dict[str, list[str]] = {}
        for public, stored in attribute_map.items():
            self._names[public] = [public, stored]
            # A class sets its fields first and what else the file has afterwards, so a value
            # under the mapped name replaces one under the stored name.
            self._names.setdefault(stored, [stored]).insert(0, public)

    # -- finding a value -------------------------------------------------------------------
    def has(self, key: str) -> bool:
        """Whether the file itself states `key` (under this or its mapped name), null included."""
        return any(name in self.raw for name in self._spellings(key))

    def value(self, key: str, default: object = None) -> object:
        """The value of `key`: from the file, else the class default, else `default`."""
        for name in self._spellings(key):
            found = self.raw.get(name, _MISSING)
            if found is not _MISSING:
                self.origins[key] = Origin(key, found, "config.json", name)
                return found
        for source in (self.extra_defaults, self._facts.get("defaults", {})):
            for name in self._spellings(key):
                found = source.get(name, _MISSING)
                if found is not _MISSING:
                    self.origins[key] = Origin(key, found, "class default", self.class_name)
                    return found
        return default

    def note(self, key: str, value: object, detail: str) -> None:
        """Record that `value` follows from a rule, told in `detail`."""
        self.origins[key] = Origin(key, value, "rule", detail)

    @property
    def class_name(self) -> str:
        """Transformers' config class for this model type (empty when it has none)."""
        return self._facts.get("name", "")

    def _spellings(self, key: str) -> Sequence[str]:
        return self._names.get(key, (key,))

    # -- typed reading ---------------------------------------------------------------------
    def count(self, *keys: str) -> int:
        """A positive integer under the first of `keys` that is there; ConfigError without one."""
        for key in keys:
            found = self.optional_count(key)
            if found is not None:
                return found
        raise self._missing(keys)

    def optional_count(self, key: str, *, least: int = 1) -> int | None:
        """An integer ≥ `least`, or None where the key is absent or null."""
        value = self.value(key)
        return None if value is None else self._count(key, value, least)

    def count_or(self, key: str, default: int, *, least: int = 0) -> int:
        """An integer ≥ `least`, or `default` where the key is absent or null."""
        found = self.optional_count(key, least=least)
        return default if found is None else found

    def ratio(self, key: str, default: float) -> float:
        """A positive number, or `default` where the key is absent or null."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1000:
            raise self._wrong(key, value, "a number between 0 and 1000")
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A boolean, or `default` where the key is absent or null."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str) -> str | None:
        """A string, or None where the key is absent or null."""
        value = self.value(key)
        if value is not None and not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def items(self, key: str) -> list[object] | None:
        """A list, or None where the key is absent or null."""
        value = self.value(key)
        if value is not None and not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list")
        return None if value is None else list(value)

    def counts(self, key: str, *, least: int = 0) -> list[int] | None:
        """A list of integers ≥ `least`, or None where the key is absent or null."""
        items = self.items(key)
        if items is None:
            return None
        return [self._count(f"{key}[{i}]", item, least) for i, item in enumerate(items)]

    def texts(self, key: str) -> list[str] | None:
        """A list of strings, or None where the key is absent or null."""
        items = self.items(key)
        if items is None:
            return None
        texts: list[str] = []
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise self._wrong(f"{key}[{i}]", item, "a string")
            texts.append(item)
        return texts

    def mapping(self, key: str) -> Mapping[str, object] | None:
        """An object, or None where the key is absent or null."""
        value = self.value(key)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return cast("Mapping[str, object] | None", value)

    def sections(self) -> Mapping[str, SectionFacts]:
        """The nested configs that the model type's class has."""
        return self._facts.get("sections", {})

    def section(self, key: str) -> Config:
        """The nested config under `key`, with the defaults its parent's class gives it.

        A file that leaves the section out gets the class's own: transformers builds it too. To a
        section that is there the parent's defaults apply in a few classes only (SubConfigSpec in
        transformers 5.24.0, configuration_utils.py).
        """
        facts = self.sections().get(key, {})
        nested = self.mapping(key)
        where = f"{self.where}: {key}"
        if nested is None:
            return Config({}, where, facts.get("model_type", ""), facts.get("defaults", {}))
        stated = Config(nested, where).text("model_type")
        kind = facts.get("model_type", "") if facts.get("fixed") or not stated else stated
        return Config(nested, where, kind, facts.get("defaults", {}) if facts.get("merged") else {})

    def derived(self, changes: Mapping[str, object]) -> Config:
        """This section with some keys replaced (one layer's overrides), noting into one place."""
        changed = Config({**self.raw, **changes}, self.where, self.model_type, self.extra_defaults)
        changed.origins = self.origins
        return changed

    def unread(self) -> Config:
        """This section as before anything was read from it."""
        return Config(self.raw, self.where, self.model_type, self.extra_defaults)

    # -- errors ----------------------------------------------------------------------------
    def _count(self, key: str, value: object, least: int) -> int:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int):
            raise self._wrong(key, value, "a whole number")
        most = LARGEST_LAYERS if "layer" in key else LARGEST_COUNT
        if not least <= number <= most:
            raise self._wrong(key, value, f"a whole number from {least} to {most:,}")
        return number

    def _missing(self, keys: tuple[str, ...]) -> ConfigError:
        named = " or ".join(f"`{key}`" for key in keys)
        kind = f"model type '{self.model_type}'" if self.model_type else "a file without model_type"
        return ConfigError(
            f"{self.where}: {named} is missing, and {kind} has no default for it.",
            "give the complete config.json of a decoder; a tokenizer's, adapter's or vision "
            "config does not describe a KV cache.",
        )

    def _wrong(self, key: str, value: object, wanted: str) -> ConfigError:
        return ConfigError(
            f"{self.where}: `{key}` is {_shown(value)}, and must be {wanted}.",
            "correct the file, or fetch the published config.json again.",
        )

    def contradiction(self, message: str) -> ConfigError:
        """An error for a file that says two things which cannot both hold."""
        return ConfigError(
            f"{self.where}: {message}",
            "the file contradicts itself; correct it, or use the published one.",
        )


def _shown(value: object) -> str:
    """A value as the file spells it (`true`, `null`, `"eight"`), cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, TypeError, RecursionError):  # a Python mapping can hold anything
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"
