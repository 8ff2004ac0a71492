"""The shop's payment rows: their description for Tillgate, and the only code that writes their
results.

This code writes inside an outbox event's transaction, under the row's lock, and moves statuses
forward only. The shop's receivers of `status_changed` run in the same transaction, so that both
happen or neither.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from django.db import router, transaction
from django.db.models import Q
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from payments import PaymentStatus, get_payment_model

from tillgate import Goods, InvalidRequest, shop
from tillgate.hooks import (
    Customer,
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RefundStatus,
)
from tillgate.hooks import PaymentStatus as TillgateStatus
from tillgate_django_payments.variants import PLUGIN, is_ours, variant_for

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
    # A shop's default manager may leave rows out, and join others that cannot be locked: money
    # comes for any of them.
    return get_payment_model()._base_manager.using(database())


def state_of(key: str) -> shop.OrderState | None:
    """Return Tillgate's state of the order of a row, or None if no payment of the row was ever
    asked for here.
    """
    return shop.order_state(PLUGIN, key)


def describe(order_key: str) -> OrderDescription | None:
    """Return a payment's amount and lines; it may be paid while it waits and the shop's model has
    no objection.
    """
    # so that the shop's model may lock the rows that it reads
    with transaction.atomic(using=database()):
        row = find(order_key)
        if row is None:
            return None
        return OrderDescription(
            number=str(row.pk),
            amount=row.total,
            currency=row.currency,
            lines=_lines(row),
            description=row.description or None,
            not_payable_detail=_why_not(row),
            email=row.billing_email or None,
            customer=_customer(row),
            staff_url=_staff_url(row),
        )


def customers(order_keys: Sequence[str]) -> dict[str, Customer]:
    """Return the shoppers of several rows."""
    return {str(row.pk): _customer(row) for row in _rows().filter(pk__in=list(order_keys))}


def _customer(row: Any) -> Customer:
    name = f"{row.billing_first_name} {row.billing_last_name}".strip()
    return Customer(name=name, email=row.billing_email)


def search(text: str, limit: int) -> list[str]:
    """Return the keys of payments of an e-mail address, or the beginnings of names."""
    wanted = Q(billing_email__iexact=text)
    if "@" not in text:
        wanted = Q()
        for word in text.split():
            wanted &= Q(billing_first_name__istartswith=word) | Q(
                billing_last_name__istartswith=word,
            )
    keys = _rows().filter(wanted).order_by("-pk").values_list("pk", flat=True)
    return [str(key) for key in keys[:limit]]


def _staff_url(row: Any) -> str | None:
    """Return the row's page in Django's admin, where the shop shows its payments there."""
    with suppress(NoReverseMatch):
        name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
        return str(reverse(name, args=[row.pk]))
    return None


def _lines(row: Any) -> tuple[Goods, ...]:
    """Return the purchased lines, or none if the shop no longer knows them: a product may be
    deleted after its payment.
    """
    try:
        return tuple(_goods(item.name, item.quantity) for item in row.get_purchased_items())
    except Exception:  # noqa: BLE001  # the shop's own code may raise anything
        _log.exception("the order of payment %s could not be read", row.pk)
        return ()


def _goods(name: Any, quantity: Any) -> Goods:
    """Return a purchased line, which is for people to read: goods by weight or a discount must not
    block the payment.
    """
    try:
        return Goods.named(str(name), int(quantity) if quantity == int(quantity) else quantity)
    except (InvalidRequest, TypeError, ValueError, OverflowError):
        return Goods.named(f"{name} x {quantity}")


def _why_not(row: Any) -> str | None:
    """Return why a payment cannot be paid. In a shop with several payments per order, its model
    reports that another one paid it.
    """
    if row.status not in WAITING:
        return _("its status is “%(status)s”") % {"status": row.get_status_display()}
    shops_own = getattr(row, "not_payable_detail", None)
    return shops_own() if shops_own else None


def paid(payment: Payment) -> PaidOutcome:
    """Confirm a waiting payment: amount and number first, so that receivers of the new status find
    them.
    """
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
    """Reject a payment that still waits. Keep every other status, and a payment that waits for
    another provider.
    """
    row = locked(order.key)
    if row is not None and row.status in WAITING and is_ours(row) is not False:
        row.change_status(PaymentStatus.REJECTED, _("the time to pay has passed"))


_SENTENCES: Final = {
    RefundStatus.SUCCEEDED: gettext_noop("%(amount)s was refunded."),
    RefundStatus.FAILED: gettext_noop(
        "%(amount)s was not refunded.",
    ),  # staff may have marked it as not done, or withdrawn it
    RefundStatus.UNKNOWN: gettext_noop(
        "It is not known whether %(amount)s was refunded: staff will settle it.",
    ),
}


def refund_changed(refund: Refund) -> None:
    """Record the result of a refund: subtract the money once it succeeded; until then only the
    message mentions the refund.
    """
    row = locked(refund.payment.order.key)
    if row is None or not refund.payment_paid_the_order:
        return  # the row never contained that money
    message = _(_SENTENCES[refund.status]) % {
        "amount": shop.money_text(refund.amount, refund.payment.currency),
    }
    if refund.status is RefundStatus.SUCCEEDED:
        # all refunds of it count, so that none is subtracted twice
        held = shop.find_payment(PLUGIN, payment_id=refund.payment.id)
        row.captured_amount = held.held_amount if held else 0
        row.save(update_fields=["captured_amount", "modified"])
        # an old copy may have been saved over it
        is_waiting = row.status in WAITING and is_ours(row) is not False
        if row.captured_amount <= 0 and (is_waiting or row.status == PaymentStatus.CONFIRMED):
            row.change_status(PaymentStatus.REFUNDED, message)
            return
    row.message = message
    row.save(update_fields=["message", "modified"])


def home(row: Any) -> str:
    """Return the shop's page for the shopper of a settled payment."""
    return str(row.get_success_url() if row.status in _PAID else row.get_failure_url())


def return_url(payment: Payment) -> str | None:
    """Return the shop's page for the shopper of one of Tillgate's payments, or None if the shop has
    none.

    Its row may be gone. For money that paid nothing, and for a payment that is only reported paid,
    the pages for success and failure are both wrong: Tillgate's own page shows the state. An
    entirely refunded payment has paid nothing.
    """
    row, ours = find(payment.order.key), state_of(payment.order.key)
    asked = next((one for one in ours.payments if one.id == payment.id), None) if ours else None
    if row is None or ours is None or asked is None:
        return None
    if row.status in _PAID:
        return None if asked.held_amount > 0 and not asked.paid_the_order else home(row)
    if asked.held_amount > 0:  # the shop event may not be delivered yet
        return str(row.get_success_url()) if ours.is_paid else None
    return None if asked.reported_paid and asked.status is not TillgateStatus.PAID else home(row)
