"""Starting: the request and its row, the result of a second press, and the refusals."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import unregistered
from tillgate import (
    ConfigurationError,
    InvalidRequest,
    NotSent,
    OutcomeUnknown,
    Refused,
    WrongCredentials,
    hooks,
)
from tillgate.django.accounts import find_account
from tillgate.django.models import Order, OutboxEvent, Payment, Review, TimelineEntry
from tillgate.django.orders import registering, times
from tillgate.django.payments import admission, creating, handing_out, starting
from tillgate.django.payments.admission import NotPayable
from tillgate.django.payments.creating import StartOutcome
from tillgate.django.payments.handing_out import is_being_created, is_page_live, may_go_on
from tillgate.django.worker.lanes import rest
from tillgate.hooks import OrderDescription
from tillgate.testing.world import together
from tillgate.wire.dialects import Dialect
from tillgate.wire.messages import Goods, PaymentRequest

Describe = Callable[..., None]


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Describe:
    """Let the shop describe every order otherwise."""

    def describe(**changes: Any) -> None:
        known = {"number": "100017", "amount": Decimal("12.50"), "currency": "USD"}
        description = OrderDescription(**{**known, **changes})
        real = hooks.call_owner
        monkeypatch.setattr(
            hooks,
            "call_owner",
            lambda plugin, hook, **rest: (
                description if "describe" in hook else real(plugin, hook, **rest)
            ),
        )

    return describe


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[PaymentRequest]:
    """The requests to the gateway."""
    requests: list[PaymentRequest] = []
    real = hooks.pay

    def pay(account: Any, request: PaymentRequest, **options: Any) -> Any:
        requests.append(request)
        return real(account, request, **options)

    monkeypatch.setattr(hooks, "pay", pay)
    return requests


def begin(world: World, order: str, **options: Any) -> creating.Started:
    return starting.start_payment(world.shop.plugin, order, **{"method": "alipay", **options})


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def pay(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(hooks, "pay", pay)


def test_started_payment_has_every_field(
    world: World,
    configure: Callable[..., None],
    described: Describe,
    sent: list[PaymentRequest],
) -> None:
    """It is stored and requested with all of them."""
    configure(TIMEOUT_MINUTES=60, PUBLIC_URL="https://shop.example")
    described(description="Two pots", lines=(Goods.named("Pot"),))
    started = begin(
        world,
        "7",
        method="paypal",
        terminal="WAP",
        data={"language": "de"},
        actor="checkout",
    )
    payment = world.fresh(started.payment)
    assert (started.outcome, started.detail) == (StartOutcome.REDIRECT, "")
    assert (payment.order.plugin, payment.order.key) == (world.shop.plugin, "7")
    assert (payment.method, payment.terminal, payment.amount, payment.currency) == (
        "paypal",
        "WAP",
        Decimal("12.50"),
        "USD",
    )
    assert (payment.account, payment.merchant_no, payment.base_url, payment.sandbox) == (
        "default",
        "200043",
        world.sandbox.base_url,
        True,
    )
    assert (payment.description, payment.data, payment.status) == (
        "Two pots",
        {"language": "de"},
        "pending",
    )
    assert payment.reference.startswith("100017-")
    assert payment.page_closes_at - payment.created_at == timedelta(minutes=60)
    assert payment.expires_at - payment.page_closes_at == timedelta(minutes=10)
    assert payment.next_poll_at
    assert payment.next_poll_at - payment.created_at == timedelta(seconds=5)
    assert payment.status_since > payment.created_at
    assert len({payment.notification_key, payment.return_key}) == 2
    [request] = sent
    assert (request.reference, request.amount, request.method, request.terminal) == (
        payment.reference,
        Decimal("12.50"),
        "paypal",
        "WAP",
    )
    assert (request.description, request.timeout, request.goods_info) == (
        "Two pots",
        60,
        (Goods.named("Pot"),),
    )
    assert (
        request.ipn_url == f"https://shop.example/payments/notification/{payment.notification_key}/"
    )
    assert request.callback_url.startswith(
        f"https://shop.example/payments/return/{payment.return_key}/?",
    )
    entries = TimelineEntry.objects.order_by("id")
    assert [entry.actor for entry in entries] == ["checkout"] * 2
    assert entries[1].evidence["transactionNo"] == payment.transaction_no


def test_return_page_uses_dialects_macros(
    world: World,
    configure: Callable[..., None],
    sent: list[PaymentRequest],
) -> None:
    """Only macros that the account's dialect can fill in are asked for."""
    configure({"DIALECT": Dialect(name="sparse", macros=("amount",))})
    begin(world, world.order())
    assert sent[0].callback_url.endswith("/?amount={amount}")


