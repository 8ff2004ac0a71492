"""After the chaos: the gateway's book against the shop's, to the cent, by none of Tillgate's own
code but its rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from oscar.core.loading import get_model

from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review

__all__ = ["Compared", "compare"]


@dataclass
class Compared:
    """The two books side by side. `lost` is money that the shop does not know of, `doubled` money
    that it counts twice.
    """

    payments: int = 0
    paid: Decimal = Decimal("0.00")
    paid_orders: int = 0
    refunds: int = 0
    refunded_amount: Decimal = Decimal("0.00")
    reviews: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether the ledger agrees."""
        return not (self.lost or self.doubled or self.wrong)


def compare(transactions: Sequence[Mapping[str, Any]]) -> Compared:
    """Compare the gateway's transactions with the shop."""
    told = Compared(reviews=Counter(Review.objects.values_list("reason", flat=True)))
    payments = {payment.reference: payment for payment in Payment.objects.select_related("order")}
    doubted = set(Review.objects.filter(payment__isnull=False).values_list("payment_id", flat=True))
    told.payments = len(payments)
    paid_there: dict[int, list[Payment]] = defaultdict(list)
    for there in transactions:
        payment = payments.get(there["reference"])
        if payment is None:
            told.lost.append(f"{there['reference']}: the gateway has it, and the shop does not")
        elif there["status"] == "paid":
            _compare_paid(told, there, payment, doubted)
            paid_there[payment.order_id].append(payment)
    known = {there["reference"]: there for there in transactions}
    for payment in payments.values():
        status = known[payment.reference]["status"] if payment.reference in known else "unknown"
        if payment.status == "paid" and status != "paid":
            told.wrong.append(f"{payment.reference}: paid in the shop, and {status} at the gateway")
        if payment.status in ("created", "pending") and status not in ("pending", "unknown"):
            told.wrong.append(
                f"{payment.reference}: still {payment.status}, and {status} at the gateway",
            )
    _compare_orders(told, paid_there)
    # a reminder has its time to come
    waiting = OutboxEvent.objects.filter(done_at__isnull=True, created_at__lte=datetime.now(UTC))
    told.wrong += [
        f"outbox event {pk} was never done" for pk in waiting.values_list("pk", flat=True)
    ]
    return told


def _compare_paid(
    told: Compared,
    there: Mapping[str, Any],
    payment: Payment,
    doubted: set[int],
) -> None:
    told.paid += Decimal(there["amount"])
    if payment.status != "paid":
        told.lost.append(
            f"{payment.reference}: paid at the gateway, and {payment.status} in the shop",
        )
    if payment.amount != Decimal(there["amount"]):
        told.wrong.append(
            f"{payment.reference}: {there['amount']} at the gateway, and {payment.amount} in the "
            "shop",
        )
    if payment.order.paid_by_id != payment.pk and payment.pk not in doubted:
        told.lost.append(f"{payment.reference}: it is paid and paid no order, and nobody is told")
    refunded_amount = sum(
        (Decimal(refund["amount"]) for refund in there["refunds"]),
        Decimal("0.00"),
    )
    told.refunded_amount += refunded_amount
    ours = Refund.objects.filter(payment=payment)
    told.refunds += ours.count()
    succeeded = sum(
        ours.filter(status="succeeded").values_list("amount", flat=True),
        Decimal("0.00"),
    )
    unknown = sum(ours.filter(status="unknown").values_list("amount", flat=True), Decimal("0.00"))
    if not succeeded <= refunded_amount <= succeeded + unknown:
        told.wrong.append(
            f"{payment.reference}: {refunded_amount} refunded at the gateway, and {succeeded} "
            f"(unknown: {unknown}) in the shop",
        )
    if unknown and payment.pk not in doubted:
        told.wrong.append(f"{payment.reference}: a refund of unknown outcome, and nobody is told")
    if ours.exclude(status__in=("succeeded", "unknown", "failed")).exists():
        told.wrong.append(f"{payment.reference}: a refund is still under way")


def _compare_orders(told: Compared, paid_there: Mapping[int, list[Payment]]) -> None:
    """Compare Oscar's orders: each paid once at most, and with the amount that the gateway took."""
    shop_orders = {
        order.number: order
        for order in get_model("order", "Order").objects.prefetch_related(
            "sources",
            "status_changes",
        )
    }
    for order in Order.objects.all():
        shop_order = shop_orders.get(order.key)
        if shop_order is None:
            told.lost.append(f"order {order.key}: Tillgate has it, and the shop does not")
            continue
        times = sum(change.new_status == "Paid" for change in shop_order.status_changes.all())
        debited = sum(
            (source.amount_debited for source in shop_order.sources.all()),
            Decimal("0.00"),
        )
        if times > 1:
            told.doubled.append(f"order {order.key}: became paid {times} times")
        if order.paid_by_id:
            told.paid_orders += 1
            if times != 1:
                told.lost.append(
                    f"order {order.key}: paid, and the shop made it paid {times} times",
                )
            if debited != shop_order.total_incl_tax:
                told.wrong.append(
                    f"order {order.key}: costs {shop_order.total_incl_tax}, and its sources hold "
                    f"{debited}",
                )
        elif times:
            told.wrong.append(f"order {order.key}: made paid by nothing")
        if (
            paid_there.get(order.pk)
            and not order.paid_by_id
            and shop_order.status == "Pending payment"
        ):
            told.lost.append(
                f"order {order.key}: paid at the gateway, and still waiting for its payment",
            )
