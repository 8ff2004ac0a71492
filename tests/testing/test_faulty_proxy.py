"""The proxy passes everything on, and plays each fault for as many calls as ordered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tillgate.testing.faulty_proxy import FaultyProxy

ORDER = {"id": "7", "orderTotal": "12.50", "currencyCode": "PLN", "lines": [{"amount": 1250}]}


class Emulator(BaseHTTPRequestHandler):
    """Answers every request with its own content."""

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.arrived.append(f"{self.command} {self.path}")  # type: ignore[attr-defined]
        order = {**ORDER, "path": self.path, "status": "PAID", "access_token": "derived-1"}
        self.send_response_only(201)
        self.send_header("X-Name", self.headers.get("X-Name", ""))
        self.end_headers()
        self.wfile.write(json.dumps(order).encode())

    do_GET = do_POST = _serve  # noqa: N815


@pytest.fixture
def arrived() -> list[str]:
    return []


@pytest.fixture
def proxy(arrived: list[str]) -> Iterator[FaultyProxy]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Emulator)
    server.arrived = arrived
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    calls = {"pay": "POST /orders", "query": "GET /orders/[^/]+"}
    target = f"http://127.0.0.1:{server.server_address[1]}"
    started = FaultyProxy(target, calls, refusal={"code": "no"}).start()
    yield started
    started.stop()
    server.shutdown()
    server.server_close()
    thread.join()


def query(proxy: FaultyProxy, path: str = "/orders/7?a=b") -> httpx.Response:
    return httpx.get(proxy.url + path, headers={"X-Name": "x", "Authorization": "Bearer t-1"})


def test_requests_and_answers_pass_unchanged(proxy: FaultyProxy, arrived: list[str]) -> None:
    answer = query(proxy)
    assert (answer.status_code, answer.headers["X-Name"]) == (201, "x")
    assert answer.json()["path"] == "/orders/7?a=b"
    assert arrived == ["GET /orders/7?a=b"]
    assert (proxy.received("query"), proxy.received("pay")) == (1, 0)


def test_credentials_and_tokens_are_remembered(proxy: FaultyProxy) -> None:
    query(proxy)
    assert proxy.secrets() == {"t-1", "derived-1"}


@pytest.mark.parametrize(
    ("fault", "status", "is_done"),
    [
        ("refused", 400, False),
        ("denied", 404, False),
        ("rate_limited", 429, False),
        ("server_error", 500, False),
        ("redirect", 302, False),
        ("html_body", 200, True),
    ],
)
def test_status_replaces_the_answer_once(
    proxy: FaultyProxy,
    arrived: list[str],
    fault: str,
    status: int,
    is_done: bool,
) -> None:
    proxy.fault(fault, "query")
    assert (query(proxy).status_code, bool(arrived)) == (status, is_done)
    assert query(proxy).status_code == 201


@pytest.mark.parametrize(
    ("fault", "is_done"),
    [("lost_request", False), ("lost_response", True), ("cut_body", True)],
)
def test_connection_breaks(
    proxy: FaultyProxy,
    arrived: list[str],
    fault: str,
    is_done: bool,
) -> None:
    proxy.fault(fault, "query")
    with pytest.raises(httpx.RemoteProtocolError):
        query(proxy)
    assert bool(arrived) is is_done


def test_slow_answer_comes_late(proxy: FaultyProxy) -> None:
    proxy.fault("slow", "query", seconds=5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{proxy.url}/orders/7", timeout=0.2)


def test_broken_json_ends_in_the_middle(proxy: FaultyProxy) -> None:
    proxy.fault("broken_json", "query")
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        query(proxy).json()


@pytest.mark.parametrize(
    ("fault", "spoilt"),
    [
        ("missing_currency", {"currencyCode": None}),
        ("wrong_currency", {"currencyCode": "EUR"}),
        ("missing_amount", {"orderTotal": None, "lines": [{}]}),
        ("wrong_amount", {"orderTotal": "1", "lines": [{"amount": 1}]}),
        ("strange_status", {"status": "quantum"}),
    ],
)
def test_members_are_spoilt_by_their_names(
    proxy: FaultyProxy,
    fault: str,
    spoilt: dict[str, Any],
) -> None:
    proxy.fault(fault, "query", times=2)
    for _ in range(2):
        answer = query(proxy).json()
        assert {name: answer.get(name) for name in spoilt} == spoilt
    assert query(proxy).json()["currencyCode"] == "PLN"


def test_answer_of_another_request_comes(proxy: FaultyProxy) -> None:
    query(proxy, "/orders/8")
    proxy.fault("other_reference", "query")
    assert query(proxy, "/orders/7").json()["path"] == "/orders/8"
    assert query(proxy, "/orders/7").json()["path"] == "/orders/7"


def test_other_calls_are_left_alone(proxy: FaultyProxy) -> None:
    proxy.fault("server_error", "pay")
    assert query(proxy).status_code == 201
    proxy.clear()
    assert httpx.post(f"{proxy.url}/orders").status_code == 201


@pytest.mark.parametrize(("fault", "operation"), [("unheard", "query"), ("slow", "refund")])
def test_unknown_fault_or_operation_is_refused(
    proxy: FaultyProxy,
    fault: str,
    operation: str,
) -> None:
    with pytest.raises(NotImplementedError, match=f"{fault}.*{operation}"):
        proxy.fault(fault, operation)
