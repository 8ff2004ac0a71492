"""Any input from outside: never an error page, never rows without end, never a query too many
(I7).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core import signing
from django.db import connections
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.django.conftest import World
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.orders import registering
from tillgate.django.pages.tickets import pay_url, start_url

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
FORGED = "verifySign=00000000000000000000000000000000"
Configure = Callable[..., None]

BODIES: dict[str, tuple[str, bytes]] = {
    "nothing": (FORM, b""),
    "nothing, said to be JSON": (JSON, b""),
    "5 MB": (FORM, b"a=" + b"x" * 5_000_000),
    "5 MB of JSON": (JSON, b'{"a": "' + b"x" * 5_000_000 + b'"}'),
    "invalid UTF-8": (FORM, b"status=\xff\xfe&\x80=1"),
    "invalid UTF-8 in JSON": (JSON, b'{"status": "\xff"}'),
    "percent-encoded invalid UTF-8": (FORM, b"status=%ff%fe"),
    "nested JSON": (
        JSON,
        json.dumps(
            {"result": {"status": "success", "deep": [{"er": [1, 2.50, None, True]}]}},
        ).encode(),
    ),
    "JSON nested 50,000 deep": (JSON, b"[" * 50_000),
    "objects nested 5,000 deep": (JSON, b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
    "a JSON list": (JSON, b"[1, 2, 3]"),
    "a JSON number": (JSON, b"1e999999"),
    "a huge number": (JSON, b'{"amount": ' + b"9" * 30_000 + b"}"),
    "NaN": (JSON, b'{"amount": NaN}'),
    "repeated keys": (FORM, b"status=success&status=failed&amount=1&amount=2"),
    "repeated keys in JSON": (JSON, b'{"status": "success", "status": "failed"}'),
    "thousands of fields": (FORM, b"&".join(b"k%d=v" % number for number in range(5_000))),
    "NUL bytes": (FORM, b"status=suc\x00cess&%00=%00&verifySign=\x00"),
    "NUL in JSON": (JSON, b'{"a\\u0000": "\\u0000", "b": "\x00"}'),
    "lone surrogates": (JSON, b'{"\\ud800": "\\udfff", "status": "\\ud83d"}'),
    "a signature that is a list": (JSON, b'{"verifySign": ["a"], "status": "success"}'),
    "a broken multipart body": (
        "multipart/form-data; boundary=x",
        b"--x\r\nContent-Disposition: form-data; name=",
    ),
    "a multipart body without a boundary": ("multipart/form-data", b"--\r\n"),
    "XML": (
        "text/xml",
        b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    ),
    "a type that is none": ("\u00e9\x01/;;;=", b"status=success"),
    "an unknown character set": ("application/json; charset=no-such", b'{"status": "success"}'),
    "a pickle": ("application/octet-stream", b"\x80\x04\x95\x10"),
}


@pytest.fixture
def strict(world: World) -> Client:
    """A client that gets an error page as the gateway would, instead of the exception."""
    return Client(raise_request_exception=False)


@pytest.mark.parametrize("name", BODIES)
def test_i7_any_notification_is_kept_and_acknowledged(
    world: World,
    strict: Client,
    name: str,
) -> None:
    """It causes one query."""
    content_type, body = BODIES[name]
    payment = world.start(world.order())
    before = world.queries()
    answer = strict.generic(
        "POST",
        f"/payments/notification/{payment.notification_key}/",
        body,
        content_type=content_type,
    )
    assert (answer.status_code, answer.content) == (200, b"success")
    assert world.queries() == before + 1
    assert Notification.objects.count() == 1
    assert len(json.dumps(Notification.objects.get().evidence)) < 64 * 1024
    assert world.fresh(payment).status == "pending"
    world.shopper_pays(payment)
    assert (
        strict.generic(
            "POST",
            f"/payments/notification/{payment.notification_key}/",
            body,
            content_type=content_type,
        ).status_code
        == 200
    )
    assert world.fresh(payment).status == "paid"


@pytest.mark.parametrize("name", BODIES)
def test_i7_any_refund_notification_is_acknowledged(
    world: World,
    strict: Client,
    name: str,
) -> None:
    """It is kept as well."""
    content_type, body = BODIES[name]
    payment = world.paid_payment("12.50")
    refund = Refund.objects.get(pk=_refunded(world, payment))
    for _ in range(2):
        answer = strict.generic(
            "POST",
            f"/payments/refund-notification/{refund.notification_key}/",
            body,
            content_type=content_type,
        )
        assert (answer.status_code, answer.content) == (200, b"success")
    refund.refresh_from_db()
    assert (refund.status, refund.notifications) == ("succeeded", 2)


def _refunded(world: World, payment: Payment) -> int:
    from tillgate.django.refunds import queueing

    return queueing.refund(payment.pk, "1.00").pk


QUERIES = [
    "",
    "wait=1",
    "wait=-1",
    "wait=99999999999999999999",
    "wait=%00",
    "wait=\u0661".encode().decode("latin-1"),
    "status=success&amount=1",
    "status={status}&amount={amount}&transactionNo={transactionNo}&reference={reference}",
    "%00=%00&a=%ff%fe",
    "a=" + "x" * 60_000,
    "&".join(f"k{number}=v" for number in range(900)),
    "next=https://evil.example/&url=javascript:alert(1)&status=<script>alert(1)</script>",
    "&&&===&;;;",
]


@pytest.mark.parametrize("query", QUERIES)
def test_return_believes_no_query_string(
    world: World,
    strict: Client,
    query: str,
) -> None:
    """The shopper always gets a page of ours."""
    payment = world.start(world.order())
    for method in ("GET", "POST"):
        answer = strict.generic(
            method,
            f"/payments/return/{payment.return_key}/",
            QUERY_STRING=query,
        )
        assert answer.status_code == 200
        assert b"<script>alert" not in answer.content
        assert b"evil.example" not in answer.content
        assert answer["Referrer-Policy"] == "no-referrer"
    assert world.fresh(payment).status == "pending"
    world.shopper_pays(payment)
    world.notification(payment)
    answer = strict.generic("GET", f"/payments/return/{payment.return_key}/", QUERY_STRING=query)
    assert (answer.status_code, answer["Location"]) == (302, f"/orders/{payment.order.key}/")


def test_return_survives_too_many_fields(
    world: World,
    strict: Client,
) -> None:
    """Django refuses to read more than a set number."""
    payment = world.start(world.order())
    query = "&".join(f"k{number}=v" for number in range(5_000))
    assert strict.generic(
        "GET",
        f"/payments/return/{payment.return_key}/",
        QUERY_STRING=query,
    ).status_code in (200, 400)


KEYS = [
    "x",
    "x" * 32,
    "x" * 5_000,
    "%00",
    "%00" * 32,
    "%ff%fe",
    "%ed%a0%80",
    "\u00e9",
    "'; drop table tillgate_payment; --",
    "%25",
    "..",
    "*",
]


@pytest.mark.parametrize(
    "page",
    ["notification", "refund-notification", "return", "status", "pay", "start"],
)
def test_unknown_address_is_404_without_row(
    world: World,
    strict: Client,
    page: str,
) -> None:
    payment = world.start(world.order())
    taken = {
        "notification": payment.return_key,
        "return": payment.notification_key,
        "status": payment.notification_key,
    }.get(page, payment.reference)
    entries = TimelineEntry.objects.count()
    for key in [*KEYS, taken, payment.reference, str(payment.pk)]:
        for method in ("GET", "POST") if page not in ("status", "start") else ("GET",):
            assert (
                strict.generic(
                    method,
                    f"/payments/{page}/{key}/",
                    b"status=success",
                    content_type=FORM,
                ).status_code
                == 404
            ), key
    assert not Notification.objects.exists()
    assert TimelineEntry.objects.count() == entries


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
@pytest.mark.parametrize("page", ["notification", "refund-notification", "return", "status"])
def test_other_methods_are_refused_without_row(
    world: World,
    strict: Client,
    page: str,
    method: str,
) -> None:
    payment = world.start(world.order())
    key = payment.notification_key if page == "notification" else payment.return_key
    assert strict.generic(method, f"/payments/{page}/{key}/", b"status=success").status_code == 405
    assert not Notification.objects.exists()


def test_get_without_query_is_notification(
    world: World,
    strict: Client,
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    assert strict.get(f"/payments/notification/{payment.notification_key}/").content == b"success"
    assert world.fresh(payment).status == "paid"


# Permission to pay, and to look -------------------------------------------------------------------


def test_only_shops_own_ticket_pays_order(world: World, strict: Client) -> None:
    order, other = world.order(), world.order()
    good = pay_url(world.shop.plugin, order)
    ticket = good.rstrip("/").rpartition("/")[2]
    foreign = pay_url(world.shop.plugin, other).rstrip("/").rpartition("/")[2]
    assert strict.get(good).status_code == 200
    payload, _, rest = ticket.partition(":")
    stamp, _, signature = rest.partition(":")
    forged = [
        ticket[:-1],
        ticket[:-1] + ("A" if ticket[-1] != "A" else "B"),
        f"{foreign.partition(':')[0]}:{stamp}:{signature}",
        f"{payload}:zzzzzz:{signature}",
        payload,
        signing.dumps(signing.loads(ticket, salt="tillgate.pay"), salt="another purpose"),
        signing.dumps([world.shop.plugin, order], salt="tillgate.pay"),
        signing.dumps([world.shop.plugin, order, ""], salt="tillgate.pay"),
        signing.dumps("no pair", salt="tillgate.pay"),
        signing.dumps([1, 2, 3], salt="tillgate.pay"),
        signing.dumps({"a": 1}, salt="tillgate.pay"),
        order,
    ]
    for ticket in forged:
        assert strict.get(f"/payments/pay/{ticket}/").status_code == 404, ticket
        assert strict.post(f"/payments/pay/{ticket}/", {"method": "alipay"}).status_code == 404, (
            ticket
        )
    assert not Payment.objects.exists()


def test_lost_orders_address_pays_no_other(
    world: World,
    strict: Client,
) -> None:
    """Another order may get its number after the database lost it."""
    order = world.order()
    lost = [pay_url(world.shop.plugin, order), start_url(world.shop.plugin, order, "alipay")]
    Order.objects.all().delete()
    assert [strict.get(address).status_code for address in lost] == [404, 404]
    registering.open_order(world.shop.plugin, order)  # the number comes again, for another shopper
    assert [strict.get(address).status_code for address in lost] == [404, 404]
    assert strict.post(lost[0], {"method": "alipay"}).status_code == 404
    assert not Payment.objects.exists()
    assert strict.get(pay_url(world.shop.plugin, order)).status_code == 200


def test_address_made_before_registration_works(
    world: World,
    strict: Client,
) -> None:
    """It works once the shop has registered its order."""
    order = world.order()
    Order.objects.all().delete()
    early = pay_url(world.shop.plugin, order)
    registering.open_order(world.shop.plugin, order)
    assert strict.get(early).status_code == 200
    assert Order.objects.get().unpaid_check_at


def test_start_ticket_starts_only_chosen_payment(
    world: World,
    strict: Client,
) -> None:
    """Using it again leads to the same payment."""
    order = world.order()
    good = start_url(world.shop.plugin, order, "paypal")
    first, second = strict.get(good), strict.get(good)
    payment = Payment.objects.get()
    assert (payment.method, payment.order.key) == ("paypal", order)
    assert world.onward(first) == world.onward(second) == payment.payment_url
    ticket = good.rstrip("/").rpartition("/")[2]
    paying = pay_url(world.shop.plugin, order).rstrip("/").rpartition("/")[2]
    forged = [
        ticket[:-1],
        paying,
        signing.dumps(signing.loads(ticket, salt="tillgate.start"), salt="tillgate.pay"),
    ]
    for wrong in [
        *forged,
        *(signing.dumps(held, salt="tillgate.start") for held in ("text", [1, 2], {"a": 1}, 5)),
    ]:
        assert strict.get(f"/payments/start/{wrong}/").status_code == 404, wrong
    assert strict.get(f"/payments/pay/{ticket}/").status_code == 404, (
        "who may start one payment may not choose another"
    )
    assert strict.post(good).status_code == 405


def test_outdated_start_ticket_leads_to_choice(
    world: World,
    strict: Client,
) -> None:
    """Its method is no longer offered."""
    world.configure(PAYMENT_METHODS=["paypal"])
    answer = strict.get(start_url(world.shop.plugin, world.order(), "alipay"))
    assert answer.status_code == 200
    assert 'value="paypal"' in answer.content.decode()
    assert not Payment.objects.exists()


def test_start_ticket_lasts_one_hour(
    world: World,
    strict: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = start_url(world.shop.plugin, world.order(), "alipay")
    later = time.time() + timedelta(minutes=61).total_seconds()
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert strict.get(good).status_code == 404
    assert not Payment.objects.exists()


def test_a_ticket_expires(world: World, strict: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    good = pay_url(world.shop.plugin, world.order())
    assert strict.get(good).status_code == 200
    later = time.time() + timedelta(days=8).total_seconds()
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert strict.get(good).status_code == 404


def test_return_address_pays_and_reveals_nothing(
    world: World,
    strict: Client,
) -> None:
    """It does not show the address for the gateway's notifications."""
    payment = world.start(world.order())
    answer = strict.get(f"/payments/status/{payment.return_key}/")
    assert answer.json() == {"status": "pending", "settled": False}
    page = strict.get(f"/payments/return/{payment.return_key}/").content.decode()
    assert payment.notification_key not in page
    assert world.fresh(payment).status == "pending"


