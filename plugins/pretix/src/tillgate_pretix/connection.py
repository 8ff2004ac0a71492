"""Whether an event's accounts work: the test of the connection, and the warnings above pretix's
pages about payment.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template
from django.urls import reverse
from django.utils.translation import gettext as _
from pretix.base.forms import SECRET_REDACTED
from pretix.control.views.event import PaymentProviderSettings

from tillgate import ConfigurationError, shop
from tillgate_pretix import accounts
from tillgate_pretix.configuration import APP
from tillgate_pretix.orders import METHODS

_SECONDS: Final = 8.0
"""The organizer waits for the answer."""
_PAGES: Final = (
    "control:event.settings.payment",
    "control:event.settings.payment.provider",
    "plugins:tillgate_pretix:test",
)


def test_url(event: Any) -> str:
    """Return the address that tests the accounts in the form."""
    return reverse(
        "plugins:tillgate_pretix:test",
        kwargs={"organizer": event.organizer.slug, "event": event.slug},
    )


def _problem(values: Any, *, testmode: bool) -> str:
    """Ask the gateway whether it knows an account; return what is wrong, or an empty string. Uses
    the network.
    """
    try:
        found = shop.check_account(accounts.build(values, testmode=testmode), seconds=_SECONDS)
    except ConfigurationError as error:
        return accounts.labelled(str(error))
    return "" if found.passed else accounts.labelled(found.finding)


def test_saved(event: Any) -> None:
    """Test the accounts that an event or an organizer has, and keep what is wrong for the
    warnings.
    """
    kept = accounts.settings_of(event)
    for testmode in (False, True):
        is_there = accounts.is_complete(event, testmode=testmode)
        kept.set(_kept_as(testmode=testmode), _problem(kept, testmode=testmode) if is_there else "")


def _kept_as(*, testmode: bool) -> str:
    return "test_problem" if testmode else "problem"


def _name(*, testmode: bool) -> str:
    return _("Account for test mode") if testmode else _("Live account")


def warnings(event: Any) -> list[str]:
    """Return why attendees of an event cannot pay, a sentence each; nothing where the event does
    not use Tillgate.
    """
    kept = accounts.settings_of(event)
    if not kept.get("_enabled", as_type=bool):
        return []
    found = []
    if not accounts.is_complete(event, testmode=event.testmode):
        if event.testmode:
            found.append(
                _(
                    "The event is in test mode, and has no account for test mode: attendees "
                    "cannot pay through Tillgate.",
                ),
            )
        else:
            found.append(
                _(
                    "The event is not in test mode, and has no live account: attendees cannot pay "
                    "through Tillgate.",
                ),
            )
    elif not accounts.methods_that_take(event, None, testmode=event.testmode) & set(_ticked(kept)):
        found.append(
            _(
                "No payment method is ticked that the account takes: attendees cannot pay through "
                "Tillgate.",
            ),
        )
    return [*found, *problems(event)]


def problems(event: Any) -> list[str]:
    """Return what the last test of the accounts of an event or an organizer has found wrong."""
    kept = accounts.settings_of(event)
    begun = [
        testmode for testmode in (False, True) if accounts.is_complete(event, testmode=testmode)
    ]
    found = [
        (_name(testmode=testmode), kept.get(_kept_as(testmode=testmode))) for testmode in begun
    ]
    return [f"{name}: {problem}" for name, problem in found if problem]


def _ticked(kept: Any) -> list[str]:
    return [method for method in METHODS if kept.get(accounts.setting_of(method), as_type=bool)]


def warnings_html(request: Any) -> str:
    """Return the warnings for pretix's pages about payment, or an empty string for any other
    page.
    """
    here, event = request.resolver_match, getattr(request, "event", None)
    is_about_payment = (
        here.view_name in _PAGES and here.kwargs.get("provider", accounts.HOLDER) == accounts.HOLDER
    )
    # the test says how the accounts stand that are typed; the warnings are about the saved ones
    is_trial = request.method == "POST"
    if event is None or not is_about_payment or is_trial or APP not in event.get_plugins():
        return ""
    return str(
        get_template("tillgate_pretix/warnings.html").render(
            {"warnings": warnings(event)}, request
        ),
    )


class TestConnectionView(PaymentProviderSettings):  # type: ignore[misc]  # pretix has no types
    """pretix's form of the settings, which also tests the accounts that are typed in it, saved or
    not.

    The page keeps what was typed; *Save* on it saves, as on pretix's own page.
    """

    def post(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """Test, or else save."""
        if "test_connection" not in request.POST:
            response: HttpResponse = super().post(request, *args, **kwargs)
            return response
        self.provider.is_trial = True
        if not self.form.is_valid():
            messages.error(request, _("Nothing was tested. See below for details."))
        else:
            self._test(request)
        shown: HttpResponse = self.get(request, *args, **kwargs)
        return shown

    def _test(self, request: HttpRequest) -> None:
        kept = accounts.settings_of(self.provider.event)
        typed = {
            name.removeprefix(kept.get_prefix()): value
            for name, value in self.form.cleaned_data.items()
        }
        values = {
            name: kept.get(name) if value == SECRET_REDACTED else value
            for name, value in typed.items()
        }
        begun = [
            testmode for testmode in (False, True) if accounts.is_begun(values, testmode=testmode)
        ]
        if not begun:
            messages.error(request, _("There is no account to test yet."))
        for testmode in begun:
            problem = _problem(values, testmode=testmode)
            if accounts.are_alike(values, kept, testmode=testmode):
                kept.set(_kept_as(testmode=testmode), problem)
            if problem:
                messages.error(request, f"{_name(testmode=testmode)}: {problem}")
            else:
                messages.success(
                    request,
                    _("%(account)s: the payment service knows it.")
                    % {"account": _name(testmode=testmode)},
                )
