"""The foreign simulator does everything that the plugin's tests use, and lacks the things that its
docstring names.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from payu_emulator.driver import running_simulator
from payu_emulator.simulator import PREFIX, SECOND_KEY, Simulator
from payu_emulator.wire import Json
from tillgate import new_reference

ORDERS = "/api/v2_1/orders"


@pytest.fixture
def simulator() -> Simulator:
    running = running_simulator()
    running.received.clear()
    return running


def ask(simulator: Simulator, method: str, path: str, body: Any = None) -> tuple[int, Json]:
    form = b"grant_type=client_credentials&client_id=any&client_secret=any"
    url = f"{PREFIX}/pl/standard/user/oauth/authorize"
    token = json.loads(simulator.handle("POST", url, {}, form)[2])["access_token"]
    headers = {"authorization": f"Bearer {token}", "host": "sim.example"}
    content = b"" if body is None else json.dumps(body).encode()
    status, _, answer = simulator.handle(method, PREFIX + path, headers, content)
    return status, json.loads(answer)


def opened(simulator: Simulator, **fields: Any) -> tuple[str, Json]:
    reference = new_reference("SIM")
    order = {"extOrderId": reference, "totalAmount": "1250", "currencyCode": "PLN", **fields}
    status, made = ask(simulator, "POST", ORDERS, order)
    assert status == 302
    return reference, made


def test_creation_redirects_to_its_page(simulator: Simulator) -> None:
    reference, made = opened(simulator)
    assert made["redirectUri"] == f"http://sim.example/sim/payu/authorize/{made['orderId']}"
    assert made["extOrderId"] == reference


@pytest.mark.parametrize(("action", "word"), [("approve", "COMPLETED"), ("reject", "CANCELED")])
def test_shopper_moves_order(simulator: Simulator, action: str, word: str) -> None:
    reference, made = opened(simulator)
    assert simulator.order_of(reference)["status"] == "PENDING"
    simulator.act(reference, action)
    _, answer = ask(simulator, "GET", f"{ORDERS}/{made['orderId']}")
    assert answer["orders"][0]["status"] == word
    assert [one.reference for one in simulator.received] == [reference]


def test_notifications_are_signed_by_sha256(simulator: Simulator) -> None:
    reference, _ = opened(simulator)
    sent = simulator.notify(reference)
    headers = {name.lower(): text for name, text in sent.headers.items()}
    digest = hashlib.sha256(sent.body + SECOND_KEY.encode()).hexdigest()
    expected = f"signature={digest};algorithm=SHA-256;sender=checkout"
    assert headers["openpayu-signature"] == expected


def test_it_lacks_these_endpoints(simulator: Simulator) -> None:
    _, made = opened(simulator)
    order = f"{ORDERS}/{made['orderId']}"
    asked = {
        path: ask(simulator, "GET", path)[0]
        for path in (f"{order}/refunds", f"{order}/refunds/1", f"{order}/transactions")
    }
    assert list(asked.values()) == [405, 404, 404]
    assert ask(simulator, "GET", "/api/v2_1/paymethods")[0] == 404


def test_it_refunds_what_payu_refuses(simulator: Simulator) -> None:
    _, made = opened(simulator)
    path = f"{ORDERS}/{made['orderId']}/refunds"
    asked = {"refund": {"amount": "99999", "description": "d", "extRefundId": "same"}}
    answers = [ask(simulator, "POST", path, asked)[1]["refund"] for _ in range(2)]
    assert {one["status"] for one in answers} == {"FINALIZED"}
    assert len({one["refundId"] for one in answers}) == 2


def test_it_answers_a_late_cancel_with_200(simulator: Simulator) -> None:
    reference, made = opened(simulator)
    simulator.act(reference, "approve")
    status, answer = ask(simulator, "DELETE", f"{ORDERS}/{made['orderId']}")
    assert (status, answer["status"]["statusCode"]) == (200, "ERROR_VALUE_INVALID")
