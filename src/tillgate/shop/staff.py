"""Staff pages: status badges, timelines, the refund form and the message about a refund."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from tillgate.django import words
from tillgate.django.amounts import money_text, read_typed
from tillgate.django.masking import Mask
from tillgate.django.models import Order, Refund
from tillgate.django.pages import showing
from tillgate.django.pages.forms import RefundForm
from tillgate.django.pages.showing import Line, badge, needed_for, refund_outcome, timeline_of
from tillgate.shop.states import PaymentState, RefundState

__all__ = [
    "RefundForm",
    "admin_url",
    "badge_of",
    "just_refunded",
    "may_act",
    "method_label",
    "money_text",
    "read_typed",
    "review_title",
    "say_refund",
    "timeline",
]

method_label = words.method_name


def badge_of(value: PaymentState | RefundState) -> str:
    """Return the HTML of the badge of a payment's or a refund's status: an icon and its word, in
    the active language.
    """
    kinds = words.PAYMENT_STATUSES if isinstance(value, PaymentState) else words.REFUND_STATUSES
    return badge(kinds[value.status])


def review_title(reason: str) -> str:
    """Return the title of the reviews of a reason, in the active language; empty for an unknown
    reason.
    """
    return str(words.REASONS.get(reason, ""))


def timeline(plugin: str, order_key: str, *, payment_id: str = "") -> list[Line]:
    """Return the timeline of an order for a staff page, the oldest entry first, or of one payment
    with the entries of the whole order.

    Secrets are hidden. At most 300 entries, the newest.
    """
    order = Order.objects.filter(plugin=plugin, key=order_key).first()
    if order is None:
        return []
    entries = (
        order.timeline.filter(Q(payment=int(payment_id)) | Q(payment__isnull=True))
        if payment_id
        else order.timeline.all()
    )
    payments = list(order.payments.prefetch_related("refunds"))
    return timeline_of(
        entries,
        Mask(payments, [refund for payment in payments for refund in payment.refunds.all()]),
    )


def admin_url(request: HttpRequest, model: str, row: str) -> str:
    """Return the address in the admin of a `payment` or a `review`, or "" for a user without the
    permission or a shop without the admin.
    """
    user: Any = request.user
    if not (user.is_staff and user.has_perm(f"tillgate.view_{model}")):
        return ""
    try:
        return reverse(f"admin:tillgate_{model}_change", args=[row])
    except NoReverseMatch:
        return ""


def may_act(user: Any, action: str) -> bool:
    """Return whether a user has the permissions for a review action: to resolve reviews, and for
    actions about refunds to refund payments too.
    """
    return bool(user.has_perms(needed_for(action)))


def just_refunded(payment: PaymentState, amount: Decimal | None = None) -> str:
    """Return a sentence about the newest refund of the last minutes, of an amount if one is given;
    empty if there is none.

    Show it before the button of a refund: a page that the browser loads again has a new idempotency
    key. Ask before you send the same amount again.
    """
    return showing.just_refunded(payment.refunds, payment.currency, amount)


def say_refund(request: HttpRequest, refund_id: str, *, repeated: bool = False) -> None:
    """Add Django's message about a refund as it stands now, for staff. `repeated`: a repeated key
    has returned it, and nothing was sent.
    """
    refund = Refund.objects.select_related("payment").get(pk=int(refund_id))
    mask = Mask([refund.payment], [refund])
    messages.add_message(request, *refund_outcome(refund, mask, repeated=repeated))
