"""Queued refunds that the worker sends: only after the gateway was asked whether they were made."""

from __future__ import annotations

from tillgate.django.models import Refund
from tillgate.django.operations.payments import apply_answer, ask
from tillgate.django.operations.refunds import doubt, find_trace, put_off, send_refund
from tillgate.lifecycle import Inconclusive, RefundStatus


def send_unless_made(refund_id: int) -> Refund:
    """Send a refund that was queued earlier, unless the gateway has made it; return it as it stands.

    The database may have gone back to a moment before it was sent (I6). The query shows that where
    it lists the refunds, or says that the payment was refunded.
    """
    refund = Refund.objects.select_related("payment__order").get(pk=refund_id)
    if refund.status != RefundStatus.QUEUED or refund.confirmed:
        return send_refund(refund_id)  # a confirmed one is booked, and not sent
    payment = refund.payment
    answer = ask(payment)
    if trace := find_trace(payment, answer):
        doubt(refund_id, "worker", trace)  # first: a listed refund may be this one by its amount
    apply_answer(payment, answer, "worker")  # books the refunds that it lists, perhaps this one
    if isinstance(answer, Inconclusive):
        return put_off(refund_id, answer.detail)
    return send_refund(refund_id)
