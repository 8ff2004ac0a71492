"""The transport for plugin authors: one deadline, and one classification of outcomes."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tillgate import (
    Account,
    AnswerNotUnderstood,
    GatewayProfile,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    WrongCredentials,
)
from tillgate.gateways import amount_of
from tillgate.gateways.http import Call

TOKEN = "the-token-of-a-plugin"
PROFILE = GatewayProfile(name="plugin", currencies=("EUR",))


class Handler(BaseHTTPRequestHandler):
    """Gives the test's answers."""

    status, body, drips = 200, b"{}", False
    seen: list[tuple[str, str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        type(self).seen.append((self.command, self.path, headers, sent))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body) + (100 if self.drips else 0)))
        self.send_header("X-Number", "7")
        self.end_headers()
        self.wfile.write(self.body)
        for _ in range(100 if self.drips else 0):
            time.sleep(0.1)
            try:
                self.wfile.write(b" ")
                self.wfile.flush()
            except OSError:
                return

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def gateway() -> Iterator[tuple[type[Handler], Account]]:
    """A server on this machine, and an account of it."""
    handler = type("Own", (Handler,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    yield handler, Account(base_url=address, token=TOKEN, sandbox=True, dialect=PROFILE)
    server.shutdown()
    server.server_close()


def test_json_and_form_travel(gateway: Any) -> None:
    handler, account = gateway
    handler.body = b'{"amount": 12.50}'
    call = Call(account, "query", "A-1")
    assert str(call.json("POST", "/a", json={"b": 1})["amount"]) == "12.50"
    answer = call.send("POST", "/c", form={"d": "e f"}, basic=("id", "secret"))
    assert answer.headers["x-number"] == "7"
    (_, _, first, sent), (_, _, second, form) = handler.seen
    assert (first["content-type"], sent) == ("application/json", b'{"b": 1}')
    assert (second["authorization"], form) == ("Basic aWQ6c2VjcmV0", b"d=e+f")


@pytest.mark.parametrize("status", [302, 408, 409, 429, 500, 503])
def test_answers_that_prove_nothing(gateway: Any, status: int) -> None:
    handler, account = gateway
    handler.status = status
    for operation in ("pay", "refund"):
        with pytest.raises(OutcomeUnknown) as caught:
            Call(account, operation, "A-1").send("POST", "/a")
        assert caught.value.http_status == status
    with pytest.raises(AnswerNotUnderstood):
        Call(account, "query", "A-1").send("GET", "/a")


@pytest.mark.parametrize("status", [400, 404, 413])
def test_proxys_page_proves_nothing(gateway: Any, status: int) -> None:
    """The gateway behind it may know the payment, or have made the refund."""
    handler, account = gateway
    handler.status, handler.body = status, b"\n<!doctype html><h1>Not Found</h1>"
    with pytest.raises(AnswerNotUnderstood):
        Call(account, "query", "A-1").send("GET", "/a")
    with pytest.raises(OutcomeUnknown):
        Call(account, "refund", "A-1").send("POST", "/a")


@pytest.mark.parametrize("body", [b"<html>", b'{"a": ', b"", b"\xff"])
def test_broken_json_proves_nothing(gateway: Any, body: bytes) -> None:
    handler, account = gateway
    handler.body = body
    with pytest.raises(OutcomeUnknown):
        Call(account, "pay", "A-1").json("POST", "/a")
    with pytest.raises(AnswerNotUnderstood):
        Call(account, "query", "A-1").json("GET", "/a")


@pytest.mark.parametrize(
    ("status", "operation", "kind"),
    [
        (401, "pay", WrongCredentials),
        (403, "query", WrongCredentials),
        (404, "query", OrderNotFound),
        (404, "refund", Refused),
        (400, "pay", Refused),
    ],
)
def test_refusals(gateway: Any, status: int, operation: str, kind: type[Refused]) -> None:
    handler, account = gateway
    handler.status, handler.body = status, b'{"code": "NO"}'
    with pytest.raises(Refused) as caught:
        Call(account, operation, "A-1").send(
            "POST",
            "/a",
            refusal=lambda answer: (answer.json()["code"], "no"),
        )
    assert (type(caught.value), caught.value.ret_code) == (kind, "NO")


def test_accepted_status_is_an_answer(gateway: Any) -> None:
    handler, account = gateway
    handler.status = 302
    assert Call(account, "pay", "A-1").json("POST", "/a", accept={302}) == {}


def test_fault_before_the_money_is_not_sent(gateway: Any) -> None:
    handler, account = gateway
    handler.status = 503
    with pytest.raises(NotSent):
        Call(account, "pay", "A-1").send("POST", "/token", moves_money=False)
    handler.status, handler.body = 200, b"<html>"
    with pytest.raises(NotSent):
        Call(account, "pay", "A-1").json("POST", "/token", moves_money=False)


def test_dripping_answer_ends_in_time(gateway: Any) -> None:
    handler, account = gateway
    handler.drips = True
    with pytest.raises(OutcomeUnknown):
        Call(account, "pay", "A-1", seconds=0.4).send("POST", "/a")
    call = Call(account, "pay", "A-1", seconds=0.4)
    time.sleep(0.5)
    with pytest.raises(NotSent):
        call.send("POST", "/a")


def test_no_connection_is_not_sent() -> None:
    nobody = Account(base_url="http://127.0.0.1:1", token=TOKEN, sandbox=True, dialect=PROFILE)
    for operation in ("pay", "query", "refund"):
        with pytest.raises(NotSent):
            Call(nobody, operation, "A-1").send("POST", "/a")


def test_i11_no_error_shows_a_secret(gateway: Any) -> None:
    handler, account = gateway
    handler.status, handler.body = 400, f"unknown key {TOKEN} and derived-one".encode()
    call = Call(account, "pay", "A-1", secrets=["derived-one"])
    with pytest.raises(Refused) as caught:
        call.send("POST", "/a", headers={"Authorization": f"Bearer {TOKEN}"})
    shown = "".join(traceback.format_exception(caught.value)) + repr(call)
    assert TOKEN not in shown
    assert "derived-one" not in shown
    assert "unknown key *** and ***" in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "error"),
    [("pay", OutcomeUnknown), ("refund", OutcomeUnknown), ("query", AnswerNotUnderstood)],
)
def test_answer_that_cannot_be_read_proves_nothing(
    gateway: Any,
    operation: str,
    error: type[Exception],
) -> None:
    """A missing or strange field is named, and a secret in it is hidden."""
    _, account = gateway
    answer: dict[str, str] = {}
    secret = "-".join(("derived", "one"))
    call = Call(account, operation, "A-1", secrets=[secret])
    for read in (lambda: answer["amount"], lambda: int(secret), lambda: amount_of(1, "xx")):
        with pytest.raises(error) as caught, call.reading():
            read()
        assert "not as documented" in str(caught.value)
        assert secret not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(error, match="KeyError: 'amount'"), call.reading():
        _ = answer["amount"]
    with pytest.raises(OrderNotFound), call.reading():
        raise OrderNotFound("x", "no such payment", 404)
