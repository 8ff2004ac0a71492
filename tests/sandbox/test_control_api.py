"""The control API does the same as `Control`, for the machine itself and no other."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

from tillgate.sandbox import PUBLISHED_TEST_TOKEN, Options, Sandbox
from tillgate.sandbox.access import NOTIFICATION_AGENT, Access

if TYPE_CHECKING:
    from tests.sandbox.conftest import HttpMerchant, Receiver

    At = Callable[[str], HttpMerchant]

REFERENCE = "100017-7Q2MZK4RXW3DA"
LOCAL = ["/", "/transactions/1", "/_control/state"]


def action(http: HttpMerchant, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    raw = None if body is None else json.dumps(body).encode()
    status, _, answer = http.request(
        method,
        f"/_control{path}",
        raw,
        {"Content-Type": "application/json"} if raw else {},
    )
    return status, json.loads(answer)


# Failure first: callers without permission.


@pytest.fixture(params=["0.0.0.0", "::"])
def public_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "::" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with Sandbox(Options(seed=1), host=request.param) as sandbox:
        yield sandbox


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_public_address_exposes_only_the_service(
    public_sandbox: Sandbox,
    merchant_at: At,
) -> None:
    """There is no control and no ledger."""
    http = merchant_at(public_sandbox.base_url)
    assert [http.request("GET", path)[0] for path in LOCAL] == [404, 404, 404]
    assert (
        http.request("POST", "/_control/reset", b"{}", {"Content-Type": "application/json"})[0]
        == 404
    )
    status, answer = http.pay()
    assert status == 200
    assert (
        http.request("GET", "/cashier/" + answer["result"]["cashierUrl"].rpartition("/")[2])[0]
        == 200
    )


def test_public_control_works_on_request(merchant_at: At) -> None:
    with Sandbox(Options(seed=1), host="0.0.0.0", control_public=True) as sandbox:
        http = merchant_at(sandbox.base_url)
        assert http.request("GET", "/_control/state", headers={"Host": "pay.example"})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[::1"},
        {"Host": ""},
        {"X-Forwarded-For": "203.0.113.1"},
        {"Forwarded": "for=203.0.113.1"},
        {"User-Agent": NOTIFICATION_AGENT},
    ],
)
@pytest.mark.parametrize("path", LOCAL)
def test_foreign_host_or_proxy_sees_nothing(
    sandbox: Sandbox,
    http: HttpMerchant,
    path: str,
    headers: dict[str, str],
) -> None:
    assert http.request("GET", path, headers=headers)[0] == 404


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:1", "http://["],
)
def test_a_page_of_another_origin_cannot_act(
    sandbox: Sandbox,
    http: HttpMerchant,
    origin: str,
) -> None:
    headers = {"Content-Type": "application/json", "Origin": origin}
    assert http.request("POST", "/_control/reset", b"{}", headers)[0] == 404


@pytest.mark.parametrize("control_public", [False, True])
def test_a_notification_is_never_a_command(merchant_at: At, control_public: bool) -> None:
    with Sandbox(
        Options(seed=1, notification_format="json"),
        control_public=control_public,
    ) as sandbox:
        merchant_at(sandbox.base_url).pay(ipnUrl=f"{sandbox.base_url}/_control/reset")
        sandbox.control.pay(REFERENCE)
        assert sandbox.control.wait_for_notifications()
        assert len(sandbox.service.transactions()) == 1
        assert sandbox.service.outbox.next_due() is not None, (
            "it was not acknowledged and comes again"
        )


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_cross_site_form_is_refused(
    sandbox: Sandbox,
    http: HttpMerchant,
    content_type: str,
) -> None:
    assert http.request("POST", "/_control/reset", b"{}", {"Content-Type": content_type})[0] == 400


def test_remote_client_sees_nothing() -> None:
    """Using a local host name does not help."""
    for client, may in (("203.0.113.9", False), ("127.0.0.1", True), ("::1", True)):
        scope = {"type": "http", "client": (client, 1), "headers": [(b"host", b"localhost:8181")]}
        assert Access().may_look(Request(scope)) is may


# Failure: requests that are not understood.


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/reset", b'{"a":' + b"[" * 100_000),
        ("/clock", b'{"advance_seconds": 1' + b"0" * 400 + b"}"),
        ("/clock", b'{"advance_seconds": 1e12}'),
    ],
    ids=["too deep", "no number of seconds", "past the end of the calendar"],
)
def test_impossible_action_is_refused_with_reason(
    merchant_at: At,
    path: str,
    body: bytes,
) -> None:
    with Sandbox(Options(seed=1)) as sandbox:
        http = merchant_at(sandbox.base_url)
        status, _, answer = http.request(
            "POST",
            f"/_control{path}",
            body,
            {"Content-Type": "application/json"},
        )
        assert (status, list(json.loads(answer))) == (400, ["error"])
        assert http.request("GET", "/")[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/clock", {}, 400),
        ("POST", "/clock", {"advance_seconds": "1"}, 400),
        ("POST", "/clock", {"advance_seconds": -1}, 400),
        ("POST", "/clock", {"advance_seconds": 1, "set": 2}, 400),
        ("POST", "/clock", [], 400),
        ("PATCH", "/options", {"query_amout": "text"}, 400),
        ("PATCH", "/options", {"query_amount": "float"}, 400),
        ("PATCH", "/options", {"seed": 2}, 400),
        ("POST", "/faults", {"fault": "lost"}, 400),
        ("POST", "/faults", {"fault": "delay", "times": "2"}, 400),
        ("POST", "/faults", {"fault": "delay", "when": "now"}, 400),
        ("POST", "/faults", {"fault": "delay", "reference": 7}, 400),
        ("GET", "/transactions/NOBODY", None, 404),
        ("POST", "/transactions/NOBODY/pay", {}, 404),
        ("POST", f"/transactions/{REFERENCE}/steal", {}, 400),
        ("POST", f"/transactions/{REFERENCE}/reverse", {}, 409),
        ("POST", f"/transactions/{REFERENCE}/refund", {"amount": "1.00"}, 409),
        ("POST", f"/transactions/{REFERENCE}/refund", {"amount": 1}, 400),
        ("POST", f"/transactions/{REFERENCE}/refund", {"amount": "1e3"}, 400),
        ("POST", f"/transactions/{REFERENCE}/pay", {"amount": "1.00"}, 400),
        ("POST", f"/transactions/{REFERENCE}/notifications", {"kind": "mail"}, 400),
        ("POST", f"/transactions/{REFERENCE}/notifications", {"kind": "refund"}, 409),
    ],
)
def test_unclear_request_is_refused_with_reason(
    sandbox: Sandbox,
    http: HttpMerchant,
    method: str,
    path: str,
    body: Any,
    status: int,
) -> None:
    http.pay()
    got, answer = action(http, method, path, body)
    assert got == status
    assert len(answer["error"]) > 8


# Promises.


def test_the_clock_is_moved_ahead(sandbox: Sandbox, http: HttpMerchant) -> None:
    http.pay()
    before = action(http, "GET", "/state")[1]["now"]
    assert action(http, "POST", "/clock", {"advance_seconds": 7200})[1]["now"] >= before + 7200
    assert http.query()[1]["result"]["status"] == "closed"


def test_options_and_faults_are_set_and_cleared(sandbox: Sandbox, http: HttpMerchant) -> None:
    http.pay()
    assert action(http, "PATCH", "/options", {"query_amount": "text", "query.broken_json": 1})[1][
        "faults"
    ] == {"query.broken_json": 1.0}
    planned = action(
        http,
        "POST",
        "/faults",
        {"fault": "server_error", "occasion": "query", "reference": REFERENCE, "times": 1},
    )
    assert planned == (
        200,
        [{"fault": "server_error", "occasion": "query", "reference": REFERENCE, "times": 1}],
    )
    assert (
        http.request("POST", "/online/v1/tran-query", b"{}", {"Content-Type": "application/json"})[
            0
        ]
        == 400
    )
    assert action(http, "DELETE", "/faults") == (200, {"ok": True})
    assert http.query()[1]["result"]["amount"] == "12.50"
    action(http, "PATCH", "/options", {"query_amount": "number"})


@pytest.mark.parametrize(
    ("actions", "word"),
    [
        (["pay"], "success"),
        (["decline"], "failed"),
        (["leave"], "pending"),
        (["expire"], "closed"),
        (["expire", "pay"], "success"),
    ],
)
def test_a_transaction_is_acted_on(
    sandbox: Sandbox,
    http: HttpMerchant,
    actions: list[str],
    word: str,
) -> None:
    http.pay()
    for one in actions:
        status, answer = action(http, "POST", f"/transactions/{REFERENCE}/{one}", {})
        assert status == 200
    assert answer["transaction"]["word"] == http.query()[1]["result"]["status"] == word
    assert (answer["redirect"] is None) == (actions[-1] == "expire")


def test_refund_and_reversal_bypass_merchant(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    http.pay()
    action(http, "POST", f"/transactions/{REFERENCE}/pay", {})
    assert (
        action(http, "POST", f"/transactions/{REFERENCE}/refund", {"amount": "2.50"})[1][
            "transaction"
        ]["refunded"]
        == "2.50"
    )
    assert (
        action(http, "POST", f"/transactions/{REFERENCE}/reverse", {})[1]["transaction"]["status"]
        == "reversed"
    )


def test_notification_kinds_are_sent_at_once(
    sandbox: Sandbox,
    http: HttpMerchant,
    receiver: Receiver,
) -> None:
    """A notification can be true, forged or double."""
    http.pay(ipnUrl=receiver.url)
    for body in ({}, {"kind": "forged"}, {"kind": "stale", "status": "dealing"}):
        assert action(http, "POST", f"/transactions/{REFERENCE}/notifications", body) == (
            200,
            {"ok": True},
        )
        assert sandbox.control.wait_for_notifications()
    words = [
        next(part for part in body.decode().split("&") if part.startswith("status="))
        for _, _, _, body in receiver.got
    ]
    assert words == ["status=pending", "status=success", "status=dealing"]


def test_the_state_tells_everything_but_tokens(sandbox: Sandbox, http: HttpMerchant) -> None:
    http.pay()
    status, state = action(http, "GET", "/state")
    assert status == 200
    assert set(state) == {"now", "options", "planned_faults", "notifications", "transactions"}
    assert state["options"]["merchants"] == ["200043"]
    assert PUBLISHED_TEST_TOKEN not in json.dumps(state)
    assert action(http, "GET", f"/transactions/{REFERENCE}") == (200, state["transactions"][0])


def test_reset_forgets_the_transactions(sandbox: Sandbox, http: HttpMerchant) -> None:
    http.pay()
    assert action(http, "POST", "/reset", {}) == (200, {"ok": True})
    assert action(http, "GET", "/state")[1]["transactions"] == []
    assert http.pay()[0] == 200
