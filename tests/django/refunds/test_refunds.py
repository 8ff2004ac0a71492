"""Refunds: bounded, sent once, held when the outcome is unknown."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from tests.django.conftest import World
from tests.django.notifying import confirming, documented, signed
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import unregistered
from tillgate import (
    REFERENCE,
    ConfigurationError,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    Refunded,
    RefundRequest,
    Refused,
    SignatureRule,
    hooks,
)
from tillgate.django import accounts, actions
from tillgate.django.accounting.audit import audit
from tillgate.django.models import (
    NOTHING,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.orders.locking import InsideTransaction, OrderHeld, locked_order
from tillgate.django.payments import notifications, reconciling
from tillgate.django.refunds import limits, queueing, sending, settling
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.limits import RefundNotPossible, refundable
from tillgate.django.refunds.sending import poll_refund
from tillgate.django.refunds.settling import settle_by_notification, settle_by_staff, withdraw
from tillgate.django.reviews.opening import open_review
from tillgate.hooks import RefundOutcome, ReportedRefund
from tillgate.lifecycle import ReviewReason
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.testing.crashes import Crash


def refund_notification(world: World, refund: Refund, body: str | None = None) -> None:
    body = confirming(refund) if body is None else body
    answer = world.client.post(
        f"/payments/refund-notification/{refund.notification_key}/",
        body,
        content_type="application/x-www-form-urlencoded",
    )
    assert (answer.status_code, answer.content) == (200, b"success")


def refunded_amount(world: World, payment: Payment) -> Decimal:
    found = world.sandbox.service.find(payment.reference)
    return Decimal(found.refunded_units) / 100


def test_partial_refund_then_rest_reaches_shop(world: World) -> None:
    """The shop hears of each of the two refunds."""
    payment = world.paid_payment("12.50")
    assert queueing.refund(payment.pk, "2.50", staff="ann", reason="damaged").status == "succeeded"
    assert queueing.refund(payment.pk, Decimal("10.00")).status == "succeeded"
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")
    assert refundable(payment) == 0
    assert refunded_amount(world, payment) == Decimal("12.50")


def test_i5_excess_refund_is_refused_before_sending(world: World) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "2.50")
    with pytest.raises(InvalidRequest, match=r"more than the USD 10.00 that can still be refunded"):
        queueing.refund(payment.pk, "10.01")
    assert refunded_amount(world, payment) == Decimal("2.50")


@pytest.mark.parametrize("amount", ["0", "-1", "1.005", "1e1", "NaN", 1.5])
def test_refund_of_invalid_amount_is_refused(world: World, amount: str) -> None:
    payment = world.paid_payment()
    with pytest.raises(InvalidRequest):
        queueing.refund(payment.pk, amount)
    assert not Refund.objects.exists()


def test_only_a_paid_payment_can_be_refunded(world: World) -> None:
    payment = world.start(world.order())
    with pytest.raises(RefundNotPossible, match="is pending"):
        queueing.refund(payment.pk, "1.00")


@pytest.mark.parametrize(
    "fault",
    [
        "lost_response",
        "lost_request",
        "server_error",
        "server_error_done",
        "broken_json",
        "system_error",
        "unknown_code",
    ],
)
def test_i6_unknown_refund_is_held_not_resent(
    world: World,
    fault: str,
) -> None:
    """It also blocks its amount for other refunds."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault(fault, occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    assert refund.status == "unknown"
    assert world.reviews() == ["refund-unknown"]
    before = refunded_amount(world, payment)
    world.time.advance(days=2)
    world.run_worker()
    assert sending.send_refund(refund.pk).status == "unknown"
    assert refunded_amount(world, payment) == before
    with pytest.raises(InvalidRequest, match=r"USD 0.00"):
        queueing.refund(payment.pk, "0.01")


def test_i7_own_notification_settles_unknown_refund(
    world: World,
) -> None:
    """The notification comes to the refund's own address."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    refund_notification(world, refund)
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert world.reviews() == []
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")


def test_i7_a_forged_notification_settles_no_refund(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    refund_notification(world, refund, "status=success&verifySign=00000000000000000000000000000000")
    refund.refresh_from_db()
    assert refund.status == "unknown"


@pytest.mark.parametrize("rule", list(SignatureRule))
def test_unsigned_notification_settles_no_refund(
    world: World,
    configure: Callable[..., None],
    rule: SignatureRule,
) -> None:
    configure({"DIALECT": replace(REFERENCE, notification_signature=rule)})
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    refund_notification(world, refund, urlencode(documented(refund)))
    refund.refresh_from_db()
    assert refund.status == "unknown"
    assert refund.due_at is not None
    assert refund.due_at <= timezone.now()


_FALSE_CONFIRMATIONS: Any = [
    {"amount": "12.50"},
    {"amount": "12.50", "transactionType": "payment", "currency": "USD"},
    {"transactionType": "payment"},
    {"amount": "0.01"},
    {"refundMoney": "0.01"},
    {"ret_msg": "refund rejected: insufficient balance"},
    {"refundState": "REJECTED"},
    {"refundResult": "declined"},
    {"refundReference": "R-OF-ANOTHER"},
    {"refundTransactionNo": "no-of-another"},
    {"refundAmount": "0.01"},
    {"note": ""},
    {"status": "failed"},
    {"reference": "S1-OF-ANOTHER"},
    {"transactionNo": "29"},
    {"transactionNo": ""},
]


@pytest.mark.parametrize("dialect", ["reference", "v3"])
@pytest.mark.parametrize("changes", _FALSE_CONFIRMATIONS, ids=str)
def test_false_confirmation_only_causes_a_query(
    world: World,
    configure: Callable[..., None],
    dialect: str,
    changes: dict[str, str],
) -> None:
    """A signed notification with a field that is unknown, or disagrees, moves no refund; the worker
    asks soon.
    """
    configure({"DIALECT": dialect, "STORE_NO": PUBLISHED_STORE_NO})
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    refund.refresh_from_db()
    refund_notification(world, refund, confirming(refund, **changes))
    refund.refresh_from_db()
    assert (refund.status, refund.confirmed, world.reviews()) == (
        "unknown",
        False,
        ["refund-unknown"],
    )
    assert refund.due_at is not None
    assert refund.due_at <= timezone.now()
    refund_notification(world, refund)
    refund.refresh_from_db()
    assert refund.status == "succeeded", "the documented shape confirms it"


@pytest.mark.parametrize("missing", ["transactionNo", "status", "reference"])
def test_confirmation_needs_each_documented_field(world: World, missing: str) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    fields = documented(refund)
    del fields[missing]
    refund_notification(world, refund, signed(**fields))
    refund.refresh_from_db()
    assert refund.status == "unknown"


def test_v3_confirms_only_named_refund(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Without the refund's reference it may be the notification of the payment, or of another
    refund.
    """
    configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    fields = documented(refund)
    del fields["refundReference"]
    refund_notification(world, refund, signed(**fields))
    refund.refresh_from_db()
    assert refund.status == "unknown"


def test_i7_kept_refund_notification_is_acknowledged(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker delivers the event later if that is not possible immediately."""
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    with monkeypatch.context() as patch:
        patch.setattr(notifications, "deliver", failing(OperationalError("the lock is held")))
        refund_notification(world, refund)
    assert f"failed to process a notification of {payment.reference}" in caplog.text
    assert (Refund.objects.get().status, world.shop.refunded(payment.order.key)) == (
        "succeeded",
        Decimal(0),
    )
    world.run_worker()
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


@contextmanager
def without_accounts() -> Iterator[None]:
    """Let the plugin that keeps the accounts fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "find_account", failing(RuntimeError("the accounts are away")))
        yield


