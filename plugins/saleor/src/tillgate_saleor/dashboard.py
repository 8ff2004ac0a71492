"""The App's page inside Saleor's dashboard: the account of each channel, whether its gateway
answers, the open reviews, and a search for payments.

The page itself contains no data. The dashboard passes it a token, and its script uses the token to
fetch the data. The Saleor signs the token for this App and one member of its staff, for a few
minutes. Only the dashboards of the settings may show the page in a frame.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from tillgate import Account, TillgateError
from tillgate.shop import (
    OpenReview,
    absolute_url,
    check_account,
    clerk_timeline,
    find_account,
    find_orders,
    newest_reviews,
    order_states,
    payment_summary,
    without_atomic_requests,
)
from tillgate_saleor.conf import PLUGIN, get_settings
from tillgate_saleor.models import Installation
from tillgate_saleor.paying import channel_of, methods_of
from tillgate_saleor.signatures import BadSignature, read_token

_PERMISSION: Final = "HANDLE_PAYMENTS"
_SHOWN_AT_MOST: Final = 50
_FOUND_AT_MOST: Final = 10
_TEST_SECONDS: Final = 5.0
_FOLDER: Final = Path(__file__).parent / "web"
_TYPES: Final = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
_ASSETS: Final = {name: (_FOLDER / name).read_text("utf-8") for name in _TYPES}


@login_not_required
@never_cache
@require_safe
@xframe_options_exempt  # the content security policy is more exact
def page(request: HttpRequest) -> HttpResponse:
    """Show the frame of the page, which fetches the rest once the dashboard has handed it a
    token.
    """
    api_url = request.GET.get("saleorApiUrl", "")
    saleor = get_settings().saleor(api_url)
    known = _installation(api_url)
    dashboards = (saleor.dashboards or (known.origin,)) if saleor and known else ()
    values = {
        "api_url": known.api_url if known else "",
        "dashboards": list(dashboards),
        "assets": {
            name.partition(".")[2]: f"{reverse('tillgate_saleor:asset', args=[name])}?{_mark(name)}"
            for name in _TYPES
        },
    }
    response = render(request, "tillgate_saleor/page.html", values, status=200 if known else 404)
    response["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri "
        "'none'; form-action 'none'; "
        f"frame-ancestors {' '.join(dashboards) or chr(39) + 'none' + chr(39)}"
    )
    response["Referrer-Policy"] = "no-referrer"
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _mark(name: str) -> str:
    return hashlib.sha256(_ASSETS[name].encode()).hexdigest()[:12]


@login_not_required
@require_safe
def asset(request: HttpRequest, name: str) -> HttpResponse:
    """Serve the page's style and script as separate files, which a strict content security policy
    allows.
    """
    if name not in _ASSETS:
        raise Http404
    return HttpResponse(
        _ASSETS[name],
        content_type=_TYPES[name],
        headers={"Cache-Control": "public, max-age=86400"},
    )


@login_not_required
@csrf_exempt  # the token in a header gives the permission, and no other site's page can send it
@never_cache
@without_atomic_requests
@require_POST
def content(request: HttpRequest) -> HttpResponse:
    """Return the page's data to a holder of the dashboard's token; with `test=1` query each gateway
    first. `q` in the body is a text to find payments by.
    """
    installation = _installation(request.headers.get("Saleor-Api-Url", ""))
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    try:
        if installation is None:
            raise BadSignature("is of a Saleor that has not installed this App")
        claims = read_token(installation, token)
    except BadSignature:
        return HttpResponse(
            _("The dashboard did not prove who asks. Load this page again."),
            status=401,
            content_type="text/plain",
        )
    if _PERMISSION not in claims["permissions"]:
        return HttpResponse(
            _("Only staff who may handle payments can see this."),
            status=403,
            content_type="text/plain",
        )
    channels = list(_channels(installation))
    # The reviews of its checkouts and orders, and of the accounts that take its money.
    accounts = sorted({channel.account for channel in channels})
    count, reviews = newest_reviews(
        PLUGIN,
        prefix=f"{installation.pk}:",
        accounts=accounts,
        at_most=_SHOWN_AT_MOST,
    )
    text = request.POST.get("q", "").strip()
    values = {
        "text": text,
        "found": list(_found(installation, text)) if text else [],
        "installation": installation,
        "channels": channels,
        "tests": [_test(alias) for alias in accounts] if request.GET.get("test") else None,
        "count": count,
        "needing": [_shown(review) for review in reviews],
        "all_url": _admin("review_changelist"),
    }
    return render(request, "tillgate_saleor/content.html", values)


def _found(installation: Installation, text: str) -> Iterator[dict[str, Any]]:
    """Yield the payments of the Saleor's orders that a text may mean."""
    ours = f"{installation.pk}:"
    keys = (key for key in find_orders(PLUGIN, text) if key.startswith(ours))
    for order in order_states(PLUGIN, islice(keys, _FOUND_AT_MOST)):
        for payment in order.payments:
            yield {
                "payment": payment,
                "summary": payment_summary(PLUGIN, payment.id),
                "lines": clerk_timeline(PLUGIN, order.key, payment_id=payment.id),
            }