def test_default_description_is_order_number(
    world: World,
    described: Describe,
) -> None:
    """A long description is cut."""
    described()
    assert begin(world, "7").payment.description == "Order 100017"
    described(description="d" * 256)
    assert begin(world, "8").payment.description == "d" * 255


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"not_payable_detail": "it was cancelled"}, NotPayable, "it was cancelled"),
        ({"currency": "EUR"}, NotPayable, "only USD can be paid, and the order is in EUR"),
        (
            {"amount": Decimal(10**12)},
            InvalidRequest,
            "amount: Decimal('1000000000000') is more than can be recorded exactly",
        ),
    ],
)
def test_unpayable_order_is_refused_without_row(
    world: World,
    described: Describe,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    described(**changes)
    with pytest.raises(error) as caught:
        begin(world, "7")
    assert str(caught.value) == message
    assert not Order.objects.exists()


def test_largest_amount_is_recorded_exactly(
    world: World,
    described: Describe,
) -> None:
    described(amount=Decimal(10**12) - Decimal("0.01"))
    assert world.fresh(begin(world, "7").payment).amount == Decimal("999999999999.99")


def test_closed_or_paid_order_is_refused(
    world: World,
    described: Describe,
) -> None:
    registering.open_order(world.shop.plugin, "closed")
    registering.close_order(world.shop.plugin, "closed")
    paid = world.paid_payment()
    described()
    with pytest.raises(NotPayable, match=r"^the order is closed$"):
        begin(world, "closed")
    with pytest.raises(NotPayable, match=r"^the order is paid$"):
        begin(world, paid.order.key)


def test_missing_method_or_description_is_told(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The method is not offered, or the shop does not describe the order."""
    configure(PAYMENT_METHODS=["paypal", "creditcard"])
    with pytest.raises(InvalidRequest) as refused:
        begin(world, "7")
    assert str(refused.value) == "method: 'alipay' is not offered by this shop: paypal, creditcard"
    monkeypatch.setattr(ShopOrder.objects, "filter", lambda **_: ShopOrder.objects.none())
    with pytest.raises(ConfigurationError) as silent:
        begin(world, "7", method="paypal")
    detail = "the shop does not know it, or tillgate_describe_order is not implemented"
    assert str(silent.value) == f"plugin: 'smallest-shop' describes no order '7': {detail}"


def test_i12_no_payment_starts_inside_transaction(world: World) -> None:
    with pytest.raises(RuntimeError, match=r"^start uses the network"), transaction.atomic():
        begin(world, world.order())


def test_same_key_of_another_plugin_differs(
    world: World,
    described: Describe,
) -> None:
    """Orders of two plugins with the same key are two orders."""
    described()
    closed_at = timezone.now()
    foreign = Order.objects.create(
        plugin="another-shop",
        key="7",
        created_at=closed_at,
        closed_at=closed_at,
    )
    payment = begin(world, "7").payment
    assert payment.order != foreign
    registering.close_order(world.shop.plugin, "7")
    assert Order.objects.get(pk=payment.order.pk).closed_at
    assert Order.objects.get(pk=foreign.pk).closed_at == closed_at


# A second press.


def test_press_on_paid_order_starts_nothing(world: World) -> None:
    """The press itself finds the order paid at the gateway."""
    order = world.order()
    first = world.start(order)
    world.shopper_pays(first)
    again = begin(world, order, method="paypal", actor="checkout")
    assert (again.payment, again.payment.status, again.outcome) == (
        first,
        "paid",
        StartOutcome.PAID,
    )
    assert TimelineEntry.objects.get(event="payment.paid").actor == "checkout"
    assert Payment.objects.count() == 1
    assert world.shop.is_paid(order)


def test_interleaved_presses_share_one_payment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    described: Describe,
) -> None:
    """The second comes between the first one's look-up and its write."""
    described()
    Order.objects.create(plugin="another-shop", key="7", created_at=timezone.now())
    begin(world, "8")
    between: list[creating.Started] = []
    real = starting._look_up

    def look_up(*arguments: Any) -> Any:
        seen = real(*arguments)
        patch.undo()
        between.append(begin(world, "7"))
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(starting, "_look_up", look_up)
        started = begin(world, "7")
    assert (started.payment, started.outcome) == (between[0].payment, StartOutcome.REDIRECT)


def test_a_second_press_writes_no_second_order(world: World) -> None:
    order = world.order()
    begin(world, order)
    with CaptureQueriesContext(connection) as statements:
        begin(world, order, method="paypal")
    payments, orders = (
        f"INSERT INTO {connection.ops.quote_name(rows._meta.db_table)}" for rows in (Payment, Order)
    )
    written = " ".join(statement["sql"] for statement in statements)
    assert (payments in written, orders in written) == (True, False)


def test_second_press_reuses_open_payment(
    world: World,
    settings: Any,
) -> None:
    """Method, amount and account must be the same."""
    accounts = settings.TILLGATE["ACCOUNTS"]
    settings.TILLGATE = {
        **settings.TILLGATE,
        "ACCOUNTS": {**accounts, "other": accounts["default"]},
    }
    order = world.order()
    first = begin(world, order)
    again = begin(world, order)
    assert (again.payment, again.outcome) == (first.payment, StartOutcome.REDIRECT)
    assert (again.payment.payment_url, again.payment.order) == (
        first.payment.payment_url,
        first.payment.order,
    )
    other = begin(world, order, method="paypal").payment
    elsewhere = begin(world, order, account="other").payment
    world.shop.edit_total(order, Decimal("13.00"))
    dearer = begin(world, order).payment
    assert len({first.payment.pk, other.pk, elsewhere.pk, dearer.pk}) == 4
    assert begin(world, order).payment == dearer
    assert begin(world, order, account="other").payment.amount == Decimal("13.00")


def test_i4_untold_paid_order_is_not_repaid(
    world: World,
) -> None:
    """The event is not delivered yet, and later payments were begun."""
    order = world.order()
    payments = [
        begin(world, order, method=method).payment for method in ("alipay", "paypal", "creditcard")
    ]
    world.shopper_pays(payments[1])
    with world.failing_handler("tillgate_payment_paid"):
        world.notification(payments[1])
    assert [may_go_on(world.fresh(payment)) for payment in payments] == [False] * 3
    for method in ("alipay", "paypal", "creditcard"):
        again = begin(world, order, method=method)
        assert (again.payment, again.outcome) == (payments[1], StartOutcome.PAID)
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.shop.is_paid(order)
    assert [may_go_on(world.fresh(payment)) for payment in payments] == [False] * 3
    assert Payment.objects.count() == 3


@pytest.mark.parametrize("changed", ["MERCHANT_NO", "BASE_URL"])
def test_replaced_account_hands_out_new_page(
    world: World,
    configure: Callable[..., None],
    changed: str,
) -> None:
    """The payment page of an account that was replaced is not handed out again."""
    order = world.order()
    first = begin(world, order).payment
    old = {"MERCHANT_NO": "200043", "BASE_URL": world.sandbox.base_url}
    new = old | {
        changed: {
            "MERCHANT_NO": "200044",
            "BASE_URL": world.sandbox.base_url.replace("127.0.0.1", "localhost"),
        }[changed],
    }
    configure(new)
    assert not may_go_on(world.fresh(first))
    again = begin(world, order).payment
    assert again != first
    assert {"MERCHANT_NO": again.merchant_no, "BASE_URL": again.base_url} == new
    configure(old)
    assert may_go_on(world.fresh(first))
    assert begin(world, order).payment == first


def test_i4_gateway_paid_payment_cannot_go_on(world: World) -> None:
    order = world.order()
    first = begin(world, order).payment
    other = begin(world, order, method="paypal").payment
    world.shopper_pays(first)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.notification(first)
    assert world.reviews() == ["amount-mismatch"]
    assert [may_go_on(world.fresh(payment)) for payment in (first, other)] == [False, True]
    world.time.advance(minutes=10)
    world.run_worker()
    assert world.shop.is_paid(order)


def test_insufficient_payment_does_not_block_another(world: World) -> None:
    """It paid no order, so the shopper may go on with another payment."""
    order = world.order("10.00")
    other = world.start(world.order())
    little = world.start(order)
    world.shopper_pays(little)
    world.shop.edit_total(order, Decimal("12.50"))
    world.notification(little)
    assert world.reviews() == ["underpaid"]
    whole = begin(world, order).payment
    assert [may_go_on(world.fresh(payment)) for payment in (whole, other)] == [True, True]
    assert begin(world, order).payment == whole


def test_soon_closing_payment_page_stays_unused(
    world: World,
    configure: Callable[..., None],
) -> None:
    """A payment page that closes in two minutes is not handed out again."""
    configure(TIMEOUT_MINUTES=60)
    first = world.start(world.order())
    for minutes, live in ((57, True), (1, False)):
        world.time.advance(minutes=minutes, seconds=30)
        assert is_page_live(world.fresh(first)) is live
        assert (begin(world, first.order.key).payment == first) is live
    first.payment_url = ""
    assert not is_page_live(first)


@pytest.mark.parametrize(("minutes", "live_seconds"), [(1, 45), (2, 90), (8, 360)])
def test_i4_short_payment_page_is_reused(
    world: World,
    configure: Callable[..., None],
    minutes: int,
    live_seconds: int,
) -> None:
    """A page open for only a few minutes is handed out again for most of them."""
    configure(TIMEOUT_MINUTES=minutes)
    first = world.start(world.order())
    assert begin(world, first.order.key).payment == first, "a double click makes one payment"
    for seconds, live in ((live_seconds - 5, True), (10, False)):
        world.time.advance(seconds=seconds)
        assert is_page_live(world.fresh(first)) is live


def test_payment_page_needs_over_two_minutes(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With exactly two minutes left it is not live."""
    payment = world.start(world.order())
    last = payment.page_closes_at - timedelta(minutes=2)
    for now, live in ((last - timedelta(microseconds=1), True), (last, False)):
        monkeypatch.setattr(timezone, "now", lambda now=now: now)
        assert is_page_live(payment) is live


@pytest.mark.parametrize("status", ["failed", "closed", "expired", "paid"])
def test_ended_payment_has_no_live_page(world: World, status: str) -> None:
    payment = world.start(world.order())
    assert is_page_live(payment)
    payment.status = status
    assert not is_page_live(payment)


def being_created(world: World, monkeypatch: pytest.MonkeyPatch) -> Payment:
    """Return a payment that another press is creating, and that may not be queried: it was queried
    just now.
    """
    with monkeypatch.context() as patch:
        refuse(patch, OutcomeUnknown("pay", "x", "time-out"))
        return begin(world, world.order()).payment


def test_press_during_creation_waits_for_address(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = being_created(world, monkeypatch)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            Payment.objects.filter(pk=payment.pk).update(
                status="pending",
                payment_url="https://pay.example/1",
            )

    monkeypatch.setattr(time, "sleep", sleep)
    again = begin(world, payment.order.key)
    assert (again.payment, again.outcome, slept) == (payment, StartOutcome.REDIRECT, [0.1] * 3)
    assert again.payment.payment_url == "https://pay.example/1"


@pytest.mark.parametrize(
    ("status", "outcome", "detail"),
    [
        ("paid", StartOutcome.PAID, ""),
        ("failed", StartOutcome.REFUSED, "the payment could not be started"),
        ("created", StartOutcome.UNKNOWN, "the payment could not be started"),
    ],
)
def test_press_waiting_in_vain_learns_outcome(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    outcome: StartOutcome,
    detail: str,
) -> None:
    payment = being_created(world, monkeypatch)
    seconds = [1000.0]

    def sleep(more: float) -> None:
        seconds[0] += more * 10
        Payment.objects.filter(pk=payment.pk).update(status=status)

    monkeypatch.setattr(
        handing_out,
        "time",
        type(
            "Clock",
            (),
            {"sleep": staticmethod(sleep), "monotonic": staticmethod(lambda: seconds[0])},
        ),
    )
    again = begin(world, payment.order.key)
    assert (again.payment, again.outcome, again.detail) == (payment, outcome, detail)
    assert seconds[0] == (pytest.approx(1003.0, abs=1.0) if status == "created" else 1001.0)


def test_ended_unknown_creation_is_not_awaited(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended ten seconds ago."""
    payment = being_created(world, monkeypatch)
    monkeypatch.setattr(timezone, "now", lambda: payment.created_at + timedelta(seconds=10))
    again = begin(world, payment.order.key)
    assert (again.payment != payment, again.outcome) == (True, StartOutcome.REDIRECT)


def test_payment_being_created_has_no_address(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as being created only while it is young and open."""
    payment = being_created(world, monkeypatch)
    assert is_being_created(payment)
    for seconds, is_young in ((9, True), (10, False)):
        with monkeypatch.context() as patch:
            patch.setattr(
                timezone,
                "now",
                lambda seconds=seconds: payment.created_at + timedelta(seconds=seconds),
            )
            assert is_being_created(payment) is is_young
    payment.status = "failed"
    assert not is_being_created(payment)


def test_told_paid_payment_allows_new_one(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    ShopOrder.objects.update(total=Decimal("20.00"))
    world.notification(payment)
    OutboxEvent.objects.filter(payment=world.paid_payment("20.00")).update(
        done_at=None,
        due_at=timezone.now() + timedelta(minutes=5),
    )
    again = begin(world, order)
    assert (again.payment != payment, again.payment.amount) == (True, Decimal("20.00"))
    OutboxEvent.objects.filter(payment=payment, kind="payment-paid").update(
        done_at=None,
        due_at=timezone.now() + timedelta(minutes=5),
    )
    told = begin(world, order, method="paypal")
    assert (told.payment, told.outcome, told.detail) == (payment, StartOutcome.PAID, "")


def test_open_payment_survives_newer_insufficient_one(world: World) -> None:
    """The newer one was paid but did not pay the order."""
    order = world.order("20.00")
    first = world.start(order)
    world.shop.edit_total(order, Decimal("12.50"))
    newer = world.start(order)
    world.shopper_pays(newer)
    world.shop.edit_total(order, Decimal("20.00"))
    world.notification(newer)
    assert world.reviews() == ["underpaid"]
    again = begin(world, order)
    assert (again.payment, again.outcome) == (first, StartOutcome.REDIRECT)


# The outcome of a creation.


def test_possibly_sent_creation_is_watched(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first query is five seconds after the payment was begun."""
    refuse(monkeypatch, OutcomeUnknown("pay", "x", "time-out"))
    started = begin(world, unregistered())
    payment = world.fresh(started.payment)
    assert (started.outcome, payment.status, payment.payment_url, payment.transaction_no) == (
        StartOutcome.UNKNOWN,
        "created",
        "",
        None,
    )
    assert payment.next_poll_at
    assert payment.next_poll_at - payment.created_at == timedelta(seconds=5)
    assert Order.objects.get().unpaid_check_at is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotSent("pay", "x", "connection refused"), StartOutcome.REFUSED),
        (Refused("000030", "payment method is closed", 400), StartOutcome.REFUSED),
        (ConfigurationError("token", "***", "is empty"), StartOutcome.REFUSED),
        (
            InvalidRequest("amount", "12.50", "is below the least that alipay takes, 50"),
            StartOutcome.REFUSED,
        ),
    ],
)
def test_failed_creation_is_checked_later(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    outcome: StartOutcome,
) -> None:
    """The event about its unpaid order comes in time."""
    refuse(monkeypatch, error)
    started = begin(world, world.order())
    payment = world.fresh(started.payment)
    assert (started.outcome, started.detail, payment.status) == (outcome, str(error), "failed")
    assert payment.next_poll_at
    assert payment.next_poll_at - payment.status_since == timedelta(hours=1)
    check_at = Order.objects.get().unpaid_check_at
    assert check_at
    assert (
        timedelta(0)
        <= check_at - payment.status_since - timedelta(minutes=60)
        < timedelta(seconds=5)
    )


@pytest.mark.parametrize(
    "error",
    [
        NotSent("pay", "x", "connection refused"),
        WrongCredentials("000030", "no rights", 400),
        Refused("000030", "payment method is closed", 400),
    ],
)
def test_i11_repeated_creation_failure_is_logged_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """The log has the gateway's address and no secret."""
    refuse(monkeypatch, error)
    order = world.order()
    begin(world, order)
    account = find_account("default")
    logged = [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelname) == ("tillgate", "WARNING")
    ]
    assert logged == [f"a payment could not be created at {account.base_url}: {error}"]
    assert account.token.get_secret_value() not in caplog.text


