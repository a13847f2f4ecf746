"""What a figure is asked for, and options checked against what the engine takes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvsize.errors import UsageError
from kvsize.record import NOTHING, Record
from kvsize.suggest import nearest


class Option(Record):
    """One engine option: its name and default are the engine's own.

    `kind` is the type a value must have; `choices` the legal values where they are few.
    """

    name: str
    kind: type[int | bool | str | float | list[object] | dict[str, object]]
    default: object
    help: str
    choices: tuple[object, ...] = ()
    least: int | None = None


class Request(Record, kw_only=True):
    """What a figure is for.

    `context` counts tokens of one sequence; 0 where an engine allows it means the model's own
    length.
    """

    context: int
    sequences: int = 1
    kv_dtype: str = "auto"
    engine_version: str | None = None
    options: Mapping[str, object] = NOTHING
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1


def resolve(
    engine: str, options: tuple[Option, ...], given: Mapping[str, object]
) -> dict[str, object]:
    """Every option with its value; UsageError names a wrong one and the legal values."""
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            msg = f"engine {engine} has no option '{name}'."
            raise UsageError(msg, nearest(name, known, f"`kvsize engines {engine}` lists them"))
    return {
        name: _checked(engine, option, given[name]) if name in given else option.default
        for name, option in known.items()
    }


def _checked(engine: str, option: Option, value: object) -> object:
    if value is None and option.default is None:
        return None
    parsed = _parsed(option.kind, value)
    legal = parsed is not None and (not option.choices or parsed in option.choices)
    if legal and option.least is not None and isinstance(parsed, int):
        legal = parsed >= option.least
    if not legal:
        msg = f"{engine}: {option.name} cannot be {value!r}."
        raise UsageError(msg, f"legal values: {_legal(option)}.")
    return parsed


def _parsed(
    kind: type[int | bool | str | float | list[object] | dict[str, object]], value: object
) -> object:
    """`value` as `kind`, from text too (the command line gives text); None where it is not one."""
    if kind is bool:
        words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        return value if isinstance(value, bool) else words.get(str(value).lower())
    if kind is str:
        return value if isinstance(value, str) else None
    if kind is list:
        return _parsed_list(value)
    if kind is dict:
        return _parsed_dict(value)
    if isinstance(value, bool):
        return None
    number = float if kind is float else int
    try:
        return number(str(value))
    except (TypeError, ValueError):
        return None


def _parsed_list(value: object) -> list[object] | None:
    """A list as it is, or the parts of a text between commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else None


def _parsed_dict(value: object) -> dict[str, object] | None:
    """A mapping as it is, or the JSON object in a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else None


def _legal(option: Option) -> str:
    if option.choices:
        return ", ".join(str(choice) for choice in option.choices)
    words = {int: "a whole number", bool: "true or false", float: "a number", str: "text"}
    words |= {list: "a list, or text with commas", dict: "a JSON object"}
    least = f" of at least {option.least}" if option.least is not None else ""
    return words[option.kind] + least
