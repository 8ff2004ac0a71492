"""Notes of staff on a payment, for their colleagues: entries of its timeline."""

from __future__ import annotations

from typing import Final

from tillgate.django.models import Payment
from tillgate.django.orders.locking import locked_order
from tillgate.django.orders.timeline import NOTED, record
from tillgate.errors import InvalidRequest
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

LONGEST_NOTE: Final = 1000


def add_note(payment: Payment, text: str, *, staff: str) -> None:
    """Add a note of staff to a payment. Like every text of staff it is kept without e-mail
    addresses and card numbers, as long as the details of the order.

    Raises `InvalidRequest` for an empty note, and for one of more than 1,000 characters.
    """
    note = storable(text.strip())
    if not note:
        raise InvalidRequest("note", "", "is empty: write a note for your colleagues")
    if len(note) > LONGEST_NOTE:
        shown = f"{note[:40]}..."
        raise InvalidRequest("note", shown, f"is longer than {LONGEST_NOTE} characters")
    with locked_order(payment.order_id) as order:
        record(NOTED, order, f"staff:{staff}", without_personal_data(note), payment=payment)
