"""The details of an answer for clerks and shoppers are kept with its payment."""

from __future__ import annotations

from collections.abc import Iterable

from tillgate import hooks
from tillgate.django.models import Payment, PaymentNumber
from tillgate.django.orders.timeline import record
from tillgate.hooks.boundary import LONGEST_NUMBER
from tillgate.lifecycle import Answer, Found
from tillgate.wire.details import PaymentDetails
from tillgate.wire.texts import storable


def note_number(payment: Payment, hints: Iterable[hooks.Hint], *, is_its_own: bool = False) -> None:
    """Keep the gateway's number that a verified notification brings, where none is known: queries
    use it. At the payment's own address a hint need not name the reference.
    """
    if payment.transaction_no:
        return
    named = (payment.reference, None) if is_its_own else (payment.reference,)
    numbers = (hint.transaction_no for hint in hints if hint.reference in named)
    number = next((one for one in numbers if one and is_storable(one)), None)
    if number and number != payment.hinted_no:
        Payment.objects.filter(pk=payment.pk).update(hinted_no=number)
        payment.hinted_no = number


def is_storable(text: object) -> bool:
    """Return whether a row can hold the text of a hint."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NUMBER and storable(text) == text


def note_details(payment: Payment, answer: Answer, actor: str) -> None:
    """Write the details of an answer about this payment, where they are new, and record a next step
    that appears, or gets an end, only while the money is under way.

    They move no money and no status, so the order's lock is not needed: the newest answer counts.
    """
    if not isinstance(answer, Found):
        return
    found = answer.transaction
    is_other = payment.transaction_no and found.transaction_no not in (None, payment.transaction_no)
    if found.reference != payment.reference or is_other:
        return
    details = PaymentDetails.of(found).as_json()
    if details == payment.details:
        return
    last4 = found.paid_with.last4[:4] if found.paid_with else ""
    Payment.objects.filter(pk=payment.pk).update(details=details, last4=last4)
    known, was = payment.details.get("numbers", ()), payment.known.next_step
    payment.details = details
    step = found.next_step
    is_news = step and (was is None or (step.until and not was.until))
    if is_news and payment.is_open and payment.is_processing:
        # the event of money under way, before it, told of no step or end
        record("payment.next-step", payment.order, actor, "", payment=payment)
    new = [PaymentNumber(payment=payment, number=one) for one in found.numbers if one not in known]
    if new:
        PaymentNumber.objects.bulk_create(new, ignore_conflicts=True)
