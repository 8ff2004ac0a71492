"""What a paid, and what an unpaid order changes in Oscar's records. Runs inside a delivery's transaction and touches the database only."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.utils.translation import gettext
from oscar.core.loading import get_class, get_model

from tillgate.django.forms import VENDOR_LABELS
from tillgate.hooks import Order, PaidOutcome, Payment
from tillgate.wire.messages import Vendor
from tillgate_oscar import mail
from tillgate_oscar.conf import get_settings

__all__ = ["paid", "source_of", "unpaid"]


def _locked(number: str) -> Any:
    # A fork's own manager may join other tables, which PostgreSQL does not lock where they may be missing.
    return get_model("order", "Order")._base_manager.select_for_update().filter(number=number).first()


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
    _take_again(order)
    mail.confirm(order.number, payment.id)
    get_class("order.processing", "EventHandler")().handle_order_status_change(order, settings.paid_status)
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
    uses = list(get_model("voucher", "VoucherApplication")._base_manager.filter(order=order))
    discounts = list(order.discounts.filter(frequency__gt=0).order_by("pk"))
    vouchers = _locked_vouchers({row.voucher_id for row in (*uses, *discounts)})
    for use in uses:
        voucher = vouchers[use.voucher_id]
        voucher.num_orders = max(0, voucher.num_orders - 1)
        voucher.save(update_fields=["num_orders"])
        use.delete()
    for discount in discounts:
        if voucher := vouchers.get(discount.voucher_id):
            voucher.total_discount = max(0, voucher.total_discount - discount.amount)
            voucher.save(update_fields=["total_discount"])
        if offer := _locked_offer(discount):
            offer.num_applications = max(0, offer.num_applications - discount.frequency)
            offer.total_discount = max(0, offer.total_discount - discount.amount)
            offer.num_orders = max(0, offer.num_orders - 1)
            # Its `save` sets the status too: an offer that was used up is open again.
            offer.save(update_fields=["num_applications", "total_discount", "num_orders", "status"])
        # Oscar adds these up to see how often a customer has used an offer; the order keeps the amount as it was.
        discount.frequency = 0
        discount.save(update_fields=["frequency"])


def _locked_vouchers(ids: set[int]) -> dict[int, Any]:
    """Lock vouchers before any offer, in one statement and in the order of their model, as Oscar does when it places an order."""
    vouchers = get_model("voucher", "Voucher")._base_manager.select_for_update().filter(pk__in=ids)
    return {voucher.pk: voucher for voucher in vouchers}


def _locked_offer(discount: Any) -> Any:
    return get_model("offer", "ConditionalOffer")._base_manager.select_for_update().filter(pk=discount.offer_id).first()


def _take_again(order: Any) -> None:
    """Take again what an order had released that was given up, opened again by the staff and is paid now; tell what is gone by then."""
    _count_discounts_again(order)
    lines = order.lines.filter(allocation_cancelled=True).order_by("stockrecord_id")
    if gone := [line.title for line in lines if not _allocate_again(line)]:
        said = gettext("This order was paid after its stock had been released, and there is not enough left of: %(products)s.")
        get_class("order.processing", "EventHandler")().create_note(order, said % {"products": ", ".join(sorted(gone))})


def _allocate_again(line: Any) -> bool:
    """Allocate the stock of a line, of which others may have been sold meanwhile; tell whether it is there."""
    stock = line.stockrecord
    if stock is None:  # the product was deleted
        return False
    stock.allocate(line.quantity)
    line.num_allocated, line.allocation_cancelled = line.quantity, False
    line.save(update_fields=["num_allocated", "allocation_cancelled"])
    return not stock.can_track_allocations or stock.net_stock_level >= 0


def _count_discounts_again(order: Any) -> None:
    """Count vouchers and offers again, by Oscar's own methods. How often an offer was applied is not on record any more: it counts once."""
    discounts = list(order.discounts.filter(frequency=0).order_by("pk"))
    vouchers = _locked_vouchers({discount.voucher_id for discount in discounts})
    for discount in discounts:
        if offer := _locked_offer(discount):
            offer.record_usage({"freq": 1, "discount": discount.amount})
        if voucher := vouchers.get(discount.voucher_id):
            voucher.record_discount({"discount": discount.amount})
        discount.frequency = 1
        discount.save(update_fields=["frequency"])
    for voucher in vouchers.values():
        voucher.record_usage(order, order.user or AnonymousUser())
