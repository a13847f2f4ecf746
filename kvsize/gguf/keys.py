"""GGUF metadata read key by key, as llama.cpp's model loader reads it.

Source: `llama_model_loader::get_key`, `get_arr` and `get_key_or_arr` in
`src/llama-model-loader.cpp`, llama.cpp 0c1e57098. Unlike it, any integer type is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.errors import ConfigError

# LLAMA_MAX_LAYERS in src/llama-hparams.h: no per-layer array may be longer.
LARGEST_LAYER_COUNT = 512
_LARGEST_U32 = 2**32 - 1


class Keys:
    """The metadata of one architecture; keys are named without its prefix."""

    def __init__(self, metadata: Mapping[str, object], arch: str, where: str) -> None:
        self._metadata = metadata
        self._arch = arch
        self._where = where

    def has(self, key: str) -> bool:
        """Whether the file states `key`."""
        return self._name(key) in self._metadata

    def is_array(self, key: str) -> bool:
        """Whether `key` is there and an array."""
        return isinstance(self._value(key), list)

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number from 0 to 2³²-1; ConfigError where it is absent without a default."""
        if not self.has(key):
            if default is None:
                raise self._missing(key)
            return default
        return self._whole(key, self._value(key))

    def flag(self, key: str, *, default: bool) -> bool:
        """A boolean, or `default` where the key is absent."""
        value = self._value(key) if self.has(key) else default
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def array(self, key: str) -> list[int]:
        """An array of whole numbers or booleans, at most 512 long; ConfigError without one."""
        if not self.has(key):
            raise self._missing(key)
        value = self._value(key)
        if not isinstance(value, list):
            raise self._wrong(key, value, "an array")
        if len(value) > LARGEST_LAYER_COUNT:
            raise self._wrong(key, value, f"at most {LARGEST_LAYER_COUNT} entries long")
        return [self._entry(key, item) for item in value]

    def per_layer(self, key: str, layers: int, default: list[int] | None = None) -> list[int]:
        """One number per layer: an array of exactly `layers` entries, or one number for all."""
        if not self.has(key):
            if default is None:
                raise self._missing(key)
            return default
        if not self.is_array(key):
            return [self._entry(key, self._value(key))] * layers
        found = self.array(key)
        if len(found) != layers:
            raise self.contradiction(
                f"`{self._name(key)}` has {len(found)} entries for {layers} layers"
            )
        return found

    def contradiction(self, message: str) -> ConfigError:
        """An error for a file that llama.cpp would not load."""
        return ConfigError(
            f"{self._where}: {message}.",
            "llama.cpp does not load such a file; convert the model again.",
        )

    # -- inside ----------------------------------------------------------------------------
    def _name(self, key: str) -> str:
        return f"{self._arch}.{key}"

    def _value(self, key: str) -> object:
        return self._metadata.get(self._name(key))

    def _whole(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        if not 0 <= value <= _LARGEST_U32:
            raise self._wrong(key, value, "a whole number from 0 to 2³²-1")
        return value

    def _entry(self, key: str, value: object) -> int:
        return int(value) if isinstance(value, bool) else self._whole(key, value)

    def _missing(self, key: str) -> ConfigError:
        return ConfigError(
            f"{self._where}: `{self._name(key)}` is missing, and llama.cpp needs it.",
            "give the first shard of the model's .gguf, or convert the model again.",
        )

    def _wrong(self, key: str, value: object, wanted: str) -> ConfigError:
        shown = "an array kvsize does not read" if value is None else repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "…"
        return self.contradiction(f"`{self._name(key)}` is {shown}, and must be {wanted}")
