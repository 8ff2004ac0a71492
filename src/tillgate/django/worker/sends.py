"""Queued refunds that the worker sends: only after the gateway was asked whether they were made."""

from __future__ import annotations

from tillgate.django.models import Refund
from tillgate.django.payments.reconciling import apply_answer, ask
from tillgate.django.refunds.external import find_unknown_refund
from tillgate.django.refunds.sending import postpone, send_refund
from tillgate.django.refunds.settling import mark_unknown
from tillgate.lifecycle import Found, Inconclusive, RefundStatus


def send_unless_made(refund_id: int) -> Refund:
    """Send a refund that was queued earlier, unless the gateway has made it; return it as it
    stands.

    The database may have gone back to a moment before it was sent (I6). The query shows that where
    it lists the refunds, or says that the payment was refunded.
    """
    refund = Refund.objects.select_related("payment__order").get(pk=refund_id)
    if refund.status != RefundStatus.QUEUED or refund.confirmed:
        return send_refund(refund_id)  # a confirmed one is booked, and not sent
    answer = ask(refund.payment)
    # First: it books the refunds that the answer lists, perhaps this one by its names. One that was
    # made in the gateway's pages has no name of ours, and is another.
    payment = apply_answer(refund.payment, answer, "worker")
    if isinstance(answer, Inconclusive):
        return postpone(refund_id, answer.detail)
    if isinstance(answer, Found) and answer.transaction.has_unread_refunds:
        return postpone(refund_id, "the gateway's list of refunds could not be read")
    if trace := find_unknown_refund(payment, answer):
        mark_unknown(refund_id, "worker", trace)
    return send_refund(refund_id)
