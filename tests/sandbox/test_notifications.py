"""Notifications and the way back, in process: their content, their times, and the answers that
settle them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate.sandbox import Clock, NotPossible, Options
from tillgate.sandbox.ledger import Decision
from tillgate.sandbox.notifications import NotificationAttempt, NotificationKind, way_back
from tillgate.sandbox.signing import matches
from tillgate.sandbox.transactions import Transaction

if TYPE_CHECKING:
    from tests.sandbox.conftest import Merchant

    Build = Callable[..., Merchant]

TOKEN = Options().merchants["200043"]


def due(shop: Merchant) -> list[NotificationAttempt]:
    return shop.service.due_notifications(shop.clock())


def form(attempt: NotificationAttempt) -> dict[str, str]:
    return dict(parse_qsl(attempt.body.decode()))


# Failure first.


def test_answer_from_before_reset_settles_nothing(
    merchant: Build,
) -> None:
    shop = merchant()
    shop.paid()
    (before,) = due(shop)
    shop.service.reset()
    shop.paid()
    (after,) = due(shop)
    shop.service.notification_answered(before, 200, b"success")
    shop.service.notification_answered(after, 500)
    shop.clock.advance(15)
    assert [attempt.attempt_no for attempt in due(shop)] == [2]


def test_newest_refund_with_address_is_told(merchant: Build) -> None:
    shop = merchant(notification_on_refund=False)
    shop.paid()
    due(shop)
    shop.refund("1.00", ipnUrl="http://127.0.0.1:9/refund/1")
    shop.refund("2.00")
    shop.service.notify(shop.service.find("100017-7Q2MZK4RXW3DA"), "refund")
    assert [attempt.url for attempt in due(shop)] == ["http://127.0.0.1:9/refund/1"]


@pytest.mark.parametrize(
    ("kind", "word"),
    [("payment", "success"), ("forged", "success"), ("stale", "pending")],
)
def test_requested_notification_has_kinds_word(
    merchant: Build,
    kind: NotificationKind,
    word: str,
) -> None:
    """Another word can be requested for it."""
    shop = merchant(notification_on_paid=False)
    transaction = shop.service.find(shop.paid())
    shop.service.notify(transaction, kind)
    shop.service.notify(transaction, kind, status="dealing")
    assert [form(attempt)["status"] for attempt in due(shop)] == [word, "dealing"]


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"success"),
        (200, b"ok"),
        (200, b""),
        (200, b'"success"'),
        (302, b"success"),
        (None, b""),
    ],
)
def test_unacknowledged_notification_repeats_eight_times(
    merchant: Build,
    answer: tuple[int | None, bytes],
) -> None:
    """It follows the schedule and then stops."""
    shop = merchant()
    shop.paid()
    started, sent = shop.clock(), []
    while (at := shop.service.next_due()) is not None:
        shop.clock.advance(at - shop.clock())
        for attempt in due(shop):
            sent.append((attempt.attempt_no, shop.clock() - started))
            shop.service.notification_answered(attempt, *answer)
    assert sent == list(enumerate((0, 15, 60, 300, 900, 1800, 3600, 7200), start=1))


def test_an_acknowledged_notification_does_not_come_again(merchant: Build) -> None:
    shop = merchant()
    shop.paid()
    (attempt,) = due(shop)
    shop.service.notification_answered(attempt, 200, b"success")
    assert shop.service.outbox.next_due() is None


def test_notification_in_flight_is_not_resent(merchant: Build) -> None:
    shop = merchant()
    shop.paid()
    assert len(due(shop)) == 1
    shop.clock.advance(7200)
    assert due(shop) == []


def test_second_answer_to_attempt_is_ignored(merchant: Build) -> None:
    """The attempt is already settled."""
    shop = merchant()
    shop.paid()
    (attempt,) = due(shop)
    shop.service.notification_answered(attempt, 200, b"success")
    shop.service.notification_answered(attempt, 500)
    assert shop.service.outbox.next_due() is None


def test_unspecified_behaviour_9_any_body_can_acknowledge(merchant: Build) -> None:
    shop = merchant(acknowledgement="any")
    shop.paid()
    (attempt,) = due(shop)
    shop.service.notification_answered(attempt, 200, b"thanks")
    assert shop.service.outbox.next_due() is None


# Content (unspecified 8).


def test_payment_notification_uses_familys_words(merchant: Build) -> None:
    shop = merchant()
    number = shop.paid()
    (attempt,) = due(shop)
    said = form(attempt)
    assert (attempt.method, attempt.url, attempt.content_type) == (
        "POST",
        "http://127.0.0.1:9/ipn",
        "application/x-www-form-urlencoded",
    )
    assert {
        name: said[name]
        for name in ("transactionNo", "reference", "amount", "currency", "status", "time")
    } == {
        "transactionNo": number,
        "reference": "100017-7Q2MZK4RXW3DA",
        "amount": "12.50",
        "currency": "USD",
        "status": "success",
        "time": "20260101000000",
    }
    assert matches(said, TOKEN)


@pytest.mark.parametrize(
    ("switch", "there", "right"),
    [("valid", True, True), ("none", False, False), ("wrong", True, False)],
)
def test_the_signature_of_notifications_is_a_switch(
    merchant: Build,
    switch: str,
    there: bool,
    right: bool,
) -> None:
    shop = merchant(notification_signature=switch)
    shop.paid()
    said = form(due(shop)[0])
    assert ("verifySign" in said, matches(said, TOKEN)) == (there, right)


def test_a_notification_can_be_json(merchant: Build) -> None:
    shop = merchant(notification_format="json")
    shop.paid()
    (attempt,) = due(shop)
    assert attempt.content_type == "application/json"
    assert matches(json.loads(attempt.body), TOKEN)


@pytest.mark.parametrize(
    "ipn_url",
    ["http://127.0.0.1:9/ipn", "http://127.0.0.1:9/ipn?shop=1&name=a%20b"],
)
def test_get_notification_keeps_address_query(
    merchant: Build,
    ipn_url: str,
) -> None:
    shop = merchant(notification_method="GET")
    shop.paid(ipnUrl=ipn_url)
    (attempt,) = due(shop)
    query = dict(parse_qsl(urlsplit(attempt.url).query))
    assert (attempt.method, attempt.body, query["status"]) == ("GET", b"", "success")
    assert attempt.url.startswith(ipn_url)


def test_which_endings_are_told_is_a_switch(merchant: Build) -> None:
    shop = merchant(
        notification_on_paid=False,
        notification_on_failed=True,
        notification_on_expired=True,
    )
    actions: tuple[tuple[str, Decision], ...] = (("A", "pay"), ("B", "decline"), ("C", "leave"))
    for reference, action in actions:
        shop.service.decide(
            json.loads(shop.pay(reference=reference).body)["result"]["transactionNo"],
            action,
        )
    shop.clock.advance(7200)
    assert [(form(one)["reference"], form(one)["status"]) for one in due(shop)] == [
        ("B", "failed"),
        ("C", "closed"),
    ]


def test_refund_is_notified_at_ipn_address(merchant: Build) -> None:
    shop = merchant(notification_on_paid=False)
    shop.paid()
    shop.refund("2.50", ipnUrl="http://127.0.0.1:9/refund")
    shop.refund("2.50")
    shop.refund("100.00", ipnUrl="http://127.0.0.1:9/refused")
    (attempt,) = due(shop)
    assert (attempt.kind, attempt.url) == ("refund", "http://127.0.0.1:9/refund")
    assert form(attempt).keys() == {"transactionNo", "status", "reference", "verifySign"}, (
        "as version 1 documents it"
    )


def test_refund_notifications_can_be_switched_off(merchant: Build) -> None:
    shop = merchant(notification_on_paid=False, notification_on_refund=False)
    shop.paid()
    shop.refund("2.50", ipnUrl="http://127.0.0.1:9/refund")
    assert due(shop) == []


# Faults of notifications.


def moments(shop: Merchant, amount: str) -> list[tuple[str, str, str, bool]]:
    """Pay a magic amount and list the notifications of the next two minutes: kind, status, amount,
    rightly signed.
    """
    shop.paid(amount=amount)
    seen: list[tuple[str, str, str, bool]] = []
    for _ in range(120):
        for attempt in due(shop):
            said = form(attempt)
            seen.append((attempt.kind, said["status"], said["amount"], matches(said, TOKEN)))
            shop.service.notification_answered(attempt, 200, b"success")
        shop.clock.advance(1)
    return seen


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        ("13.61", []),
        ("13.63", [("payment", "success", "13.63", True)] * 2),
        ("13.64", [("payment", "success", "13.64", True), ("stale", "pending", "13.64", True)]),
        ("13.65", [("payment", "success", "13.65", False)]),
        ("13.66", [("payment", "success", "13.67", True)]),
        ("13.67", [("forged", "success", "13.67", False), ("payment", "success", "13.67", True)]),
    ],
)
def test_faulty_notifications_can_be_sent(
    merchant: Build,
    amount: str,
    expected: list[Any],
) -> None:
    """Missing, double, reordered, badly signed, wrong and forged ones."""
    assert moments(merchant(), amount) == expected


def test_a_late_notification_comes_late(merchant: Build) -> None:
    shop = merchant(late_seconds=90)
    shop.paid(amount="13.62")
    assert due(shop) == []
    shop.clock.advance(90)
    assert len(due(shop)) == 1


def test_forged_notification_precedes_payment(merchant: Build) -> None:
    shop = merchant()
    shop.pay(amount="13.67")
    (attempt,) = due(shop)
    assert (attempt.kind, form(attempt)["status"]) == ("forged", "success")


def test_manual_notification_can_have_any_word(merchant: Build) -> None:
    shop = merchant()
    shop.pay()
    transaction = shop.service.transactions()[0]
    shop.service.notify(transaction, status="dealing")
    assert form(due(shop)[0])["status"] == "dealing"
    with pytest.raises(NotPossible):
        shop.service.notify(transaction, "refund")


# The way back (unspecified 10).


def transaction_with(callback_url: str, reference: str = "R") -> Transaction:
    now = Clock.standing()()
    return Transaction(
        transaction_no="300000000000000001",
        token="t",
        merchant_no="200043",
        reference=reference,
        amount="12.50",
        units=1250,
        currency="USD",
        settle_currency="USD",
        vendor="alipay",
        terminal="ONLINE",
        ipn_url="",
        callback_url=callback_url,
        description="",
        goods=(),
        created_at=now,
        timeout_minutes=120,
    )


@pytest.mark.parametrize(
    ("callback_url", "back"),
    [
        (
            "https://shop.example/b?a={amount}&s={status}",
            "https://shop.example/b?a=12.50&s=success",
        ),
        (
            "https://shop.example/b?x={unknown}&{}&v={vendor}",
            "https://shop.example/b?x={unknown}&{}&v={vendor}",
        ),
        (
            "https://shop.example/b?keep=a%20b&r={reference}#top",
            "https://shop.example/b?keep=a%20b&r=a%26b%3D%C3%BC%20%7B#top",
        ),
    ],
)
def test_only_macros_are_replaced_and_escaped(
    callback_url: str,
    back: str,
) -> None:
    assert way_back(transaction_with(callback_url, "a&b=ü {"), "success", Options(), 0.0) == back


def test_the_list_of_macros_is_data() -> None:
    transaction = transaction_with("https://shop.example/{vendor}/{amount}")
    assert (
        way_back(transaction, "success", Options(macros=("vendor",)), 0.0)
        == "https://shop.example/alipay/{amount}"
    )


def test_every_reference_macro_can_be_replaced() -> None:
    page = (Path(__file__).parents[2] / "src" / "tillgate" / "sandbox" / "README.md").read_text()
    names = [
        *Options().macros,
        *re.findall(r"`(\w+)`", page.split("Also known: ")[1].splitlines()[0]),
    ]
    transaction = transaction_with(
        "https://shop.example/" + "".join(f"{{{name}}}" for name in names),
    )
    assert "{" not in way_back(transaction, "success", Options(macros=tuple(names)), 0.0)


@given(st.text(st.characters(codec="utf-8")))
def test_value_cannot_add_parameters(reference: str) -> None:
    back = way_back(
        transaction_with("https://shop.example/b?r={reference}&end=1", reference),
        "success",
        Options(),
        0.0,
    )
    assert parse_qs(urlsplit(back).query, keep_blank_values=True) == {
        "r": [reference],
        "end": ["1"],
    }


@pytest.mark.parametrize(
    ("amount", "back"),
    [("13.72", "https://shop.example/b?a={amount}"), ("13.73", None)],
)
def test_return_address_can_be_faulty(merchant: Build, amount: str, back: str | None) -> None:
    """It can be raw or missing."""
    shop = merchant()
    number = json.loads(
        shop.pay(amount=amount, callbackUrl="https://shop.example/b?a={amount}").body,
    )["result"]["transactionNo"]
    assert shop.service.decide(number, "pay") == back
