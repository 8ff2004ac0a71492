"""Getpaid's PayU simulator (python-getpaid-payu 3.2.0) as a process of its own.

Other people wrote it, for another plugin. It needs Python 3.12, so it lives in
`.nox/simulator_payu`, which `nox -s simulator_payu` builds. `Simulator` starts it on a free port,
receives its notifications, and is the shopper.

Its differences from PayU, by its source (`test_simulator.py` repeats the most important ones):

- Endpoints: no list of refunds (405), no refund by its number (404), no transactions (404), no
  payment methods (404). These answers are not in PayU's form.
- Credentials: every client_id gets a token, with any secret; tokens are checked.
- Orders: every body is accepted, also without a field that PayU needs; `extOrderId` may come
  twice. An order is `PENDING` from its creation on; there is no clock, and `validityTime` does
  nothing. It echoes all that was sent.
- Cancelling a paid order is answered with HTTP 200 and `ERROR_VALUE_INVALID`.
- Refunds: finalized immediately, of any amount and of unpaid orders too, and `extRefundId` names
  none.
- Notifications: `OpenPayU-Signature` with SHA-256; none for a refund. It sends them to the order's
  own `notifyUrl`.
- A restart forgets everything.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from payu_emulator.wire import Json, Reply

PYTHON = Path(__file__).parents[3] / ".nox/simulator_payu/bin/python"
PREFIX = "/payu"
SECOND_KEY = "the-second-key-of-the-simulator"
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Notification:
    """A notification as it arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def reference(self) -> str:
        """The reference of the order that it is about."""
        return str(json.loads(self.body)["order"]["extOrderId"])


class Simulator:
    """The simulator as a context manager. Each order's notifications come here, instead of the
    address that the order names.
    """

    def __init__(self, python: Path = PYTHON) -> None:
        self.received: list[Notification] = []
        self._python = python
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the receiver of notifications and the simulator, and wait until it answers."""
        receiver = ThreadingHTTPServer(("127.0.0.1", 0), _receiver(self.received))
        self._stack.callback(receiver.server_close)
        threading.Thread(
            target=receiver.serve_forever,
            kwargs={"poll_interval": 0.02},
            daemon=True,
        ).start()
        self._stack.callback(receiver.shutdown)
        self._notify_url = f"http://127.0.0.1:{receiver.server_address[1]}/"
        self._port = _free_port()
        log = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        process = subprocess.Popen(
            [self._python, Path(__file__).with_name("host.py"), str(self._port)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONIOENCODING": "utf-8",
                "SIMULATOR_PLUGIN_FAILURE_MODE": "strict",
                "SIMULATOR_PAYU_SECOND_KEY": SECOND_KEY,
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        until = time.monotonic() + 120
        while not self._answers():
            if process.poll() is not None or time.monotonic() > until:
                log.seek(0)
                output = log.read().decode(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"The simulator did not start:\n{output}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the simulator and the receiver; it forgets everything."""
        self._stack.close()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Pass a request of the merchant on, with the receiver's address in place of the shop's:
        the test delivers the notifications.
        """
        if method == "POST" and path == f"{PREFIX}/api/v2_1/orders":
            body = json.dumps({**json.loads(body), "notifyUrl": self._notify_url}).encode()
        names = {name: text for name, text in headers.items() if name != "content-length"}
        return self._call(method, path, names, body)

    def storage(self) -> list[Json]:
        """Return the simulator's orders, oldest first, with their refunds."""
        held: list[Json] = json.loads(self._call("GET", "/-/storage", {}, b"")[2])
        return held

    def order_of(self, reference: str) -> Json:
        """Return the order of a reference, or raise KeyError."""
        for order in reversed(self.storage()):
            if order.get("extOrderId") == reference:
                return order
        raise KeyError(reference)

    def act(self, reference: str, action: str) -> str:
        """Let the shopper `approve` or `reject`, and return the address that the shopper is sent
        to.
        """
        path = f"/sim/payu/authorize/{self.order_of(reference)['id']}"
        body = urlencode({"action": action}).encode()
        status, headers, content = self._call("POST", path, {"content-type": _FORM}, body)
        if status >= 400:
            raise RuntimeError(f"{action}: {status} {content.decode(errors='replace')[:300]}")
        return headers.get("location", "")

    def notify(self, reference: str) -> Notification:
        """Let the simulator send the notification of an order, and return it."""
        self._call("POST", f"/-/notify/{self.order_of(reference)['id']}", {}, b"")
        return next(one for one in reversed(self.received) if one.reference == reference)

    def _answers(self) -> bool:
        try:
            return self._call("GET", "/", {}, b"")[0] == 200
        except OSError:
            return False

    def _call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            names = {
                name.lower(): text
                for name, text in answer.getheaders()
                if name.lower() in ("content-type", "location")
            }
            return answer.status, names, answer.read()
        finally:
            connection.close()


def _free_port() -> int:
    """Return a port that nothing listens on, and which the system gives to no server that asks for
    any port.
    """
    while True:
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port := 20_000 + secrets.randbelow(12_000))),
        ):
            return port


def _receiver(received: list[Notification]) -> type[BaseHTTPRequestHandler]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(Notification(dict(self.headers.items()), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Receiver
