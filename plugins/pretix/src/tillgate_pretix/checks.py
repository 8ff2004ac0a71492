"""System checks: they report problems that keep payments from working inside pretix, as warnings
and to the doctor.

None is an error: pretix's cron job is a command, and Django begins no command where a check has
found an error. One organizer's payments must not stop the mails and the expiry of all others.
"""

from __future__ import annotations

from typing import Final

from django_scopes import scopes_disabled
from pretix.base.models import Event
from pretix.base.models.event import Event_SettingsStore

from tillgate import ConfigurationError
from tillgate.shop import CheckSet, Found, absolute_url, report_errors_as_warnings
from tillgate_pretix import accounts

CHECKS: Final = CheckSet("tillgate_pretix")
report_errors_as_warnings(
    remedies={
        1: "In pretix.cfg give review_mail_to under [tillgate], or admins under [mail].",
        4: "SQLite is for a trial. Use PostgreSQL before attendees pay: [database] in pretix.cfg.",
    },
    notes=[4],  # pretix.cfg cannot set the mode of SQLite's transactions
)


@CHECKS.database_area
def check_public_url() -> Found:
    """Yield a warning where events take real payments, and the gateway and attendees would come
    over http.
    """
    try:
        address = absolute_url("tillgate:payment-notification", "key")
    except ConfigurationError:
        return  # Tillgate's own checks report it
    if address.startswith("https://"):
        return
    live = f"payment_{accounts.HOLDER}_token"
    with scopes_disabled():
        numbers = (
            Event_SettingsStore.objects.filter(key=live)
            .exclude(value="")
            .values_list("object_id", flat=True)
        )
        events = [
            event for event in Event.objects.filter(pk__in=numbers) if _takes_real_money(event)
        ]
    if events:
        message = (
            "pretix's address is not https, and these events have a live account: "
            f"{', '.join(event.slug for event in events)}."
        )
        yield CHECKS.warning(
            2,
            message,
            "Give the https address as url under [pretix], or public_url under [tillgate].",
        )


def _takes_real_money(event: Event) -> bool:
    return bool(accounts.settings_of(event).get("_enabled", as_type=bool)) and accounts.is_complete(
        event,
        testmode=False,
    )
