"""What a request asks of a serving engine: typed options, a version, a dtype, a context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from kvsize.dtypes import canonical
from kvsize.engines.options import resolve
from kvsize.errors import UsageError
from kvsize.record import replace
from kvsize.suggest import nearest

if TYPE_CHECKING:
    from kvsize.engines.options import Option, Request
    from kvsize.model import Model

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Values:
    """An engine's options with their values, checked by `resolve` and typed at the place of use."""

    engine: str
    values: Mapping[str, object]

    def whole(self, name: str) -> int:
        """The integer option `name`, which always has a value."""
        return cast("int", self.values[name])

    def whole_or_none(self, name: str) -> int | None:
        """The integer option `name`, or None where it was left open."""
        return cast("int | None", self.values[name])

    def number(self, name: str) -> float:
        """The float option `name`, which always has a value."""
        return cast("float", self.values[name])

    def number_or_none(self, name: str) -> float | None:
        """The float option `name`, or None where it was left open."""
        return cast("float | None", self.values[name])

    def flag(self, name: str) -> bool:
        """The boolean option `name`."""
        return self.values[name] is True

    def text(self, name: str) -> str | None:
        """The text option `name`, or None where it was left open."""
        value = self.values[name]
        return None if value is None else str(value)


def options_of(engine: str, options: tuple[Option, ...], request: Request) -> Values:
    """The request's options, checked and completed with the engine's defaults."""
    return Values(engine, resolve(engine, options, request.options))


def version_of(engine: str, versions: tuple[str, ...], wanted: str | None) -> str:
    """The version asked for, or the newest modelled; UsageError for one that is not modelled."""
    if wanted is None:
        return versions[0]
    if wanted not in versions:
        msg = f"{engine} {wanted} is not modelled."
        raise UsageError(msg, f"versions modelled: {', '.join(versions)}.")
    return wanted


def named_dtype(engine: str, known: Mapping[str, T], wanted: str) -> T:
    """The entry of `known` under `wanted`, in any spelling; UsageError names those there are."""
    for name in (wanted.lower(), canonical(wanted)):
        if name in known:
            return known[name]
    msg = f"{engine} has no KV dtype '{wanted}'."
    raise UsageError(msg, nearest(wanted, known, f"it has {', '.join(known)}"))


def not_modelled(engine: str, what: str, instead: str) -> UsageError:
    """The error for something the engine can do and kvsize cannot size."""
    return UsageError(f"{engine}: {what} is not modelled.", instead)


def no_pipeline(engine: str, request: Request, instead: str) -> None:
    """UsageError when pipeline parallelism is asked of an engine that does not have it."""
    if request.pipeline_parallel_size > 1:
        msg = f"{engine} has no pipeline parallelism."
        raise UsageError(msg, instead)


def with_context(model: Model, request: Request, engine: str) -> Request:
    """The request with a context: its own, or the model's limit where it says 0."""
    if request.context:
        return request
    if model.context_limit is None:
        msg = f"{engine}: {model.where} states no context limit, so a context must be given."
        raise UsageError(msg, "give a context, such as 32768.")
    return replace(request, context=model.context_limit)
