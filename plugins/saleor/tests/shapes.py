"""Saleor's requirements of an answer, by the recorded run and its documentation. Saleor takes
anything else for a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tillgate_saleor.documents import Event

SESSION = {
    f"{kind}_{outcome}"
    for kind in ("CHARGE", "AUTHORIZATION")
    for outcome in ("SUCCESS", "FAILURE", "REQUEST", "ACTION_REQUIRED")
}
ALLOWED = {
    "result",
    "pspReference",
    "amount",
    "data",
    "actions",
    "time",
    "message",
    "externalUrl",
    "paymentMethodDetails",
}


def faults_of(event: Event, answer: object) -> list[str]:
    """Return the faults of an answer to a webhook, a sentence each."""
    if not isinstance(answer, dict):
        return ["is no object"]
    if event is Event.GATEWAY_INITIALIZE:
        return [] if set(answer) == {"data"} else ["holds other than data"]
    if event is Event.STORED_METHODS:
        return [] if isinstance(answer.get("paymentMethods"), list) else ["holds no paymentMethods"]
    return list(_faults(event, answer))


def _faults(event: Event, answer: Mapping[str, Any]) -> Any:
    result, reference = answer.get("result"), answer.get("pspReference")
    if unknown := set(answer) - ALLOWED:
        yield f"holds {unknown}"
    for name in ("pspReference", "message", "externalUrl"):
        if name in answer and (not isinstance(answer[name], str) or not answer[name]):
            yield f"{name} is no text, or empty"
    if len(answer.get("message", "")) > 512:
        yield "message is too long"
    if "time" in answer and datetime.fromisoformat(answer["time"]).utcoffset() != timedelta():
        yield "time is not in UTC"
    amount = answer.get("amount")
    if "amount" in answer and (
        isinstance(amount, bool) or not isinstance(amount, int | float) or amount <= 0
    ):
        yield "amount is no number above zero"
    if not set(answer.get("actions", ())) <= {"CHARGE", "REFUND", "CANCEL"}:
        yield "actions are not known"
    if event in (Event.INITIALIZE, Event.PROCESS):
        if result not in SESSION:
            yield f"result is {result}"
        needs_reference = str(result).endswith(("_SUCCESS", "_REQUEST"))
    else:
        kind = event.value.split("_")[1].upper().replace("CANCELATION", "CANCEL")
        if result is not None and result not in {f"{kind}_SUCCESS", f"{kind}_FAILURE"}:
            yield f"result is {result}"
        needs_reference = result is None or str(result).endswith("_SUCCESS")
    if needs_reference and not reference:
        yield "there is no pspReference"
