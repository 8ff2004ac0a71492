"""The wire between the plugin and an emulator of PayU: it counts requests, and loses, delays or
spoils answers.

Both emulators stand behind it, so each fault is the same for the fake and for the simulator.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Json = dict[str, Any]
Reply = tuple[int, Mapping[str, str], bytes]
Handle = Callable[[str, str, Mapping[str, str], bytes], Reply]

_ORDER = r"/api/v2_1/orders/[^/]+"
OPERATIONS = {
    "token": ("POST", r"/pl/standard/user/oauth/authorize"),
    "pay": ("POST", r"/api/v2_1/orders"),
    "query": ("GET", _ORDER),
    "close": ("DELETE", _ORDER),
    "refund": ("POST", rf"{_ORDER}/refunds"),
    "list_refunds": ("GET", rf"{_ORDER}/refunds"),
    "query_refund": ("GET", rf"{_ORDER}/refunds/[^/]+"),
    "transactions": ("GET", rf"{_ORDER}/transactions"),
    "methods": ("GET", r"/api/v2_1/paymethods"),
}


@dataclass(frozen=True)
class Fault:
    """The fault of the next answer of an operation. Without `status` the emulator works."""

    loses_request: bool = False
    loses_answer: bool = False
    seconds: float = 0.0
    status: int = 0
    body: bytes = b""
    spoil: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    operation: str
    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def json(self) -> Json:
        """The content of the body."""
        content: Json = json.loads(self.body)
        return content


class Wire:
    """An HTTP server in front of `handle`, as a context manager; `url` is its address."""

    def __init__(self, handle: Handle, prefix: str = "") -> None:
        self.requests: list[Request] = []
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._handle, self._prefix = handle, prefix
        self.url = ""

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = self.origin + self._prefix
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            daemon=True,
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault(self, operation: str, fault: Fault, times: int = 1) -> None:
        """Let something be wrong with the next answers of an operation."""
        self.faults[operation].extend([fault] * times)

    def of(self, operation: str) -> list[Request]:
        """Return the requests of an operation, oldest first."""
        return [one for one in self.requests if one.operation == operation]

    def _named(self, method: str, path: str) -> str:
        path = path.removeprefix(self._prefix).partition("?")[0]
        return next(
            (
                name
                for name, (verb, pattern) in OPERATIONS.items()
                if verb == method and re.fullmatch(pattern, path)
            ),
            "other",
        )

    def reply(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply | None:
        """Return the answer to a request, or None where it is lost."""
        name = self._named(method, path)
        self.requests.append(Request(name, path, headers, body))
        fault = self.faults[name].popleft() if self.faults[name] else Fault()
        if fault.loses_request:
            return None
        if fault.status:
            content = fault.spoil(fault.body) if fault.spoil else fault.body
            return fault.status, {"Content-Type": "application/json"}, content
        status, names, content = self._handle(method, path, headers, body)
        time.sleep(fault.seconds)
        if fault.loses_answer:
            return None
        return status, names, fault.spoil(content) if fault.spoil else content

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # head and body leave together; the answer would wait for an acknowledgement otherwise
            wbufsize = 1 << 16

            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): text for name, text in self.headers.items()}
                reply = wire.reply(self.command, self.path, headers, body)
                if reply is None:
                    self.close_connection = True
                    return
                status, names, content = reply
                try:
                    self.send_response(status)
                    for name, text in names.items():
                        self.send_header(name, text)
                    self.send_header("Content-Length", str(len(content)))
                    self.send_header("Connection", "close")  # the next test has another server
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:  # the client did not wait
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = do_any  # noqa: N815 - the server's names

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
