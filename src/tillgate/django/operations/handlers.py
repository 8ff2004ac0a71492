"""The time limit of a shop's handlers. Python cannot end a thread that hangs, so the limit cuts its connection to the database instead.

A handler runs inside the transaction that marks its event delivered, under the order's lock. When its time is over, another thread cuts the
connection: the database undoes the transaction and frees the order, and nothing that the handler does later can take effect (I3). That
thread then notes the failure, and mails the review; so no worker is needed for it. In a worker it ends the process at last, for its
supervisor to start it again; in a web process the thread that hangs is lost until the handler returns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tillgate.django.conf import get_settings
from tillgate.django.models import database

_log = logging.getLogger("tillgate")

Note = Callable[["HandlerHangs"], object]

_EXIT_STATUS: Final = 75
"""EX_TEMPFAIL: start the process again."""
_GRACE_SECONDS: Final = 1.0
"""For a handler to return after the cut: one that waits for the database does."""

_ends_process = threading.Event()
"""Whether a handler that hangs ends this process."""


class HandlerHangs(Exception):
    """A shop's handler has not returned within its time limit."""


@contextmanager
def hanging_ends_process() -> Iterator[None]:
    """Let a handler that hangs within a block end this process, which a supervisor starts again: it is a worker's."""
    _ends_process.set()
    try:
        yield
    finally:
        _ends_process.clear()


@contextmanager
def time_limit(note: Note, about: str, seconds: float | None = None) -> Iterator[None]:
    """Limit the time of a block that runs a handler, by default to HANDLER_SECONDS.

    Where it hangs, cut this thread's connection and call `note` in another thread.
    """
    seconds = get_settings().handler_seconds if seconds is None else seconds
    watch = _Watch(connections[database()], note, f"{about}: the handler has not returned within {seconds:g} s")
    timer = threading.Timer(seconds, watch.is_over)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        watch.end()


class _Watch:
    """Whether a handler has returned or its time is over, whichever came first."""

    def __init__(self, connection: BaseDatabaseWrapper, note: Note, fault: str) -> None:
        self._connection, self._note, self._fault = connection, note, HandlerHangs(fault)
        self._lock, self._returned, self._is_cut = threading.Lock(), threading.Event(), False

    def end(self) -> None:
        """Note that the handler has returned; raise where its time was over before."""
        with self._lock:
            self._returned.set()
        if self._is_cut:
            raise self._fault

    def is_over(self) -> None:
        """Cut the connection of a handler that has not returned, note it, and end the process of a worker."""
        with self._lock:
            if self._returned.is_set():
                return
            self._is_cut = True
            _log.error("%s; its connection to the database is cut", self._fault)
            with contextlib.suppress(Exception):  # it may be cut already
                _cut(self._connection)
        try:
            self._note(self._fault)
        except Exception:
            _log.exception("what hangs could not be noted")
        finally:
            connections.close_all()  # this thread's own
        if _ends_process.is_set() and not self._returned.wait(_GRACE_SECONDS):
            _log.critical("the worker ends, since a handler hangs: its supervisor starts it again")
            logging.shutdown()
            os._exit(_EXIT_STATUS)


def _cut(wrapper: BaseDatabaseWrapper) -> None:
    """Cut a connection that another thread uses. The server undoes its transaction, and the thread gets an error at its next statement."""
    connection: Any = wrapper.connection
    if wrapper.vendor == "sqlite":
        connection.close()
        return
    if hasattr(connection, "fileno"):  # psycopg
        with socket.socket(fileno=os.dup(connection.fileno())) as shared:
            shared.shutdown(socket.SHUT_RDWR)
        return
    with contextlib.closing(wrapper.copy()) as other, other.cursor() as cursor:  # MySQL's clients show no socket
        cursor.execute("KILL %s", [connection.thread_id()])
