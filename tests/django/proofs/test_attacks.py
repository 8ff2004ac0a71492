"""The findings of attacks on the app: each of these was broken once."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import NotSent, TillgateError, hooks
from tillgate.django import actions
from tillgate.django.models import Notification, Payment, Refund, Review
from tillgate.django.orders.locking import OrderHeld
from tillgate.django.payments.reconciling import facts_of
from tillgate.django.refunds import queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker import lanes
from tillgate.django.worker.run import run_worker
from tillgate.lifecycle import NotFound, ReviewReason
from tillgate.testing.world import together

working: Any = importlib.import_module("tillgate.django.payments.closing")
refunding: Any = importlib.import_module("tillgate.django.refunds.queueing")
noticing: Any = importlib.import_module("tillgate.django.payments.notifications")

_T = TypeVar("_T")

FORM = "application/x-www-form-urlencoded"


class Killed(BaseException):
    """The process dies here."""


def die(*_: object) -> None:
    raise Killed


def raise_changed(payment: Payment) -> None:
    with transaction.atomic():
        open_review(ReviewReason.CHANGED_AFTER_PAID, "it says 'refunded'", "worker", payment)


def while_held(act: Callable[[], _T]) -> _T:
    """Follow the advice "try again in a moment"."""
    for _ in range(20):
        with suppress(OrderHeld):
            return act()
    return act()


def minutes_until_paid(world: World, *payments: Payment) -> float:
    for half_minutes in range(480):
        if all(world.fresh(payment).status == "paid" for payment in payments):
            return half_minutes / 2
        world.time.advance(seconds=30)
        world.run_worker()
    return float("inf")


# The worker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("merchant", ["another", "the same"])
def test_i2_stale_payments_do_not_block_new(
    world: World,
    merchant: str,
) -> None:
    """Many old payments without news do not keep a new one from being found."""
    old, now = world.start(world.order()), timezone.now()
    week_ago = now - timedelta(days=7)
    for number in range(100):
        Payment.objects.create(
            order=old.order,
            reference=f"OLD-{number:013d}",
            account="default",
            merchant_no="000001" if merchant == "another" else old.merchant_no,
            base_url=old.base_url,
            sandbox=True,
            method="alipay",
            terminal="ONLINE",
            amount="1.00",
            status="paid",
            transaction_no=f"t{number}",
            created_at=week_ago,
            page_closes_at=week_ago,
            expires_at=week_ago,
            status_since=week_ago,
            next_poll_at=now - timedelta(minutes=1),
        )
    for _ in range(10):
        world.time.advance(minutes=1)
        world.run_worker()
    new = world.start(world.order())
    world.shopper_pays(new)
    assert minutes_until_paid(world, new) <= 10


@pytest.mark.parametrize("count", [8, 20])
def test_i2_failing_queries_do_not_block_others(
    world: World,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Payments whose queries fail do not keep others from being found."""
    broken = {world.start(world.order()).reference for _ in range(count)}
    real = hooks.query

    def query(account: Any, reference: str, **bounds: Any) -> Any:
        if reference in broken:
            raise TillgateError("HTTP 500")
        return real(account, reference, **bounds)

    monkeypatch.setattr(hooks, "query", query)
    for _ in range(6):
        world.time.advance(minutes=1)
        world.run_worker()
    others = [world.start(world.order()) for _ in range(3)]
    for payment in others:
        world.shopper_pays(payment)
    assert minutes_until_paid(world, *others) <= 10


def test_forgotten_payment_is_polled_rarely(
    world: World,
) -> None:
    """The gateway no longer knows it."""
    payment = world.paid_payment()
    world.time.advance(days=31)
    world.run_worker()
    world.sandbox.control.reset()
    Payment.objects.filter(pk=payment.pk).update(next_poll_at=timezone.now())
    before = world.queries()
    for _ in range(24 * 6):
        world.time.advance(minutes=10)
        world.run_worker()
    assert world.queries() - before <= 2


# Late answers, and their words about reviews ------------------------------------------------------


@contextmanager
def meanwhile(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[Payment], object],
) -> Iterator[None]:
    """Let something happen between the worker's first answer and its being applied."""
    real, done = working.ask, list[bool]()

    def slow(payment: Payment, **options: Any) -> Any:
        answer = real(payment, **options)
        if not done:
            done.append(True)
            world.time.advance(seconds=10)
            action(payment)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(working, "ask", slow)
        yield


def test_i9_answer_predating_paid_raises_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="pay")
    payment = world.start(world.order())
    world.time.advance(seconds=10)

    def pays(payment: Payment) -> None:
        world.shopper_pays(payment)
        world.notification(payment)

    with meanwhile(world, monkeypatch, pays):
        world.run_worker()
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == []


