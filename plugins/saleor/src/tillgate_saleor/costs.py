"""What a checkout or an order costs, as its Saleor says, and what payments of Tillgate hold for it.

A cart, a price or a tax may change at any moment, also while the shopper is at the cashier. Saleor tells of it in the bodies of its
webhooks, and when it is asked before a report: whatever was paid is compared each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tillgate.django.models import Attention, DeliveryKind, Order, Payment
from tillgate.django.operations.attention import raise_attention, settle
from tillgate.django.operations.locking import database, locked_order
from tillgate.django.operations.refunds import refundable
from tillgate.lifecycle import AttentionReason, PaymentStatus
from tillgate.wire import money
from tillgate_saleor import bodies
from tillgate_saleor.conf import get_settings
from tillgate_saleor.models import Installation, Purchase, Transaction
from tillgate_saleor.plugin import PLUGIN

__all__ = ["conclude", "costs_of", "kept_for", "left_of", "note_costs", "parts_of"]

_TOO_MUCH_OR_LITTLE: Final = frozenset({AttentionReason.SECOND_PAYMENT, AttentionReason.OVERPAID, AttentionReason.UNDERPAID})


def costs_of(installation: Installation, source: bodies.Source) -> Decimal | None:
    """Return the dollars that a checkout or order costs without what other Apps hold for it.

    None where Saleor does not tell, or the shop takes parts. What is asked for says less: whoever calls the storefront's API names any
    amount.
    """
    saleor = get_settings().saleor(installation.api_url)
    if saleor is None or saleor.parts:
        return None
    known = [one.id for one in source.transactions]
    ours = Transaction.objects.using(database()).filter(installation=installation, transaction_id__in=known)
    return source.costs_without(set(ours.values_list("transaction_id", flat=True)))


def parts_of(installation_id: int, source: str) -> list[Purchase]:
    """Return the parts in which a checkout or order is paid, the first one first: one, unless it became dearer after it was paid."""
    return list(Purchase.objects.using(database()).filter(installation=installation_id, source=source).order_by("part"))


@dataclass(frozen=True, slots=True)
class _Held:
    """The dollars of one payment: what it counts for, and what of it has not been given back and is not about to be."""

    payment: Payment
    counts: Decimal
    kept: Decimal
    has_paid: bool


def _held(parts: Iterable[Purchase]) -> list[_Held]:
    """Return what the paid payments of parts hold.

    What has paid a part counts in whole, though some of it was given back, as for a kindness: nobody pays that anew. Of any other payment,
    too little or too late, only what is kept counts.
    """
    by_key = {part.key: part for part in parts}
    payments = Payment.objects.using(database()).select_related("order").filter(order__plugin=PLUGIN, order__key__in=by_key)
    held = []
    for payment in payments.filter(status=PaymentStatus.PAID).order_by("pk"):
        kept, has_paid = refundable(payment), by_key[payment.order.key].paid_reference == payment.reference
        held.append(_Held(payment, payment.amount if has_paid else kept, kept, has_paid))
    return held


def kept_for(parts: Iterable[Purchase]) -> Decimal:
    """Return the dollars that payments of parts hold and that are not on their way back."""
    return money.total(one.kept for one in _held(parts))


def left_of(costs: Decimal, parts: Iterable[Purchase], *, as_told: bool = False) -> Decimal:
    """Return the dollars that are left to be paid of what a checkout or order costs; below zero when it holds more.

    `as_told` leaves out the payments of which the plugin has not heard, or is hearing now.
    """
    held = _held(parts)
    if as_told:
        untold = {one.payment.pk for one in held if _is_untold(one.payment)}
        held = [one for one in held if one.payment.pk not in untold]
    return money.left_of(costs, [one.counts for one in held])


def _is_untold(payment: Payment) -> bool:
    return bool(payment.deliveries.filter(kind=DeliveryKind.PAYMENT_PAID, done_at__isnull=True).exists())


def note_costs(installation: Installation, source: bodies.Source, name: str) -> None:
    """Note what a checkout or order costs by now, if Saleor tells, and tell a person where what has paid it does not fit that any more.

    `name` is the one under which it is paid. An order shows by itself, to the staff, that it holds too much or too little; a checkout is
    shown to nobody, and becomes no order.
    """
    costs = costs_of(installation, source)
    if costs is None:
        return
    Purchase.objects.using(database()).filter(installation=installation, source=name).update(costs=costs)
    parts = parts_of(installation.pk, name)
    conclude(parts)
    if source.typename != "Checkout" or not parts or not parts[-1].paid_reference:
        return
    paying = [one for one in _held(parts) if one.has_paid]
    if paying:
        _tell_if_it_does_not_fit(paying[-1].payment, costs, parts)


def _tell_if_it_does_not_fit(payment: Payment, costs: Decimal, parts: list[Purchase]) -> None:
    with locked_order(payment.order_id) as order:
        held = _held(parts)  # anew, under the lock
        counts, kept = money.total(one.counts for one in held), money.total(one.kept for one in held if one.has_paid)
        if counts < costs:
            reason, paid = AttentionReason.UNDERPAID, counts
        elif kept > costs:
            reason, paid = AttentionReason.OVERPAID, kept
        else:
            return
        sentence = f"Payment {payment.reference}: USD {paid} was paid, and Saleor wants USD {costs} by now."
        raise_attention(reason, sentence, "saleor", order=order, payment=payment, account=payment.account)


def conclude(parts: list[Purchase]) -> None:
    """Take back what a person was told of money once exactly what Saleor wants is held, whichever payment the staff gave back.

    Whoever gave it back would leave the order unpaid. Not while money is on its way back, which may be refused. Nor of what a person is
    told from now on: a payment that comes at this moment may be one too many.
    """
    for alike in [parts] if parts and parts[0].costs is not None else [[part] for part in parts]:
        _conclude(alike)


def _conclude(parts: list[Purchase]) -> None:
    orders = Order.objects.using(database()).filter(plugin=PLUGIN, key__in=[part.key for part in parts])
    matters = Attention.objects.using(database()).filter(order__in=orders, reason__in=_TOO_MUCH_OR_LITTLE, resolved_at__isnull=True)
    numbers = list(matters.values_list("pk", flat=True))
    if not numbers or not parts[0].paid_reference:
        return
    wanted = parts[-1].costs if parts[-1].costs is not None else parts[-1].amount
    held = _held(parts)
    kept = money.total(one.kept for one in held)
    left = money.total(money.left_of(one.payment.amount, [one.payment.given_back]) for one in held)
    if kept == left == wanted:
        settle(Attention.objects.filter(pk__in=numbers), "Saleor holds as much as it wanted")
