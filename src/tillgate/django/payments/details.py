"""What an answer says for clerks and shoppers is kept with its payment."""

from __future__ import annotations

from tillgate.django.models import Payment, PaymentNumber
from tillgate.lifecycle import Answer, Found
from tillgate.wire.details import PaymentDetails


def note_details(payment: Payment, answer: Answer) -> None:
    """Write the details of an answer about this payment, where they are new.

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
    Payment.objects.filter(pk=payment.pk).update(details=details)
    known = payment.details.get("numbers", ())
    payment.details = details
    new = [PaymentNumber(payment=payment, number=one) for one in found.numbers if one not in known]
    if new:
        PaymentNumber.objects.bulk_create(new, ignore_conflicts=True)
