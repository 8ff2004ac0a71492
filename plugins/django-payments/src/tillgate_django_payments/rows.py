"""The shop's payment rows: their description for Tillgate, and the only code that writes their results.

This code writes inside an outbox event's transaction, under the row's lock, and moves statuses forward only. The shop's receivers of
`status_changed` run in the same transaction, so that both happen or neither.
"""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any, Final

from django.db import router, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from payments import PaymentStatus, get_payment_model

from tillgate import Goods
from tillgate.django.models import Order as PaidOrder
from tillgate.django.models import Payment as Attempt
from tillgate.django.models import Refund as RefundRow
from tillgate.django.operations.reviews import reported_paid
from tillgate.django.operations.starting import is_order_paid
from tillgate.errors import InvalidRequest
from tillgate.hooks import Order, OrderDescription, PaidOutcome, Payment, Refund
from tillgate.lifecycle import PaymentStatus as AttemptStatus
from tillgate.lifecycle import RefundStatus
from tillgate.wire import money
from tillgate_django_payments.plugin import PLUGIN
from tillgate_django_payments.variants import is_ours, variant_for

__all__ = [
    "WAITING",
    "database",
    "describe",
    "find",
    "held_for",
    "home",
    "locked",
    "newest_attempt",
    "paid",
    "paid_by",
    "refund_changed",
    "return_url",
    "unpaid",
]

_log = logging.getLogger("tillgate")

WAITING: Final = frozenset({PaymentStatus.WAITING, PaymentStatus.INPUT})
"""The statuses in which a payment waits for its money: the only ones in which it can be paid."""
_PAID: Final = frozenset({PaymentStatus.CONFIRMED, PaymentStatus.REFUNDED})


def database() -> str:
    """Return the alias of the database that holds the shop's payments."""
    return router.db_for_write(get_payment_model())


def find(key: str) -> Any:
    """Return the shop's payment of a key, which is its primary key, or None."""
    return _rows().filter(pk=key).first()


def locked(key: str) -> Any:
    """Return the shop's payment as it now stands, under its lock, or None."""
    return _rows().select_for_update().filter(pk=key).first()


def _rows() -> Any:
    # A shop's default manager may leave rows out, and join others that cannot be locked: money comes for any of them.
    return get_payment_model()._base_manager.using(database())


def newest_attempt(row: Any) -> Attempt | None:
    """Return Tillgate's newest payment of a row, or None if none has started."""
    return Attempt.objects.select_related("order").filter(order__plugin=PLUGIN, order__key=str(row.pk)).order_by("-pk").first()


def paid_by(key: str) -> Attempt | None:
    """Return Tillgate's payment that paid a row, or None."""
    order = PaidOrder.objects.select_related("paid_by").filter(plugin=PLUGIN, key=key).first()
    return order.paid_by if order else None


def held_for(key: str) -> Attempt | None:
    """Return a payment of Tillgate's that has paid a row or is about to, or None if there is none or it was refunded entirely."""
    order = PaidOrder.objects.filter(plugin=PLUGIN, key=key).first()
    if order is None or not is_order_paid(order):
        return None
    paid = order.payments.filter(status=AttemptStatus.PAID).order_by("pk")
    return next((attempt for attempt in paid if _kept(attempt) > 0), None)


def describe(key: str) -> OrderDescription | None:
    """Return a payment's amount and lines; it may be paid while it waits and the shop's model has no objection."""
    with transaction.atomic(using=database()):  # so that the shop's model may lock the rows that it reads
        row = find(key)
        if row is None:
            return None
        return OrderDescription(
            number=str(row.pk),
            amount=row.total,
            currency=row.currency,
            lines=_lines(row),
            description=row.description or None,
            not_payable_detail=_why_not(row),
        )


def _lines(row: Any) -> tuple[Goods, ...]:
    """Return the purchased lines, or none if the shop no longer knows them: a product may be deleted after its payment."""
    try:
        return tuple(_goods(item.name, item.quantity) for item in row.get_purchased_items())
    except Exception:  # noqa: BLE001  # the shop's own code may raise anything
        _log.exception("what payment %s buys could not be read", row.pk)
        return ()


def _goods(name: Any, quantity: Any) -> Goods:
    """Return a purchased line, which is for people to read: goods by weight or a discount must not block the payment."""
    try:
        return Goods.named(str(name), int(quantity) if quantity == int(quantity) else quantity)
    except (InvalidRequest, TypeError, ValueError, OverflowError):
        return Goods.named(f"{name} x {quantity}")