# Floods -------------------------------------------------------------------------------------------


def _flood(payment: Payment, count: int, threads: int) -> Iterator[int]:
    def send(_: int) -> int:
        return (
            Client(raise_request_exception=False)
            .post(f"/payments/notification/{payment.notification_key}/", FORGED, content_type=FORM)
            .status_code
        )

    def sending(numbers: range) -> list[int]:
        try:
            return [send(number) for number in numbers]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        for statuses in pool.map(sending, [range(count // threads)] * threads):
            yield from statuses


def test_i7_forgery_flood_stays_bounded(
    world: World,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """200 a second cause one query per interval, 20 rows and one review."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5, FORGED_NOTIFICATIONS_BEFORE_REVIEW=20)
    payment = world.start(world.order())
    began, before = time.monotonic(), world.queries()
    frozen = world.time.now()
    seconds = 3  # of the flood's own clock, however long this machine takes
    for second in range(seconds):
        monkeypatch.setattr(
            timezone,
            "now",
            lambda second=second: frozen + timedelta(seconds=second),
        )
        assert set(_flood(payment, 200, 8)) == {200}
        assert world.queries() == before + 1
        assert Notification.objects.count() == 20
    with capsys.disabled():
        sys.stdout.write(
            f"\n{200 * seconds} forged notifications "
            f"({200 * seconds / (time.monotonic() - began):.0f} a second here): 1 query, 20 rows",
        )
    now = world.fresh(payment)
    assert (now.status, now.notifications, now.forged_notifications) == ("pending", 600, 600)
    assert now.next_poll_at is not None
    # brought forward, not forgotten
    assert now.next_poll_at <= frozen + timedelta(seconds=seconds + 5)
    assert world.reviews() == ["forged-notifications"]
    assert TimelineEntry.objects.filter(event="review.opened").count() == 1
    monkeypatch.setattr(timezone, "now", lambda: frozen + timedelta(seconds=6))
    assert set(_flood(payment, 8, 8)) == {200}
    assert world.queries() == before + 2
    world.shopper_pays(payment)
    monkeypatch.setattr(timezone, "now", lambda: frozen + timedelta(seconds=30))
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1


def test_wrong_merchant_number_raises_one_review(
    world: World,
    configure: Configure,
) -> None:
    """Even after an hour no order is closed."""
    payments = [world.start(world.order()) for _ in range(5)]
    Payment.objects.update(merchant_no="999999")  # as if they had been made so
    configure({"MERCHANT_NO": "999999"})
    for _ in range(12):
        world.time.advance(minutes=5)
        for payment in payments:
            assert world.notification(payment).status_code == 200
            assert world.come_back(payment).status_code == 200
        world.run_worker()
    assert {world.fresh(payment).status for payment in payments} == {"pending"}
    assert all(world.shop.is_payable(payment.order.key) for payment in payments)
    assert world.reviews() == ["wrong-credentials"]
    assert Review.objects.count() == 1
    assert Notification.objects.count() == 5 * 20
    assert not OutboxEvent.objects.exists()


def test_repeated_refund_notifications_keep_rows_bounded(
    world: World,
    strict: Client,
) -> None:
    payment = world.paid_payment("12.50")
    refund = Refund.objects.get(pk=_refunded(world, payment))
    kept = Notification.objects.count()
    entries = TimelineEntry.objects.count()
    for _ in range(50):
        strict.post(
            f"/payments/refund-notification/{refund.notification_key}/",
            FORGED,
            content_type=FORM,
        )
        strict.post(
            f"/payments/notification/{payment.notification_key}/",
            FORGED,
            content_type=FORM,
        )
    assert Notification.objects.filter(refund=refund).count() == 20
    assert Notification.objects.filter(refund=None).count() == 20
    assert kept < 20
    assert TimelineEntry.objects.count() == entries + 1  # the review about forged notifications


# Anything -----------------------------------------------------------------------------------------

_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)
_bodies = st.one_of(
    st.tuples(st.just(FORM), st.binary(max_size=400)),
    st.tuples(st.just(JSON), st.binary(max_size=400)),
    st.tuples(st.just(JSON), _json_values.map(lambda value: json.dumps(value).encode())),
    st.tuples(
        st.just(JSON),
        st.dictionaries(st.text(max_size=10), _json_values, max_size=5).map(
            lambda value: json.dumps(value).encode(),
        ),
    ),
    st.tuples(
        st.text(max_size=30).filter(lambda text: "\r" not in text and "\n" not in text),
        st.binary(max_size=100),
    ),
)


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(said=_bodies, query=st.text(st.characters(codec="ascii"), max_size=60))
def test_i7_no_notification_fails_or_pays_order(
    world: World,
    said: tuple[str, bytes],
    query: str,
) -> None:
    payment = Payment.objects.first() or world.start(world.order())
    content_type, body = said
    keys: dict[str, Any] = {"content_type": content_type, "QUERY_STRING": query}
    client = Client(raise_request_exception=False)
    assert (
        client.generic(
            "POST",
            f"/payments/notification/{payment.notification_key}/",
            body,
            **keys,
        ).status_code
        == 200
    )
    assert (
        client.generic("POST", f"/payments/return/{payment.return_key}/", body, **keys).status_code
        == 200
    )
    assert world.fresh(payment).status == "pending"
    assert Notification.objects.count() <= 20
    assert Order.objects.count() == 1
