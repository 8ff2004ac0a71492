"""Pages for gateways: the addresses that receive notifications."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial, wraps

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from tillgate.account import Account
from tillgate.django.accounts import dialect_of
from tillgate.django.models import Payment
from tillgate.django.orders.locking import OrderHeld, without_atomic_requests
from tillgate.django.payments import notifications, refusals, webhooks
from tillgate.errors import AnswerNotUnderstood
from tillgate.wire.notifications import (
    LARGEST_NOTIFICATION_BYTES,
    Notification,
    may_be_signed,
    read_notification,
)

_log = logging.getLogger("tillgate")


def _body_of(request: HttpRequest) -> bytes:
    # One byte above the limit shows that the body is too long; the rest stays unread.
    try:
        return request.read(LARGEST_NOTIFICATION_BYTES + 1)
    except (
        UnreadablePostError
    ):  # the connection broke: the request alone is a hint, and not an error of ours to mail about
        return b""


def received(request: HttpRequest) -> Notification:
    """Return the notification that a request brought, as the wire reads it."""
    return _as_read(request, _body_of(request))


def _as_read(request: HttpRequest, body: bytes) -> Notification:
    return read_notification(
        request.headers.get("Content-Type", ""),
        request.META.get("QUERY_STRING", ""),
        body,
    )


def _from_stranger(request: HttpRequest) -> Notification | None:
    """Parse a notification at an unknown address only where it may be signed: anyone can send
    it.
    """
    query, body = request.META.get("QUERY_STRING", ""), _body_of(request)
    if not may_be_signed(query, body):
        return None
    return read_notification(request.headers.get("Content-Type", ""), query, body)


def acknowledgement(payment: Payment) -> HttpResponse:
    """Return the answer that the gateway expects for a stored notification (unspecified behaviour
    9).
    """
    return HttpResponse(dialect_of(payment).acknowledgement, content_type="text/plain")


def _acknowledged(account: Account | None) -> HttpResponse:
    """Return the answer to a notification to one of our accounts; raise 404 where there is none."""
    if account is None:
        raise Http404
    return HttpResponse(account.dialect.acknowledgement, content_type="text/plain")


def _asked_to_come_again(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer 503 to a notification that cannot be judged now, so the gateway sends it again, and no
    error is mailed.
    """

    @wraps(view)
    def receive(request: HttpRequest, *args: str, **kwargs: str) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except refusals.CannotBeJudged as error:
            _log.warning("%s", error)
        except OrderHeld as error:
            _log.warning("a notification has to come again: %s", error)
        return HttpResponse(
            "try again later",
            status=503,
            content_type="text/plain",
            headers={"Retry-After": "60"},
        )

    return receive


@login_not_required
@csrf_exempt
@without_atomic_requests
@never_cache
@require_http_methods(["GET", "POST"])
@_asked_to_come_again
def payment_notification(request: HttpRequest, key: str) -> HttpResponse:
    """Receive the gateway's notification about a payment (IPN)."""
    body = cache(partial(_body_of, request))
    read = cache(lambda: _as_read(request, body()))
    payment = notifications.receive_payment_notification(
        key,
        read,
        request.method or "",
        request.headers,
        body,
    )
    if payment is None:
        return _acknowledged(webhooks.receive_unknown(key, partial(_from_stranger, request)))
    return acknowledgement(payment)


@login_not_required
@csrf_exempt
@without_atomic_requests
@never_cache
@require_http_methods(["GET", "POST"])
@_asked_to_come_again
def refund_notification(request: HttpRequest, key: str) -> HttpResponse:
    """Receive the gateway's notification about a refund."""
    read = cache(partial(received, request))
    refund = notifications.receive_refund_notification(key, read, request.method or "")
    if refund is None:
        return _acknowledged(webhooks.receive_unknown(key, partial(_from_stranger, request)))
    return acknowledgement(refund.payment)


@login_not_required
@csrf_exempt
@without_atomic_requests
@never_cache
@require_POST
@_asked_to_come_again
def webhook(request: HttpRequest, alias: str) -> HttpResponse:
    """Receive a notification at the address of an account, for a gateway plugin that reads it.

    The answer to one that is not the gateway's, or that the plugin cannot read, is 400. One about
    payments that Tillgate does not know is acknowledged: a gateway's account may serve other
    software too.
    """
    body = _body_of(request)
    if len(body) > LARGEST_NOTIFICATION_BYTES:
        return HttpResponse("too long", status=413, content_type="text/plain")
    try:
        account = webhooks.receive_webhook(alias, request.headers, body)
    except AnswerNotUnderstood as error:
        _log.warning("a notification at the address of the account %r is refused: %s", alias, error)
        return HttpResponse(
            "not a notification of the gateway",
            status=400,
            content_type="text/plain",
        )
    return _acknowledged(account)
