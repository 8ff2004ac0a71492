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
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.django import project
from tests.django.conftest import World
from tests.django.pages.test_admin import staff
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


def crowd(world: World, count: int, first: int = 0) -> None:
    """Fill the tables with so many other orders, payments, notifications, entries and outbox
    events, with numbered names.
    """
    like = world.start(world.order())
    now = world.time.now()
    shops = ShopOrder.objects.bulk_create([ShopOrder(total="1.00") for _ in range(count)])
    del shops
    orders = [
        Order(plugin="other", key=f"crowd-{number}", created_at=now)
        for number in range(first, first + count)
    ]
    for order in orders:
        order.save()
        payment = Payment.objects.get(pk=like.pk)
        payment.pk, payment.order, payment.reference, payment.transaction_no = (
            None,
            order,
            f"PAID-{order.pk}",
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
"""The counts of the first run: the second, among more rows, must count the same."""


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


LISTS = "/admin/tillgate"
PAGES_OF_STAFF = {
    "payments": f"{LISTS}/payment/",
    "payments of a method": f"{LISTS}/payment/?method=alipay&account=default",
    "payments of a status": f"{LISTS}/payment/?status=paid",
    "payments by amount": f"{LISTS}/payment/?o=4",
    "search by number": f"{LISTS}/payment/?q=crowd-3",
    "search by reference": f"{LISTS}/payment/?q=PAID-{{order}}",
    "search by amount": f"{LISTS}/payment/?q=12.34",
    "search by last four": f"{LISTS}/payment/?q=4242",
    "search in vain": f"{LISTS}/payment/?q=NOTHING-OF-THIS",
    "payment": f"{LISTS}/payment/{{payment}}/change/",
    "orders": f"{LISTS}/order/",
    "search for an order": f"{LISTS}/order/?q=crowd-3",
    "order": f"{LISTS}/order/{{order}}/change/",
    "reviews": f"{LISTS}/review/",
    "search for a review": f"{LISTS}/review/?q=crowd-3",
    "health": f"{LISTS}/review/health/",
    "figures": f"{LISTS}/payment/figures/?since=2026-01-01&until=2026-12-31",
    "export": f"{LISTS}/payment/figures/?since=2026-01-01&until=2026-12-31&csv=payments",
}
_LARGE = ("order", "payment", "paymentnumber", "timelineentry", "notification", "outboxevent")
_WHOLE = re.compile(rf"SCAN tillgate_({'|'.join(_LARGE)})\b")
MOST_OF_PAGE = {"payment": 24, "health": 42}
"""The statements of pages that need more than a list."""


def _opened(client: Client, path: str) -> list[str]:
    """Open a page, a stream to its end, and return its statements."""
    with CaptureQueriesContext(connection) as statements:
        answer = client.get(path)
        assert answer.status_code == 200
        if answer.streaming:
            assert b"".join(answer)
    return [one["sql"] for one in statements]


def test_staff_pages_stay_cheap(world: World) -> None:
    """Their statements are few, and as many for 70 payments as for seven."""
    crowd(world, 7)
    payment, client = Payment.objects.order_by("-pk")[0], staff(is_superuser=True)
    paths = {
        name: path.format(payment=payment.pk, order=payment.order_id)
        for name, path in PAGES_OF_STAFF.items()
    }
    client.get(paths["payments"])
    few = {name: _opened(client, path) for name, path in paths.items()}
    crowd(world, 63, first=7)
    for name, path in paths.items():
        many = _opened(client, path)
        assert len(many) <= MOST_OF_PAGE.get(name, 22), (name, many)
        assert len(many) <= len(few[name]) + 1, (name, many)


@pytest.mark.skipif(project.DATABASE != "sqlite", reason="the plans of others follow their sizes")
def test_no_page_reads_whole_table(world: World) -> None:
    """A statement reads a large table by an index, or the first rows of a list."""
    crowd(world, 70)
    payment, client = Payment.objects.order_by("-pk")[0], staff(is_superuser=True)
    # the figures add, and the health reads the index of due work
    for name in PAGES_OF_STAFF.keys() - {"figures", "health"}:
        path = PAGES_OF_STAFF[name].format(payment=payment.pk, order=payment.order_id)
        for sql in _opened(client, path):
            if not sql.startswith("SELECT"):
                continue
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = " ".join(str(row[3]) for row in cursor.fetchall())
            assert not _WHOLE.search(plan) or " LIMIT " in sql, f"{name}: {sql}\n{plan}"
