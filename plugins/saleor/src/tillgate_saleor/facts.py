"""The facts of a payment for staff in Saleor's dashboard: the card or wallet, and the gateway's own
page.

A field that is too long for Saleor is left out: it would refuse the whole report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import gettext as _

from tillgate.hooks import Refund
from tillgate.shop import PaymentState, find_refund, payment_summary
from tillgate_saleor.conf import PLUGIN

_LONGEST_URL: Final = 200
_LONGEST_NAME: Final = 256
_LONGEST_BRAND: Final = 40
_LAST_DIGITS: Final = 4
_WITH_METHOD: Final = (3, 22)
"""The first Saleor that takes the card or wallet."""


def gateway_page(payment_id: str, refund: Refund | None = None) -> str:
    """Return the gateway's own page about a refund, or about its payment, or ""."""
    summary = payment_summary(PLUGIN, payment_id)
    if summary is None:
        return ""
    state = find_refund(PLUGIN, refund.id) if refund else None
    number = (state.refund_no or "") if state else ""
    url = summary.refund_pages.get(number, summary.gateway_url)
    return url if len(url) <= _LONGEST_URL else ""


def method_of(payment_id: str, version: str) -> Mapping[str, Any] | None:
    """Return the card or wallet that paid as `PaymentMethodDetailsInput`; None where it is not
    known, or a Saleor of this version takes none.
    """
    summary = payment_summary(PLUGIN, payment_id) if _takes_method(version) else None
    if summary is None or summary.used is None:
        return None
    name, used = summary.paid_with[:_LONGEST_NAME], summary.used
    card = {
        "brand": used.brand if len(used.brand) <= _LONGEST_BRAND else "",
        "lastDigits": used.last4 if len(used.last4) <= _LAST_DIGITS else "",
    }
    known = {field: value for field, value in card.items() if value}
    return {"card": {"name": name, **known}} if known else {"other": {"name": name}}


def _takes_method(version: str) -> bool:
    numbers = version.split(".")[:2]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _WITH_METHOD


def declined_text(payment_id: str) -> str:
    """Return why a payment was declined, for staff, or ""."""
    summary = payment_summary(PLUGIN, payment_id)
    if summary is None or not summary.decline_reason:
        return ""
    return _("Declined: %(reason)s.") % {"reason": summary.decline_reason.rstrip(".")}


def paid_text(payment: PaymentState | None) -> str:
    """Return how a payment was paid, for staff."""
    if payment is None:
        return _("Paid.")
    return _("Paid with %(method)s.") % {"method": payment.paid_with}
