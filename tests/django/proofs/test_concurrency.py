"""Everything at the same time, for real: threads and processes, each with its own connection to the
database.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.django import project
from tests.django.conftest import World
from tests.django.proofs.worker import storm, workers
from tests.smallest_shop.models import ShopOrder
from tillgate import InvalidRequest
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.django.orders.locking import durable, locked_order
from tillgate.django.payments import notifications, reconciling, starting
from tillgate.django.payments.creating import Started, StartOutcome
from tillgate.django.payments.reconciling import claim_poll
from tillgate.django.refunds import queueing, sending
from tillgate.django.reviews.closing import resolve
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason

_T = TypeVar("_T")
Configure = Callable[..., None]


@pytest.fixture(
    autouse=True,
    params=["read committed", "repeatable read"] if project.DATABASE == "mariadb" else ["as it is"],
)
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB's own default is "repeatable read", Django's is "read committed": the promises hold
    in both.
    """
    if project.DATABASE == "mariadb":
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", request.param)


def at_once(*actions: Callable[[], _T]) -> list[_T | Exception]:
    """Do all of it at the same moment, each in a thread; return the result or the error of each."""
    barrier = threading.Barrier(len(actions))

    def action(own: Callable[[], _T]) -> _T | Exception:
        barrier.wait()
        try:
            return own()
        except Exception as error:  # noqa: BLE001  # any error of the project's code
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(action, actions))


def assert_paid_once(world: World, payment: Payment) -> None:
    order = payment.order
    assert world.shop.times_paid(order.key) == 1
    assert OutboxEvent.objects.filter(order=order, kind="payment-paid").count() == 1
    assert TimelineEntry.objects.filter(order=order, event="payment.paid").count() == 1
    assert TimelineEntry.objects.filter(order=order, event="event.delivered").count() == 1


def test_i3_simultaneous_threads_have_one_effect(
    world: World,
) -> None:
    """32 threads repeat the same notification, return and worker run together."""
    for _ in range(3):
        payment = world.start(world.order())
        world.shopper_pays(payment)
        world.time.advance(seconds=6)  # due for the worker run, too
        said = storm([payment.notification_key], [payment.return_key], 32, time.time() + 0.2)
        assert said["faults"] == []
        assert set(said["statuses"]) <= {200, 302}
        assert_paid_once(world, payment)


def test_rereading_takes_no_stronger_lock(
    world: World,
) -> None:
    """FOR UPDATE deadlocked once in thousands of notifications: one event was in delivery while
    another waited, and PostgreSQL queued the two.
    """
    payment = world.start(world.order())
    Payment.objects.filter(pk=payment.pk).update(notifications=1)
    with CaptureQueriesContext(connection) as captured, durable():
        claim_poll(payment, counted={"notifications": 1})
    again, _hangs = [query["sql"] for query in captured if query["sql"].startswith("SELECT")]
    features = connection.features
    kind = (
        "FOR NO KEY UPDATE"
        if features.has_select_for_no_key_update
        else "FOR UPDATE"
        if features.has_select_for_update
        else ""
    )
    assert again.endswith(kind)
    assert again.count("FOR ") == bool(kind)
    assert world.fresh(payment).notifications == 2


def test_i3_simultaneous_processes_have_one_effect(
    world: World,
    tmp_path: Path,
) -> None:
    """Four processes repeat the same notification, return and worker run together."""
    with workers(4, settings.TILLGATE, tmp_path / "carried") as shops:
        for _ in range(3):
            payment = world.start(world.order())
            world.shopper_pays(payment)
            world.time.advance(seconds=6)
            at = time.time() + 0.5
            for shop in shops:
                keys: dict[str, Any] = {
                    "notification_keys": [payment.notification_key],
                    "return_keys": [payment.return_key],
                }
                shop.begin("storm", **keys, threads=8, at=at, ahead=world.time.offset)
            for shop in shops:
                said = shop.wait()["result"]
                # 32 callers may hold the order for longer than a worker waits: its lease leaves it
                # for later.
                assert [fault for fault in said["faults"] if "OrderHeld" not in fault] == []
                assert set(said["statuses"]) <= {200, 302}
            assert_paid_once(world, payment)


def test_i4_simultaneous_payments_deliver_only_one(
    world: World,
) -> None:
    """The other payment of the order raises a review."""
    for round_number in range(1, 4):
        order = world.order()
        first, second = world.start(order), world.start(order, "paypal")
        for payment in (first, second):
            world.shopper_pays(payment)
        keys = [payment.notification_key for payment in (first, second)]
        said = storm(keys, [first.return_key, second.return_key], 16, time.time() + 0.2)
        assert said["faults"] == []
        assert set(said["statuses"]) <= {200, 302}
        world.run_worker()
        assert world.shop.times_paid(order) == 1
        assert {world.fresh(payment).status for payment in (first, second)} == {"paid"}
        assert Order.objects.get(key=order).paid_by in (first, second)
        assert world.reviews() == ["second-payment"] * round_number