def _why_not(row: Any) -> str | None:
    """Return why a payment cannot be paid. In a shop with several payments per order, its model reports that another one paid it."""
    if row.status not in WAITING:
        return _("its status is “%(status)s”") % {"status": row.get_status_display()}
    shops_own = getattr(row, "not_payable_detail", None)
    return shops_own() if shops_own else None


def paid(payment: Payment) -> PaidOutcome:
    """Confirm a waiting payment: amount and number first, so that receivers of the new status find them."""
    row = locked(payment.order.key)
    if row is None or row.status not in WAITING or row.currency != payment.currency:
        return PaidOutcome.NOT_PAYABLE
    if row.total > payment.amount:
        return PaidOutcome.UNDERPAID
    row.captured_amount, row.transaction_id = payment.amount, payment.transaction_no or ""
    if not is_ours(row):  # the shopper had chosen another provider, and paid here
        row.variant = variant_for(payment.method) or row.variant
    row.save(update_fields=["captured_amount", "transaction_id", "variant", "modified"])
    row.change_status(PaymentStatus.CONFIRMED)
    return PaidOutcome.APPLIED


def unpaid(order: Order) -> None:
    """Reject a payment that still waits. Keep every other status, and a payment that waits for another provider."""
    row = locked(order.key)
    if row is not None and row.status in WAITING and is_ours(row) is not False:
        row.change_status(PaymentStatus.REJECTED, _("nobody paid in time"))


_SENTENCES: Final = {
    RefundStatus.SUCCEEDED: gettext_noop("USD %(amount)s was refunded."),
    RefundStatus.FAILED: gettext_noop("USD %(amount)s was not refunded."),  # staff may have marked it as not done, or withdrawn it
    RefundStatus.UNKNOWN: gettext_noop("Nobody knows whether USD %(amount)s was refunded: it waits for a person."),
}


def refund_changed(refund: Refund) -> None:
    """Record the result of a refund: subtract the money once it succeeded; until then only the message mentions the refund."""
    row, held = locked(refund.payment.order.key), paid_by(refund.payment.order.key)
    if row is None or held is None or str(held.pk) != refund.payment.id:
        return  # the row never contained that money
    message = _(_SENTENCES[refund.status]) % {"amount": refund.amount}
    if refund.status is RefundStatus.SUCCEEDED:
        row.captured_amount = _kept(held)
        row.save(update_fields=["captured_amount", "modified"])
        is_waiting = row.status in WAITING and is_ours(row) is not False  # an old copy may have been saved over it
        if row.captured_amount <= 0 and (is_waiting or row.status == PaymentStatus.CONFIRMED):
            row.change_status(PaymentStatus.REFUNDED, message)
            return
    row.message = message
    row.save(update_fields=["message", "modified"])


def _kept(held: Attempt | Payment) -> Decimal:
    """Return the remaining money of a payment, computed from scratch each time, so that no refund is subtracted twice."""
    refunds = RefundRow.objects.filter(payment__reference=held.reference, status=RefundStatus.SUCCEEDED)
    return money.left_of(held.amount, refunds.values_list("amount", flat=True))


def home(row: Any, payment: Payment | None = None) -> str:
    """Return the shop's page for the shopper of a settled payment; an entirely refunded payment has paid nothing."""
    is_paid = row.status in _PAID
    if not is_paid and payment and payment.status is AttemptStatus.PAID:  # the shop event may not be delivered yet
        is_paid = _kept(payment) > 0
    return str(row.get_success_url() if is_paid else row.get_failure_url())


def return_url(payment: Payment) -> str | None:
    """Return the shop's page for the shopper of one of Tillgate's payments, or None if the shop has none.

    Its row may be gone. For money that paid nothing, and for a payment that is only reported paid, the pages for success and failure are
    both wrong: Tillgate's own page shows the state.
    """
    row = find(payment.order.key)
    if row is None:
        return None
    if row.status in _PAID:
        by = paid_by(payment.order.key)
        is_another = payment.status is AttemptStatus.PAID and (by is None or str(by.pk) != payment.id)
        return None if is_another and _kept(payment) > 0 else home(row, payment)
    if payment.status is not AttemptStatus.PAID:
        return None if reported_paid([int(payment.id)]) else home(row, payment)
    return None if _kept(payment) > 0 and held_for(payment.order.key) is None else home(row, payment)
