"""The changes that paid and unpaid orders make in Oscar's records. They run inside an event's
transaction and touch the database only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from django.utils.translation import gettext
from oscar.core.loading import get_class, get_model

from tillgate import shop
from tillgate.hooks import Order, PaidOutcome, Payment
from tillgate_oscar import mail
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.orders import (
    LINK_UNTIL,
    is_marked_paid,
    link_until,
    may_be_cancelled,
    outstanding,
)
from tillgate_oscar.stock import RELEASED, RESTOCKED

_being_paid: ContextVar[str | None] = ContextVar(
    "number of the order that is being paid",
    default=None,
)


def locked(number: str) -> Any:
    """Return the order of a number, locked, or None."""
    # A fork's own manager may join other tables, which PostgreSQL does not lock where they may be
    # missing.
    return (
        get_model("order", "Order")._base_manager.select_for_update().filter(number=number).first()
    )


def source_of(order: Any, reference: str) -> Any:
    """Return Oscar's payment source that holds the money of one of our payments, or None."""
    return order.sources.filter(reference=reference).first()


def paid(payment: Payment) -> PaidOutcome:
    """Record the payment in Oscar, give the order its paid status and queue the shopper's mail."""
    order, settings = locked(payment.order.key), get_settings()
    if order is None:
        return PaidOutcome.NOT_PAYABLE
    sources = list(order.sources.all())
    if any(source.reference == payment.reference for source in sources):
        return PaidOutcome.APPLIED
    if order.status != settings.pending_status or order.currency != payment.currency:
        return PaidOutcome.NOT_PAYABLE
    if outstanding(order, sources) > payment.amount:
        return PaidOutcome.UNDERPAID
    _record(order, payment)
    take_again(order)  # before the shop's own handler, which may consume it
    mail.confirm(order.number, payment.id)
    is_being_paid = _being_paid.set(order.number)
    try:
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            order,
            settings.paid_status,
        )
    finally:
        _being_paid.reset(is_being_paid)
    return PaidOutcome.APPLIED


def is_being_paid(number: str) -> bool:
    """Tell whether the shop's own handler is running because an order is paid.

    Any status that the handler then sets is one of a paid order.
    """
    return _being_paid.get() == number


def _record(order: Any, payment: Payment) -> None:
    settings = get_settings()
    kinds = get_model("payment", "SourceType")._default_manager
    # The name is not unique: two first payments may both write it at the same time, and
    # `get_or_create` would then fail forever.
    kind = kinds.filter(name=settings.source_type).order_by("pk").first() or kinds.create(
        name=settings.source_type,
    )
    label = shop.method_label(payment.method)
    about = {
        "source_type": kind,
        "currency": payment.currency,
        "reference": payment.reference,
        "label": label,
    }
    source = order.sources.create(amount_allocated=payment.amount, **about)
    # One transaction for one payment: `allocate` would write a second one. Oscar's pages show the
    # status of a transaction, not its type.
    source.debit(payment.amount, reference=payment.reference, status="paid")
    event_type, _ = get_model("order", "PaymentEventType")._default_manager.get_or_create(
        name=settings.paid_event,
    )
    lines = list(order.lines.all())
    handler = get_class("order.processing", "EventHandler")()
    quantities = [line.quantity for line in lines]
    handler.create_payment_event(
        order,
        event_type,
        payment.amount,
        lines,
        quantities,
        reference=payment.reference,
    )


def unpaid(order: Order) -> None:
    """Cancel an unpaid order: release everything that it holds, and set its status. While its
    payment link is valid it is released and goes on waiting.

    An order that staff cancelled is released as well, because Oscar leaves that to the shop. An
    order that was paid in another way stays as it is, also if an old page of Django's admin was
    saved over it.
    """
    found, settings = locked(order.key), get_settings()
    if found is None or found.status not in (settings.pending_status, settings.cancelled_status):
        return
    if found.status == settings.pending_status and (said := _why_kept(found)):
        get_class("order.processing", "EventHandler")().create_note(found, said)
        return
    _release_discounts(found)
    hold_released(found, _release_stock(found))
    until = link_until(shop.order_state(PLUGIN, order.key))
    if found.status == settings.pending_status and until:
        shop.open_order(PLUGIN, order.key, actor="link", until=until)
        return
    if found.status == settings.pending_status:
        get_class("order.processing", "EventHandler")().handle_order_status_change(
            found,
            settings.cancelled_status,
        )


