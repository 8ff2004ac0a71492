"""A guard that refuses connections with pytest-socket, and records every attempt, so that code
under test cannot hide one.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest_socket


@contextlib.contextmanager
def blocked(allowed_hosts: Sequence[str] = ()) -> Iterator[list[str]]:
    """Refuse connections and name look-ups, except to the allowed hosts and Unix sockets; yield the
    list of attempts.

    The list exists because the code under test may catch the exceptions.
    """
    attempts: list[str] = []
    kept = {name: getattr(socket, name) for name in ("socket", "getaddrinfo", "gethostbyname")}
    # restored afterwards
    with (
        mock.patch.object(socket.socket, "connect", socket.socket.connect),
        mock.patch.multiple(socket, **kept),
    ):
        # Connecting is guarded as well as opening: some code holds a class that it imported before
        # the guard was installed.
        pytest_socket.socket_allow_hosts(list(allowed_hosts), allow_unix_socket=True)
        socket.socket.connect = _remembering(socket.socket.connect, attempts)  # type: ignore[method-assign]
        if not allowed_hosts:
            pytest_socket.disable_socket(allow_unix_socket=True)
            socket.socket = _remembering_class(socket.socket, attempts)  # type: ignore[misc]
            socket.getaddrinfo = _remembering(socket.getaddrinfo, attempts)
            socket.gethostbyname = _remembering(socket.gethostbyname, attempts)
        yield attempts


def _remembering(guard: Callable[..., Any], attempts: list[str]) -> Callable[..., Any]:
    @functools.wraps(guard)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return guard(*args, **kwargs)
        # Both are the guard's refusal: where warnings are errors, its warning is raised in place of
        # its error.
        except (RuntimeError, UserWarning) as error:
            attempts.append(str(error))
            raise

    return guarded


def _remembering_class(guarded: type[socket.socket], attempts: list[str]) -> type[socket.socket]:
    # the guard's class is made at run time
    class RememberingSocket(guarded):  # type: ignore[valid-type, misc]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _remembering(super().__new__, attempts)(cls, *args, **kwargs)

    return RememberingSocket
