"""No test reaches the network or the user's own Hub cache."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from typing import Any

import pytest
from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("kvsize", deadline=None)
settings.load_profile("kvsize")

_LOOPBACK = ("127.", "::1", "localhost")
_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex
_hub_home = tempfile.mkdtemp(prefix="kvsize-tests-")

# Before any test imports the Hub client, which reads its environment once.
for _name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
    del os.environ[_name]
os.environ["HF_HOME"] = _hub_home
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --update` rewrites the snapshots instead of comparing with them."""
    parser.addoption("--update", action="store_true", help="rewrite tests/snapshots")


def pytest_unconfigure() -> None:
    """Remove the Hub cache that the tests filled."""
    shutil.rmtree(_hub_home, ignore_errors=True)


def _refuse_outside(address: Any) -> None:
    if isinstance(address, tuple) and not str(address[0]).startswith(_LOOPBACK):
        msg = f"a test tried to reach {address[0]}:{address[1]}"
        raise AssertionError(msg)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets connect to this machine only."""

    def connect(self: socket.socket, address: Any) -> None:
        _refuse_outside(address)
        _connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_outside(address)
        return _connect_ex(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)