def test_double_click_makes_one_payment(
    world: World,
) -> None:
    """Sixteen simultaneous clicks cause one creation at the gateway."""
    for round_number in range(1, 5):
        order = world.order()
        pressed = at_once(
            *[partial(starting.start_payment, world.shop.plugin, order, method="alipay")] * 16,
        )
        assert {getattr(one, "outcome", one) for one in pressed} == {StartOutcome.REDIRECT}
        assert len({one.payment.payment_url for one in pressed if isinstance(one, Started)}) == 1
        assert Payment.objects.count() == Order.objects.count() == round_number
        assert len(world.sandbox.service.transactions()) == round_number


def test_i5_simultaneous_full_refunds_refuse_one(world: World) -> None:
    for _ in range(4):
        payment = world.paid_payment("12.50")
        said = at_once(*[partial(queueing.refund, payment.pk, "12.50")] * 4)
        assert [one.status for one in said if isinstance(one, Refund)] == ["succeeded"]
        assert sum(isinstance(one, InvalidRequest) for one in said) == 3
        assert world.sandbox.service.find(payment.reference).refunded_units == 1250
        assert str(world.shop.refunded(payment.order.key)) == "12.50"


def test_repeated_key_at_once_refunds_once(world: World) -> None:
    for _ in range(4):
        payment = world.paid_payment("12.50")
        said = at_once(
            *[partial(queueing.refund, payment.pk, "5.00", idempotency_key="same-key")] * 4,
        )
        assert len({one.pk for one in said if isinstance(one, Refund)}) == 1, said
        # a slow machine holds the order for long
        others = [str(one) for one in said if not isinstance(one, Refund)]
        assert all("another transaction holds the order" in one for one in others), said
        assert world.sandbox.service.find(payment.reference).refunded_units == 500
        assert str(world.shop.refunded(payment.order.key)) == "5.00"


def test_repeated_key_in_transactions_refunds_once(world: World) -> None:
    """The second transaction waits for the order, and then sees the refund of the first, though it
    began before.
    """
    payment = world.paid_payment("12.50")

    def queue() -> Refund:
        with transaction.atomic():
            Refund.objects.count()  # where the database keeps a snapshot, it is from before
            return queueing.queue_refund(payment.pk, "5.00", idempotency_key="same-key")

    said = at_once(*[queue] * 2)
    assert len({one.pk for one in said if isinstance(one, Refund)}) == 1, said
    assert world.sandbox.service.find(payment.reference).refunded_units == 500


def test_i6_many_workers_send_refund_once(world: World) -> None:
    payment = world.paid_payment("12.50")
    refund, _ = queueing._queue(payment.pk, "5.00", "", "", {})
    said = at_once(*[lambda: sending.send_refund(refund.pk)] * 8)
    assert not [one for one in said if isinstance(one, Exception)]
    assert len(world.sandbox.service.find(payment.reference).refunds) == 1
    assert TimelineEntry.objects.filter(event="refund.sending").count() == 1


def test_i7_simultaneous_notifications_are_all_counted(
    world: World,
    configure: Configure,
) -> None:
    """At most 20 of the notifications are kept."""
    configure(NOTIFICATION_THROTTLE_SECONDS=3600)
    payment = world.start(world.order())
    before = world.queries()
    for count in (16, 32):
        said = storm(
            [payment.notification_key],
            [payment.return_key],
            16,
            time.time() + 0.2,
            worker_runs=False,
        )
        assert said["faults"] == []
        assert world.fresh(payment).notifications == count
        assert Notification.objects.count() == min(count, 20)
    assert world.queries() == before + 2, "one for notifications, and one for returns"
    assert Notification.objects.values("slot").distinct().count() == 20


def test_simultaneous_review_changes_never_block(world: World) -> None:
    """A review can be raised and resolved at the same time."""
    payment = world.paid_payment()

    def raising() -> None:
        with locked_order(payment.order_id):
            open_review(ReviewReason.FORGED_NOTIFICATIONS, "many", "test", payment)

    for _ in range(5):
        with locked_order(payment.order_id):
            raised = open_review(ReviewReason.FORGED_NOTIFICATIONS, "many", "test", payment)
        assert raised
        actions: list[Callable[[], object]] = [raising, partial(resolve, raised.pk, "seen", "ann")]
        said = at_once(*actions * 4)
        assert not [one for one in said if isinstance(one, Exception)]
        for pk in Review.objects.filter(resolved_at__isnull=True).values_list("pk", flat=True):
            resolve(pk, "seen", "ann")


# Notifications in every order ---------------------------------------------------------------------


def test_i9_messy_notifications_reach_same_end(
    world: World,
) -> None:
    """Late, forged, duplicate and unordered notifications lead to the same result."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    for status in ("success", "pending", "failed", "success", "closed"):
        assert (
            world.notification(
                payment,
                f"status={status}&verifySign=00000000000000000000000000000000",
            ).status_code
            == 200
        )
    world.time.advance(hours=2)
    assert world.notification(payment, "status=pending").status_code == 200
    assert world.fresh(payment).status == "paid"
    assert_paid_once(world, payment)


def test_i2_order_needs_no_notification(world: World) -> None:
    """The worker finds the payment without a notification."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.time.advance(seconds=6)
    world.run_worker()
    assert_paid_once(world, payment)


