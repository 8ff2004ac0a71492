"""Tillgate's reaction when staff, or the shop's own code, change the status of an order by hand."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext
from oscar.core.loading import get_class

from tillgate import shop
from tillgate_oscar import mail
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.orders import is_marked_paid, paid_by, status_once_paid, statuses_of_unpaid
from tillgate_oscar.payments import locked, take_again
from tillgate_oscar.refunds import why_not_shipped


def follow(number: str, old_status: str, new_status: str) -> None:
    """Follow an order that was cancelled, held back, waits again or was marked paid by hand. A
    repeated change has no effect.

    The function locks Tillgate's order and then Oscar's, in the same order as outbox events.
    """
    settings, actor = get_settings(), f"status:{new_status}"
    with shop.locked_order(PLUGIN, number) as ours:
        if new_status == settings.paid_status:
            _go_on(ours)
            return
        if old_status == settings.pending_status:
            if _was_paid_meanwhile(ours, new_status):
                return
        elif new_status in (settings.pending_status, settings.cancelled_status):
            # Its time-out may have passed while it did not wait; without a new one the order would
            # hold its stock forever. An order that was paid by hand may have changed its status
            # since it was closed.
            shop.open_order(
                PLUGIN,
                ours.key,
                actor=actor,
                even_if_closed=old_status != settings.cancelled_status,
            )
        if new_status == settings.cancelled_status:
            shop.close_order(PLUGIN, ours.key, actor=actor)


def _go_on(ours: shop.OrderState) -> None:
    """Allocate again the stock of an order that was cancelled before it was paid, and queue the
    shopper's mail.
    """
    order, settings = locked(ours.key), get_settings()
    # This runs after the commit, so the order may have changed once more.
    if order is None or order.status in (settings.pending_status, settings.cancelled_status):
        return
    asked = shop.open_reviews(
        PLUGIN,
        order_keys=[ours.key],
        reasons=[shop.ReviewReason.CANCELLED_HELD],
    )
    shop.close_reviews([one.id for one in asked], f"the order is “{order.status}” again")
    take_again(order)
    mail.confirm(ours.key, mail.newest_payment(ours))


def _was_paid_meanwhile(ours: shop.OrderState, status: str) -> bool:
    """Tell whether an order was cancelled or held back from a copy that was read before the
    payment. It stays paid, and a note says why.
    """
    order, payment = locked(ours.key), paid_by(ours)
    if order is None or payment is None or order.status != status:
        return False
    type(order)._base_manager.filter(pk=order.pk).update(status=status_once_paid(order))
    mail.confirm(ours.key, mail.newest_payment(ours))  # a mail that was due in between was dropped
    said = gettext(
        "This order was changed to “%(status)s” as unpaid by staff that had not seen that payment "
        "%(reference)s has paid it: it stays paid.",
    )
    _note(order, said % {"status": status, "reference": payment.reference})
    return True


def follow_written(number: str, old_status: str, new_status: str) -> None:
    """Follow a status that was written without Oscar's `set_status`, as Django's admin does, and
    add it to the order's history.

    Staff may have typed the status, or an old page may have written it while another field changed.
    For a paid order Tillgate cannot tell which. So the status stands, Tillgate does not react, and
    a note informs staff.
    """
    with shop.locked_order(PLUGIN, number) as ours:
        order = locked(number)
        last = order.status_changes.order_by("-pk").first() if order is not None else None
        if order is None or order.status != new_status or (last and last.new_status == new_status):
            return  # it has changed since, or Oscar has recorded it
        payment = paid_by(ours)
        if (payment or is_marked_paid(order)) and new_status in statuses_of_unpaid(order):
            _tell_of_a_paid_order(order, old_status, payment)
            return
        warn_of_doubt(order, new_status)
        # the hook that Oscar and its forks use
        order._create_order_status_change(old_status, new_status)
        follow(number, old_status, new_status)


def warn_of_doubt(order: Any, new_status: str) -> None:
    """Write a note where an order moves on though its money is in doubt: the handler refuses that,
    and other code can go past it.
    """
    settings = get_settings()
    closing = (
        settings.cancelled_status,
        settings.refunded_status,
        settings.partly_refunded_status,
    )
    if new_status not in closing and (why := why_not_shipped(order)):
        said = gettext("This order was changed to “%(status)s”. But: %(why)s.")
        _note(order, said % {"status": new_status, "why": why})


def _tell_of_a_paid_order(order: Any, old_status: str, payment: shop.PaymentState | None) -> None:
    said = gettext(
        "The status of this order was changed from “%(old)s” to “%(new)s”, though it is paid, "
        "perhaps by a page that was opened before. "
        "If that was not meant, set it back.",
    )
    _note(order, said % {"old": old_status, "new": order.status})
    if payment is not None and order.status == get_settings().cancelled_status:
        shop.close_order(PLUGIN, order.number, actor=f"status:{order.status}")


def _note(order: Any, said: str) -> None:
    get_class("order.processing", "EventHandler")().create_note(order, said)
