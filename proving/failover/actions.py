"""Actions of the shop during the failover in a process of its own, by
`tools.benchmarks.actions`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final
from unittest import mock

from django.core.management import call_command
from django.db import connection, transaction

from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import place
from tillgate.django.models import Payment, Refund, Review
from tillgate.django.refunds import queueing


def create() -> None:
    """Make the tables."""
    call_command("migrate", run_syncdb=True, verbosity=0)  # the smallest shop has no migrations
    connection.close()


def order(total: str) -> str:
    """Place an order, and return its key."""
    key = str(place(Decimal(total)).pk)
    connection.close()
    return key


def queue_refund(reference: str, amount: str) -> None:
    """Queue a refund, as a process that dies before it sends it."""
    with mock.patch.object(queueing, "_send_quietly"), transaction.atomic():
        queueing.queue_refund(Payment.objects.get(reference=reference).pk, amount)
    connection.close()


def books() -> dict[str, Any]:
    """Return the status of each payment and refund by the payment's reference, the shop's orders,
    and the open reviews.
    """
    reviews = Review.objects.filter(resolved_at__isnull=True).order_by("pk")
    found = {
        "payments": dict(Payment.objects.values_list("reference", "status")),
        "refunds": dict(Refund.objects.values_list("payment__reference", "status")),
        "orders": {
            str(pk): [status, times]
            for pk, status, times in ShopOrder.objects.values_list("pk", "status", "times_paid")
        },
        "reviews": [
            {
                "reason": one.reason,
                "account": one.account,
                "facts": one.facts,
                "message": one.message,
            }
            for one in reviews
        ],
    }
    connection.close()
    return found


ACTIONS: Final = {each.__name__: each for each in (create, order, queue_refund, books)}
"""The actions by name."""
