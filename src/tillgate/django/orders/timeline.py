"""The timeline and the observers: every change leaves an entry and an event, an unchanged payment
leaves neither (I10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from tillgate import hooks
from tillgate.django.models import Order, Payment, Refund, TimelineEntry, database

ACCEPTED: Final = "payment.accepted"
"""The event of a payment that staff accepted as paid with another amount."""
ERASED: Final = "order.erased"
"""The event of purged or erased details of an order."""
NOTED: Final = "payment.noted"
"""The event of a note that staff wrote for their colleagues."""
FORCE_EXPIRE: Final = "payment.force-expired"
"""The event of a payment that staff, and no answer of the gateway, marked as expired."""

IMPORTED: Final = "payment.imported"
"""The event of a paid payment that another plugin has made."""

_DEEPEST: Final = 20
"""The timeline keeps no deeper level of an answer."""


def record(
    event: str,
    order: Order,
    actor: str,
    message: str,
    *,
    payment: Payment | None = None,
    refund: Refund | None = None,
    evidence: Mapping[str, Any] | None = None,
    extra: Mapping[str, str] | None = None,
) -> None:
    """Add an entry within the running transaction, and emit it to the observers after the commit,
    with more fields for them in `extra`.
    """
    at = timezone.now()
    entry = TimelineEntry(
        order=order,
        payment=payment,
        refund=refund,
        at=at,
        event=event,
        actor=actor[:160],
        message=message,
        evidence=_storable(evidence or {}),
    )
    entry.save(force_insert=True)
    fields: dict[str, object] = {
        "actor": actor,
        "message": message,
        "order": str(order),
        **(extra or {}),
    }
    if payment:
        fields |= {
            "method": payment.method,
            "amount": str(payment.amount),
            "currency": payment.currency,
            "status": payment.status,
        }
        fields |= {"transaction_no": payment.transaction_no} if payment.transaction_no else {}
    if refund:
        fields |= {
            "refund": refund.pk,
            "refund_amount": str(refund.amount),
            "refund_status": refund.status,
        }
        fields |= {"refund_no": refund.refund_no} if refund.refund_no else {}
    emitted = hooks.Event(
        name=event,
        at=at,
        reference=payment.reference if payment else None,
        fields=fields,
    )
    transaction.on_commit(lambda: hooks.emit(emitted), using=database())


def _storable(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return evidence as JSON knows it: exact numbers become the text they had, and no text is
    endless or bottomless.
    """

    def plain(value: Any, depth: int = 0) -> Any:
        if isinstance(value, Mapping | list | tuple) and depth == _DEEPEST:
            return "..."
        if isinstance(value, Mapping):
            return {
                str(name)[:100]: plain(member, depth + 1)
                for name, member in list(value.items())[:50]
            }
        if isinstance(value, list | tuple):
            return [plain(member, depth + 1) for member in value[:50]]
        if value is None or isinstance(value, bool | int):
            return value
        return str(value).encode("utf-8", "replace").decode().replace("\0", "\ufffd")[:1000]

    stored: dict[str, Any] = plain(evidence)
    return stored
