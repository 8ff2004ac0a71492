"""The name of the method that paid, on the thank-you page and in the mail about a paid order: "Paid
with PayPal". The language of mails.
"""

from __future__ import annotations

import re
from typing import Any, Final

from django.utils.html import escape
from django.utils.translation import get_language, get_language_bidi
from django.utils.translation import gettext as _

from tillgate import shop
from tillgate_oscar.conf import PLUGIN

_WITHOUT_LANGUAGE: Final = re.compile(r"<html(?![^>]*\s(?:lang|dir)=)")


def name_language(dispatcher: Any) -> None:
    """Let a dispatcher of Oscar's name the language and its direction in the HTML of its mails:
    Oscar's own base template has neither.
    """
    plain = dispatcher.get_messages

    def get_messages(*arguments: Any, **options: Any) -> dict[str, str]:
        messages: dict[str, str] = plain(*arguments, **options)
        direction = "rtl" if get_language_bidi() else "ltr"
        known = f'<html lang="{get_language()}" dir="{direction}"'
        html = messages.get("html") or ""
        messages["html"] = _WITHOUT_LANGUAGE.sub(known, html, count=1)
        return messages

    dispatcher.get_messages = get_messages


def method_of(order: Any) -> str:
    """Return the card or wallet that paid an order, such as "Visa ending 4242", or "" for an order
    that was not paid through Tillgate.
    """
    payment = shop.find_payment(PLUGIN, paid_order=order.number)
    return payment.paid_with if payment else ""


def name_method(dispatcher: Any, method: str) -> None:
    """Let a dispatcher of Oscar's name the method before the signature of its mails, unless the
    shop's template does so.

    Templates of the shop's own get it as `payment_method`.
    """
    plain = dispatcher.get_messages
    if not method:
        return

    def get_messages(
        event_code: str,
        extra_context: dict[str, Any] | None = None,
    ) -> dict[str, str]:
        messages: dict[str, str] = plain(
            event_code,
            {**(extra_context or {}), "payment_method": method},
        )
        said = _("Paid with %(method)s.") % {"method": method}
        text, html = messages.get("body") or "", messages.get("html") or ""
        before, gap, last = text.rstrip().rpartition("\n\n")
        if gap and method not in text:
            messages["body"] = f"{before}{gap}{said}{gap}{last}\n"
        cell = html.rfind("content-block")  # of Oscar's own mails: it thanks and signs
        thanks = html.find("<p>", cell) if cell >= 0 else html.rfind("<p>")
        if thanks >= 0 and method not in html:
            messages["html"] = f"{html[:thanks]}<p>{escape(said)}</p>{html[thanks:]}"
        return messages

    dispatcher.get_messages = get_messages