def test_wrongly_signed_creation_is_reviewed_once(
    world: World,
) -> None:
    """It concerns the account, not the payment (unspecified behaviour 7)."""
    for _ in range(2):
        world.sandbox.control.fault("bad_signature", occasion="pay")
        started = begin(world, world.order())
        assert (started.outcome, started.payment.status) == (StartOutcome.UNKNOWN, "created")
    told = Review.objects.get()
    assert (told.reason, told.account, told.payment, told.order) == (
        "signature-mismatch",
        "default",
        None,
        None,
    )
    assert told.message.startswith("Account default: the outcome of pay of ")
    assert told.message.endswith(": its verifySign does not belong to the account's token.")
    world.time.advance(minutes=1)
    # both payments are answered in order, which says nothing of how creations are signed
    world.run_worker()
    assert world.reviews() == ["signature-mismatch"]


def test_raising_plugin_leaves_creation_watched(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse(monkeypatch, ZeroDivisionError())
    started = begin(world, world.order())
    assert (started.outcome, started.detail) == (
        StartOutcome.UNKNOWN,
        "ZeroDivisionError in a plugin",
    )
    assert started.payment.status == "created"
    assert f"the creation of {started.payment.reference} failed in a plugin" in caplog.text


def test_a_creation_that_money_overtakes_is_paid(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = hooks.pay

    def pay(*arguments: Any, **options: Any) -> Any:
        created = real(*arguments, **options)
        payment = Payment.objects.get()
        world.shopper_pays(payment)
        world.notification(payment)
        return created

    monkeypatch.setattr(hooks, "pay", pay)
    started = begin(world, world.order())
    assert (started.outcome, started.payment.status) == (StartOutcome.PAID, "paid")
    assert world.fresh(started.payment).payment_url


def test_failed_creation_keeps_notifications_finding(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A notification came first, and the creation failed afterwards."""
    real = hooks.pay

    def pay(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        world.notification(Payment.objects.get())
        raise NotSent("pay", "x", "connection reset")

    monkeypatch.setattr(hooks, "pay", pay)
    started = begin(world, world.order())
    payment = world.fresh(started.payment)
    assert (started.outcome, started.detail) == (
        StartOutcome.UNKNOWN,
        str(NotSent("pay", "x", "connection reset")),
    )
    assert (payment.status, payment.payment_url) == ("pending", "")
    assert payment.transaction_no == world.sandbox.service.find(payment.reference).transaction_no


def test_overtaken_creation_gets_its_number(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payment ended before its transaction number was stored."""
    real = hooks.pay

    def pay(*arguments: Any, **options: Any) -> Any:
        created = real(*arguments, **options)
        Payment.objects.update(status="expired", status_since=timezone.now())
        return created

    monkeypatch.setattr(hooks, "pay", pay)
    payment = world.fresh(begin(world, world.order()).payment)
    assert payment.status == "expired"
    assert payment.transaction_no == world.sandbox.service.find(payment.reference).transaction_no


def test_overtaken_creation_keeps_workers_claim(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claimed_until = timezone.now() + timedelta(hours=1)
    real, refresh = hooks.pay, Payment.refresh_from_db

    def pay(*arguments: Any, **options: Any) -> Any:
        created = real(*arguments, **options)
        Payment.objects.update(status="expired", status_since=timezone.now())
        return created

    def refresh_and_then_a_claim(payment: Payment, **options: Any) -> None:
        refresh(payment, **options)
        Payment.objects.update(next_poll_at=claimed_until)

    monkeypatch.setattr(hooks, "pay", pay)
    monkeypatch.setattr(Payment, "refresh_from_db", refresh_and_then_a_claim)
    payment = world.fresh(begin(world, world.order()).payment)
    assert (payment.next_poll_at, bool(payment.payment_url)) == (claimed_until, True)


# Expected and closed.


def test_expected_order_is_checked_after_deadline(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(ORDER_UNPAID_AFTER_MINUTES=45)
    registering.open_order(world.shop.plugin, "7")
    order = Order.objects.get()
    assert order.unpaid_check_at
    assert (
        timedelta(0)
        <= order.created_at - (order.unpaid_check_at - timedelta(minutes=45))
        < timedelta(seconds=5)
    )
    assert (order.key, order.closed_at, order.paid_by) == ("7", None, None)


# The time to pay.


@pytest.mark.parametrize(
    ("left", "minutes"),
    [({"minutes": 29, "seconds": 59}, 29), ({"days": 2}, 120)],
)
def test_payment_page_closes_before_shops_deadline(
    world: World,
    described: Describe,
    sent: list[PaymentRequest],
    left: dict[str, float],
    minutes: int,
) -> None:
    described(payable_until=timezone.now() + timedelta(**left))
    payment = begin(world, "7").payment
    assert (sent[0].timeout, payment.page_closes_at - payment.created_at) == (
        minutes,
        timedelta(minutes=minutes),
    )


@pytest.mark.parametrize(
    ("least", "left", "said"),
    [
        (1, -1, "the time to pay for it is over"),
        (1, 59, "needs 1 min"),
        (30, 29 * 60 + 59, "needs 30 min"),
    ],
)
def test_order_without_enough_time_is_refused(
    world: World,
    configure: Callable[..., None],
    described: Describe,
    least: int,
    left: int,
    said: str,
) -> None:
    """The time to pay is over, or too short for the payment page."""
    configure({"DIALECT": Dialect(name="slow", timeout_minutes=(least, 1440))})
    described(payable_until=timezone.now() + timedelta(seconds=left))
    with pytest.raises(NotPayable, match=said):
        begin(world, "7")
    assert not Order.objects.exists()


def test_deadline_without_time_zone_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="payable_until"):
        OrderDescription(
            number="7",
            amount=Decimal(1),
            currency="USD",
            payable_until=datetime(2026, 1, 1),  # noqa: DTZ001
        )


def test_retried_order_is_released_in_time(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Its open payment must have ended; many attempts do not extend the time to pay."""
    configure(TIMEOUT_MINUTES=60)
    order = world.order()
    for _ in range(26):  # a payment an hour: the time to pay again is never over
        last = begin(world, order, method="paypal").payment
        world.time.advance(minutes=55)
        world.sandbox.control.decline(last.reference)
        world.run_worker()
    open_one = begin(world, order).payment
    world.time.advance(minutes=15)
    page = world.client.get(world.way_to_pay(order))
    assert "the time to pay for it is over" in page.content.decode()
    with pytest.raises(NotPayable, match="the time to pay for it is over"):
        begin(world, order, method="paypal")
    world.run_worker()
    assert world.shop.is_payable(order)  # money may still come
    world.sandbox.control.decline(open_one.reference)
    world.notification(open_one)
    world.run_worker()
    assert world.shop.is_released(order)


def test_reoffered_order_gets_new_payment_deadline(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    described: Describe,
) -> None:
    monkeypatch.setattr("tillgate.django.payments.starting._MOST_PER_ORDER", 2)
    described()
    for method in ("alipay", "paypal"):
        world.sandbox.control.decline(begin(world, "7", method=method).payment.reference)
    with pytest.raises(NotPayable, match="the time to pay for it is over"):
        begin(world, "7", method="creditcard")
    world.a_day_passes()
    assert OutboxEvent.objects.filter(kind="order-unpaid", done_at__isnull=False).count() == 1
    assert begin(world, "7", method="creditcard").outcome is StartOutcome.REDIRECT


def test_retry_never_shortens_time_to_pay(
    world: World,
    configure: Callable[..., None],
) -> None:
    """A declined payment can be tried again until the time to pay is over."""
    configure(ORDER_UNPAID_AFTER_MINUTES=60 * 72)
    order = world.order()
    payment = begin(world, order).payment
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    world.time.advance(hours=71)
    assert begin(world, order).outcome is StartOutcome.REDIRECT


def test_order_is_closed_once_and_alone(world: World) -> None:
    first, second = world.start(world.order()).order, world.start(world.order()).order
    registering.close_order(world.shop.plugin, first.key)
    closed_at = Order.objects.get(pk=first.pk).closed_at
    world.time.advance(minutes=1)
    registering.close_order(world.shop.plugin, first.key)
    assert Order.objects.get(pk=first.pk).closed_at == closed_at
    assert closed_at
    assert Order.objects.get(pk=second.pk).closed_at is None
    with transaction.atomic():
        registering.close_order(world.shop.plugin, second.key)
        transaction.set_rollback(True)
    assert Order.objects.get(pk=second.pk).closed_at is None


def test_closing_an_unknown_order_does_nothing(world: World) -> None:
    registering.close_order(world.shop.plugin, "7")
    assert not Order.objects.exists()


def test_closing_a_paid_order_does_nothing(world: World) -> None:
    order = world.paid_payment().order
    registering.close_order(order.plugin, order.key)
    assert Order.objects.get(pk=order.pk).closed_at is None
    assert not TimelineEntry.objects.filter(event="order.closed").exists()


def test_press_checks_newest_open_payments_first(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """The shopper waits for no more checks than five seconds allow."""
    order = world.order()
    open_ones = [
        begin(world, order, method=method).payment for method in ("alipay", "wechatpay", "paypal")
    ]
    world.time.advance(minutes=1)
    seconds, asked = [0.0], list[str]()

    def slow(reference: str) -> Callable[[], object]:
        def answer() -> None:
            asked.append(reference)
            seconds[0] += 2.5

        return answer

    gateway.update({payment.reference: slow(payment.reference) for payment in open_ones})
    monkeypatch.setattr(times, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    assert begin(world, order, method="creditcard").outcome is StartOutcome.REDIRECT
    assert asked == [payment.reference for payment in reversed(open_ones[1:])]


# A gateway that hangs, and presses without end ----------------------------------------------------


def hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every creation end without an answer, as if it had taken long."""
    monkeypatch.setattr(admission, "HUNG_SECONDS", 0.0)
    refuse(monkeypatch, OutcomeUnknown("pay", "x", "time-out"))


@contextmanager
def hanging_gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PaymentRequest]]:
    """Let every creation hang until the block ends; yield the requests that were sent."""
    requests: list[PaymentRequest] = []
    is_over = threading.Event()

    def pay(_: Any, request: PaymentRequest, **__: Any) -> Any:
        requests.append(request)
        is_over.wait(20)
        raise OutcomeUnknown("pay", request.reference, "time-out")

    monkeypatch.setattr(admission, "HUNG_SECONDS", 0.0)
    monkeypatch.setattr(hooks, "pay", pay)
    try:
        yield requests
    finally:
        is_over.set()


@contextmanager
def pressed(
    world: World,
    order: str,
    sent: list[PaymentRequest],
    before: int = 0,
) -> Iterator[None]:
    """Let a shopper press Pay in another thread, and begin the block when the gateway has the
    request.
    """

    def press() -> None:
        begin(world, order)
        connections.close_all()

    pressing = threading.Thread(target=press)
    pressing.start()
    while len(sent) <= before:
        time.sleep(0.01)
    yield
    pressing.join()


def test_sixteen_shoppers_reach_the_payment_page(world: World) -> None:
    """A gateway that takes a second for each answer is healthy, even if many shoppers press
    together.
    """
    world.sandbox.control.set_options({"delay_seconds": 1.0, "pay.delay": 1.0})
    orders = [world.order() for _ in range(16)]
    outcomes = together(*[partial(begin, world, order) for order in orders])
    assert [getattr(one, "outcome", one) for one in outcomes] == [StartOutcome.REDIRECT] * 16


def test_creation_has_a_deadline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shopper waits for a creation, and a gateway that hangs holds one thread for each."""
    deadlines: list[float] = []

    def pay(_: Any, request: PaymentRequest, *, deadline_seconds: float) -> Any:
        deadlines.append(deadline_seconds)
        raise OutcomeUnknown("pay", request.reference, "time-out")

    monkeypatch.setattr(hooks, "pay", pay)
    assert begin(world, world.order()).outcome is StartOutcome.UNKNOWN
    assert deadlines == [10.0]


def test_hanging_presses_count_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creations that began together look at the stored state when they end."""
    orders = [world.order() for _ in range(4)]
    with contextlib.ExitStack() as ending, hanging_gateway(monkeypatch) as sent:
        for number, order in enumerate(orders):
            ending.enter_context(pressed(world, order, sent, before=number))
    # All four began while the gateway was held to be sound.
    with hanging_gateway(monkeypatch) as sent, pytest.raises(admission.TryLater):
        begin(world, world.order())
    assert sent == []


def test_page_says_that_nothing_was_charged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        hang(patch)
        for _ in range(2):
            begin(world, world.order())
    answer = world.choose(world.order())
    said = answer.content.decode()
    assert answer.status_code == 409
    assert (
        "The payment could not be started, and nothing was charged. Please try again later" in said
    )
    assert 'name="method"' in said


def test_one_press_tries_after_a_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the same moment wait for its end, else a gateway that still hangs holds all
    threads again.
    """
    with monkeypatch.context() as patch:
        hang(patch)
        for _ in range(2):
            begin(world, world.order())
    world.time.advance(seconds=31)
    with (
        monkeypatch.context() as patch,
        contextlib.ExitStack() as ending,
        hanging_gateway(patch) as sent,
    ):
        ending.enter_context(pressed(world, world.order(), sent))
        with pytest.raises(admission.TryLater):
            begin(world, world.order())
    with pytest.raises(admission.TryLater):
        begin(world, world.order())
    world.time.advance(seconds=31)
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT


def test_rest_of_last_night_refuses_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two creations hung hours ago, without a press since then: two presses need no trial."""
    with monkeypatch.context() as patch:
        hang(patch)
        for _ in range(2):
            begin(world, world.order())
    world.time.advance(hours=6)
    with contextlib.ExitStack() as ending, hanging_gateway(monkeypatch) as sent:
        ending.enter_context(pressed(world, world.order(), sent))
        ending.enter_context(pressed(world, world.order(), sent, 1))


def test_second_press_finds_hanging_creation(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = world.order()
    with contextlib.ExitStack() as ending, hanging_gateway(monkeypatch) as sent:
        ending.enter_context(pressed(world, order, sent))
        world.time.advance(seconds=12)
        began = time.monotonic()
        again = begin(world, order)
        assert (again.outcome, Payment.objects.count(), len(sent)) == (StartOutcome.UNKNOWN, 1, 1)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "error",
    [OutcomeUnknown("pay", "x", "HTTP 500"), NotSent("pay", "x", "connection refused")],
)
def test_quick_errors_stop_no_sale(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """A gateway that says immediately that it is busy holds no thread: the next shopper may try."""
    with monkeypatch.context() as patch:
        refuse(patch, error)
        for _ in range(3):
            begin(world, world.order())
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT


def test_account_that_rests_from_queries_sells(world: World) -> None:
    """A single payment that the gateway fails about stops no sale."""
    rest("default", "HTTP 500", has_review=False)
    assert [begin(world, world.order()).outcome for _ in range(3)] == [StartOutcome.REDIRECT] * 3


def test_unanswered_creations_pause_payment_starts(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After two of them no page creates a payment for half a minute."""
    with monkeypatch.context() as patch:
        hang(patch)
        assert [begin(world, world.order()).outcome for _ in range(2)] == [StartOutcome.UNKNOWN] * 2
        with pytest.raises(admission.TryLater):
            begin(world, world.order())
    world.time.advance(seconds=29)
    with pytest.raises(admission.TryLater):
        begin(world, world.order())
    world.time.advance(seconds=2)
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT
    with monkeypatch.context() as patch:
        hang(patch)
        begin(world, world.order())
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT, (
        "one alone is none in a row"
    )
    with monkeypatch.context() as patch:
        refuse(patch, Refused("000001", "no", 400))
        for _ in range(3):
            assert begin(world, world.order()).outcome is StartOutcome.REFUSED
    assert begin(world, world.order()).outcome is StartOutcome.REDIRECT, "a refusal is an answer"


def test_refetched_link_starts_few_payments(
    world: World,
    sent: list[PaymentRequest],
) -> None:
    """It starts at most five payments a minute."""
    order = world.order()
    for _ in range(40):
        with contextlib.suppress(admission.TryLater):
            world.sandbox.control.decline(begin(world, order).payment.reference)
        world.time.advance(seconds=1)
    assert len(sent) == 5
    world.time.advance(seconds=60)
    assert begin(world, order).outcome is StartOutcome.REDIRECT
    assert len(sent) == 6


def test_simultaneous_presses_count_each_other(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[PaymentRequest],
) -> None:
    monkeypatch.setattr("tillgate.django.payments.starting._MOST_PER_MINUTE", 2)
    order = world.order()
    methods = ("alipay", "paypal", "wechatpay", "creditcard") * 2
    outcomes = together(*[partial(begin, world, order, method=method) for method in methods])
    assert len(sent) == Payment.objects.count() == 2
    assert {type(one) for one in outcomes} <= {creating.Started, admission.TryLater}
