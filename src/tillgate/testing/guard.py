"""The guard of I12: no socket of ours connects or sends while a database transaction is open."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connections

_REMEDY = (
    "queue it with tillgate.shop.enqueue_remote, and send it in tillgate_deliver, which is "
    "called outside of any"
)
_GUARDED = ("connect", "connect_ex", "send", "sendall", "sendto", "sendmsg")


class NetworkInTransaction(AssertionError):
    """The network was used while a transaction was open."""


@contextmanager
def guarded_sockets() -> Iterator[list[str]]:
    """Let every use of a socket inside a transaction of the thread raise; yield the list of uses,
    since the code may hide the error.
    """
    caught: list[str] = []
    own = {
        int(settings["PORT"]) for settings in connections.settings.values() if settings.get("PORT")
    }
    real = {name: getattr(socket.socket, name) for name in _GUARDED}

    def guard(name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(sock: socket.socket, *arguments: Any) -> Any:
            if any(
                connection.in_atomic_block for connection in connections.all(initialized_only=True)
            ):
                peer = arguments[0] if name.startswith("connect") else _peer(sock)
                port = peer[1] if isinstance(peer, tuple) else None
                if sock.family in (socket.AF_INET, socket.AF_INET6) and port not in own:
                    caught.append(f"{name} to {peer} inside a transaction: {_REMEDY}")
                    sock.close()
                    raise NetworkInTransaction(caught[-1])
            return action(sock, *arguments)

        return guarded

    guards: dict[str, Any] = {name: guard(name, action) for name, action in real.items()}
    with mock.patch.multiple(socket.socket, **guards):
        yield caught


def _peer(sock: socket.socket) -> object:
    try:
        return sock.getpeername()
    except OSError:
        return None
