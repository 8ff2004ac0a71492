"""Whether an event's accounts work: the test of the connection, the health of the payments, and the
warnings above pretix's pages about payment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template
from django.urls import reverse
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from pretix.base.forms import SECRET_REDACTED
from pretix.control.views.event import PaymentProviderSettings

from tillgate import ConfigurationError, shop
from tillgate_pretix import accounts
from tillgate_pretix.configuration import APP, PLUGIN
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


@dataclass(frozen=True, slots=True)
class Stand:
    """How one thing stands, in a sentence."""

    is_good: bool
    text: str


def health(holder: Any) -> list[Stand]:
    """Return how the payments of an event, or of an organizer, stand: each account, the worker and
    the oldest work that waits. Reads the database only.
    """
    vitals, kept = shop.vitals(), accounts.settings_of(holder)
    found = []
    for testmode in (False, True):
        if accounts.is_complete(holder, testmode=testmode):
            problem = kept.get(_kept_as(testmode=testmode))
            said = problem or _("in order when last tested")
            text = f"{_name(testmode=testmode)}: {said}"
            found.append(Stand(is_good=not problem, text=text))
    found += [Stand(is_good=False, text=text) for text in _found_since(holder, vitals.resting)]
    if vitals.worker_seconds is None:
        found.append(
            Stand(
                is_good=False,
                text=_(
                    "The worker has never run: payments whose notification is lost stay unpaid."
                ),
            ),
        )
    else:
        ran = _("The worker ran %(age)s ago.") % {"age": _age(vitals.worker_seconds)}
        found.append(Stand(is_good=not vitals.problems, text=ran))
    oldest = max([*(one.oldest_seconds for one in vitals.due), vitals.undelivered_seconds or 0.0])
    waits = _("The oldest work has waited for %(age)s.") % {"age": _age(oldest)}
    text = waits if oldest else _("No work is waiting.")
    found.append(Stand(is_good=not vitals.problems, text=text))
    return found


def _found_since(holder: Any, resting: Sequence[str]) -> Iterator[str]:
    """Yield what the worker has found wrong with the accounts since the last test."""
    for alias in resting:
        event = accounts.event_of_alias(alias)
        if event is not None and holder in (event, event.organizer):
            yield _("%(event)s: the payment service does not answer.") % {"event": event.name}
    for review in shop.open_reviews(PLUGIN, account_prefix=accounts.LIVE):
        event = None if review.payment_id else accounts.event_of_alias(review.account)
        if event is not None and holder in (event, event.organizer):
            yield f"{event.name}: {review.title}"


def _age(seconds: float) -> str:
    if seconds < 60:
        return _("less than a minute")
    return timesince(shop.now() - timedelta(seconds=seconds))


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
        test_typed(request, accounts.settings_of(self.provider.event), self.form.cleaned_data)


def test_typed(request: HttpRequest, kept: Any, cleaned_data: dict[str, Any]) -> None:
    """Test the accounts that are typed in a form, and add messages. Uses the network."""
    typed = {name.removeprefix(kept.get_prefix()): one for name, one in cleaned_data.items()}
    values = {
        name: kept.get(name) if value == SECRET_REDACTED else value for name, value in typed.items()
    }
    begun = [testmode for testmode in (False, True) if accounts.is_begun(values, testmode=testmode)]
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