def test_i2_throttled_notification_advances_next_query(
    world: World,
    configure: Configure,
) -> None:
    """Late money for an ended payment is found sooner, even if throttled."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5, ORDER_UNPAID_AFTER_MINUTES=600)
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    world.notification(payment)
    assert world.fresh(payment).status == "failed"
    world.pays_late(payment)
    world.notification(payment)  # it was queried just now
    assert world.fresh(payment).status == "failed"
    world.time.advance(seconds=6)
    world.run_worker()
    assert_paid_once(world, payment)


def test_i7_notification_during_query_is_kept(
    world: World,
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer of the query does not discard the notification."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5, ORDER_UNPAID_AFTER_MINUTES=600)
    payment = world.start(world.order())
    world.sandbox.control.decline(payment.reference)
    answer = reconciling.ask(payment)
    world.pays_late(payment)

    def meanwhile(asked: Payment, **_: object) -> object:
        monkeypatch.undo()
        configure(NOTIFICATION_THROTTLE_SECONDS=5)
        monkeypatch.setattr("django.utils.timezone.now", world.time.now)
        Client().post(f"/payments/notification/{asked.notification_key}/")
        return answer

    monkeypatch.setattr(notifications, "ask", meanwhile)
    world.notification(payment)
    assert world.fresh(payment).status == "failed"
    world.time.advance(seconds=6)
    world.run_worker()
    assert_paid_once(world, payment)


def _started_slowly(world: World, order: str) -> tuple[ThreadPoolExecutor, Any, Payment]:
    """Start a payment whose creation is answered late, and return it once the gateway has it."""
    world.sandbox.control.set_options({"delay_seconds": 1.5})
    world.sandbox.control.fault("delay", occasion="pay")
    pool = ThreadPoolExecutor(1)

    def start() -> Started:
        try:
            return starting.start_payment(world.shop.plugin, order, method="alipay")
        finally:
            connections.close_all()

    started = pool.submit(start)
    until = time.monotonic() + 5
    while not world.sandbox.service.transactions() and time.monotonic() < until:
        time.sleep(0.01)
    return pool, started, Payment.objects.select_related("order").get()


def test_i2_early_notification_pays_order(world: World) -> None:
    """The notification arrives before the creation was answered."""
    pool, started, payment = _started_slowly(world, world.order())
    with pool:
        assert payment.status == "created"
        world.shopper_pays(payment)
        world.notification(payment)
        assert_paid_once(world, payment)
        assert started.result().outcome is StartOutcome.PAID
    assert world.fresh(payment).payment_url
    assert_paid_once(world, payment)


def test_early_notification_keeps_payment_page(
    world: World,
) -> None:
    """The shopper still gets the page if the notification precedes the creation's answer."""
    order = world.order()
    pool, started, payment = _started_slowly(world, order)
    with pool:
        world.notification(payment)
        assert world.fresh(payment).status == "pending"
        assert started.result().outcome is StartOutcome.REDIRECT
    assert world.fresh(payment).payment_url == started.result().payment.payment_url
    again = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert (again.payment.pk, again.outcome) == (payment.pk, StartOutcome.REDIRECT)


# Many ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    project.DATABASE == "sqlite",
    reason="one writer at a time is what SQLite is; the threads above prove it there",
)
def test_i3_copied_notifications_have_one_effect(
    world: World,
    configure: Configure,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """50 payments with 16 simultaneous copies of each have exactly 50 effects."""
    configure(NOTIFICATION_THROTTLE_SECONDS=0.05)  # to let several of the copies query the gateway
    payments, copies = [world.start(world.order()) for _ in range(50)], 16
    for payment in payments:
        world.shopper_pays(payment)
    barrier = threading.Barrier(copies)
    statuses: list[int] = []

    def send() -> None:
        client = Client(raise_request_exception=False)
        for payment in payments:
            barrier.wait(30)
            statuses.append(
                client.post(f"/payments/notification/{payment.notification_key}/").status_code,
            )

    began = time.monotonic()
    said = at_once(*[send] * copies)
    seconds = time.monotonic() - began
    effects = sum(ShopOrder.objects.values_list("times_paid", flat=True))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{project.DATABASE}: {len(statuses)} notifications of {len(payments)} payments, "
            f"{effects} effects,"
            f" {len(statuses) / seconds:.0f} notifications a second",
        )
    assert not [one for one in said if isinstance(one, Exception)]
    assert set(statuses) == {200}
    assert len(statuses) == 800
    world.time.advance(minutes=1)
    # copies may hold an order longer than another one waits for it: the work of that one is then
    # the worker's
    world.run_worker()
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}
    assert OutboxEvent.objects.count() == 50
