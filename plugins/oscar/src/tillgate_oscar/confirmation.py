"""The payment method by name, on the thank-you page and in the mail about a paid order: "Paid with
PayPal".
"""

from __future__ import annotations

from typing import Any

from django.utils.html import escape
from django.utils.translation import gettext as _

from tillgate import shop
from tillgate_oscar.conf import PLUGIN


def method_of(order: Any) -> str:
    """Return what paid an order, such as "Visa ending 4242", or "" for an order that was not paid
    through Tillgate.
    """
    payment = shop.find_payment(PLUGIN, paid_order=order.number)
    return payment.paid_with if payment else ""


def name_method(dispatcher: Any, order: Any) -> None:
    """Let a dispatcher of Oscar's name the payment method before the signature of its mails, unless
    the shop's template does so.

    Templates of the shop's own get it as `payment_method`.
    """
    method, plain = method_of(order), dispatcher.get_messages
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