def _why_kept(order: Any) -> str | None:
    if is_marked_paid(order):
        return gettext(
            "This order waits to be paid, though it was marked paid: it is not released. Mark it "
            "paid again, or cancel it.",
        )
    if order.total_incl_tax and not outstanding(order):
        return gettext(
            "This order waits to be paid, though its payment sources cover it: it is not "
            "released. Mark it paid, or cancel it.",
        )
    return None


def reopen(order: Order) -> bool:
    """Let an order that was cancelled, or has lost its goods, wait for payment again, as staff want
    its late money to pay it; return whether it could. The pipeline need not lead there.
    """
    found, settings = locked(order.key), get_settings()
    ours = shop.order_state(PLUGIN, order.key)
    known = (settings.pending_status, settings.cancelled_status)
    if found is None or found.status not in known or (ours and ours.paid_by):
        return False
    shop.set_order_data(PLUGIN, order.key, **{LINK_UNTIL: None})  # staff have decided
    if found.status == settings.pending_status:
        return outstanding(found) > 0
    # not `set_status`, which follows the pipeline, and not `save`, which tells receivers of a
    # change that lasts for a moment
    type(found)._base_manager.filter(pk=found.pk).update(status=settings.pending_status)
    found._create_order_status_change(found.status, settings.pending_status)
    return True


def cancel(number: str) -> bool:
    """Cancel an unpaid order as its shopper asks, release its stock immediately, and tell whether
    that was possible.

    Tillgate still polls an open payment: late money opens a review, as for any cancelled order.
    """
    with shop.locked_order(PLUGIN, number) as ours:
        order = locked(number)
        if order is None or not may_be_cancelled(order, ours) or _why_kept(order):
            return False
        shop.close_order(PLUGIN, number, actor="shopper")
        unpaid(Order(plugin=PLUGIN, key=number))
    return True


def hold_released(order: Any, released: Mapping[int, int]) -> None:
    """Remember how many of each line a cancellation released, so that `take_again` allocates them
    if the order is paid after all.
    """
    more = Counter({str(line): quantity for line, quantity in released.items()})
    known = Counter(shop.order_data(PLUGIN, order.number).get(RELEASED, {}))
    shop.set_order_data(PLUGIN, order.number, **{RELEASED: known + more})


def _release_stock(order: Any) -> dict[int, int]:
    """Release the stock that is still allocated, and return how many of each line.

    Staff may have released or shipped a part of it, or deleted the product.
    """
    # Lock stock in the same order as Oscar allocates it, so that two transactions cannot wait for
    # each other.
    lines = list(
        order.lines.filter(stockrecord__isnull=False, num_allocated__gt=0).order_by(
            "stockrecord_id",
        ),
    )
    held = {line.pk: line.num_allocated for line in lines}
    if lines:  # an empty list would make Oscar take all of them
        handler = get_class("order.processing", "EventHandler")()
        handler.cancel_stock_allocations(order, lines, list(held.values()))
    left = order.lines.filter(pk__in=held).values_list("pk", "num_allocated")
    return {line: held[line] - quantity for line, quantity in left if quantity < held[line]}


def _release_discounts(order: Any) -> None:
    """Undo the counts that `OrderCreator` made when the order was placed: uses and amounts of
    vouchers, then of offers.

    The locks follow its order.
    """
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
        # Oscar adds these up to see how often a customer has used an offer; the order keeps the
        # amount as it was.
        discount.frequency = 0
        discount.save(update_fields=["frequency"])


