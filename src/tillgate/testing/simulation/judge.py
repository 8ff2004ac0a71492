"""The judge: holds the shop's rows, the shop and the gateway's own book against the invariants, by none of the code that is judged."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from tillgate.django.models import Attention, Delivery, Order, Payment, Refund, TimelineEntry
from tillgate.sandbox.service import Service
from tillgate.sandbox.transactions import Transaction
from tillgate.testing.driver import ShopDriver
from tillgate.testing.simulation.network import Network, Violated, key_of

__all__ = ["Judge"]

_FORWARD: Final = {
    "created": {"created", "pending", "failed", "closed", "expired", "paid"},
    "pending": {"pending", "failed", "closed", "expired", "paid"},
    "failed": {"failed", "paid"},
    "closed": {"closed", "paid"},
    "expired": {"expired", "paid"},
    "paid": {"paid"},
}
_REFUND_FORWARD: Final = {
    "queued": {"queued", "sending", "succeeded", "refused", "unknown"},
    "sending": {"queued", "sending", "succeeded", "refused", "unknown"},
    "unknown": {"unknown", "succeeded", "refused"},
    "succeeded": {"succeeded"},
    "refused": {"refused"},
}
_TAKEN: Final = ("queued", "sending", "unknown", "succeeded")
_ABOUT_A_PAID_ONE: Final = ("second-payment", "paid-not-payable", "underpaid")


def _cents(amount: Decimal) -> int:
    cents = amount * 100
    if cents != int(cents):
        raise Violated(f"{amount} is no whole number of cents")
    return int(cents)


def _must(holds: object, invariant: str, what: str) -> None:
    if not holds:
        raise Violated(f"{invariant}: {what}")


class Judge:
    """What must hold after every step, and what must come about in the end."""

    def __init__(self, shop: ShopDriver, service: Service, network: Network) -> None:
        self._shop, self._service, self._network = shop, service, network
        self._seen = 0
        self._statuses: dict[int, str] = {}
        self._refunds: dict[int, str] = {}
        self._paid_orders: set[int] = set()
        self.judged = 0

    def begin(self) -> None:
        """Take note of what is there already."""
        self._seen = TimelineEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0

    def after_a_step(self) -> None:
        """Judge the orders that a step has touched: each change leaves a line in the timeline (I10)."""
        touched = list(TimelineEntry.objects.filter(pk__gt=self._seen).order_by("pk").values_list("pk", "order_id"))
        if touched:
            self._seen = touched[-1][0]
            self._judge(sorted({order_id for _, order_id in touched}))

    def everything(self) -> None:
        """Judge every order, so that a change which left no line is found as well."""
        self._judge(list(Order.objects.order_by("pk").values_list("pk", flat=True)))
        _must(all(count == 1 for count in self._network.creations.values()), "I8", "a reference was sent in two creations")

    # After every step ---------------------------------------------------------------------------------------------------------------------

    def _judge(self, orders: list[int]) -> None:
        for start in range(0, len(orders), 500):
            self._judge_some(orders[start : start + 500])

    def _judge_some(self, orders: list[int]) -> None:
        self.judged += len(orders)
        rows = {order.pk: order for order in Order.objects.filter(pk__in=orders)}
        payments = _by_order(Payment.objects.filter(order__in=orders).order_by("pk"))
        refunds: dict[int, list[Refund]] = {}
        for refund in Refund.objects.filter(payment__order__in=orders).order_by("pk"):
            refunds.setdefault(refund.payment_id, []).append(refund)
        told = Delivery.objects.filter(order__in=orders, kind="payment-paid", outcome="applied", done_at__isnull=False)
        applied: dict[int, list[int]] = {}
        for order_id, payment_id in told.values_list("order_id", "payment_id"):
            applied.setdefault(order_id, []).append(payment_id)
        for order_id in orders:
            order = rows[order_id]
            try:
                for payment in payments.get(order_id, []):
                    self._payment(payment, refunds.get(payment.pk, []))
                self._order(order, {payment.pk: payment for payment in payments.get(order_id, [])}, applied.get(order_id, []))
            except Violated as violated:
                violated.order_key = order.key
                raise

    def _payment(self, payment: Payment, refunds: list[Refund]) -> None:
        name = payment.reference
        before = self._statuses.get(payment.pk, "created")
        _must(payment.status in _FORWARD[before], "I9", f"payment {name} went from {before} to {payment.status}")
        self._statuses[payment.pk] = payment.status
        if payment.status == "paid" and before != "paid":
            there = self._there(payment)
            _must(there, "I1", f"payment {name} is paid, and the gateway does not know it")
            assert there
            _must(there.status in ("paid", "reversed"), "I1", f"payment {name} is paid, and at the gateway it is {there.status}")
            _must(there.cents == _cents(payment.amount), "I1", f"payment {name} is paid with another amount")
        if payment.status != before:
            events = TimelineEntry.objects.filter(payment=payment, event__startswith="payment.").values_list("event", flat=True)
            _must(f"payment.{payment.status}" in events, "I10", f"payment {name} became {payment.status} without a line in its timeline")
        taken = sum(_cents(refund.amount) for refund in refunds if refund.status in _TAKEN)
        _must(taken <= _cents(payment.amount), "I5", f"refunds of {name} add up to more than was paid")
        for refund in refunds:
            self._refund(refund, name)

    def _refund(self, refund: Refund, name: str) -> None:
        before = self._refunds.get(refund.pk, "succeeded" if refund.external else "queued")
        _must(refund.status in _REFUND_FORWARD[before], "I6", f"refund {refund.pk} of {name} went from {before} to {refund.status}")
        self._refunds[refund.pk] = refund.status
        times = self._network.refunds[refund.notice_key]
        _must(times <= 1, "I6", f"refund {refund.pk} of {name} was sent {times} times")

    def _order(self, order: Order, payments: dict[int, Payment], applied: list[int]) -> None:
        _must(len(applied) <= 1, "I4", f"order {order} was paid by {len(applied)} payments")
        _must(applied == ([order.paid_by_id] if order.paid_by_id else []), "I3", f"order {order} is paid by another than was delivered")
        times = self._shop.times_paid(order.key)
        _must(times == len(applied), "I3", f"being paid took effect {times} times in the shop, and was delivered {len(applied)} times")
        if order.paid_by_id:
            paid_by = payments[order.paid_by_id]
            _must(paid_by.status == "paid", "I1", f"order {order} is paid by a payment that is {paid_by.status}")
            given_back = sum(
                Refund.objects.filter(payment__order=order, status="succeeded").values_list("amount", flat=True), Decimal("0.00")
            )
            _must(self._shop.refunded(order.key) <= given_back, "I3", f"the shop holds more of order {order} to be given back than is")

    def _there(self, payment: Payment) -> Transaction | None:
        return self._service.known(payment.merchant_no, payment.reference)

    # In the end ---------------------------------------------------------------------------------------------------------------------------

    def in_the_end(self) -> None:
        """Judge what must have come about once the gateway answers and sweeps have passed."""
        self.everything()
        told = {(one.payment_id, one.reason) for one in Attention.objects.filter(payment__isnull=False)}
        doubted = {payment_id for payment_id, _ in told}
        for payment in Payment.objects.select_related("order").order_by("pk"):
            name, there = payment.reference, self._there(payment)
            if there and there.status == "paid":
                _must(
                    payment.status == "paid" or payment.pk in doubted,
                    "I2",
                    f"payment {name} is paid, and the shop takes it for {payment.status}",
                )
            _must(not payment.is_open or payment.pk in doubted, "I2", f"payment {name} is still {payment.status}, and nobody is told")
            if payment.status == "paid" and payment.order.paid_by_id != payment.pk:
                _must(
                    any((payment.pk, reason) in told for reason in _ABOUT_A_PAID_ONE),
                    "I4",
                    f"paid payment {name} paid no order, and nobody is told",
                )
        undone = Delivery.objects.filter(done_at__isnull=True).count()
        _must(not undone, "I3", f"{undone} deliveries were never done")
        for refund in Refund.objects.select_related("payment"):
            _must(refund.status in ("succeeded", "refused", "unknown"), "I6", f"refund {refund.pk} is still {refund.status}")
        self._given_back()
        self._released()

    def _given_back(self) -> None:
        """Refunds add up, once people have said what became of those that nobody knew of."""
        for payment in Payment.objects.filter(status="paid").order_by("pk"):
            there = self._there(payment)
            assert there
            ours = sum((_cents(refund.amount) for refund in payment.refunds.filter(status="succeeded")), 0)
            unseen = 0
            if (
                self._service.word(there) == self._service.options.word_paid
            ):  # what was given back elsewhere shows in no answer (silence 18)
                keys = set(payment.refunds.values_list("notice_key", flat=True))
                unseen = sum(one.cents for one in there.refunds if key_of(one.ipn_url) not in keys)
            _must(
                ours + unseen == there.refunded_cents,
                "I5",
                f"of {payment.reference} {ours} cents were given back by our books, and {there.refunded_cents} by the gateway's",
            )
        for order in Order.objects.order_by("pk"):
            succeeded = Refund.objects.filter(payment__order=order, status="succeeded").values_list("amount", flat=True)
            _must(
                self._shop.refunded(order.key) == sum(succeeded, Decimal("0.00")), "I3", f"the shop's refunds of order {order} are not ours"
            )

    def _released(self) -> None:
        for order in Order.objects.filter(paid_by__isnull=True, closed_at__isnull=True).order_by("pk"):
            statuses = set(order.payments.values_list("status", flat=True))
            if statuses & {"created", "pending", "paid"}:
                continue
            _must(
                self._shop.is_released(order.key), "I2", f"order {order} was never paid ({', '.join(sorted(statuses))}), and never given up"
            )


def _by_order(payments: Iterable[Payment]) -> dict[int, list[Payment]]:
    found: dict[int, list[Payment]] = {}
    for payment in payments:
        found.setdefault(payment.order_id, []).append(payment)
    return found