def _installation(api_url: str) -> Installation | None:
    if get_settings().saleor(api_url) is None:
        # the settings no longer name it, and the account of all other channels belongs to another
        # Saleor
        return None
    rows = Installation.objects.filter(api_url=api_url, uninstalled_at__isnull=True)
    return rows.first()


@dataclass(frozen=True, slots=True)
class _ChannelShown:
    slug: str
    account: str
    about: str
    is_sandbox: bool
    methods: str


def _channels(installation: Installation) -> Iterator[_ChannelShown]:
    """Yield the channels in the settings and those with sales, then the default for all others."""
    saleor = get_settings().saleor(installation.api_url)
    sold = islice(_sold_in(installation), _SHOWN_AT_MOST)
    for slug in [*sorted({*(saleor.channels if saleor else ()), *sold}), ""]:
        channel = channel_of(installation, slug)
        account = _account(channel.account)
        about = (
            ", ".join(filter(None, (account.merchant_no, account.base_url)))
            if account
            else _("This account is not configured.")
        )
        methods = ", ".join(method.label for method in methods_of(channel)) if account else ""
        yield _ChannelShown(
            slug,
            channel.account,
            about,
            bool(account and account.sandbox),
            methods,
        )


def _sold_in(installation: Installation) -> Iterator[str]:
    """Yield the channels with sales, with one index lookup for each: there may be millions of
    purchases.
    """
    slugs = installation.purchases.order_by("channel").values_list("channel", flat=True)
    slug = slugs.first()
    while slug is not None:
        yield slug
        slug = slugs.filter(channel__gt=slug).first()


def _account(alias: str) -> Account | None:
    try:
        return find_account(alias)
    except TillgateError:
        return None


def _test(alias: str) -> dict[str, Any]:
    """Send the gateway of an account one signed query that moves no money, as the doctor does."""
    account = _account(alias)
    if account is None:
        return {"account": alias, "passed": False, "finding": _("This account is not configured.")}
    check = check_account(account, seconds=_TEST_SECONDS)
    return {"account": alias, "passed": check.passed, "finding": check.finding}


def _shown(review: OpenReview) -> dict[str, Any]:
    return {
        "reason": review.title,
        "message": review.message,
        "recommendation": review.recommendation,
        "opened_at": review.opened_at,
        # A review of an account that several Saleors share may name a payment of another Saleor.
        "reference": review.reference if review.order_key else "",
        "url": _admin("review_change", review.id),
    }


def _admin(name: str, *arguments: str) -> str:
    """Return the absolute address of a page of the admin, or nothing where the project has no
    admin.
    """
    try:
        return absolute_url(f"admin:tillgate_{name}", *arguments)
    except NoReverseMatch:
        return ""
