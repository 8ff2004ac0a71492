"""The answers to Saleor, in its own terms. What is empty is left out: an empty address, for one, would fail the whole answer.

An amount is a JSON number there. It has fifteen digits at most, and the shortest text of such a float is the amount itself, to the cent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.utils import timezone

__all__ = ["Answer", "answer", "failure", "moment"]

Answer = dict[str, Any]

_LONGEST_MESSAGE = 500  # Saleor keeps 512 characters


def answer(
    result: str,
    *,
    psp_reference: str = "",
    amount: Decimal | None = None,
    at: datetime | None = None,
    message: str = "",
    data: Mapping[str, Any] | None = None,
    actions: Sequence[str] | None = None,
) -> Answer:
    """Return what became of a transaction or a request. `amount` is in dollars; `actions` is what the staff can do from now on.

    `at` is when it happened, by the service's clock. Of a success and a failure under one pspReference the later one counts there, so both
    must be of one clock, in answers as in reports.
    """
    said: Answer = {"result": result}
    if psp_reference:
        said["pspReference"] = psp_reference
    if amount is not None:
        said["amount"] = float(amount)
    if at is not None:
        said["time"] = moment(at)
    if message:
        said["message"] = message[:_LONGEST_MESSAGE]
    if data:
        said["data"] = dict(data)
    if actions is not None:
        said["actions"] = list(actions)
    return said


def failure(kind: str, message: str, request: bytes | None = None) -> Answer:
    """Return that nothing was done, and why. `request` is the body of what the staff asked for, which each time needs an answer of its own.

    Not under the pspReference of a payment: Saleor would take the failure for the payment's own, and its money for gone. It takes all
    failures of a transaction without one for the same: the second request of the staff would seem to be under way for ever.
    """
    reference = f"refused-{hashlib.sha256(request).hexdigest()[:16]}" if request is not None else ""
    return answer(f"{kind}_FAILURE", psp_reference=reference, message=message)


def moment(at: datetime) -> str:
    """Return a moment as Saleor reads it: in UTC, since it looks at no offset in an answer, and with one, which it requires."""
    # A project without USE_TZ stores moments as its own clocks show them.
    return (at if timezone.is_aware(at) else timezone.make_aware(at)).astimezone(UTC).isoformat()
