"""The guard in conftest.py does refuse what it is there to refuse."""

from __future__ import annotations

import socket

import pytest


def test_a_socket_to_another_machine_is_refused() -> None:
    # 192.0.2.0/24 is reserved for documentation (RFC 5737).
    with (
        socket.socket() as outside,
        pytest.raises(AssertionError, match=r"^a test tried to reach 192\.0\.2\.1:443$"),
    ):
        outside.connect(("192.0.2.1", 443))


def test_a_socket_to_this_machine_is_not() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        assert client.getpeername() == server.getsockname()
