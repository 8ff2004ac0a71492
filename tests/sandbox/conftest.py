"""Merchants to call the emulator with, in process and over HTTP, and a receiver for its
notifications.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_TEST_TOKEN,
    Answer,
    Clock,
    Options,
    Sandbox,
    Service,
)
from tillgate.sandbox.signing import signature

PATHS = {
    "pay": "/online/v1/secure-pay",
    "query": "/online/v1/tran-query",
    "refund": "/online/v1/refund",
}
ORDER = {
    "currency": "USD",
    "amount": "12.50",
    "vendor": "alipay",
    "reference": "100017-7Q2MZK4RXW3DA",
    "terminal": "ONLINE",
    "ipnUrl": "http://127.0.0.1:9/ipn",
    "callbackUrl": "https://shop.example/back?amount={amount}&status={status}&no={transactionNo}&reference={reference}",
}


def signed(parameters: dict[str, Any], *, keep_empty: bool = False) -> dict[str, Any]:
    """Add the members that every request needs."""
    whole = {"merchantNo": PUBLISHED_MERCHANT_NO, **parameters}
    texts = {name: _wire_text(value) for name, value in whole.items()}
    return {**whole, "verifySign": signature(texts, PUBLISHED_TEST_TOKEN, keep_empty=keep_empty)}


def _wire_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass
class Merchant:
    """Calls a service in process."""

    service: Service
    clock: Clock

    def send(self, path: str, parameters: dict[str, Any], *, form: bool = False) -> Answer:
        """Send exactly these parameters."""
        if form:
            return self.service.handle(
                path,
                "application/x-www-form-urlencoded",
                urlencode(parameters).encode(),
            )
        return self.service.handle(path, "application/json", json.dumps(parameters).encode())

    def call(self, operation: str, parameters: dict[str, Any], *, form: bool = False) -> Answer:
        """Sign and send."""
        return self.send(PATHS[operation], signed(parameters), form=form)

    def pay(self, **changes: Any) -> Answer:
        """Create a payment; None leaves a field out."""
        wanted = {**ORDER, **changes}
        return self.call(
            "pay",
            {name: value for name, value in wanted.items() if value is not None},
        )

    def query(self, reference: str = ORDER["reference"]) -> Answer:
        """Ask for a payment."""
        return self.call("query", {"reference": reference})

    def refund(self, amount: str, reference: str = ORDER["reference"], **changes: Any) -> Answer:
        """Refund."""
        return self.call("refund", {"reference": reference, "amount": amount, **changes})

    def paid(self, **changes: Any) -> str:
        """Create a payment and pay it; return its transactionNo."""
        result = said(self.pay(**changes))["result"]
        self.service.decide(result["transactionNo"], "pay")
        return str(result["transactionNo"])


def said(answer: Answer) -> Any:
    """Return an answer's content."""
    return json.loads(answer.body)


@pytest.fixture
def merchant() -> Callable[..., Merchant]:
    """Build a merchant whose gateway has the named options."""

    def build(**options: Any) -> Merchant:
        clock = Clock.standing()
        return Merchant(
            Service(
                Options.read({"seed": 7, "public_url": "https://pay.example", **options}),
                clock=clock,
            ),
            clock,
        )

    return build


@dataclass
class HttpMerchant:
    """Calls a sandbox over HTTP."""

    base_url: str

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout_seconds: float = 5,
    ) -> tuple[int, dict[str, str], bytes]:
        """Make one request on a connection of its own."""
        parts = urlsplit(self.base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_seconds)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def post(self, path: str, parameters: dict[str, Any], **headers: str) -> tuple[int, Any]:
        """Post JSON and read JSON."""
        status, _, body = self.request(
            "POST",
            path,
            json.dumps(parameters).encode(),
            {"Content-Type": "application/json", **headers},
        )
        return status, json.loads(body)

    def pay(self, **changes: Any) -> tuple[int, Any]:
        """Create a payment."""
        return self.post(PATHS["pay"], signed({**ORDER, **changes}))

    def query(self, reference: str = ORDER["reference"]) -> tuple[int, Any]:
        """Ask for a payment."""
        return self.post(PATHS["query"], signed({"reference": reference}))

    def refund(self, amount: str, **changes: Any) -> tuple[int, Any]:
        """Refund."""
        return self.post(
            PATHS["refund"],
            signed({"reference": ORDER["reference"], "amount": amount, **changes}),
        )


@pytest.fixture(scope="module")
def shared_sandbox() -> Iterator[Sandbox]:
    """One sandbox for the tests of a module that do not mind each other."""
    with Sandbox(
        Options(seed=7, delay_seconds=0.05, drip_pause_seconds=0.001, huge_body_bytes=200_000),
    ) as running:
        yield running


@pytest.fixture
def sandbox(shared_sandbox: Sandbox) -> Sandbox:
    """Give the module's sandbox, emptied."""
    shared_sandbox.control.reset()
    shared_sandbox.control.clear_faults()
    return shared_sandbox


@pytest.fixture
def http(sandbox: Sandbox) -> HttpMerchant:
    """Give a merchant of that sandbox."""
    return HttpMerchant(sandbox.base_url)


@pytest.fixture
def merchant_at() -> Callable[[str], HttpMerchant]:
    """Build a merchant of the sandbox at an address."""
    return HttpMerchant


@dataclass
class Receiver:
    """A merchant's own server: keeps its requests, and gives the prepared answers, the last one
    again and again.
    """

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, b"success")])
    got: list[tuple[str, str, str, bytes]] = field(default_factory=list)

    def next_answer(self) -> tuple[int, bytes]:
        """Take the next answer."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a receiver for notifications."""
    kept = Receiver()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with lock:
                kept.got.append(
                    (self.command, self.path, self.headers.get("content-type") or "", body),
                )
                status, answer = kept.next_answer()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{kept.url}/redirected")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET = _serve  # noqa: N815  the base class names them so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()
