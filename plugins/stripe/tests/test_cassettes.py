"""Conversations with getpaid's simulator, replayed from cassettes/ without a network;
STRIPE_RECORD=1 records them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import vcr

from stripe_emulator.driver import account_at, running_simulator
from tillgate import Account, PaymentRequest, RefundRequest, TransactionStatus, hooks
from tillgate.hooks import RefundOutcome
from tillgate_stripe.api import API_VERSION

CASSETTES = Path(__file__).parents[1] / "cassettes"
IS_RECORDING = os.environ.get("STRIPE_RECORD") == "1"
REPLAYED = "http://stripe.example"
REFERENCE = "S1-ABCDEFGHIJKLM"
KEPT_HEADERS = {"content-type", "idempotency-key", "stripe-version"}


def _place(request: Any) -> Any:
    """Leave out the simulator's port, every header that could hold a key, and requests that are not
    the plugin's: a shopper pays over HTTP too.
    """
    if "stripe-version" not in {name.lower() for name in request.headers}:
        return None
    parts = urlsplit(request.uri)
    request.uri = REPLAYED + parts.path + (f"?{parts.query}" if parts.query else "")
    request.headers = {
        name: value for name, value in request.headers.items() if name.lower() in KEPT_HEADERS
    }
    return request


def _body(request: Any) -> list[tuple[str, str]]:
    """Return the parameters of a request, but for the time."""
    body = request.body.decode() if isinstance(request.body, bytes) else request.body or ""
    return sorted((name, value) for name, value in parse_qsl(body) if name != "expires_at")


def _answer(response: Any) -> Any:
    kept = {
        name: value for name, value in response["headers"].items() if name.lower() == "content-type"
    }
    body = re.sub(rb"http://127\.0\.0\.1:\d+", REPLAYED.encode(), response["body"]["string"])
    return {**response, "headers": kept, "body": {"string": body}}


@pytest.fixture
def account() -> Account:
    return account_at(running_simulator().base_url if IS_RECORDING else REPLAYED)


@pytest.fixture
def tape(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Return a context in which the plugin's requests are answered from the test's file."""
    player = vcr.VCR(
        cassette_library_dir=str(CASSETTES),
        record_mode="all" if IS_RECORDING else "none",
        match_on=["method", "uri", "parameters"],
        before_record_request=_place,
        before_record_response=_answer,
        decode_compressed_response=True,
    )
    player.register_matcher("parameters", lambda one, other: _body(one) == _body(other))
    path = CASSETTES / f"{request.node.name}.yaml"
    if IS_RECORDING:
        path.unlink(missing_ok=True)

    @contextmanager
    def playing() -> Iterator[None]:
        with player.use_cassette(path.name, allow_playback_repeats=False) as cassette:
            yield
        assert IS_RECORDING or cassette.all_played, "the plugin sent less than was recorded"

    return playing


def request_of(reference: str = REFERENCE) -> PaymentRequest:
    return PaymentRequest(
        reference=reference,
        amount="12.50",
        currency="USD",
        method="checkout",
        terminal="ONLINE",
        ipn_url="https://shop.example/ipn",
        callback_url="https://shop.example/return/key/?status={status}",
        email="ann@shopper.example",
        language="de",
    )


def paid_at_simulator(reference: str) -> None:
    """Pay as the shopper does; the recording leaves this out."""
    if IS_RECORDING:
        running_simulator().pay(reference)


def test_a_payment_is_created_paid_and_refunded(tape: Callable[[], Any], account: Account) -> None:
    with tape():
        payment = hooks.pay(account, request_of())
        first = hooks.query(account, REFERENCE, transaction_no=payment.transaction_no)
        paid_at_simulator(REFERENCE)
        second = hooks.query(account, REFERENCE, transaction_no=payment.transaction_no)
        asked = RefundRequest(
            reference=REFERENCE,
            amount="5.00",
            currency="USD",
            transaction_no=payment.transaction_no,
            refund_id=f"{REFERENCE}-1",
        )
        refund = hooks.refund(account, asked)
    assert (first.status, second.status) == (TransactionStatus.PENDING, TransactionStatus.PAID)
    assert (second.amount, second.currency) == (payment.amount, "USD")
    assert (refund.outcome, str(refund.amount)) == (RefundOutcome.PENDING, "5.00")


def test_a_payment_without_a_shopper_expires(tape: Callable[[], Any], account: Account) -> None:
    with tape():
        payment = hooks.pay(account, request_of())
        if IS_RECORDING:
            running_simulator().expire(REFERENCE)
        found = hooks.query(account, REFERENCE, transaction_no=payment.transaction_no)
    assert found.status is TransactionStatus.CLOSED


@pytest.mark.parametrize("path", sorted(CASSETTES.glob("*.yaml")), ids=lambda path: path.stem)
def test_i11_cassettes_hold_no_key(path: Path) -> None:
    """Each of them names its version."""
    text = path.read_text("utf-8")
    assert ("Bearer" in text, "sk_test" in text, API_VERSION in text) == (False, False, True)