def test_held_order_delays_refund_notification(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway is asked to send it again."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    path = f"/payments/refund-notification/{refund.notification_key}/"
    with monkeypatch.context() as patch:
        patch.setattr(
            notifications,
            "receive_refund_notification",
            Mock(side_effect=OrderHeld("another transaction holds the order")),
        )
        answer = world.client.post(path, {"status": "success"})
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")


@pytest.mark.parametrize(
    ("held_at", "status"),
    [((sending, "_claim"), "queued"), ((sending, "settle_refund"), "sending")],
)
def test_queued_refund_survives_held_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    held_at: tuple[Any, str],
    status: str,
) -> None:
    """The refund is returned as it stands and continues later."""
    payment = world.paid_payment("12.50")
    with monkeypatch.context() as patch:
        patch.setattr(*held_at, Mock(side_effect=OrderHeld("another transaction holds the order")))
        assert queueing.refund(payment.pk, "2.50").status == status
    world.time.advance(minutes=20)
    world.run_worker()
    assert Refund.objects.get().status == ("succeeded" if status == "queued" else "unknown")
    assert world.reviews() == ([] if status == "queued" else ["refund-unknown"])


@pytest.mark.parametrize("away", ["the plugin fails", "the alias is another merchant's"])
def test_i7_unjudged_refund_notification_is_not_acknowledged(
    world: World,
    configure: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    away: str,
) -> None:
    """It settles its refund when it comes again."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    if away == "the plugin fails":
        with without_accounts():
            answer = world.client.post(
                f"/payments/refund-notification/{refund.notification_key}/",
                {"status": "success"},
            )
    else:
        configure({"MERCHANT_NO": "999999"})
        answer = world.client.post(
            f"/payments/refund-notification/{refund.notification_key}/",
            {"status": "success"},
        )
        configure({})
    assert (answer.status_code, answer.content) == (503, b"try again later")
    assert f"a notification of a refund of {payment.reference} has to come again" in caplog.text
    assert (Refund.objects.get().status, refund.kept_notifications.count()) == ("unknown", 0)
    assert world.reviews() == ["refund-unknown", "account-gone"]
    told = Review.objects.get(reason="account-gone")
    assert (
        f"when a notification came of the refund of USD 2.50 of payment {payment.reference}"
        in told.message
    )
    assert (told.payment, told.account) == (payment, "default")
    refund_notification(world, refund)
    assert (Refund.objects.get().status, world.reviews()) == ("succeeded", ["account-gone"])


def test_i6_confirmed_refund_survives_missing_account(
    world: World,
) -> None:
    """It is not sent or withdrawn while its account is away."""
    payment = world.paid_payment("12.50")
    refund = queued(payment)
    refund_notification(world, refund)
    with without_accounts():
        with pytest.raises(RefundNotPossible, match="a notification says that the refund was done"):
            withdraw(refund.pk, staff="ann")
        with pytest.raises(InvalidRequest, match=r"more than the USD 10\.00"):
            record_external_refund(payment.pk, "12.50", staff="ann")
        world.run_worker()
    assert (Refund.objects.get().status, refunded_amount(world, payment)) == (
        "succeeded",
        Decimal(0),
    )


def test_i6_last_moment_confirmation_prevents_sending(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, real = world.paid_payment("12.50"), accounts.account_of
    refund = queued(payment)

    def noticed(of: Payment) -> Any:
        refund_notification(world, refund)
        return real(of)

    monkeypatch.setattr(sending, "account_of", noticed)
    world.time.advance(hours=4)
    assert sending.send_refund(refund.pk).status == "succeeded"
    assert (refunded_amount(world, payment), world.reviews()) == (Decimal(0), [])


def test_i5_confirmed_interrupted_refund_is_booked(
    world: World,
) -> None:
    """This holds even while its account is away."""
    payment = world.paid_payment("12.50")
    refund = queued(payment)
    sending._claim(refund.pk)
    refund_notification(world, refund)
    world.time.advance(minutes=16)
    with without_accounts():
        world.run_worker()
    assert (Refund.objects.get().status, refundable(payment), world.reviews()) == (
        "succeeded",
        Decimal("10.00"),
        [],
    )


def test_i5_confirmed_queued_refund_is_booked(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds even if the gateway says that the payment has changed."""
    payment = world.paid_payment("12.50")
    refund = queued(payment, "12.50")
    reason = ReviewReason.CHANGED_AFTER_PAID
    open_review(reason, "Payment: it was paid, and now it is not.", "test", payment)
    world.run_worker()
    assert Refund.objects.get().status == "queued", "it may have been made elsewhere"
    refund_notification(world, refund)
    world.run_worker()
    assert (Refund.objects.get().status, refunded_amount(world, payment), world.reviews()) == (
        "succeeded",
        Decimal(0),
        [],
    )


def test_i5_refunds_never_exceed_payment(
    world: World,
) -> None:
    """The host's decimal precision makes no difference."""
    payment = world.paid_payment("1234567.89")
    with decimal.localcontext() as context:
        context.prec = 6
        queueing.refund(payment.pk, "1234567.00")
        assert str(refundable(payment)) == "0.89"
        with pytest.raises(InvalidRequest, match=r"USD 0\.89"):
            queueing.refund(payment.pk, "0.90")
        queueing.refund(payment.pk, "0.89")
        assert str(world.fresh(payment).refunded_amount) == "1234567.89"
    assert refunded_amount(world, payment) == Decimal("1234567.89")


@pytest.mark.parametrize(
    ("done", "status", "left"),
    [(True, "succeeded", "0.00"), (False, "failed", "12.50")],
)
def test_a_person_settles_what_nobody_knows(
    world: World,
    done: bool,
    status: str,
    left: str,
) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    assert settle_by_staff(refund.pk, done=done, staff="ann").status == status
    assert refundable(payment) == Decimal(left)
    assert world.reviews() == []


@pytest.mark.parametrize("who", ["staff", "notification"])
def test_crash_after_settling_leaves_no_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
) -> None:
    """The refund was unknown, and the process dies before it tells the shop."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")

    def die(_: int) -> None:
        raise Crash

    monkeypatch.setattr(settling if who == "staff" else notifications, "deliver", die)
    with pytest.raises(Crash):
        settle_by_staff(
            refund.pk,
            done=True,
            staff="ann",
        ) if who == "staff" else refund_notification(world, refund)
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert world.reviews() == []


def test_worker_tells_shop_after_refund_crash(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment("12.50")

    def die(_: int) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(settling, "deliver", die)
        with pytest.raises(Crash):
            queueing.refund(payment.pk, "2.50")
    assert world.shop.refunded(payment.order.key) == 0
    world.run_worker()
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


def test_a_refused_refund_frees_its_amount(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("refused", occasion="refund")
    assert queueing.refund(payment.pk, "12.50").status == "failed"
    assert refundable(payment) == Decimal("12.50")
    assert world.shop.refunded(payment.order.key) == 0


def test_unsent_refund_is_queued_again(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker sends it later."""
    from tillgate import NotSent

    payment = world.paid_payment("12.50")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise NotSent("refund", payment.reference, "connection refused")

        patch.setattr("tillgate.hooks.refund", refuse)
        assert queueing.refund(payment.pk, "12.50").status == "queued"
    world.time.advance(minutes=2)
    assert world.run_worker().counts["refunds to send"] == 1
    assert refunded_amount(world, payment) == Decimal("12.50")


def test_interrupted_refund_becomes_unknown(world: World) -> None:
    """A crash cut it off, and some time has passed."""
    payment = world.paid_payment("12.50")
    refund = queueing.queue_refund(payment.pk, "12.50")
    Refund.objects.filter(pk=refund.pk).update(status="queued")
    from tillgate.django.refunds.sending import _claim

    Refund.objects.filter(pk=refund.pk).update(status="queued")
    assert _claim(refund.pk)
    assert world.run_worker().counts["lost refunds"] == 0
    world.time.advance(minutes=16)
    assert world.run_worker().counts["lost refunds"] == 1
    assert world.reviews() == ["refund-unknown"]


def test_i12_host_transaction_sends_refund_on_commit(
    world: World,
) -> None:
    """Until then the refund is queued."""
    payment = world.paid_payment("12.50")
    with transaction.atomic():
        refund = queueing.queue_refund(payment.pk, "2.50")
        assert refunded_amount(world, payment) == 0
    refund.refresh_from_db()
    assert (refund.status, refunded_amount(world, payment)) == ("succeeded", Decimal("2.50"))
    with pytest.raises(InsideTransaction), transaction.atomic():
        queueing.refund(payment.pk, "2.50")


