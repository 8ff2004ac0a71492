"""The answers to Saleor, in its own terms. They omit empty fields: an empty address, for example,
would invalidate the whole answer.

An amount is a JSON number there. It has fifteen digits at most, and the shortest text of such a
float is the amount itself, to the cent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from django.utils import timezone

Answer = dict[str, Any]

LONGEST_MESSAGE: Final = 500  # Saleor keeps 512 characters


def answer(
    result: str,
    *,
    psp_reference: str = "",
    amount: Decimal | None = None,
    at: datetime | None = None,
    message: str = "",
    data: Mapping[str, Any] | None = None,
    actions: Sequence[str] | None = None,
    external_url: str = "",
) -> Answer:
    """Return the result of a transaction or a request. `amount` is in the transaction's currency,
    `external_url` the gateway's own page.

    `actions` are the actions open to staff from now on. `at` is the time of the result, by the
    service's clock. Of a success and a failure with one pspReference Saleor uses the later one. So
    answers and reports must use the same clock.
    """
    said: Answer = {"result": result}
    if psp_reference:
        said["pspReference"] = psp_reference
    if amount is not None:
        said["amount"] = float(amount)
    if at is not None:
        said["time"] = moment(at)
    if message:
        said["message"] = message[:LONGEST_MESSAGE]
    if data:
        said["data"] = dict(data)
    if actions is not None:
        said["actions"] = list(actions)
    if external_url:
        said["externalUrl"] = external_url
    return said


def failure(kind: str, message: str, request: bytes | None = None) -> Answer:
    """Return an answer that nothing was done, and why. `request` is the body of staff's request,
    and each needs a separate answer.

    The answer must not use the pspReference of a payment: Saleor would then record that the payment
    itself failed and its money is gone. Saleor merges all failures of a transaction without a
    pspReference: a second request of staff would then seem to be under way forever.
    """
    reference = f"refused-{hashlib.sha256(request).hexdigest()[:16]}" if request is not None else ""
    return answer(f"{kind}_FAILURE", psp_reference=reference, message=message)


def moment(at: datetime) -> str:
    """Return a time in Saleor's format: in UTC, because Saleor ignores the offset, but with an
    offset, because Saleor requires one.
    """
    # A project without USE_TZ stores moments as its own clocks show them.
    return (at if timezone.is_aware(at) else timezone.make_aware(at)).astimezone(UTC).isoformat()
