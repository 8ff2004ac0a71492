"""The tables: built forwards, removed backwards, built again; and every look-up that is made often
has an index that is used.
"""

from __future__ import annotations

import io
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import QuerySet

from tests.django import project
from tests.django.conftest import World
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.lifecycle import RefundStatus

MANY = 4_000


def _tables() -> set[str]:
    with connection.cursor() as cursor:
        return {
            name
            for name in connection.introspection.table_names(cursor)
            if name.startswith("tillgate_")
        }


def test_migrations_run_forwards_and_backwards(world: World) -> None:
    """They run back to nothing and forwards again."""
    built = _tables()
    assert {
        "tillgate_order",
        "tillgate_payment",
        "tillgate_refund",
        "tillgate_notification",
        "tillgate_outboxevent",
    } <= built
    try:
        call_command("migrate", "tillgate", "zero", verbosity=0)
        assert _tables() == set()
    finally:
        call_command("migrate", "tillgate", verbosity=0)
    assert _tables() == built
    assert world.shop.times_paid(world.paid_payment().order.key) == 1


def test_the_migrations_say_what_the_models_say() -> None:
    said = io.StringIO()
    call_command("makemigrations", "tillgate", check=True, dry_run=True, stdout=said)
    assert "No changes detected" in said.getvalue()


def _fill(world: World) -> None:
    like = world.paid_payment()
    now = world.time.now()
    orders = Order.objects.bulk_create(
        [Order(plugin="other", key=f"crowd-{number}", created_at=now) for number in range(MANY)],
    )
    orders = list(Order.objects.filter(plugin="other").order_by("pk"))
    payments: list[Payment] = []
    for number, order in enumerate(orders):
        payment = Payment.objects.get(pk=like.pk) if not payments else _copy(payments[0])
        payment.pk, payment.order, payment.reference, payment.transaction_no = (
            None,
            order,
            f"CROWD-{number}",
            f"crowd-{number}",
        )
        payment.notification_key, payment.return_key = f"notification-{number}", f"return-{number}"
        payment.account = f"account-{number % 4}"
        payment.next_poll_at = (
            now + timedelta(days=1) if number % 50 else now - timedelta(seconds=number)
        )
        payments.append(payment)
    Payment.objects.bulk_create(payments, batch_size=500)
    payments = list(Payment.objects.filter(reference__startswith="CROWD").order_by("pk"))
    OutboxEvent.objects.bulk_create(
        [
            OutboxEvent(
                order=payment.order,
                payment=payment,
                kind="payment-paid",
                created_at=now,
                done_at=now if number % 100 else None,
            )
            for number, payment in enumerate(payments)
        ]
        + [
            OutboxEvent(
                order=payment.order,
                kind="remote",
                created_at=now,
                due_at=now - timedelta(1),
            )
            for payment in payments[:20]
        ],
        batch_size=500,
    )
    Refund.objects.bulk_create(
        [
            Refund(
                payment=payment,
                amount="1.00",
                status="succeeded",
                created_at=now,
                status_since=now,
                notification_key=f"refund-{number}",
            )
            for number, payment in enumerate(payments)
        ],
        batch_size=500,
    )
    Notification.objects.bulk_create(
        [
            Notification(
                payment=payment,
                kind="payment",
                slot=0,
                received_at=now,
                method="POST",
                signature="absent",
                evidence={},
            )
            for payment in payments
        ],
        batch_size=500,
    )
    TimelineEntry.objects.bulk_create(
        [
            TimelineEntry(
                order=payment.order,
                payment=payment,
                at=now,
                event="payment.paid",
                actor="",
                message="",
                evidence={},
            )
            for payment in payments
        ],
        batch_size=500,
    )
    Review.objects.bulk_create(
        [
            Review(
                reason="overpaid",
                facts={"detail": ""},
                payment=payment,
                order=payment.order,
                open_key=f"overpaid:{payment.pk}",
                opened_at=now,
            )
            for payment in payments
        ],
        batch_size=500,
    )
    with connection.cursor() as cursor:
        for model in (Order, Payment, OutboxEvent, Refund, Notification, TimelineEntry, Review):
            cursor.execute(
                f"ANALYZE {'TABLE' if project.DATABASE == 'mariadb' else ''} {model._meta.db_table}",
            )


def _copy(payment: Payment) -> Payment:
    fields = {
        field.attname: getattr(payment, field.attname)
        for field in Payment._meta.concrete_fields
        if not field.primary_key
    }
    return Payment(**fields)


def _lookups(world: World) -> dict[str, QuerySet[Any]]:
    now, some = world.time.now(), Payment.objects.get(reference="CROWD-1234")
    payments, orders = Payment.objects.all(), Order.objects.all()
    return {
        "due payments of an account": payments.filter(
            account="account-2",
            next_poll_at__lte=now,
        ).order_by("next_poll_at")[:200],
        "payment by notification_key": payments.filter(notification_key="notification-1234"),
        "payment by return_key": payments.filter(return_key="return-1234"),
        "payment by reference": payments.filter(reference="CROWD-1234"),
        "payment by transaction_no": payments.filter(transaction_no="crowd-1234"),
        "open payments of an order": payments.filter(
            order=some.order_id,
            status__in=["created", "pending"],
        ),
        "order by plugin and key": orders.filter(plugin="other", key="crowd-1234"),
        "orders to be told unpaid": orders.filter(unpaid_check_at__lte=now),
        "open outbox events of an order": OutboxEvent.objects.filter(
            order=some.order_id,
            done_at=None,
        ).order_by("id"),
        "due outbox events": OutboxEvent.objects.filter(due_at__lte=now, done_at=None).exclude(
            kind=OutboxEventKind.REMOTE,
        ),
        "refund by notification_key": Refund.objects.filter(notification_key="refund-1234"),
        "refunds of a payment": Refund.objects.filter(payment=some),
        "due refunds": Refund.objects.filter(due_at__lte=now, status=RefundStatus.QUEUED),
        "a notification's slot": Notification.objects.filter(payment=some, refund=None, slot=0),
        "timeline of a payment": TimelineEntry.objects.filter(payment=some),
        "timeline of an order": TimelineEntry.objects.filter(order=some.order_id),
        "the same review": Review.objects.filter(open_key=f"overpaid:{some.pk}"),
        "review of a payment": Review.objects.filter(
            payment=some,
            reason="overpaid",
            resolved_at=None,
        ),
    }


def _scans(plan: str) -> bool:
    return {
        "postgresql": lambda: "Seq Scan" in plan,
        "sqlite": lambda: any(
            line.strip().split(" ", 3)[-1].startswith("SCAN") and "INDEX" not in line
            for line in plan.splitlines()
        ),
        "mariadb": lambda: any(word in plan.split() for word in ("ALL",)),
    }[project.DATABASE]()


def test_every_look_up_uses_an_index(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    _fill(world)
    plans = {name: rows.explain() for name, rows in _lookups(world).items()}
    with capsys.disabled():
        sys.stdout.write(
            f"\n{project.DATABASE}: {len(plans)} look-ups among {MANY} rows: {', '.join(plans)}",
        )
    assert {name: plan for name, plan in plans.items() if _scans(plan)} == {}
    assert _scans(Payment.objects.filter(description="without an index").explain())


def test_keys_differing_in_case_stay_distinct(world: World) -> None:
    now = world.time.now()
    for key in ("T3JkZXI6MTI", "t3jkzxi6mti", "T3JkZXI6MTI "):
        Order.objects.create(plugin="other", key=key, created_at=now)
    found = Order.objects.get(plugin="other", key="t3jkzxi6mti")
    assert found.key == "t3jkzxi6mti"
