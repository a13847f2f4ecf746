"""Frozen records for the path that every command takes.

They are what `@dataclass(frozen=True)` would make, written by hand for one reason, start-up: a
frozen dataclass costs 3.5 million instructions to define (its methods are compiled at import),
importing `dataclasses` another 72 million, and Python itself starts in 40 million. A Record costs
0.15 million. Off that path a plain dataclass is the better tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar, dataclass_transform

R = TypeVar("R", bound="Record")

NOTHING: Mapping[str, object] = MappingProxyType({})
"""The default of fields that hold a mapping."""


@dataclass_transform(frozen_default=True, eq_default=True)
class Record:
    """A frozen record: the annotated names of a subclass are its fields, in order.

    `class X(Record, kw_only=True)` takes them by name only. Records of one class with equal
    fields are equal; records of different classes never are.
    """

    _fields: tuple[str, ...] = ()
    _kw_only = False

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        super().__init_subclass__()
        own = [
            name
            for name, kind in cls.__dict__.get("__annotations__", {}).items()  # noqa: RUF063 - `inspect` costs more than this module saves
            if not str(kind).startswith("ClassVar") and name not in cls._fields
        ]
        cls._fields = (*cls._fields, *own)
        cls._kw_only = kw_only

    def __init__(self, *args: object, **values: object) -> None:
        cls = type(self)
        if args:
            if cls._kw_only or len(args) > len(cls._fields):
                message = f"{cls.__name__} takes {len(cls._fields)} fields, by name"
                raise TypeError(message)
            for name, value in zip(cls._fields, args, strict=False):
                if name in values:
                    message = f"{cls.__name__} got '{name}' twice"
                    raise TypeError(message)
                values[name] = value
        state = self.__dict__
        for name in cls._fields:
            if name in values:
                state[name] = values.pop(name)
            elif hasattr(cls, name):
                state[name] = getattr(cls, name)
            else:
                message = f"{cls.__name__} needs '{name}'"
                raise TypeError(message)
        if values:
            message = f"{cls.__name__} has no field '{next(iter(values))}'"
            raise TypeError(message)

    def __setattr__(self, name: str, value: object) -> None:
        message = f"{type(self).__name__} is frozen: cannot set '{name}'"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> None:
        message = f"{type(self).__name__} is frozen: cannot delete '{name}'"
        raise AttributeError(message)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"


def replace(record: R, **changes: object) -> R:
    """A copy of `record` with some fields changed; TypeError for a field it does not have."""
    return type(record)(**{**record.__dict__, **changes})


def as_dict(value: object) -> object:
    """`value` with every record in it, at any depth, as a dict in the order of its fields."""
    if isinstance(value, Record):
        return {name: as_dict(item) for name, item in value.__dict__.items()}
    if isinstance(value, list | tuple):
        return [as_dict(item) for item in value]
    if isinstance(value, Mapping):
        return {name: as_dict(item) for name, item in value.items()}
    return value


def fields(cls: type[Record]) -> tuple[str, ...]:
    """The names of the fields of a record class, in order."""
    return cls._fields