def test_unseen_refund_blocks_another(world: World) -> None:
    """A refund that staff have not seen keeps them from queueing the next."""
    payment = world.paid_payment("12.50")
    queueing.queue_refund(payment.pk, "2.50", newest_refund=0)
    with pytest.raises(limits.RefundNotPossible, match="in the meantime"):
        queueing.queue_refund(payment.pk, "2.50", newest_refund=0)
    assert refunded_amount(world, payment) == Decimal("2.50")


def test_rolled_back_refund_was_never_queued(world: World) -> None:
    payment = world.paid_payment("12.50")

    def host() -> None:
        with transaction.atomic():
            queueing.queue_refund(payment.pk, "2.50")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host()
    assert not Refund.objects.exists()
    assert refunded_amount(world, payment) == 0


def test_external_refund_blocks_others_until_entered(
    world: World,
) -> None:
    """It opens a review, and staff enter it."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.reverse(payment.reference)
    world.time.advance(days=2)
    world.run_worker()
    assert world.reviews() == ["changed-after-paid"]
    with pytest.raises(RefundNotPossible, match="enter that amount first"):
        queueing.refund(payment.pk, "1.00")
    record_external_refund(payment.pk, "2.50", staff="ann")
    assert world.reviews() == []
    assert refundable(payment) == Decimal("10.00")
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


def test_order_with_returned_money_ends_unpaid(
    world: World,
) -> None:
    """Its only payment did not pay it and was refunded in full."""
    order = world.order("12.50")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("20.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.reviews() == ["underpaid"]
    queueing.refund(payment.pk, "12.00")
    world.a_day_passes()
    assert world.shop.is_payable(order)  # a part of the money is still held
    queueing.refund(payment.pk, "0.50")
    world.run_worker()
    assert world.shop.is_payable(order)  # the shopper may still try again
    world.a_day_passes()
    assert world.shop.is_released(order)


def test_returned_money_releases_no_paid_order(world: World) -> None:
    """Another payment has paid the order."""
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notification(payment)
    for payment in (second, first):
        queueing.refund(payment.pk, payment.amount)
        world.a_day_passes()
        assert world.shop.is_paid(order), (
            "what becomes of an order that was paid and refunded is the shop's own affair"
        )


# Word for word ------------------------------------------------------------------------------------


def answering(monkeypatch: pytest.MonkeyPatch, action: Callable[[RefundRequest], Any]) -> None:
    """Let the gateway's place be taken by a function of the request."""
    monkeypatch.setattr(hooks, "refund", lambda account, request: action(request))


def failing(error: Exception) -> Callable[[RefundRequest], Any]:
    def action(_: RefundRequest) -> Any:
        raise error

    return action


def queued(payment: Payment, amount: str = "2.50", **options: Any) -> Refund:
    """Queue a refund, and let its process die before it can send it."""
    with transaction.atomic():
        refund = queueing.queue_refund(payment.pk, amount, **options)
        transaction.get_connection().run_on_commit.clear()
    return refund


def about(moment: Any, expected: Any) -> bool:
    return moment is not None and abs(moment - expected) < timedelta(seconds=5)


def test_queued_refund_has_every_field(world: World) -> None:
    payment = world.paid_payment()
    refund = Refund.objects.get(
        pk=queued(
            payment,
            staff="p" * 151,
            reason="r" * 256,
            data={"lines": 1},
            idempotency_key="k",
        ).pk,
    )
    assert (refund.payment, refund.amount, refund.status, refund.external) == (
        payment,
        Decimal("2.50"),
        "queued",
        False,
    )
    assert (refund.requested_by, refund.reason, refund.data, refund.answer) == (
        "p" * 150,
        "r" * 255,
        {"lines": 1},
        "",
    )
    assert refund.idempotency_key == "k"
    assert refund.created_at == refund.status_since == refund.due_at
    assert about(refund.created_at, timezone.now())
    given = queued(payment)
    assert (given.payment, given.payment.order) == (payment, payment.order)
    plain = Refund.objects.get(pk=given.pk)
    assert (plain.requested_by, plain.reason, plain.data, plain.idempotency_key) == (
        "",
        "",
        {},
        None,
    )
    assert plain.notification_key != refund.notification_key
    assert world.run_worker().counts["refunds to send"] == 2


def test_refund_names_its_own_notification_address(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(PUBLIC_URL="https://shop.example")
    payment = world.paid_payment()
    sent: list[RefundRequest] = []
    answering(
        monkeypatch,
        lambda request: sent.append(request) or failing(NotSent("refund", "x", "refused"))(request),  # type: ignore[func-returns-value]
    )
    refund = queueing.refund(payment.pk, "2.50")
    url = f"https://shop.example/payments/refund-notification/{refund.notification_key}/"
    about = {"transaction_no": payment.transaction_no, "refund_id": refund.refund_id}
    assert sent == [
        RefundRequest(
            reference=payment.reference,
            currency="USD",
            amount=Decimal("2.50"),
            ipn_url=url,
            **about,
        ),
    ]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("pending", "is pending, and only a paid one can be refunded"),
        ("closed", "is closed, and only a paid one can be refunded"),
    ],
)
def test_impossible_refund_is_refused_in_words(
    world: World,
    status: str,
    message: str,
) -> None:
    payment = world.start(world.order())
    Payment.objects.filter(pk=payment.pk).update(status=status)
    with pytest.raises(RefundNotPossible) as caught:
        queueing.refund(payment.pk, "1.00")
    assert str(caught.value) == f"payment {payment.reference} {message}"
    assert refundable(world.fresh(payment)) == 0


