"""Summaries: everything that a page of staff says about a payment, its history in plain lines, and
the notes of staff.
"""

from __future__ import annotations

from tillgate.django.models import Order, Payment
from tillgate.django.pages.clerks import ClerkLine, clerk_lines
from tillgate.django.pages.summaries import DisputeSummary, PaymentSummary, summary_of
from tillgate.django.payments import notes
from tillgate.errors import InvalidRequest

__all__ = [
    "ClerkLine",
    "DisputeSummary",
    "PaymentSummary",
    "add_note",
    "clerk_timeline",
    "payment_summary",
]


def payment_summary(plugin: str, payment_id: str) -> PaymentSummary | None:
    """Return everything that a page of staff says about a payment of the plugin's orders, or None.

    It calls the plugin's `tillgate_describe_order`. The template `tillgate/staff/summary.html`
    shows it: include it with the variable `summary`.
    """
    chosen = Payment.objects.select_related("order").prefetch_related("numbers")
    payment = chosen.filter(order__plugin=plugin, pk=int(payment_id)).first()
    return summary_of(payment) if payment else None


def clerk_timeline(plugin: str, order_key: str, *, payment_id: str = "") -> list[ClerkLine]:
    """Return the timeline of an order for clerks, the oldest line first, or of one payment with the
    lines about the whole order: three to six plain lines, and the notes of staff.

    The template `tillgate/staff/clerk_timeline.html` shows them: include it with the variable
    `lines`.
    """
    order = Order.objects.filter(plugin=plugin, key=order_key).first()
    if order is None:
        return []
    payment = order.payments.filter(pk=int(payment_id)).first() if payment_id else None
    return clerk_lines(order, payment)


def add_note(plugin: str, payment_id: str, text: str, *, staff: str) -> None:
    """Add a note of staff to a payment of the plugin's orders; the timeline for clerks shows it.

    Takes the order's lock and touches the database only. Raises `InvalidRequest` for an empty note,
    for one of more than 1,000 characters, and for an id that no payment of the plugin has.
    """
    payment = Payment.objects.filter(order__plugin=plugin, pk=int(payment_id)).first()
    if payment is None:
        raise InvalidRequest("payment_id", payment_id, f"is no payment of plugin {plugin!r}")
    notes.add_note(payment, text, staff=staff)
