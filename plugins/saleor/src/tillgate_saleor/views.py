"""The App's addresses beside the webhooks: the manifest, and the handshake of an installation."""

from __future__ import annotations

import json
import logging

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe
from pydantic import SecretStr

from tillgate.shop import without_atomic_requests
from tillgate_saleor.api import SaleorError
from tillgate_saleor.installing import OriginNotAllowed, install
from tillgate_saleor.manifest import manifest
from tillgate_saleor.webhooks import NotTaken, not_taken, read

_log = logging.getLogger("tillgate")

_LONGEST_TOKEN = 1000


@login_not_required
@require_safe
def manifest_page(request: HttpRequest) -> HttpResponse:
    """Return the App's manifest to Saleor."""
    return JsonResponse(manifest())


@login_not_required
@csrf_exempt
@without_atomic_requests
@require_POST
def register(request: HttpRequest) -> HttpResponse:
    """Accept the token of a Saleor that installs the App. Its staff see the message if that
    fails.
    """
    try:
        _register(request)
    except NotTaken as fault:
        _log.warning(
            "the App was not installed by %.200r: %s",
            request.headers.get("Saleor-Api-Url", ""),
            fault.message,
        )
        return not_taken(fault)
    return JsonResponse({"success": True})


def _register(request: HttpRequest) -> None:
    token = _token(read(request))
    try:
        installation = install(request.headers.get("Saleor-Api-Url", ""), token)
    except OriginNotAllowed:
        fault = NotTaken(
            403,
            "ORIGIN",
            "This Saleor is not among those that may install this App: its owner must allow it "
            "first.",
        )
    except SaleorError as error:
        fault = NotTaken(400, "NOT_PROVEN", f"The token could not be proven to work: {error}")
    else:
        _log.info("the App was installed by %s", installation.api_url)
        return
    raise fault


def _token(raw: bytes) -> SecretStr:
    """Return the token in a body, hidden from error reports (I11)."""
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        given = None
    token = given.get("auth_token") if isinstance(given, dict) else None
    if (
        not isinstance(token, str)
        or not 0 < len(token) <= _LONGEST_TOKEN
        or not token.isascii()
        or not token.isprintable()
    ):
        raise NotTaken(400, "TOKEN", "The body has no auth_token.")
    return SecretStr(token)