def test_refused_refund_amount_is_explained(
    world: World,
) -> None:
    """The refusal names the money that was refunded elsewhere or before, or the excess."""
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50")
    newest = Refund.objects.get().pk
    with pytest.raises(InvalidRequest) as too_much:
        queueing.refund(payment.pk, "10.01", newest_refund=newest)
    left = f"is more than the USD 10.00 that can still be refunded of {payment.reference}"
    assert str(too_much.value) == f"amount: 'USD 10.01' {left}"
    with pytest.raises(InvalidRequest) as entered:
        record_external_refund(payment.pk, "10.01", staff="ann")
    assert str(entered.value) == f"amount: 'USD 10.01' {left}"
    actions: list[Callable[[], object]] = [
        lambda: queueing.refund(payment.pk, "1.00", newest_refund=0),
        lambda: record_external_refund(payment.pk, "1.00", staff="ann", newest_refund=0),
    ]
    for action in actions:
        with pytest.raises(RefundNotPossible) as meanwhile:
            action()
        assert (
            str(meanwhile.value)
            == f"a refund of USD 2.50 of payment {payment.reference} was asked for in the meantime"
        )
    Review.objects.create(
        payment=payment,
        reason="changed-after-paid",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    with pytest.raises(RefundNotPossible) as elsewhere:
        queueing.refund(payment.pk, "1.00")
    assert (
        str(elsewhere.value)
        == f"payment {payment.reference} may have been refunded elsewhere: enter that amount first"
    )
    assert queueing.refund(world.paid_payment().pk, "12.50").status == "succeeded", (
        "another payment is another matter"
    )
    Review.objects.update(resolved_at=timezone.now())
    assert queueing.refund(payment.pk, "10.00").status == "succeeded"


def test_refund_awaiting_review_is_retried_hourly(
    world: World,
) -> None:
    """It waits until the external refunds are known."""
    payment = world.paid_payment()
    refund = queued(payment)
    review = Review.objects.create(
        payment=payment,
        reason="changed-after-paid",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    kept = sending.send_refund(refund.pk)
    assert (kept.pk, kept.status, kept.payment.order) == (refund.pk, "queued", payment.order)
    refund.refresh_from_db()
    assert (refund.status, about(refund.due_at, timezone.now() + timedelta(hours=1))) == (
        "queued",
        True,
    )
    review.delete()
    assert sending.send_refund(refund.pk).status == "succeeded"
    assert sending.send_refund(refund.pk).status == "succeeded", (
        "one that is not queued any more is returned as it stands"
    )
    assert refunded_amount(world, payment) == Decimal("2.50")


def test_refund_under_way_is_lost_eventually(world: World) -> None:
    """It counts as lost after a quarter of an hour."""
    refund = queued(world.paid_payment())
    claimed = sending._claim(refund.pk)
    assert claimed
    refund.refresh_from_db()
    assert (claimed.status, refund.status) == ("sending", "sending")
    assert refund.due_at
    assert refund.due_at - refund.status_since == timedelta(minutes=15)
    assert refund.status_since > refund.created_at
    assert sending._claim(refund.pk) is None


def test_unsent_refund_is_retried_less_often(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    answering(monkeypatch, failing(NotSent("refund", "x", "connection refused")))
    refund = queueing.refund(payment.pk, "2.50")
    for after, pause in ((0, 60), (5, 300), (24, 1440 + 300), (60, 3600)):
        world.time.advance(minutes=after)
        if after:
            refund = sending.send_refund(refund.pk)
        assert refund.status == "queued"
        assert about(refund.due_at, timezone.now() + timedelta(seconds=pause)), after
    assert refund.answer == str(NotSent("refund", "x", "connection refused"))


def test_only_unknown_refunds_stay_due(
    world: World,
) -> None:
    """A settled refund is never due again."""
    payment = world.paid_payment()
    queueing.refund(payment.pk, "1.00")
    for fault in ("refused", "lost_response"):
        world.sandbox.control.fault(fault, occasion="refund")
        queueing.refund(payment.pk, "1.00")
    rows = Refund.objects.order_by("id").values_list("status", "due_at")
    assert [(status, due_at is not None) for status, due_at in rows] == [
        ("succeeded", False),
        ("failed", False),
        ("unknown", True),
    ]


def test_i6_raising_plugin_leaves_refund_unknown(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answering(monkeypatch, failing(ZeroDivisionError("x" * 300)))
    refund = queueing.refund(world.paid_payment().pk, "2.50")
    assert (refund.status, refund.answer) == ("unknown", "ZeroDivisionError in a plugin")
    assert f"refund {refund.pk} of {refund.payment} failed in a plugin" in caplog.text


def test_long_refund_answer_is_cut(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, failing(NotSent("refund", "x", "r" * 300)))
    assert len(queueing.refund(world.paid_payment().pk, "2.50").answer) == 255


def test_refund_without_account_stays_queued(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A review tells staff about the account."""
    payment = world.paid_payment()
    error = ConfigurationError("token", "***", "is empty")
    answering(monkeypatch, failing(error))
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, refund.answer) == ("queued", str(error))
    review = Review.objects.get()
    assert (review.reason, review.account, review.payment, review.order) == (
        "account-gone",
        "default",
        payment,
        None,
    )
    assert review.message == f"Account default: {error}."


def test_i6_late_answer_settles_lost_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, real = world.paid_payment(), hooks.refund

    def slow(account: Any, request: RefundRequest) -> Any:
        world.time.advance(minutes=16)
        assert world.run_worker().counts["lost refunds"] == 1
        return real(account, request)

    monkeypatch.setattr(hooks, "refund", slow)
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, refund.answer) == ("succeeded", "refund success")
    assert (world.reviews(), world.shop.refunded(payment.order.key)) == ([], Decimal("2.50"))
    assert TimelineEntry.objects.get(event="refund.succeeded").actor == "refund"
    world.sandbox.control.fault("lost_response", occasion="refund")
    assert queueing.refund(payment.pk, "1.00").status == "unknown", (
        "an answer that says nothing changes nothing"
    )


def test_i6_lost_refund_is_not_requeued(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds even if it turns out later that it was never sent."""
    payment = world.paid_payment()

    def slow(_: RefundRequest) -> Any:
        world.time.advance(minutes=16)
        assert world.run_worker().counts["lost refunds"] == 1
        raise NotSent("refund", "x", "connection refused")

    answering(monkeypatch, slow)
    assert queueing.refund(payment.pk, "2.50").status == "unknown"
    assert world.reviews() == ["refund-unknown"]


def test_i6_staff_decision_outlasts_late_answer(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, real = world.paid_payment(), hooks.refund

    def slow(account: Any, request: RefundRequest) -> Any:
        world.time.advance(minutes=16)
        assert world.run_worker().counts["lost refunds"] == 1
        settle_by_staff(Refund.objects.get().pk, done=False, staff="ann")
        return real(account, request)

    monkeypatch.setattr(hooks, "refund", slow)
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, refund.answer) == ("failed", "ann found that it was not done")
    assert world.reviews() == ["refund-contradicted"]
    assert (
        "the gateway's answer says that it was done" in Review.objects.get(resolved_at=None).message
    )
    with pytest.raises(RefundNotPossible, match="enter that amount first"):
        queueing.refund(payment.pk, "0.01")


def test_i7_early_notification_settles_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The notification came before the gateway's answer was lost."""
    payment = world.paid_payment()

    def lost(request: RefundRequest) -> Any:
        refund_notification(world, Refund.objects.get())
        raise TimeoutError

    answering(monkeypatch, lost)
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, refund.answer) == (
        "succeeded",
        "TimeoutError in a plugin; a notification had confirmed it",
    )
    assert world.reviews() == []


@pytest.mark.parametrize(
    "body",
    ["status=failed", "status=success&verifySign=00000000000000000000000000000000"],
)
def test_i7_forged_or_unclear_notification_settles_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
) -> None:
    payment = world.paid_payment()

    def lost(request: RefundRequest) -> Any:
        refund_notification(world, Refund.objects.get(), body)
        raise TimeoutError

    answering(monkeypatch, lost)
    assert queueing.refund(payment.pk, "2.50").status == "unknown"


def test_shop_hears_each_refund_outcome_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It hears nothing about single attempts."""
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    settle_by_staff(refund.pk, done=True, staff="ann")
    settle_by_staff(refund.pk, done=False, staff="bob")
    with monkeypatch.context() as patch:
        answering(patch, failing(NotSent("refund", "x", "connection refused")))
        queueing.refund(payment.pk, "1.00")
    told = OutboxEvent.objects.filter(kind="refund-changed").order_by("id")
    assert [(one.refund, one.payment, one.data) for one in told] == [
        (refund, payment, {"status": "unknown"}),
        (refund, payment, {"status": "succeeded"}),
    ]
    assert all(one.created_at and one.done_at for one in told)


def test_refund_rechecks_only_unpaid_orders(
    world: World,
) -> None:
    """An order that was paid is not checked when its money goes back."""
    paid = world.start(unregistered())
    world.shopper_pays(paid)
    world.notification(paid)
    queueing.refund(paid.pk, "12.50")
    held = world.start(unregistered())
    ShopOrder.objects.filter(pk=held.order.key).update(status="cancelled")
    world.shopper_pays(held)
    world.notification(held)
    queueing.refund(held.pk, "12.49")
    assert world.reviews() == ["paid-not-payable"]
    assert Order.objects.get(pk=held.order_id).unpaid_check_at is None
    queueing.refund(held.pk, "0.01", staff="ann")
    assert Order.objects.get(pk=paid.order_id).unpaid_check_at is None
    assert about(
        Order.objects.get(pk=held.order_id).unpaid_check_at,
        timezone.now() + timedelta(minutes=60),
    )
    resolved = Review.objects.get()
    assert (resolved.resolution, resolved.resolved_by) == (
        "all of it was refunded: USD 12.50",
        "ann",
    )


def test_automatic_refund_resolves_its_review(world: World) -> None:
    """The review names tillgate as the one that resolved it."""
    held = world.start(world.order())
    ShopOrder.objects.update(status="cancelled")
    world.shopper_pays(held)
    world.notification(held)
    Review.objects.create(
        payment=held,
        reason="forged-notifications",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    queueing.refund(held.pk, "12.50")
    assert list(Review.objects.order_by("id").values_list("reason", "resolved_by")) == [
        ("paid-not-payable", "tillgate"),
        ("forged-notifications", ""),
    ]


def test_external_refund_has_every_field(world: World) -> None:
    payment = world.paid_payment()
    entered = Refund.objects.get(pk=record_external_refund(payment.pk, "2.50", staff="p" * 151).pk)
    assert (entered.payment, entered.amount, entered.status, entered.external) == (
        payment,
        Decimal("2.50"),
        "succeeded",
        True,
    )
    assert (entered.requested_by, entered.reason, entered.due_at) == (
        "p" * 150,
        "made elsewhere",
        None,
    )
    assert entered.created_at == entered.status_since
    told = OutboxEvent.objects.get(kind="refund-changed")
    assert (told.refund, told.payment, told.order, told.data) == (
        entered,
        payment,
        payment.order,
        {"status": "succeeded"},
    )


def test_full_external_refund_resolves_payment_reviews(
    world: World,
) -> None:
    held = world.start(world.order())
    ShopOrder.objects.update(status="cancelled")
    world.shopper_pays(held)
    world.notification(held)
    other = Review.objects.create(
        payment=world.paid_payment(),
        reason="changed-after-paid",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    Review.objects.create(
        payment=held,
        reason="changed-after-paid",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    record_external_refund(held.pk, "12.50", staff="ann")
    assert list(
        Review.objects.exclude(pk=other.pk).order_by("id").values_list("resolution", "resolved_by"),
    ) == [
        ("all of it was refunded: USD 12.50", "ann"),
        ("USD 12.50 was refunded elsewhere", "ann"),
    ]
    other.refresh_from_db()
    assert other.resolved_at is None


def test_refund_unsent_on_commit_awaits_worker(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    payment = world.paid_payment()

    def away(_: int) -> None:
        raise ConnectionError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(queueing, "send_refund", away)
        with transaction.atomic():
            refund = queueing.queue_refund(payment.pk, "2.50")
    assert f"refund {refund.pk} of {payment} could not be sent on commit" in caplog.text
    assert world.run_worker().counts["refunds to send"] == 1


def test_i12_no_refund_call_inside_transaction(world: World) -> None:
    """Refunds are not sent or queried there."""
    refund = queued(world.paid_payment())
    actions: dict[str, Callable[[], object]] = {
        "refund": lambda: queueing.refund(refund.payment_id, "1.00"),
        "send_refund": lambda: sending.send_refund(refund.pk),
        "poll_refund": lambda: poll_refund(refund.pk),
    }
    for name, action in actions.items():
        with (
            pytest.raises(InsideTransaction, match=rf"^{name} uses the network"),
            transaction.atomic(),
        ):
            action()


def test_concluded_refund_leaves_other_reviews_open(world: World) -> None:
    """The same is true of a concluded payment."""
    first, second = (world.start(world.order()) for _ in range(2))
    ShopOrder.objects.update(status="cancelled")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notification(payment)
    queueing.refund(first.pk, "12.50")
    assert list(
        Review.objects.filter(resolved_at__isnull=True).values_list("payment", flat=True),
    ) == [second.pk]
    unknown = []
    for _ in range(2):
        world.sandbox.control.fault("lost_response", occasion="refund")
        unknown.append(queueing.refund(second.pk, "1.00"))
    about_it = {
        "order": second.order,
        "payment": second,
        "refund": unknown[0],
        "facts": {"detail": "x"},
        "opened_at": timezone.now(),
    }
    failing_outbox_event = Review.objects.create(reason="delivery-failing", **about_it)
    settle_by_staff(unknown[0].pk, done=False, staff="ann")
    open_ones = Review.objects.filter(resolved_at__isnull=True).order_by("id")
    assert [(one.reason, one.refund) for one in open_ones] == [
        ("paid-not-payable", None),
        ("refund-unknown", unknown[1]),
        ("delivery-failing", unknown[0]),
    ]
    record_external_refund(second.pk, "1.00", staff="ann")
    failing_outbox_event.refresh_from_db()
    assert failing_outbox_event.resolved_at is None


@pytest.mark.parametrize(
    "body",
    [
        "status=pending",
        "status=rejected",
        "amount=2.50",
        '{"ret_code": "000030", "sta',
        "<status>failed</status>",
        '{"result": {}}',
    ],
)
def test_i7_unreadable_notification_settles_no_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
) -> None:
    """It makes no difference whether the refund's answer was lost before or after it."""
    payment = world.paid_payment()

    def lost(request: RefundRequest) -> Any:
        refund_notification(world, Refund.objects.get(), body)
        raise TimeoutError

    answering(monkeypatch, lost)
    refund = queueing.refund(payment.pk, "2.50")
    refund_notification(world, refund, body)
    refund.refresh_from_db()
    assert refund.status == "unknown"
    assert world.reviews() == ["refund-unknown"]


def test_i5_contradicted_refusal_blocks_further_refunds(
    world: World,
) -> None:
    """One review opens, and staff must resolve it before more is refunded."""
    payment = world.paid_payment("40.00")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "30.00")
    settle_by_staff(refund.pk, done=False, staff="ann")
    refund_notification(world, refund)
    refund_notification(world, refund)
    told = Review.objects.get(reason="refund-contradicted")
    assert "held to be refused (ann found that it was not done)" in told.message
    assert world.reviews() == ["refund-contradicted"]
    with pytest.raises(RefundNotPossible, match="enter that amount first"):
        queueing.refund(payment.pk, "30.00")
    done = actions.take_action(told.pk, "record-external-refund", staff="ann", amount="30.00")
    assert (done.resolved, refundable(payment), world.shop.refunded(payment.order.key)) == (
        True,
        Decimal("10.00"),
        Decimal("30.00"),
    )
    refund_notification(world, refund)
    assert world.reviews() == []


def test_i5_contradicted_refusal_reaches_staff(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()

    def refused(request: RefundRequest) -> Any:
        refund_notification(world, Refund.objects.get())
        raise Refused("000021", "no", 400)

    answering(monkeypatch, refused)
    assert queueing.refund(payment.pk, "2.50").status == "failed"
    assert world.reviews() == ["refund-contradicted"]


def test_i5_external_refund_withdraws_queued_excess(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queued refunds for which nothing is left are withdrawn."""
    payment = world.paid_payment("12.50")
    answering(monkeypatch, failing(NotSent("refund", "x", "connection refused")))
    small, large = queueing.refund(payment.pk, "1.00"), queueing.refund(payment.pk, "11.50")
    world.time.advance(hours=4)
    world.run_worker()
    assert world.reviews() == ["refund-not-sent", "refund-not-sent"]
    with pytest.raises(InvalidRequest, match=r"more than the USD 12\.50"):
        record_external_refund(payment.pk, "12.51", staff="ann")
    record_external_refund(payment.pk, "11.00", staff="ann")
    small.refresh_from_db()
    large.refresh_from_db()
    assert (small.status, large.status, large.due_at) == ("queued", "failed", None)
    assert (
        large.answer == "withdrawn before it was sent: a refund made elsewhere left nothing for it"
    )
    assert world.reviews() == ["refund-not-sent"]
    assert refundable(payment) == Decimal("0.50")
    assert TimelineEntry.objects.get(refund=large, event="refund.failed").actor == "staff:ann"
    record_external_refund(payment.pk, "0.50", staff="ann")
    small.refresh_from_db()
    assert small.status == "queued", "just enough is left for it"
    sent = list[RefundRequest]()
    monkeypatch.setattr(hooks, "refund", lambda account, request: sent.append(request))
    assert sending.send_refund(large.pk).status == "failed"
    assert sent == []


@pytest.mark.parametrize(
    ("status", "at_once"),
    [("queued", True), ("sending", False), ("unknown", False)],
)
def test_notification_hastens_only_confirmed_refund(
    world: World,
    status: str,
    at_once: bool,
) -> None:
    """It becomes due immediately, but only if it is still waiting."""
    payment, later = world.paid_payment("12.50"), timezone.now() + timedelta(minutes=30)
    told, other = queued(payment), queued(payment)
    Refund.objects.update(due_at=later)
    Refund.objects.filter(pk=told.pk).update(status=status)
    with locked_order(payment.order_id) as order:
        settle_by_notification(order, told.pk)
    told.refresh_from_db()
    other.refresh_from_db()
    assert (told.due_at == later, other.due_at) == (status == "sending", later)
    assert (told.due_at is not None and told.due_at <= timezone.now()) is at_once


def test_i5_external_refund_keeps_confirmed_refund_queued(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refund that a notification has confirmed is not withdrawn to make room."""
    payment = world.paid_payment("12.50")
    answering(monkeypatch, failing(NotSent("refund", "x", "connection refused")))
    refund = queueing.refund(payment.pk, "11.50")
    refund_notification(world, refund)
    with pytest.raises(InvalidRequest, match=r"more than the USD 1\.00"):
        record_external_refund(payment.pk, "11.50", staff="ann")
    refund.refresh_from_db()
    assert refund.status == "queued"
    world.time.advance(minutes=2)
    world.run_worker()
    refund.refresh_from_db()
    assert refund.status == "succeeded"


def test_i6_process_waking_late_sends_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its refund was taken for lost while it slept."""
    payment, real, sent = world.paid_payment(), accounts.account_of, list[RefundRequest]()

    def asleep(payment: Payment) -> Any:
        world.time.advance(minutes=16)
        assert world.run_worker().counts["lost refunds"] == 1
        settle_by_staff(Refund.objects.get().pk, done=False, staff="ann")
        return real(payment)

    monkeypatch.setattr(sending, "account_of", asleep)
    monkeypatch.setattr(hooks, "refund", lambda account, request: sent.append(request))
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, sent) == ("failed", [])


def test_i6_process_unnoticed_asleep_sends_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It slept past its deadline before the worker took the refund for lost."""
    payment, real, sent = world.paid_payment(), accounts.account_of, list[RefundRequest]()

    def asleep(payment: Payment) -> Any:
        world.time.advance(minutes=16)
        return real(payment)

    monkeypatch.setattr(sending, "account_of", asleep)
    answering(monkeypatch, sent.append)
    refund = queueing.refund(payment.pk, "2.50")
    detail = (
        "the process slept until others took it for dead, a notification has confirmed it "
        "just now, or the database is away"
    )
    assert (refund.status, refund.answer, sent) == (
        "queued",
        str(NotSent("refund", payment.reference, detail)),
        [],
    )


def test_i6_refund_is_sendable_until_deadline(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its row says otherwise, it is not sent at all."""
    payment = world.paid_payment()
    claimed, other = (sending._claim(queued(payment).pk) for _ in range(2))
    assert claimed
    assert claimed.due_at
    for now, is_under_way in (
        (claimed.due_at - timedelta(microseconds=1), True),
        (claimed.due_at, False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(timezone, "now", lambda now=now: now)
            assert sending._is_under_way(claimed) is is_under_way
    Refund.objects.filter(pk=claimed.pk).update(status="unknown")
    assert not sending._is_under_way(claimed)
    assert other
    assert sending._is_under_way(other)


def test_refund_settles_only_overpaid_review(world: World) -> None:
    payment, other = world.paid_payment(), world.paid_payment()
    for of, reason in (
        (payment, "overpaid"),
        (payment, "forged-notifications"),
        (other, "overpaid"),
    ):
        about = {
            "order": of.order,
            "payment": of,
            "facts": {"detail": "x"},
            "opened_at": timezone.now(),
        }
        Review.objects.create(reason=reason, open_key=f"{reason}:{of.pk}", **about)
    queueing.refund(payment.pk, "1.00", reason="overpaid", staff="ann")
    [settled] = Review.objects.filter(resolved_at__isnull=False)
    assert (settled.payment, settled.reason, settled.resolved_by) == (payment, "overpaid", "ann")
    assert settled.resolution == "USD 1.00 was refunded"


def test_i6_confirmed_refund_is_not_resent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was taken for unsent, but the gateway had received it."""
    payment, sent = world.paid_payment(), list[RefundRequest]()

    def left_after_all(request: RefundRequest) -> Any:
        sent.append(request)
        raise NotSent("refund", request.reference, "connection refused")

    answering(monkeypatch, left_after_all)
    refund = queueing.refund(payment.pk, "2.50")
    assert refund.status == "queued"
    refund_notification(world, refund)
    world.time.advance(minutes=2)
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, refund.answer, len(sent)) == (
        "succeeded",
        "a notification had confirmed it",
        1,
    )
    assert TimelineEntry.objects.get(event="refund.succeeded").actor == "refund"


def test_refund_unsent_for_hours_reaches_staff(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The review stays open until the refund is sent."""
    payment = world.paid_payment()
    with monkeypatch.context() as patch:
        answering(patch, failing(NotSent("refund", "x", "connection refused")))
        queueing.refund(payment.pk, "2.50")
        for _ in range(17):
            world.time.advance(minutes=10)
            world.run_worker()
        assert world.reviews() == []
        for _ in range(12):
            world.time.advance(minutes=10)
            world.run_worker()
        assert world.reviews() == ["refund-not-sent"]
        assert "could not be sent for 3 hours" in Review.objects.get().message
    world.time.advance(hours=1)
    world.run_worker()
    assert Refund.objects.get().status == "succeeded"
    assert Review.objects.get().resolution == "it waits no longer: succeeded"


def wrongly_refused(world: World, payment: Payment, amount: str) -> Refund:
    """Return a refund that was made, and that staff have marked as not done."""
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, amount)
    return settle_by_staff(refund.pk, done=False, staff="ann")


def test_i5_each_contradicted_refund_is_entered_separately(world: World) -> None:
    payment = world.paid_payment("100.00")
    for refund in [wrongly_refused(world, payment, amount) for amount in ("30.00", "40.00")]:
        refund_notification(world, refund)
    first, second = Review.objects.filter(reason="refund-contradicted").order_by("id")
    differences = audit(timezone.now() - timedelta(days=1), timezone.now() + timedelta(seconds=1))
    assert [(one.kind, one.here, bool(one.told)) for one in differences] == [
        ("refund-contradicted", "refund of USD 30.00: failed", True),
        ("refund-contradicted", "refund of USD 40.00: failed", True),
    ]
    done = actions.take_action(first.pk, "record-external-refund", staff="ann", amount="30.00")
    assert (done.message, world.reviews()) == (
        "USD 30.00 was refunded elsewhere",
        ["refund-contradicted"],
    )
    with pytest.raises(RefundNotPossible, match="enter that amount first"):
        queueing.refund(payment.pk, "1.00")
    actions.take_action(second.pk, "record-external-refund", staff="ann", amount="40.00")
    assert world.reviews() == []
    assert (refundable(payment), refunded_amount(world, payment)) == (
        Decimal("30.00"),
        Decimal("70.00"),
    )


def test_i5_external_refund_keeps_contradiction_open(
    world: World,
) -> None:
    """Only a full refund of the payment closes the review."""
    payment = world.paid_payment("100.00")
    refund_notification(world, wrongly_refused(world, payment, "30.00"))
    Review.objects.create(
        payment=payment,
        order=payment.order,
        reason="changed-after-paid",
        facts={"detail": "x"},
        opened_at=timezone.now(),
    )
    record_external_refund(payment.pk, "10.00", staff="bob")
    assert world.reviews() == ["refund-contradicted"]
    record_external_refund(payment.pk, "90.00", staff="bob")
    assert world.reviews() == [], "all of it was refunded, so nothing is left to doubt"


@pytest.mark.parametrize("is_lost", [False, True])
def test_i5_full_refund_hides_no_contradiction(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    is_lost: bool,
) -> None:
    """The next refund returned everything, so more was refunded than was paid."""
    payment = world.paid_payment("12.50")
    first = wrongly_refused(world, payment, "5.00")

    def made(request: RefundRequest) -> Any:
        refund_notification(world, first)  # after the second has left
        Review.objects.create(
            payment=payment,
            order=payment.order,
            reason="changed-after-paid",
            facts={"detail": "x"},
            opened_at=timezone.now(),
        )
        if is_lost:
            raise TimeoutError
        return Refunded(
            reference=request.reference,
            amount=request.amount,
            ret_msg="refund success",
        )

    answering(monkeypatch, made)
    second = queueing.refund(payment.pk, "12.50")
    if is_lost:
        refund_notification(world, second)
    assert (payment.refunded_amount, world.reviews()) == (Decimal("12.50"), ["refund-contradicted"])
    told = Review.objects.get(reason="refund-contradicted")
    assert actions.take_action(
        told.pk,
        "dismiss",
        staff="ann",
        note="The gateway takes it back.",
    ).resolved


def test_i5_staff_cannot_deny_confirmed_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "6.00")
    # kept by a version that settled in another transaction, and died between the two
    with monkeypatch.context() as patch:
        patch.setattr(notifications, "settle_by_notification", lambda *_: False)
        refund_notification(world, refund)
    settled = settle_by_staff(refund.pk, done=False, staff="ann")
    assert (settled.status, settled.answer) == (
        "succeeded",
        "ann found that it was not done; a notification had confirmed it",
    )
    assert (refundable(payment), world.reviews()) == (Decimal("6.50"), [])


def test_i7_refund_notification_is_handled_atomically(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is kept and believed together, or not at all."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "6.00")

    def die(*_: Any) -> bool:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(notifications, "settle_by_notification", die)
        with pytest.raises(Crash):
            refund_notification(world, refund)
    assert not refund.kept_notifications.exists(), "it was not acknowledged, and comes again"
    refund_notification(world, refund)
    refund.refresh_from_db()
    assert (refund.status, world.reviews()) == ("succeeded", [])


@pytest.mark.parametrize("error", [Crash, OperationalError])
def test_i5_contradicted_refusal_survives_crash(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    """A review opens even if the process ends after the commit."""
    payment = world.paid_payment("12.50")

    def refused(_: RefundRequest) -> Any:
        refund_notification(world, Refund.objects.get())
        raise Refused("000021", "no", 400)

    def die(_: int) -> None:
        raise error

    with monkeypatch.context() as patch:
        answering(patch, refused)
        patch.setattr(settling, "deliver", die)
        with pytest.raises(error):
            queueing.refund(payment.pk, "2.50")
    assert (Refund.objects.get().status, world.reviews()) == ("failed", ["refund-contradicted"])


def test_sent_refund_resolves_waiting_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment("12.50")
    with monkeypatch.context() as patch:
        answering(patch, failing(NotSent("refund", "x", "connection refused")))
        queueing.refund(payment.pk, "2.50")
        world.time.advance(days=1)
        world.run_worker()
        assert world.reviews() == ["refund-not-sent"]
    world.time.advance(hours=1)
    world.run_worker()
    assert (Refund.objects.get().status, world.reviews()) == ("succeeded", [])


def test_staff_withdraw_unsendable_refund_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop hears of it once."""
    payment = world.paid_payment("12.50")
    answering(monkeypatch, failing(NotSent("refund", "x", "connection refused")))
    refund = queueing.refund(payment.pk, "2.50")
    for _ in range(8):
        world.time.advance(hours=1)
        world.run_worker()
    [review] = Review.objects.all()
    assert actions.actions_for(review) == ("withdraw",)
    world.a_day_passes()
    assert (Review.objects.count(), refundable(payment)) == (1, Decimal("10.00"))
    done = actions.take_action(review.pk, "withdraw", staff="ann")
    assert (done.resolved, done.message, done.refund) == (
        True,
        "USD 2.50: withdrawn before it was sent: by ann",
        refund,
    )
    assert TimelineEntry.objects.get(event="refund.failed").actor == "staff:ann"
    assert (world.reviews(), refundable(payment)) == ([], Decimal("12.50"))
    assert list(refund.outbox_events.values_list("kind", "outcome")) == [
        ("refund-changed", "failed"),
    ]
    with pytest.raises(
        RefundNotPossible,
        match="is failed by now, and only one that waits to be sent can be withdrawn",
    ):
        withdraw(refund.pk, staff="ann")


def test_staff_cannot_withdraw_confirmed_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment("12.50")
    refund = queued(payment)
    refund_notification(world, refund)
    with pytest.raises(
        RefundNotPossible,
        match=r"^a notification says that the refund was done; ",
    ) as refused:
        withdraw(refund.pk, staff="ann")
    assert str(refused.value).endswith("; it is booked when it is sent next, and not sent again")
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, refunded_amount(world, payment)) == ("succeeded", Decimal(0))


def test_refund_stays_queued_without_database(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database went away right before the refund was sent."""
    payment, real = world.paid_payment("12.50"), accounts.account_of

    with monkeypatch.context() as patch:

        def found(of: Payment) -> Any:
            patch.setattr(Refund.objects, "filter", away)
            return real(of)

        def away(**_: object) -> Any:
            patch.undo()
            raise OperationalError("the database is away")

        patch.setattr(sending, "account_of", found)
        assert queueing.refund(payment.pk, "2.50").status == "queued"
    world.time.advance(minutes=2)
    world.run_worker()
    assert (Refund.objects.get().status, refunded_amount(world, payment)) == (
        "succeeded",
        Decimal("2.50"),
    )


@pytest.mark.parametrize(
    "body",
    [
        "status=success&status=failed",
        '{"ret_code":"000100","ret_code":"000020"}',
        '{"ret_code":"000100","refunds":[{"status":"failed"}]}',
        'ret_code=000100&result= {"status":"failed"}',
    ],
)
def test_i7_ambiguous_notification_settles_no_refund(world: World, body: str) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    refund_notification(world, refund, body)
    refund.refresh_from_db()
    assert (refund.status, world.reviews()) == ("unknown", ["refund-unknown"])
    assert settle_by_staff(refund.pk, done=False, staff="ann").status == "failed", (
        "nor does it later"
    )


def test_lock_timeout_keeps_refund_notification(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is acknowledged, and the worker tells the shop later."""
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")

    def busy(_: int) -> int:
        raise OperationalError("lock wait timeout exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(notifications, "deliver", busy)
        refund_notification(world, refund)
    world.run_worker()
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


PENDING = Refunded(
    reference="x",
    amount=Decimal("2.50"),
    ret_msg="accepted",
    outcome=RefundOutcome.PENDING,
    refund_no="88",
)


def pending_refund(world: World, monkeypatch: pytest.MonkeyPatch) -> Refund:
    """Refund 2.50, which the gateway accepts and does not finish."""
    with monkeypatch.context() as patched:
        patched.setattr(
            hooks,
            "refund",
            lambda account, request: replace(PENDING, reference=request.reference),
        )
        return queueing.refund(world.paid_payment().pk, "2.50")


def listing(monkeypatch: pytest.MonkeyPatch, *refunds: ReportedRefund) -> None:
    """Let the gateway's answers to queries list refunds."""
    real = hooks.query
    monkeypatch.setattr(
        hooks,
        "query",
        lambda *given, **more: replace(real(*given, **more), refunds=refunds),
    )


def says(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[str]:
    """Let the gateway answer every query of a refund so, and return the ids of those that it was
    asked about.
    """
    asked: list[str] = []

    def query_refund(account: Any, request: RefundRequest, refund_no: str | None) -> Any:
        asked.append(request.refund_id or "")
        if isinstance(answer, Exception):
            raise answer
        return answer and replace(PENDING, outcome=answer, ret_msg=f"it is {answer}")

    monkeypatch.setattr(hooks, "query_refund", query_refund)
    return asked


def test_accepted_refund_waits_without_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds its amount in the meantime."""
    refund = pending_refund(world, monkeypatch)
    assert (refund.status, refund.refund_no, refundable(refund.payment)) == (
        "pending",
        "88",
        Decimal("10.00"),
    )
    assert refund.due_at is not None
    assert world.reviews() == []
    assert not OutboxEvent.objects.filter(refund=refund).exists()  # the shop hears of the end


@pytest.mark.parametrize(
    ("outcome", "left"),
    [(RefundOutcome.SUCCEEDED, "10.00"), (RefundOutcome.FAILED, "12.50")],
)
def test_worker_follows_pending_refund_to_end(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: RefundOutcome,
    left: str,
) -> None:
    """The outcome is delivered to the shop."""
    refund = pending_refund(world, monkeypatch)
    asked = says(monkeypatch, None)
    world.time.advance(minutes=2)
    world.run_worker()
    refund.refresh_from_db()
    assert (asked, refund.status) == ([refund.refund_id], "pending")
    asked = says(monkeypatch, outcome)
    world.time.advance(hours=13)
    assert world.run_worker().counts["refunds to ask about"] == 1
    refund.refresh_from_db()
    assert (asked, refund.status, refund.due_at) == ([refund.refund_id], str(outcome), None)
    assert refundable(refund.payment) == Decimal(left)
    assert [
        event.data["status"]
        for event in OutboxEvent.objects.filter(refund=refund, done_at__isnull=False)
    ] == [str(outcome)]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        NotSent("query", "x", "no route"),
        RuntimeError("a plugin"),
        OrderNotFound("000022", "no", 400),
    ],
)
def test_i6_inconclusive_answer_leaves_refund_unknown(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(world.paid_payment().pk, "2.50")
    says(monkeypatch, answer)
    monkeypatch.setattr(hooks, "refund", lambda *_: pytest.fail("it was sent again"))
    for _ in range(3):
        world.time.advance(hours=13)
        world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, len(world.reviews())) == ("unknown", 1)


def test_query_settles_unknown_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query resolves its review, too."""
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(world.paid_payment().pk, "2.50")
    says(monkeypatch, RefundOutcome.PENDING)
    world.time.advance(minutes=2)
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, refund.refund_no, world.reviews()) == ("pending", "88", [])
    says(monkeypatch, RefundOutcome.SUCCEEDED)
    world.time.advance(hours=13)
    world.run_worker()
    refund.refresh_from_db()
    assert refund.status == "succeeded"


def test_refund_pending_for_days_reaches_staff(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refund = pending_refund(world, monkeypatch)
    says(monkeypatch, RefundOutcome.PENDING)
    world.time.advance(days=6)
    world.run_worker()
    assert world.reviews() == []
    world.time.advance(days=2)
    world.run_worker()
    assert Review.objects.get(resolved_at__isnull=True).reason == ReviewReason.REFUND_LATE
    says(monkeypatch, RefundOutcome.SUCCEEDED)
    world.time.advance(hours=13)
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, world.reviews()) == ("succeeded", [])


def test_staff_settle_pending_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        settle_by_staff(pending_refund(world, monkeypatch).pk, done=False, staff="anna").status
        == "failed"
    )


@pytest.mark.parametrize(
    ("word", "status", "is_soon"),
    [("success", "succeeded", False), ("failed", "pending", True)],
)
def test_i7_only_success_word_ends_pending_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    word: str,
    status: str,
    is_soon: bool,
) -> None:
    """Any other notification brings the query forward."""
    refund = pending_refund(world, monkeypatch)
    refund_notification(world, refund, confirming(refund, status=word))
    refund.refresh_from_db()
    assert (refund.status, refund.due_at is not None and refund.due_at <= timezone.now()) == (
        status,
        is_soon,
    )


def test_refund_list_settles_our_refunds(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refunds made in the portal are shown once."""
    refund = pending_refund(world, monkeypatch)
    ours = ReportedRefund(amount=Decimal("2.50"), refund_no="88")
    portal = ReportedRefund(amount=Decimal("4.00"), refund_no="99")
    listing(monkeypatch, ours, portal)
    for _ in range(3):
        world.time.advance(days=8)
        world.run_worker()
    rows = Refund.objects.order_by("pk").values_list("refund_no", "status", "amount", "external")
    assert list(rows) == [
        ("88", "succeeded", Decimal("2.50"), False),
        ("99", "succeeded", Decimal("4.00"), True),
    ]
    assert refundable(refund.payment) == Decimal("6.00")
    assert [
        event.data["status"] for event in OutboxEvent.objects.filter(kind="refund-changed")
    ] == ["succeeded", "succeeded"]
    assert world.reviews() == []


def test_i6_listed_queued_refund_is_never_sent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway lists it by its name, so it is booked."""
    payment = world.paid_payment()
    with monkeypatch.context() as patched:
        answering(patched, failing(NotSent("refund", "x", "refused")))
        refund = queueing.refund(payment.pk, "2.50")
    assert refund.status == "queued"
    monkeypatch.setattr(hooks, "refund", lambda *_: pytest.fail("it was sent again"))
    listing(
        monkeypatch,
        ReportedRefund(amount=Decimal("2.50"), refund_no="88", refund_id=refund.refund_id),
    )
    world.time.advance(seconds=10)
    reconciling.reconcile(Payment.objects.select_related("order").get(pk=payment.pk), "worker")
    refund.refresh_from_db()
    assert (refund.status, refund.refund_no, Refund.objects.count()) == ("succeeded", "88", 1)
    world.run_worker()
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


def test_i5_excess_portal_refunds_reach_staff(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "10.00")
    ours = ReportedRefund(amount=Decimal("10.00"), refund_no="1")
    listing(monkeypatch, ours, ReportedRefund(amount=Decimal("4.00"), refund_no="99"))
    world.time.advance(days=2)
    world.run_worker()
    assert Review.objects.get().reason == ReviewReason.CHANGED_AFTER_PAID
    assert refundable(payment) == Decimal("2.50")


def test_own_partial_refund_explains_refunded_word(world: World) -> None:
    world.sandbox.control.set_options({"word_partly_refunded": "refunded"})
    queueing.refund(world.paid_payment().pk, "2.50")
    for _ in range(2):
        world.a_day_passes()
    assert world.reviews() == []


V3 = {"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO}


@pytest.mark.parametrize(
    ("info", "notifies"),
    [("finished", False), ("status", False), ("none", True)],
)
def test_v3_list_or_notification_ends_refund(
    world: World,
    info: str,
    notifies: bool,
) -> None:
    """The refund was pending."""
    world.configure(V3)
    world.sandbox.control.set_options({"refund_outcome": "pending", "refund_info": info})
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, bool(refund.refund_no), refundable(payment)) == (
        "pending",
        True,
        Decimal("10.00"),
    )
    world.a_day_passes()
    refund.refresh_from_db()
    assert (refund.status, world.shop.refunded(payment.order.key)) == ("pending", NOTHING)
    world.sandbox.control.finish_refund(payment.reference)
    if notifies:
        world.gateway_notification(payment, "refund")
    else:
        world.a_day_passes()
    refund.refresh_from_db()
    assert (refund.status, world.shop.refunded(payment.order.key)) == ("succeeded", Decimal("2.50"))
    assert world.reviews() == []


def test_v3_failed_pending_refund_frees_amount(world: World) -> None:
    world.configure(V3)
    world.sandbox.control.set_options({"refund_outcome": "pending", "refund_info": "status"})
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    world.sandbox.control.finish_refund(payment.reference, "failed")
    world.a_day_passes()
    refund.refresh_from_db()
    assert (refund.status, refundable(payment), world.reviews()) == ("failed", Decimal("12.50"), [])
    assert [event.data["status"] for event in OutboxEvent.objects.filter(refund=refund)] == [
        "failed",
    ]


def test_v3_list_finds_unanswered_refund(world: World) -> None:
    """The answer to the refund was lost."""
    world.configure(V3)
    world.sandbox.control.fault("lost_response", occasion="refund")
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    assert (refund.status, world.reviews()) == ("unknown", ["refund-unknown"])
    world.a_day_passes()
    refund.refresh_from_db()
    assert (refund.status, world.reviews(), world.refunded_amount(payment)) == (
        "succeeded",
        [],
        Decimal("2.50"),
    )


def test_v3_portal_refund_reaches_shop_once(
    world: World,
) -> None:
    """Our own refund of the same payment is reported beside it."""
    world.configure(V3)
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50")
    world.sandbox.control.refund(payment.reference, "2.50")
    world.sandbox.control.refund(payment.reference, "2.50")
    for _ in range(3):
        world.time.advance(days=8)
        world.run_worker()
    assert list(Refund.objects.order_by("pk").values_list("status", "external")) == [
        ("succeeded", False),
        ("succeeded", True),
        ("succeeded", True),
    ]
    assert (refundable(payment), world.shop.refunded(payment.order.key)) == (
        Decimal("5.00"),
        Decimal("7.50"),
    )
    assert world.reviews() == []
