"""How many SQL statements each thing takes, counted and printed: without those of transactions and
savepoints and the shop's own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.django import project
from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate.django.models import Notification, Order, OutboxEvent, Payment, TimelineEntry
from tillgate.django.orders.timeline import record
from tillgate.django.payments import starting
from tillgate.django.refunds import queueing

_NOT_COUNTED = re.compile(
    r"(BEGIN|COMMIT|SAVEPOINT|RELEASE|ROLLBACK)|.*smallest_shop_",
    re.IGNORECASE | re.DOTALL,
)
_TRANSACTION = re.compile(r"BEGIN|COMMIT")


@contextmanager
def counted() -> Iterator[list[str]]:
    """Count the statements of a block."""
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if not _NOT_COUNTED.match(sql):
            statements.append(sql)
        return execute(sql, *rest)

    with ExitStack() as stack:
        stack.enter_context(connection.execute_wrapper(note))
        yield statements


def crowd(world: World, count: int) -> None:
    """Fill the tables with so many other orders, payments, notifications, entries and outbox
    events.
    """
    like = world.start(world.order())
    now = world.time.now()
    shops = ShopOrder.objects.bulk_create([ShopOrder(total="1.00") for _ in range(count)])
    del shops
    orders = [
        Order(plugin="other", key=f"crowd-{number}", created_at=now) for number in range(count)
    ]
    for order in orders:
        order.save()
        payment = Payment.objects.get(pk=like.pk)
        payment.pk, payment.order, payment.reference, payment.transaction_no = (
            None,
            order,
            f"CROWD-{order.pk}",
            f"crowd-{order.pk}",
        )
        payment.notification_key, payment.return_key = (
            f"notification-{order.pk}",
            f"return-{order.pk}",
        )
        payment.status, payment.next_poll_at = "paid", now + timedelta(days=1)
        payment._state.adding = True
        payment.save(force_insert=True)
        Notification(
            payment=payment,
            kind="payment",
            slot=0,
            received_at=now,
            method="POST",
            signature="absent",
        ).save()
        OutboxEvent(
            order=order,
            payment=payment,
            kind="payment-paid",
            created_at=now,
            done_at=now,
        ).save()
        record("payment.paid", order, "test", "paid", payment=payment)


@pytest.mark.parametrize("others", [1, 200])
def test_statements_stay_few_as_tables_grow(
    world: World,
    others: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    crowd(world, others)
    counts: dict[str, int] = {}
    order, again = world.order(), world.order()

    with counted() as statements:
        payment = world.start(order)
    counts["start"] = len(statements)

    failed = world.start(again)
    world.sandbox.control.decline(failed.reference)
    world.notification(failed)
    with counted() as statements:
        assert (
            starting.start_payment(world.shop.plugin, again, method="alipay").payment.pk
            != failed.pk
        )
    counts["start again"] = len(statements)

    with counted() as statements:
        assert world.start(order).pk == payment.pk
    counts["double click (with a look)"] = len(statements)

    with counted() as statements:
        assert world.notification(payment).status_code == 200
    counts["notification of an open payment"] = len(statements)

    world.shopper_pays(payment)
    with counted() as statements:
        assert world.notification(payment).status_code == 200
    assert world.shop.times_paid(order) == 1
    counts["first notification that finds it paid, with its outbox event"] = len(statements)

    with counted() as statements:
        assert world.notification(payment).status_code == 200
    counts["repeated notification"] = len(statements)

    refunded = world.paid_payment()
    with counted() as statements:
        assert queueing.refund(refunded.pk, "1.00").status == "succeeded"
    counts["refund"] = len(statements)

    for number in range(25):
        world.notification(payment, f"remark={number}")
    with counted() as statements:
        assert world.notification(payment, "remark=another").status_code == 200
    counts["another notification beyond those that are kept"] = len(statements)

    with counted() as statements:
        assert world.come_back(payment).status_code == 302
    counts["return of a paid payment"] = len(statements)

    with counted() as statements:
        assert world.client.get(f"/payments/status/{payment.return_key}/").json() == {
            "status": "paid",
            "settled": True,
        }
    counts["status poll"] = len(statements)

    with capsys.disabled():
        sys.stdout.write(
            f"\n{project.DATABASE}, {others} other orders: "
            + "; ".join(f"{name} {count}" for name, count in counts.items()),
        )
    assert counts["start"] <= 10
    assert counts["start again"] <= 9  # one of them asks the circuit breaker
    assert counts["first notification that finds it paid, with its outbox event"] <= 15
    assert counts["repeated notification"] <= 2
    assert counts["refund"] <= 26
    assert counts["another notification beyond those that are kept"] <= 3
    assert counts["return of a paid payment"] <= 6
    assert counts["status poll"] <= 1
    assert counts == COUNTED.setdefault(project.DATABASE, counts)
    assert TimelineEntry.objects.count() >= others


COUNTED: dict[str, dict[str, int]] = {}
"""What the first run counted: the second, among more rows, must count the same."""


def test_work_of_database_is_bounded(
    world: World,
) -> None:
    """All statements count here: those of savepoints and of the shop's handler too."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    for most, action in (
        (19, lambda: world.notification(payment)),
        (2, lambda: world.notification(payment)),
        (30, lambda: queueing.refund(payment.pk, "1.00")),
    ):
        with CaptureQueriesContext(connection) as statements:
            action()
        work = [one["sql"] for one in statements if not _TRANSACTION.match(one["sql"])]
        assert len(work) <= most, work
    assert world.fresh(payment).refunded_amount == 1
