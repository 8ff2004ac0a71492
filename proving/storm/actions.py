"""Actions of the shop in a process of its own, by `tools.benchmarks.acts`, beside those of the
benchmarks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from django.utils import timezone

from tillgate.django.heartbeats import WORKER
from tillgate.django.models import Heartbeat, OutboxEvent, Payment, Review, TimelineEntry
from tillgate.lifecycle import PaymentStatus
from tools.benchmarks.shop import action
from tools.benchmarks.shop.models import Effect


def addresses() -> dict[str, list[str]]:
    """Return the notification key and the return key of each payment, by its reference."""
    return {
        reference: list(keys)
        for reference, *keys in Payment.objects.values_list(
            "reference",
            "notification_key",
            "return_key",
        )
    }


def is_worked() -> bool:
    """Tell whether a worker is at work."""
    return Heartbeat.objects.filter(name=WORKER).exists()


def make_due(reference: str) -> None:
    """Make a payment due now, to make the workers claim it too."""
    Payment.objects.filter(reference=reference).update(next_poll_at=timezone.now())


def compare(paid: list[str]) -> dict[str, Any]:
    """Compare the gateway's paid payments, by reference, with the shop: each must have had its one
    effect, and nothing else any.
    """
    payments = {payment.reference: payment for payment in Payment.objects.select_related("order")}
    effects = Counter(Effect._default_manager.values_list("order_key", flat=True))
    found = Counter(
        TimelineEntry.objects.filter(event="payment.paid").values_list(
            "payment__reference",
            flat=True,
        ),
    )
    keys = {reference: payments[reference].order.key for reference in paid if reference in payments}
    wrong = [
        f"{reference}: {payment.status} in the shop, and "
        f"{'paid' if reference in keys else 'not paid'} at the gateway"
        for reference, payment in payments.items()
        if (payment.status == PaymentStatus.PAID) != (reference in keys)
    ]
    wrong += [
        f"{reference}: found to be paid {times} times"
        for reference, times in found.items()
        if times != 1
    ]
    wrong += [
        f"order {key}: told to be paid, and it is not" for key in effects.keys() - keys.values()
    ]
    wrong += [
        f"outbox event {pk}: not done"
        for pk in OutboxEvent.objects.filter(done_at__isnull=True).values_list("pk", flat=True)
    ]
    wrong += [f"needs review: {review.message}" for review in Review.objects.all()]
    return {
        "effects": effects.total(),
        "orders": len(effects),
        "doors": Counter(
            TimelineEntry.objects.filter(event="payment.paid").values_list("actor", flat=True),
        ),
        "lost": [
            f"{reference}: paid, and no effect"
            for reference in paid
            if not effects[keys.get(reference, "")]
        ],
        "doubled": [f"order {key}: {times} effects" for key, times in effects.items() if times > 1],
        "wrong": wrong,
    }


ACTIONS: Final = {
    **action.ACTIONS,
    **{each.__name__: each for each in (addresses, is_worked, make_due, compare)},
}
"""The actions by name."""
