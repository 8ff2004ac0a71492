"""The health page, with a test of each account's connection."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.clickjacking import xframe_options_deny

from tillgate.django.masking import Mask
from tillgate.django.operating.findings import accounts_in_use, examine_account
from tillgate.django.operating.health import AccountHealth, health
from tillgate.django.orders.locking import without_atomic_requests
from tillgate.django.pages.admin.base import SEES_HEALTH, ReadOnlyAdmin, need
from tillgate.django.words import Word
from tillgate.django.worker.lanes import note_answer

_TEST_SECONDS: Final = 10.0
_RUNS, _LATE = Word(_("runs"), "check", "good"), Word(_("does not run"), "cross", "bad")
_LIVE, _TEST = (
    Word(_("live: real money"), "check", "good"),
    Word(_("sandbox: no real money"), "question", "ask"),
)
_MISSING, _SILENT = (
    Word(_("not configured"), "cross", "bad"),
    Word(_("does not answer"), "cross", "bad"),
)
_REFUSES = Word(_("refuses new payments"), "cross", "bad")


def health_url(admin: ReadOnlyAdmin[Any]) -> URLPattern:
    """Return the pattern of the page. A test uses the network, so the view runs outside
    transactions (I12).
    """

    def view(request: HttpRequest) -> HttpResponse:
        need(request, *SEES_HEALTH)
        address = reverse("admin:tillgate_review_health", current_app=admin.admin_site.name)
        if request.method == "POST":
            _test(request, request.POST.get("account", ""))
            return HttpResponseRedirect(address)
        found, mask = health(), Mask()
        context = {
            "health": found,
            "worker": _LATE if found.is_worker_late else _RUNS,
            "accounts": [
                (one, _words(one), [mask.text(message) for message in one.refused_creations])
                for one in found.accounts
            ],
        }
        return admin.show(
            request,
            "tillgate/admin/health.html",
            gettext("Health of the payments"),
            context,
        )

    return path(
        "health/",
        without_atomic_requests(admin.admin_site.admin_view(xframe_options_deny(view))),
        name="tillgate_review_health",
    )


def _words(one: AccountHealth) -> list[Word]:
    if one.account is None:
        return [_MISSING]
    faults = [
        *([_SILENT] if one.silent_since else []),
        *([_REFUSES] if one.refused_creations else []),
    ]
    return [_TEST if one.account.sandbox else _LIVE, *faults]


def _test(request: HttpRequest, alias: str) -> None:
    """Ask the gateway of an account, and add messages: every fault, or the last good finding."""
    if alias not in accounts_in_use():
        messages.warning(request, gettext("Nothing was done. Please press the button again."))
        return
    found, mask = list(examine_account(alias, deadline_seconds=_TEST_SECONDS, attempts=1)), Mask()
    faults = [one for one in found if not one.passed]
    for one in faults:
        messages.error(request, mask.text(f"{one.name}: {one.finding}"))
    if not faults:
        note_answer(alias)
        said = gettext("The connection of account %(account)s works: %(finding)s.")
        messages.success(
            request,
            said % {"account": alias, "finding": mask.text(found[-1].finding)},
        )
