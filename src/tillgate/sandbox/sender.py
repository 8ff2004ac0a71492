"""Sending notifications: a background task that waits for the next one and passes it to a few
threads.

Plain `http.client` follows no redirect of a merchant and uses no proxy. A sandbox that strangers
can reach sends notifications to public addresses only, unless `notification_hosts` names the hosts:
it must not be a way into its own network.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from .access import NOTIFICATION_AGENT
from .control import Control
from .notifications import NotificationAttempt

_ANSWER_BYTES = 4096
_THREADS = 8


def send(
    attempt: NotificationAttempt,
    timeout_seconds: float,
    hosts: tuple[str, ...] = (),
    *,
    public: bool = False,
) -> tuple[int | None, bytes, str]:
    """Send one notification, for a `public` sandbox without `hosts` to public addresses only;
    return the status, the body and the error.
    """
    parts = urlsplit(attempt.url)
    host = parts.hostname or ""
    if hosts and host not in hosts:
        return None, b"", f"{host} is not one of the hosts that notifications may go to"
    secure = parts.scheme == "https"
    try:
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(
            host,
            parts.port,
        )
        with contextlib.closing(connection):
            addresses = _public_addresses(host) if public and not hosts else [host]
            connection.sock = _connect(addresses, connection.port, timeout_seconds)
            if secure:
                connection.sock = ssl.create_default_context().wrap_socket(
                    connection.sock,
                    server_hostname=host,
                )
            return _exchange(connection, attempt)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return None, b"", f"{type(error).__name__}: {error}"


def _public_addresses(host: str) -> list[str]:
    """Resolve a host once, so that the connection goes to the checked address; one address that is
    not public refuses the host.
    """
    addresses = list(
        dict.fromkeys(
            str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        ),
    )
    for address in addresses:
        known = ipaddress.ip_address(address)
        if not known.is_global or known.is_multicast:
            raise PermissionError(
                f"{host} is at {address}, which is not public: notifications of a public sandbox "
                "go there if notification_hosts says so",
            )
    return addresses


def _connect(addresses: list[str], port: int, timeout_seconds: float) -> socket.socket:
    failure = OSError("the host has no address")
    for address in addresses:
        try:
            connected = socket.create_connection((address, port), timeout_seconds)
        except OSError as error:
            failure = error
        else:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
    raise failure


def _exchange(
    connection: http.client.HTTPConnection,
    attempt: NotificationAttempt,
) -> tuple[int | None, bytes, str]:
    parts = urlsplit(attempt.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": NOTIFICATION_AGENT, "Connection": "close"}
    if attempt.content_type:
        headers["Content-Type"] = attempt.content_type
    connection.request(attempt.method, target, body=attempt.body or None, headers=headers)
    response = connection.getresponse()
    return response.status, response.read(_ANSWER_BYTES), ""


class Sender:
    """The background task; it lives as long as the server."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._bell = asyncio.Event()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sandbox-notification")
        self._running: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Send the due notifications, sleep until the next one, and wake early when the bell
        rings.
        """
        loop = asyncio.get_running_loop()
        self._control.ring = lambda: self._ring(loop)
        try:
            while True:
                self._bell.clear()
                attempts, wait_seconds = self._control.due_notifications()
                for attempt in attempts:
                    task = loop.run_in_executor(self._pool, self._deliver, attempt)
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._bell.wait(), wait_seconds)
        finally:
            self._control.ring = lambda: None
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no sender is left to wake
            loop.call_soon_threadsafe(self._bell.set)

    def _deliver(self, attempt: NotificationAttempt) -> None:
        options = self._control.service.options
        http_status, body, error = send(
            attempt,
            options.notification_timeout_seconds,
            options.notification_hosts,
            public=self._control.public,
        )
        self._control.notification_answered(attempt, http_status, body, error)
