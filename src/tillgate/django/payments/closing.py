"""Before a poll, the worker closes a payment page that must not be paid any more."""

from __future__ import annotations

import logging

from django.utils import timezone

from tillgate import hooks
from tillgate.django.accounts import account_of
from tillgate.django.models import Payment
from tillgate.django.orders.locking import network
from tillgate.django.orders.timeline import record
from tillgate.django.payments.reconciling import ask
from tillgate.errors import TillgateError
from tillgate.lifecycle import Answer
from tillgate.wire.personal import without_personal_data

_log = logging.getLogger("tillgate")


def close_and_ask(payment: Payment) -> Answer:
    """Close a payment's page where that is wanted, and query the payment. Uses no database
    transaction; never raises.
    """
    if payment.close_wanted_at is not None and payment.is_open:
        payment.close_answer = _close(payment)
    return ask(payment)


def _close(payment: Payment) -> bool | str | None:
    """Return the plugin's answer, or why there is none."""
    try:
        account = account_of(payment)
        with network():
            number = payment.transaction_no or payment.hinted_no
            return hooks.close(account, payment.reference, transaction_no=number)
    except TillgateError as error:
        return without_personal_data(str(error))
    except Exception as error:  # a plugin may raise anything
        _log.exception("the page of %s could not be closed", payment.reference)
        return f"{type(error).__name__} in a plugin"


def note_closed(payment: Payment) -> None:
    """Write the result of closing a page. It is tried once; the poll after it settles the rest."""
    if payment.close_wanted_at is None:
        return
    said, now = payment.close_answer, timezone.now()
    payment.page_closed_at = now if said is True else None
    rows = Payment.objects.filter(pk=payment.pk)
    rows.update(close_wanted_at=None, page_closed_at=payment.page_closed_at)
    payment.close_wanted_at = None
    if said is True:
        record("payment.page-closed", payment.order, "worker", "", payment=payment)
    elif isinstance(said, str):
        record("payment.page-not-closed", payment.order, "worker", said, payment=payment)
