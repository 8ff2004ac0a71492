"""What follows for Tillgate when the staff, or the shop's own code, changes the status of an order by hand."""

from __future__ import annotations

from datetime import timedelta

from django.db import router, transaction
from django.utils.translation import gettext
from oscar.core.loading import get_class

from tillgate.django import clock, operations
from tillgate.django.conf import get_settings as get_tillgate_settings
from tillgate.django.models import Order as PaidOrder
from tillgate_oscar import mail
from tillgate_oscar.conf import get_settings
from tillgate_oscar.orders import paid_by, status_once_paid
from tillgate_oscar.payments import locked, take_again
from tillgate_oscar.plugin import PLUGIN

__all__ = ["follow"]


def follow(number: str, old_status: str, new_status: str) -> None:
    """Follow an order that was cancelled, waits again or was marked paid by hand. The same change once more changes nothing.

    It locks Tillgate's order, and then Oscar's, as deliveries do.
    """
    settings, cause = get_settings(), f"status:{new_status}"
    with transaction.atomic(using=router.db_for_write(PaidOrder)):
        PaidOrder.objects.select_for_update().get(plugin=PLUGIN, key=number)
        if new_status == settings.paid_status:
            _go_on(number)
            return
        if old_status != settings.pending_status:
            # The time to look at it may have passed while it did not wait: it would hold its stock for ever.
            operations.expect(PLUGIN, number, cause)
            if old_status != settings.cancelled_status:  # it was paid by hand, and may have moved on since
                _expect_what_was_given_up(number)
        elif new_status == settings.cancelled_status and _was_paid_meanwhile(number):
            return
        if new_status == settings.cancelled_status:
            operations.close(PLUGIN, number, cause)


def _go_on(number: str) -> None:
    """Take what an order had released that was given up before it was paid, and queue the shopper's mail."""
    order, settings = locked(number), get_settings()
    # Followed after the commit, it may have been changed once more.
    if order is None or order.status in (settings.pending_status, settings.cancelled_status):
        return
    take_again(order)
    mail.confirm(number)


def _expect_what_was_given_up(number: str) -> None:
    """Have an order looked at once more that had been given up, marked paid by hand, and is not paid any more: it holds its stock again."""
    check_at = clock.now() + timedelta(minutes=get_tillgate_settings().order_unpaid_after_minutes)
    given_up = PaidOrder.objects.filter(plugin=PLUGIN, key=number, closed_at__isnull=False, paid_by=None, unpaid_check_at=None)
    given_up.update(unpaid_check_at=check_at)


def _was_paid_meanwhile(number: str) -> bool:
    """Tell whether an order was cancelled as unpaid by code that had read it before it was paid: it stays paid, and a note says why."""
    order, settings = locked(number), get_settings()
    payment = paid_by(order) if order is not None and order.status == settings.cancelled_status else None
    if payment is None:
        return False
    type(order)._base_manager.filter(pk=order.pk).update(status=status_once_paid(order))
    mail.confirm(number)  # one that fell due in between was dropped
    said = gettext("This order was cancelled as unpaid by somebody who had not seen that payment %(reference)s has paid it: it stays paid.")
    get_class("order.processing", "EventHandler")().create_note(order, said % {"reference": payment.reference})
    return True
