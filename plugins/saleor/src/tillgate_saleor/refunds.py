"""Refunds that Saleor asks for: queued once for each request, sent once, answered with what is known.

Saleor sends a request again with an empty body, and then writes a failure by itself: so a refund whose outcome is not known yet is answered
with its pspReference alone, which Saleor waits for, and is reported when it is known (I6).
"""

from __future__ import annotations

import hashlib
import time
from decimal import Decimal
from typing import Final

from django.utils.translation import gettext as _

from tillgate.django import clock, operations
from tillgate.django.models import Payment
from tillgate.django.models import Refund as RefundRow
from tillgate.django.operations.locking import locked_order
from tillgate.django.operations.refunds import refundable
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import RefundStatus
from tillgate.wire import money
from tillgate_saleor import bodies
from tillgate_saleor.answers import Answer, answer, failure
from tillgate_saleor.deadline import ANSWER_WITHIN_SECONDS, TooLate, within
from tillgate_saleor.ledger import refund_reference
from tillgate_saleor.models import AskedRefund, Installation, Transaction
from tillgate_saleor.transactions import find_transaction, payment_of, transaction_of

__all__ = ["refund"]

_REFUND: Final = "REFUND"
_BEGIN_WITHIN: Final = 0.75
"""Of the time for an answer: what begins must have been written down when the answer is given."""


def refund(installation: Installation, body: bodies.Refund, raw: bytes) -> Answer:
    """Refund what Saleor asks for, and answer with what became of it. The same request again is the same refund."""
    begun = find_transaction(installation, body.transaction.id)
    payment = payment_of(begun) if begun else None
    if begun is None or payment is None:
        return failure(_REFUND, _("This transaction was never begun."), raw)
    if transaction_of(payment.pk, payment.data) != begun:
        return failure(_REFUND, _("The shopper has begun again, as another transaction."), raw)
    if body.action.currency != money.CURRENCY:
        message = _("Currency %(given)s is not supported, only %(ours)s is.")
        return failure(_REFUND, message % {"given": body.action.currency, "ours": money.CURRENCY}, raw)
    try:
        amount = money.amount(body.action.amount)
    except InvalidRequest:
        return failure(_REFUND, _("The amount must be above zero, in whole cents."), raw)
    digest, until = hashlib.sha256(raw).hexdigest(), time.monotonic() + ANSWER_WITHIN_SECONDS * _BEGIN_WITHIN
    try:
        within(ANSWER_WITHIN_SECONDS, lambda: _ask(begun, payment, amount, digest, until), installation.pk)
    except InvalidRequest as error:
        return failure(_REFUND, _("The amount %(detail)s.") % {"detail": error.remedy}, raw)
    except operations.RefundNotPossible as detail:
        return failure(_REFUND, f"{detail}.", raw)
    except TooLate:
        pass  # what is known by now is in its row
    asked = _asked(begun, digest)
    return _outcome(asked.refund) if asked else failure(_REFUND, _("The refund could not be begun. Nothing was refunded."), raw)


def _asked(begun: Transaction, digest: str) -> AskedRefund | None:
    rows = AskedRefund.objects.select_related("refund__payment")
    return rows.filter(transaction=begun, digest=digest).first()


def _ask(begun: Transaction, payment: Payment, amount: Decimal, digest: str, until: float) -> None:
    """Queue the refund of a request together with the note that it was asked for; it is sent on commit.

    Not after a moment of the monotonic clock: soon after it Saleor is told that it could not be begun.
    """
    with locked_order(payment.order_id):  # one request at a time
        if _asked(begun, digest) is not None or time.monotonic() >= until:
            return
        queued = operations.queue_refund(payment.pk, amount, reason="Saleor")
        AskedRefund(transaction=begun, digest=digest, refund=queued, asked_at=clock.now()).save(force_insert=True)


def _outcome(row: RefundRow) -> Answer:
    reference, amount = refund_reference(row.payment.reference, row.pk), row.amount
    # Said here as well as in the report: Saleor takes nothing from a report of what it knows already.
    actions = [_REFUND] if refundable(row.payment) else []
    if row.status == RefundStatus.SUCCEEDED:
        return answer("REFUND_SUCCESS", psp_reference=reference, amount=amount, message=_("Refunded."), actions=actions)
    if row.status == RefundStatus.FAILED:
        message = _("The gateway refused to give it back.")
        return answer("REFUND_FAILURE", psp_reference=reference, amount=amount, message=message, actions=actions)
    return {"pspReference": reference}
