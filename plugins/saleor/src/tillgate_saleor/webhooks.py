"""The webhooks: they check the sender and the App, read the event, and call the function that
answers it.

No answer is ever a 5xx, even after an exception: Saleor would repeat the request with an empty
body, and then record a failure of its own. A rejected request gets a 4xx and an `error`, without
`result` and `pspReference`, which Saleor would treat as a real answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from tillgate.shop import without_atomic_requests
from tillgate_saleor import paying, refunds
from tillgate_saleor.answers import Answer
from tillgate_saleor.bodies import BadBody, read_body
from tillgate_saleor.documents import Event
from tillgate_saleor.models import Installation
from tillgate_saleor.signatures import BadSignature, verify

_log = logging.getLogger("tillgate")

LARGEST_BODY_BYTES: Final = 128 * 1024


class NotTaken(Exception):
    """A request is rejected, with an HTTP status, a code, and the reason."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def not_taken(fault: NotTaken) -> HttpResponse:
    """Return the answer to a rejected request."""
    return JsonResponse(
        {"success": False, "error": {"code": fault.code, "message": fault.message}},
        status=fault.status,
    )


@login_not_required
@csrf_exempt
@without_atomic_requests
@require_POST
def webhook(request: HttpRequest, event: str) -> HttpResponse:
    """Answer a webhook of a Saleor that has installed the App."""
    try:
        return JsonResponse(_answer(request, event))
    except NotTaken as fault:
        _log.warning("a webhook %.64r was not taken: %s", event, fault.message)
        return not_taken(fault)
    except Exception:  # noqa: BLE001  # the shop's own code may raise anything
        _log.exception("webhook %.64r failed", event)
        return not_taken(
            NotTaken(400, "FAILED", "Something went wrong here, and nothing more was done."),
        )


def _answer(request: HttpRequest, name: str) -> Answer:
    try:
        event = Event(name)
    except ValueError:
        raise NotTaken(404, "EVENT", "There is no such webhook.") from None
    raw = read(request)
    installation = _signer(request, raw)
    if request.headers.get("Saleor-Event", "").lower() != event:
        raise NotTaken(400, "EVENT", "The header Saleor-Event does not fit the address.")
    if not raw:
        raise NotTaken(
            400,
            "BODY",
            "The body is empty: the request is unknown, and nothing was done.",
        )
    try:
        body = read_body(event, raw)
    except BadBody as error:
        raise NotTaken(400, "BODY", f"The body {error}.") from None
    if body.recipient.id != installation.app_id:
        raise NotTaken(
            403,
            "RECIPIENT",
            "This is for another App, or for an installation that was replaced.",
        )
    if body.version and body.version != installation.version:
        installation.version = body.version
        installation.save(update_fields=["version"])
    return _ANSWERS[event](installation, body, raw)


def read(request: HttpRequest) -> bytes:
    """Return the raw body of a request, up to a bound."""
    try:
        raw = request.read(LARGEST_BODY_BYTES + 1)
    except UnreadablePostError:
        raise NotTaken(400, "BODY", "The body did not arrive.") from None
    if len(raw) > LARGEST_BODY_BYTES:
        raise NotTaken(413, "BODY", f"The body has more than {LARGEST_BODY_BYTES} bytes.")
    return raw


def _signer(request: HttpRequest, raw: bytes) -> Installation:
    """Return the installation of the Saleor that signed the body."""
    api_url = request.headers.get("Saleor-Api-Url", "")
    rows = Installation.objects.filter(api_url=api_url, uninstalled_at__isnull=True)
    installation = rows.first() if api_url else None
    if installation is None:
        raise NotTaken(
            401,
            "INSTALLATION",
            "The header Saleor-Api-Url names no Saleor that has installed this App.",
        )
    try:
        verify(installation, request.headers.get("Saleor-Signature", ""), raw)
    except BadSignature as error:
        raise NotTaken(401, "SIGNATURE", f"The header Saleor-Signature {error}.") from None
    return installation


_ANSWERS: Final[dict[Event, Callable[[Installation, Any, bytes], Answer]]] = {
    Event.GATEWAY_INITIALIZE: lambda installation, body, _: paying.initialize_gateway(
        installation,
        body,
    ),
    Event.INITIALIZE: lambda installation, body, _: paying.initialize(installation, body),
    Event.PROCESS: lambda installation, body, _: paying.process(installation, body),
    Event.CHARGE: paying.charge,
    Event.REFUND: refunds.refund,
    Event.CANCEL: paying.cancel,
    Event.STORED_METHODS: lambda installation, body, _: paying.stored_methods(installation, body),
}