def test_an_older_answer_takes_back_no_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.start(world.order())
    world.time.advance(seconds=10)

    def pays(payment: Payment) -> None:
        world.shopper_pays(payment)
        world.sandbox.control.fault("wrong_amount", occasion="query")
        world.notification(payment)

    with meanwhile(world, monkeypatch, pays):
        world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_mismatch_review_survives_empty_answer(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The amount differed, and the next answer does not know the payment."""
    world.sandbox.control.fault("lost_response", occasion="pay")
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.time.advance(seconds=10)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]
    monkeypatch.setattr(working, "ask", lambda *_, **__: NotFound(asked_at=timezone.now()))
    world.time.advance(minutes=3)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_silence_review_resolves_despite_crash(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.start(world.order())
    lanes.rest("default", "no answer", has_review=False)
    world.time.advance(minutes=31)
    lanes.rest("default", "no answer", has_review=False)
    assert world.reviews() == ["gateway-silent"]
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "settle", die)
        with pytest.raises(Killed):
            lanes.wake("default")
    world.a_day_passes()
    assert world.reviews() == []


def test_restored_account_resolves_refunds_review(
    world: World,
    settings: Any,
) -> None:
    """A refund had found the account missing."""
    payment = world.paid_payment()
    good = settings.TILLGATE
    settings.TILLGATE = {**good, "ACCOUNTS": {"other": good["ACCOUNTS"]["default"]}}
    assert queueing.refund(payment.pk, "1.00").status == "queued"
    assert world.reviews() == ["account-gone"]
    settings.TILLGATE = good
    world.a_day_passes()
    assert world.fresh(payment).refunds.get().status == "succeeded"
    assert world.reviews() == []


# Telling the shop again ---------------------------------------------------------------------------


def underpaid(world: World) -> tuple[str, Payment, Review]:
    order = world.order("12.50")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("20.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    return order, payment, Review.objects.get(reason="underpaid")


@pytest.mark.parametrize(("amount", "fault"), [("12.00", None), ("12.50", "lost_response")])
def test_refunded_money_marks_no_order_paid(
    world: World,
    amount: str,
    fault: str | None,
) -> None:
    """Money that may have been refunded does not either."""
    order, payment, review = underpaid(world)
    if fault:
        world.sandbox.control.fault(fault, occasion="refund")
    queueing.refund(payment.pk, amount)
    world.shop.edit_total(order, Decimal("12.50"))
    with pytest.raises(actions.ActionNotPossible, match="refunded"):
        actions.take_action(review.pk, "redeliver", staff="bob")
    assert not world.shop.is_paid(order)


def test_redelivery_applied_later_resolves_review(world: World) -> None:
    order, _, review = underpaid(world)
    world.shop.edit_total(order, Decimal("12.50"))
    with world.failing_handler("tillgate_payment_paid", times=1):
        assert not actions.take_action(review.pk, "redeliver", staff="bob").resolved
        world.time.advance(minutes=1)
        world.run_worker()
    assert world.shop.is_paid(order)
    assert world.reviews() == []


def test_reopened_order_can_be_told_again(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notification(payment)
    ShopOrder.objects.filter(pk=order).update(status="open")
    assert actions.take_action(Review.objects.get().pk, "redeliver", staff="bob").resolved
    assert world.shop.times_paid(order) == 1


# Refunds ------------------------------------------------------------------------------------------


def test_i5_queued_refund_waits_for_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payment may have been refunded elsewhere."""
    payment = world.paid_payment()

    def not_sent(*_: object) -> None:
        raise NotSent("refund", payment.reference, "connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "refund", not_sent)
        assert queueing.refund(payment.pk, "5.00").status == "queued"
    raise_changed(payment)
    world.time.advance(minutes=2)
    world.run_worker()
    assert world.refunded_amount(payment) == 0


def test_i5_external_refund_resolves_review_atomically(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    raise_changed(payment)
    with monkeypatch.context() as patch:
        patch.setattr("tillgate.django.refunds.external.resolve", die)
        with pytest.raises(Killed):
            record_external_refund(payment.pk, "5.00", staff="ann")
    assert Refund.objects.exists() != ("changed-after-paid" in world.reviews())


def test_many_partial_refunds_add_up_exactly(world: World) -> None:
    payment, now = world.paid_payment("10.00"), timezone.now()
    part = {
        "payment": payment,
        "amount": Decimal("0.10"),
        "status": "succeeded",
        "created_at": now,
        "status_since": now,
    }
    Refund.objects.bulk_create(
        [Refund(notification_key=f"k{number}", **part) for number in range(100)],
    )
    assert facts_of(payment).refunded == Decimal("10.00")


def test_late_answer_settles_lost_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    real = hooks.refund

    def slept(account: Any, request: Any) -> Any:
        answer = real(account, request)
        world.time.advance(minutes=20)
        world.run_worker()
        return answer

    monkeypatch.setattr(hooks, "refund", slept)
    assert queueing.refund(payment.pk, "12.50").status == "succeeded"
    assert world.reviews() == []


@pytest.mark.parametrize(
    "body",
    ["status=failed", "ret_code=000030&ret_msg=insufficient+balance", ""],
)
@pytest.mark.parametrize("is_early", [False, True])
def test_unclear_refund_notification_confirms_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    *,
    is_early: bool,
) -> None:
    """It says nothing, or the opposite."""
    payment = world.paid_payment()
    real = hooks.refund

    def heard_early(account: Any, request: Any) -> Any:
        if is_early:
            world.client.post(
                f"/payments/refund-notification/{Refund.objects.get().notification_key}/",
                body,
                content_type=FORM,
            )
        return real(account, request)

    monkeypatch.setattr(hooks, "refund", heard_early)
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = queueing.refund(payment.pk, "12.50")
    assert (
        world.client.post(
            f"/payments/refund-notification/{refund.notification_key}/",
            body,
            content_type=FORM,
        ).status_code
        == 200
    )
    refund.refresh_from_db()
    assert refund.status == "unknown"


# Locks --------------------------------------------------------------------------------------------


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time is what SQLite is")
def test_refund_locks_are_taken_in_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refund's notification and another refund cannot deadlock."""
    payment = world.paid_payment("100.00")
    first = queueing.refund(payment.pk, "1.00")
    met = threading.Barrier(2, timeout=0.3)

    def waiting(real: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any, **options: Any) -> Any:
            with suppress(threading.BrokenBarrierError):
                met.wait()
            return real(*arguments, **options)

        return wait

    monkeypatch.setattr(noticing, "keep", waiting(noticing.keep))
    monkeypatch.setattr(refunding, "check_newest_refund", waiting(refunding.check_newest_refund))
    said = together(
        lambda: (
            Client(raise_request_exception=False)
            .post(f"/payments/refund-notification/{first.notification_key}/")
            .status_code
        ),
        lambda: queueing.refund(payment.pk, "2.00").status,
    )
    assert said in ([200, "succeeded"], [503, "succeeded"]), (
        "the gateway repeats a notification whose order was held for a second"
    )


def test_concurrent_work_on_payments_loses_nothing(
    world: World,
) -> None:
    """Notifications, refunds, worker runs and staff all act at the same time."""
    paid, opened = world.paid_payment("1000.00"), [world.start(world.order()) for _ in range(2)]
    first, times = queueing.refund(paid.pk, "1.00"), 20
    forged = "status=success&verifySign=00000000000000000000000000000000"
    held: Counter[str] = Counter()

    def post(path: str, body: str = "") -> list[object]:
        answered: list[object] = []
        while len(answered) < times:
            status = (
                Client(raise_request_exception=False)
                .post(path, body, content_type=FORM)
                .status_code
            )
            # another transaction held the order for a second: the gateway sends it again
            if status == 503 and held[path] < times:
                held[path] += 1
            else:
                answered.append(status)
        return answered

    def accept() -> list[object]:
        for _ in range(times):
            for pk in Review.objects.filter(
                resolved_at=None,
                reason="forged-notifications",
            ).values_list("pk", flat=True):
                while_held(
                    lambda pk=pk: actions.take_action(pk, "dismiss", staff="ann", note="a scan"),  # type: ignore[misc]
                )
            time.sleep(0.05)
        return []

    acts: list[Callable[[], list[object]]] = [
        lambda: post(f"/payments/refund-notification/{first.notification_key}/"),
        lambda: [while_held(lambda: queueing.refund(paid.pk, "1.00").status) for _ in range(times)],
        lambda: [fault for _ in range(8) for fault in run_worker().faults],
        lambda: [fault for _ in range(8) for fault in run_worker().faults],
        accept,
    ]
    for payment in (paid, *opened):
        path = f"/payments/notification/{payment.notification_key}/"
        # the loop's value
        acts += [lambda path=path: post(path), lambda path=path: post(path, forged)]  # type: ignore[misc]
    said = together(*acts)
    assert {
        one
        for answers in said
        for one in (answers if isinstance(answers, list) else [repr(answers)])
    } <= {200, "succeeded", "sending"}
    for payment in (paid, *opened):
        fresh, again = (
            world.fresh(payment),
            held[f"/payments/notification/{payment.notification_key}/"],
        )
        least = 2 * times + (payment is paid)
        assert least <= fresh.notifications + fresh.repeated_notifications <= least + again
        assert times <= fresh.forged_notifications <= times + again
        assert Notification.objects.filter(payment=payment, refund=None).count() == 20
    again = held[f"/payments/refund-notification/{first.notification_key}/"]
    assert times <= Refund.objects.get(pk=first.pk).notifications <= times + again


# Storage and display ------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["\U0001f4b8", "\x01", "é"])
def test_kept_notification_never_exceeds_8_kb(
    world: World,
    letter: str,
) -> None:
    payment = world.start(world.order())
    world.notification(
        payment,
        json.dumps({"x": letter * 8000}, ensure_ascii=False),
        "application/json",
    )
    assert len(json.dumps(Notification.objects.get().evidence)) <= 8 * 1024


@pytest.mark.parametrize("field", ["notification_key", "return_key", "payment_url"])
def test_i11_filters_reveal_no_hidden_addresses(
    world: World,
    admin_client: Client,
    field: str,
) -> None:
    payment = world.start(world.order())
    address = f"/admin/tillgate/payment/?{field}__startswith={getattr(payment, field)[:9]}"
    assert admin_client.get(address).status_code == 400
