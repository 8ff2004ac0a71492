"""Refunds that Saleor requests: queued once for each request, sent once, and answered with the
known result.

After an error Saleor repeats a request with an empty body, and then records a failure on its own.
So the answer for a refund without a known result is its pspReference alone, and Saleor waits for
it. The plugin reports the result later (I6).
"""

from __future__ import annotations

import hashlib
import time
from decimal import Decimal
from typing import Final

from django.utils.translation import gettext as _

from tillgate import InvalidRequest, TillgateError, shop
from tillgate.hooks import RefundStatus
from tillgate.shop import PaymentState, find_payment, locked_order, money, now
from tillgate_saleor import bodies
from tillgate_saleor.answers import Answer, answer, failure
from tillgate_saleor.conf import PLUGIN
from tillgate_saleor.deadline import ANSWER_WITHIN_SECONDS, TooLate, within
from tillgate_saleor.facts import gateway_page
from tillgate_saleor.models import AskedRefund, Installation, Transaction
from tillgate_saleor.orders import refund_reference
from tillgate_saleor.transactions import find_transaction, payment_of, transaction_of

_REFUND: Final = "REFUND"
_BEGIN_WITHIN: Final = 0.75
"""The part of the answer time in which a refund may start: its row must be written before the
answer leaves.
"""


def refund(installation: Installation, body: bodies.Refund, raw: bytes) -> Answer:
    """Run the refund that Saleor requests, and answer with its result. A repeated request is the
    same refund.
    """
    begun = find_transaction(installation, body.transaction.id)
    payment = payment_of(begun)
    if begun is None or payment is None:
        return failure(_REFUND, _("This transaction was never begun."), raw)
    if transaction_of(payment) != begun:
        return failure(_REFUND, _("The shopper has begun again, as another transaction."), raw)
    if body.action.currency != payment.currency:
        message = _("Currency %(given)s is not supported, only %(ours)s is.")
        return failure(
            _REFUND,
            message % {"given": body.action.currency, "ours": payment.currency},
            raw,
        )
    try:
        amount = money.amount(body.action.amount, payment.currency)
    except InvalidRequest:
        return failure(
            _REFUND,
            _("The amount must be above zero, with no more decimals than its currency has."),
            raw,
        )
    digest, until = (
        hashlib.sha256(raw).hexdigest(),
        time.monotonic() + ANSWER_WITHIN_SECONDS * _BEGIN_WITHIN,
    )
    try:
        within(
            ANSWER_WITHIN_SECONDS,
            lambda: _ask(begun, payment, amount, digest, until),
            installation.pk,
        )
    except InvalidRequest as error:
        return failure(_REFUND, _("The amount %(detail)s.") % {"detail": error.remedy}, raw)
    except TillgateError as detail:  # it is not possible now, or another process has the order
        said = getattr(detail, "for_staff", str(detail)).rstrip(".")
        return failure(_REFUND, f"{said[:1].upper()}{said[1:]}.", raw)
    except TooLate:
        pass  # its row has the latest result
    asked = _asked(begun, digest)
    return (
        _outcome(asked, payment.id)
        if asked
        else failure(_REFUND, _("The refund could not be begun. Nothing was refunded."), raw)
    )


def _asked(begun: Transaction, digest: str) -> AskedRefund | None:
    return AskedRefund.objects.filter(transaction=begun, digest=digest).first()


def _ask(
    begun: Transaction,
    payment: PaymentState,
    amount: Decimal,
    digest: str,
    until: float,
) -> None:
    """Queue the refund and the row of its request together; Tillgate sends it on commit.

    Do not start after a given time of the monotonic clock: soon after it the answer says that the
    refund did not start.
    """
    with locked_order(PLUGIN, payment.order.key):  # one request at a time
        if _asked(begun, digest) is not None or time.monotonic() >= until:
            return
        queued = shop.refund(payment.id, amount, reason="Saleor", idempotency_key=digest)
        AskedRefund(
            transaction=begun,
            digest=digest,
            refund_id=int(queued.id),
            asked_at=now(),
        ).save(force_insert=True)


def _refused_text(answer: str) -> str:
    """Return why a refund was refused, as far as the gateway says it."""
    said = answer.rstrip(".")
    if not said:
        return _("The gateway refused the refund.")
    return _("The gateway refused the refund: %(answer)s.") % {"answer": said}


def _outcome(asked: AskedRefund, payment_id: str) -> Answer:
    payment = find_payment(PLUGIN, payment_id=payment_id)
    assert payment is not None
    refunded = next(one for one in payment.refunds if one.id == str(asked.refund_id))
    reference, amount = refund_reference(payment.reference, refunded.id), refunded.amount
    # The answer repeats the report's data: Saleor ignores a report of an event that it already has.
    actions = [_REFUND] if payment.refundable_amount else []
    page = gateway_page(payment.id, refunded)
    if refunded.status is RefundStatus.SUCCEEDED:
        return answer(
            "REFUND_SUCCESS",
            psp_reference=reference,
            amount=amount,
            message=_("Refunded."),
            actions=actions,
            external_url=page,
        )
    if refunded.status is RefundStatus.FAILED:
        message = _refused_text(refunded.answer)
        return answer(
            "REFUND_FAILURE",
            psp_reference=reference,
            amount=amount,
            message=message,
            actions=actions,
            external_url=page,
        )
    return {"pspReference": reference}
