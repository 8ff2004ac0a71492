"""The pages of the fake that a demonstration shows: the effects of its buttons, and the events for
the shop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import httpx
import pytest

from stripe_emulator.driver import account_at
from stripe_emulator.pages import ClickableStripe
from tests.test_plugin import created
from tillgate import Account, TransactionStatus, hooks
from tillgate.hooks import Hint

SECRET = "whsec_demo"


@pytest.fixture
def events() -> Iterator[tuple[str, Queue[tuple[dict[str, str], bytes]]]]:
    """A shop that takes events: its address, and the arrivals."""
    arrived: Queue[tuple[dict[str, str], bytes]] = Queue()

    class Shop(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            arrived.put((dict(self.headers.items()), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Shop) as shop:
        threading.Thread(target=shop.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{shop.server_port}/", arrived
        shop.shutdown()


@pytest.fixture
def stripe(events: tuple[str, Any]) -> Iterator[ClickableStripe]:
    with ClickableStripe(merchant="Tea & Co", notify=events[0], secret=SECRET) as running:
        yield running


@pytest.fixture
def account(stripe: ClickableStripe) -> Account:
    return account_at(stripe.url, webhook_secrets=(SECRET,))


def pressed(url: str, **form: str) -> httpx.Response:
    return httpx.post(url, data=form)


def test_pay_button_pays_and_notifies(
    events: tuple[str, Queue[tuple[dict[str, str], bytes]]],
    account: Account,
) -> None:
    request, payment = created(account, description="Order 7 <b>")
    page = httpx.get(payment.payment_url).text
    assert "Order 7 &lt;b&gt;" in page
    assert "12.50" in page
    answer = pressed(payment.payment_url, decision="pay")
    assert answer.headers["location"] == "https://shop.example/return/key/?status=success"
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert found.status is TransactionStatus.PAID
    hint = Hint(reference=request.reference, transaction_no=payment.transaction_no)
    assert hooks.read_notification(account, *events[1].get(timeout=5)) == (hint,)


def test_declined_page_says_why_and_stays(account: Account) -> None:
    request, payment = created(account)
    assert "insufficient funds" in pressed(payment.payment_url, decision="decline").text
    pressed(payment.payment_url, decision="pay")
    pressed(payment.payment_url, decision="pay")  # a double click
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert found.status is TransactionStatus.PAID


@pytest.mark.parametrize(
    ("action", "status"),
    [("settle", TransactionStatus.PAID), ("fail", TransactionStatus.FAILED)],
)
def test_debit_ends_in_dashboard(
    stripe: ClickableStripe,
    account: Account,
    action: str,
    status: TransactionStatus,
) -> None:
    request, payment = created(account)
    pressed(payment.payment_url, decision="later")
    assert "on its way" in httpx.get(stripe.url).text
    assert pressed(stripe.url, action=action, session=payment.transaction_no).status_code == 303
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert found.status is status


@pytest.mark.parametrize(
    ("action", "status"),
    [("voucher", TransactionStatus.PAID), ("end", TransactionStatus.FAILED)],
)
def test_voucher_ends_in_dashboard(
    stripe: ClickableStripe,
    account: Account,
    action: str,
    status: TransactionStatus,
) -> None:
    request, payment = created(account)
    assert "Konbini" in httpx.get(payment.payment_url).text
    pressed(payment.payment_url, decision="konbini")
    waits = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert waits.next_step is not None
    assert waits.next_step.url == payment.payment_url.partition("#")[0]
    assert "Pay the voucher" in httpx.get(payment.payment_url).text
    assert pressed(stripe.url, action=action, session=payment.transaction_no).status_code == 303
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert found.status is status
    assert pressed(stripe.url, action=action, session=payment.transaction_no).status_code == 409


def test_voucher_is_paid_at_its_page(account: Account) -> None:
    request, payment = created(account)
    for decision in ("oxxo", "voucher", "voucher"):  # a double click
        pressed(payment.payment_url, decision=decision)
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert found.status is TransactionStatus.PAID


def test_dashboard_refunds_and_disputes(stripe: ClickableStripe, account: Account) -> None:
    request, payment = created(account)
    pressed(payment.payment_url, decision="pay")
    for action in ("dispute", "win", "review", "approve", "refund"):
        answer = pressed(stripe.url, action=action, session=payment.transaction_no)
        assert answer.status_code == 303
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert [str(one.amount) for one in found.refunds or ()] == ["12.50"]
    assert [one.status for one in found.disputes] == ["won"]


@pytest.mark.parametrize("session", ["", "cs_test_of_nobody"])
def test_dashboard_refuses_what_cannot_be(stripe: ClickableStripe, session: str) -> None:
    assert pressed(stripe.url, action="refund", session=session).status_code == 409
    assert httpx.get(f"{stripe.url}/c/pay/{session}").status_code == 404