def _locked_vouchers(ids: set[int]) -> dict[int, Any]:
    """Lock vouchers before any offer, in one statement and in the order of their model, as Oscar
    does when it places an order.
    """
    vouchers = get_model("voucher", "Voucher")._base_manager.select_for_update().filter(pk__in=ids)
    return {voucher.pk: voucher for voucher in vouchers}


def _locked_offer(discount: Any) -> Any:
    return (
        get_model("offer", "ConditionalOffer")
        ._base_manager.select_for_update()
        .filter(pk=discount.offer_id)
        .first()
    )


def take_again(order: Any) -> None:
    """Allocate again the stock that cancellations released, once, for an order that was paid after
    all. A note names lines out of stock.

    Items that staff shipped or released by hand stay as they are, and a note names them.
    """
    data = shop.order_data(PLUGIN, order.number)
    if RELEASED not in data:
        return
    released = {int(line): quantity for line, quantity in data[RELEASED].items()}
    put_back = Counter(data.get(RESTOCKED, {})) - Counter(data[RELEASED])
    shop.set_order_data(PLUGIN, order.number, **{RELEASED: None, RESTOCKED: put_back or None})
    _count_discounts_again(order)
    lines = order.lines.filter(pk__in=released).order_by("stockrecord_id")
    if gone := [line.title for line in lines if not _allocate_again(line, released[line.pk])]:
        said = gettext(
            "This order was paid after its stock had been released, and there is not enough left "
            "of: %(products)s.",
        )
        _note(order, said, gone)
    if loose := [
        line.title
        for line in order.lines.filter(allocation_cancelled=True).exclude(pk__in=released)
    ]:
        _note(
            order,
            gettext(
                "This order was paid after it had been released. No stock is held for what was "
                "released by hand: %(products)s.",
            ),
            loose,
        )


def _note(order: Any, said: str, products: list[str]) -> None:
    get_class("order.processing", "EventHandler")().create_note(
        order,
        said % {"products": ", ".join(sorted(products))},
    )


def _allocate_again(line: Any, quantity: int) -> bool:
    """Allocate so many of a line, and tell whether they are in stock: other shoppers may have
    bought them.
    """
    stock = line.stockrecord
    if stock is None:  # the product was deleted
        return False
    stock.allocate(quantity)
    line.num_allocated, line.allocation_cancelled = line.num_allocated + quantity, False
    line.save(update_fields=["num_allocated", "allocation_cancelled"])
    return not stock.can_track_allocations or stock.net_stock_level >= 0


def _count_discounts_again(order: Any) -> None:
    """Count vouchers and offers again, with Oscar's own methods. Oscar does not store how often an
    offer was applied, so it counts once.

    The shopper pays the price that was agreed, so a discount that others have used up since counts
    beyond its limit. A note names it.
    """
    # models cannot be imported without a Django project
    from django.contrib.auth.models import (
        AnonymousUser,
    )

    user, over = order.user or AnonymousUser(), []
    discounts = list(order.discounts.filter(frequency=0).order_by("pk"))
    vouchers = _locked_vouchers({discount.voucher_id for discount in discounts})
    for discount in discounts:
        if offer := _locked_offer(discount):
            if not offer.get_max_applications(order.user):
                over.append(offer.name)
            offer.record_usage({"freq": 1, "discount": discount.amount})
        if voucher := vouchers.get(discount.voucher_id):
            voucher.record_discount({"discount": discount.amount})
        discount.frequency = 1
        discount.save(update_fields=["frequency"])
    for voucher in vouchers.values():
        if not voucher.is_available_to_user(user)[0]:
            over.append(voucher.code)
        voucher.record_usage(order, user)
    if over:
        said = gettext(
            "This order was paid after its discounts had been released and used elsewhere. Used "
            "beyond the limit: %(names)s.",
        )
        get_class("order.processing", "EventHandler")().create_note(
            order,
            said % {"names": ", ".join(over)},
        )
