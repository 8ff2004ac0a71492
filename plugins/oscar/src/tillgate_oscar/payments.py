"""What a paid, and what an unpaid order changes in Oscar's records. Runs inside a delivery's transaction and touches the database only."""

from __future__ import annotations

from typing import Any, Final

from oscar.core.loading import get_class, get_model

from tillgate.django import operations
from tillgate.django.forms import VENDOR_LABELS
from tillgate.hooks import Order, PaidOutcome, Payment
from tillgate.wire.messages import Vendor
from tillgate_oscar.conf import get_settings
from tillgate_oscar.plugin import PLUGIN

__all__ = ["paid", "source_of", "unpaid"]

PAID_MAIL: Final = "order-paid"


def _locked(number: str) -> Any:
    return get_model("order", "Order")._default_manager.select_for_update().filter(number=number).first()


def source_of(order: Any, reference: str) -> Any:
    """Return Oscar's payment source that holds the money of one of our payments, or None."""
    return order.sources.filter(reference=reference).first()


def paid(payment: Payment) -> PaidOutcome:
    """Write the money into Oscar's records, move the order on and queue the shopper's mail."""
    order, settings = _locked(payment.order.key), get_settings()
    if order is None:
        return PaidOutcome.NOT_PAYABLE
    if source_of(order, payment.reference):
        return PaidOutcome.APPLIED
    if order.status != settings.pending_status or order.currency != payment.currency:
        return PaidOutcome.NOT_PAYABLE
    if order.total_incl_tax > payment.amount:
        return PaidOutcome.UNDERPAID
    _record(order, payment)
    handler = get_class("order.processing", "EventHandler")()
    handler.handle_order_status_change(order, settings.paid_status)
    operations.enqueue_remote(PLUGIN, order.number, PAID_MAIL, payment_id=payment.id)
    return PaidOutcome.APPLIED


def _record(order: Any, payment: Payment) -> None:
    settings = get_settings()
    kinds = get_model("payment", "SourceType")._default_manager
    # Its name is not unique: two first payments at once may both write it, and `get_or_create` would refuse ever after.
    kind = kinds.filter(name=settings.source_type).order_by("pk").first() or kinds.create(name=settings.source_type)
    label = str(VENDOR_LABELS.get(Vendor(payment.vendor), payment.vendor))
    source = order.sources.create(source_type=kind, currency=payment.currency, reference=payment.reference, label=label)
    source.allocate(payment.amount, reference=payment.reference, status=payment.status.value)
    source.debit(payment.amount, reference=payment.reference, status=payment.status.value)
    event_type, _ = get_model("order", "PaymentEventType")._default_manager.get_or_create(name=settings.paid_event)
    lines = list(order.lines.all())
    handler = get_class("order.processing", "EventHandler")()
    quantities = [line.quantity for line in lines]
    handler.create_payment_event(order, event_type, payment.amount, lines, quantities, reference=payment.reference)


def unpaid(paid_for: Order) -> None:
    """Give up an order that nobody paid: what it holds is free again, and its status says so.

    One that the staff cancelled is released as well, which Oscar leaves to the shop; one that was paid otherwise stays as it is.
    """
    order, settings = _locked(paid_for.key), get_settings()
    if order is None or order.status not in (settings.pending_status, settings.cancelled_status):
        return
    _release_discounts(order)
    _release_stock(order)
    if order.status == settings.pending_status:
        get_class("order.processing", "EventHandler")().handle_order_status_change(order, settings.cancelled_status)


def _release_stock(order: Any) -> None:
    """Release what is still allocated; the staff may have released or shipped a part of it, or deleted what was sold."""
    # In the order in which Oscar allocates it, so that two transactions cannot wait for each other.
    lines = list(order.lines.filter(stockrecord__isnull=False, num_allocated__gt=0).order_by("stockrecord_id"))
    if lines:  # for none Oscar would take all of them
        handler = get_class("order.processing", "EventHandler")()
        handler.cancel_stock_allocations(order, lines, [line.num_allocated for line in lines])


def _release_discounts(order: Any) -> None:
    """Undo what `OrderCreator` counted when the order was placed: uses and amounts of vouchers, then of offers, locked in its order."""
    vouchers = get_model("voucher", "Voucher")._default_manager
    for application in get_model("voucher", "VoucherApplication")._default_manager.filter(order=order).order_by("voucher_id"):
        voucher = vouchers.select_for_update().get(pk=application.voucher_id)
        voucher.num_orders = max(0, voucher.num_orders - 1)
        voucher.save(update_fields=["num_orders"])
        application.delete()
    offers = get_model("offer", "ConditionalOffer")._default_manager
    for discount in order.discounts.filter(frequency__gt=0).order_by("offer_id"):
        if voucher := vouchers.select_for_update().filter(pk=discount.voucher_id).first():
            voucher.total_discount = max(0, voucher.total_discount - discount.amount)
            voucher.save(update_fields=["total_discount"])
        if offer := offers.select_for_update().filter(pk=discount.offer_id).first():
            offer.num_applications = max(0, offer.num_applications - discount.frequency)
            offer.total_discount = max(0, offer.total_discount - discount.amount)
            offer.num_orders = max(0, offer.num_orders - 1)
            # Its `save` sets the status too: an offer that was used up is open again.
            offer.save(update_fields=["num_applications", "total_discount", "num_orders", "status"])
        # Oscar adds these up to see how often a customer has used an offer; the order keeps the amount as it was.
        discount.frequency = 0
        discount.save(update_fields=["frequency"])
