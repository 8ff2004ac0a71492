"""A raw HTTP server that answers with exactly the bytes, pauses and cuts that a test scripts, and
counts the requests.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl


class Cut(Enum):
    """How a script ends a conversation. Without one the connection is kept."""

    CLOSE = "close"
    RESET = "reset"


class PastTls(bytes):
    """Bytes that are sent as they are in the middle of a TLS connection, as a broken proxy does."""


@dataclass(frozen=True)
class Received:
    """One request, as it was on the wire."""

    head: str
    body: bytes

    @property
    def target(self) -> str:
        return self.head.split(" ")[1]

    @property
    def operation(self) -> str:
        return {"secure-pay": "pay", "tran-query": "query", "refund": "refund"}[
            self.target.rpartition("/")[2]
        ]

    @property
    def headers(self) -> dict[str, str]:
        lines = (line.partition(":") for line in self.head.splitlines()[1:])
        return {name.lower(): value.strip() for name, _, value in lines}

    @property
    def parameters(self) -> dict[str, str]:
        if "json" in self.headers["content-type"]:
            parameters: dict[str, str] = json.loads(self.body)
            return parameters
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True, strict_parsing=True))


Step = bytes | float | Cut
Script = Callable[[Received], Iterable[Step]]


def http(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """Return an HTTP answer; a body that is not bytes is written as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + content


class ScriptedGateway:
    """Listens on a free port of this machine while it is entered."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=10)

    def wait_until_none_is_open(self) -> bool:
        """Tell whether every connection has ended, within some seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout=5)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, raw: socket.socket) -> None:
        connection = raw
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self.connections += 1
        try:
            if self._tls:
                connection = self._tls.wrap_socket(raw, server_side=True)
            with self._changed:
                self._open.add(connection)
            with contextlib.closing(connection.makefile("rb")) as stream:
                while self._answer(connection, stream):
                    pass
        except OSError:
            pass  # the client hung up, which is its right
        finally:
            connection.close()
            with self._changed:
                self._open.discard(connection)
                self._changed.notify_all()

    def _answer(self, connection: socket.socket, stream: Any) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return False
            head += line
        received = Received(head.decode("latin-1"), b"")
        received = Received(received.head, stream.read(int(received.headers["content-length"])))
        with self._changed:
            self.requests.append(received)
        for step in self.script(received):
            if isinstance(step, PastTls):
                socket.socket.sendall(connection, step)
            elif isinstance(step, bytes):
                connection.sendall(step)
            elif isinstance(step, float):
                if self._stopped.wait(step):
                    return False
            else:
                if step is Cut.RESET:
                    connection.setsockopt(
                        socket.SOL_SOCKET,
                        socket.SO_LINGER,
                        struct.pack("ii", 1, 0),
                    )
                return False
        return True


def always(*steps: Step) -> Script:
    """Return a script that answers every request alike."""
    return lambda _request: steps


def in_turn(*replies: Iterable[Step]) -> Script:
    """Return a script that answers the first request with the first reply, and all after the last
    one with the last.
    """
    lock, left = threading.Lock(), list(replies)

    def script(_request: Received) -> Iterable[Step]:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return script
