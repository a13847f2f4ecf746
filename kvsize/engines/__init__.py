"""One module per engine; the file name is the registration (`llama_cpp` is shown as llama.cpp).

An engine module defines:

    NAME: str                        the name users write (`vllm`, `llama.cpp`)
    TITLE: str                       one line for `kvsize engines`
    VERSIONS: tuple[str, ...]        versions modelled, newest first
    OPTIONS: tuple[Option, ...]      options in the engine's own words
    KV_DTYPES: tuple[str, ...]       what the cache can hold: the names --kv-dtype takes
    NOT_MODELLED: tuple[str, ...]    what the figures leave out, in whole sentences
    def size(model: Model, request: Request) -> Size
    def fit(model: Model, request: Request, kv_memory: int) -> Fit      where it allocates blocks
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, cast

from kvsize.errors import UsageError
from kvsize.suggest import nearest

if TYPE_CHECKING:
    from kvsize.engines.options import Option, Request
    from kvsize.model import Model
    from kvsize.results import Size

_HELPERS = {"options"}
_SHOWN = {
    "llama_cpp": "llama.cpp",
    "lmdeploy_pytorch": "lmdeploy-pytorch",
    "lmdeploy_turbomind": "lmdeploy-turbomind",
    "mlx_lm": "mlx-lm",
    "tensorrt_llm": "tensorrt-llm",
}


class Engine(Protocol):
    """What an engine module offers."""

    NAME: str
    TITLE: str
    VERSIONS: tuple[str, ...]
    OPTIONS: tuple[Option, ...]
    KV_DTYPES: tuple[str, ...]
    NOT_MODELLED: tuple[str, ...]

    def size(self, model: Model, request: Request) -> Size:
        """The cache's bytes for `request`."""
        ...


def engines() -> list[str]:
    """The names of all engines, as users write them."""
    modules = (m.name for m in pkgutil.iter_modules(__path__))
    return sorted(_SHOWN.get(m, m) for m in modules if m not in _HELPERS and not m.startswith("_"))


def engine(name: str) -> Engine:
    """The engine called `name` (`llama.cpp`, `llama-cpp` and `llama_cpp` are one)."""
    known = engines()
    wanted = _module(str(name))
    if wanted not in map(_module, known):
        msg = f"no engine named '{name}'."
        raise UsageError(msg, nearest(str(name), known, "`kvsize engines` lists them"))
    return cast("Engine", importlib.import_module(f"kvsize.engines.{wanted}"))


def engine_for(name: str, model: Model) -> Engine:
    """The engine called `name`, where it can size `model`; UsageError otherwise.

    A GGUF header says how llama.cpp runs a model; no other engine caches by it.
    """
    found = engine(name)
    if model.source == "gguf" and _SHOWN["llama_cpp"] != found.NAME:
        msg = (
            f"{model.where}: a GGUF file is sized for {_SHOWN['llama_cpp']}, not for {found.NAME}."
        )
        raise UsageError(msg, "choose engine llama.cpp, or give the model's config.json.")
    return found


def _module(name: str) -> str:
    return name.lower().replace(".", "_").replace("-", "_")
