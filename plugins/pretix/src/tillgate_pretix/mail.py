"""Mail to the shopper about refunds: pretix sends its own mail about payments, and none about refunds."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from pretix.base.i18n import language

from tillgate import shop
from tillgate.hooks import Refund

__all__ = ["REFUND_MAILED", "tell_of_refund"]

REFUND_MAILED: Final = "tillgate_pretix.order.email.refunded"
"""The type of the entry in an order's history that the mail was sent. pretix lists types with "order.email" as the order's mails."""


def tell_of_refund(order: Any, refund: Refund) -> None:
    """Mail the shopper about a refund that succeeded, in the order's language. Call it once for each, in the event's transaction.

    pretix writes the mail into its own queue in the same transaction, and sends it after the commit.
    """
    with language(order.locale, order.event.settings.region):
        facts = {
            "number": order.code,
            "amount": shop.money_text(refund.amount, refund.payment.currency),
            "method": shop.method_label(refund.payment.method),
        }
        subject = _("Refund for your order %(number)s") % facts
    order.send_mail(subject, "tillgate_pretix/refunded.txt", facts, REFUND_MAILED)
