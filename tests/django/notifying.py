"""Notifications of refunds as a gateway of the interface's family signs them."""

from __future__ import annotations

from urllib.parse import urlencode

from tillgate import Dialect
from tillgate.django.accounts import dialect_of
from tillgate.django.models import Refund
from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.wire import signing


def signed(**fields: str) -> str:
    """Return the form of a notification that is signed with the account's token."""
    return urlencode({**fields, signing.SIGNATURE: signing.sign(fields, PUBLISHED_TEST_TOKEN)})


def documented(refund: Refund, **changes: str) -> dict[str, str]:
    """Return the fields that the account's dialect documents of a refund's notification."""
    payment = refund.payment
    fields = {
        "transactionNo": payment.transaction_no or "",
        "status": "success",
        "reference": payment.reference,
    }
    dialect = dialect_of(payment)
    assert isinstance(dialect, Dialect)
    if "refundReference" in dialect.refund_notification_fields:
        fields["refundReference"] = refund.refund_id
    return fields | changes


def confirming(refund: Refund, **changes: str) -> str:
    """Return the signed form that confirms a refund, with changes."""
    return signed(**documented(refund, **changes))
