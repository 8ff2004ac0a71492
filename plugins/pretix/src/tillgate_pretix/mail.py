"""Mail to the shopper about refunds and second payments, about which pretix itself sends none."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.utils.translation import gettext as _
from pretix.base.i18n import language

from tillgate import shop
from tillgate.hooks import Payment, Refund
from tillgate_pretix.configuration import PLUGIN

_log = logging.getLogger("tillgate")

REFUND_MAILED: Final = "tillgate_pretix.order.email.refunded"
"""The type of the entry in an order's history that the mail was sent. pretix lists types with
"order.email" as the order's mails.
"""
PAID_TWICE_MAILED: Final = "tillgate_pretix.order.email.paid_twice"
"""The same for the mail about a second payment."""
HELD_MAILED: Final = "tillgate_pretix.order.email.held"
"""The same for the mail about money that did not pay the order."""


def tell_of_refund(order: Any, refund: Refund) -> None:
    """Mail the shopper about a refund that succeeded, in the order's language. Call it once for
    each, in the event's transaction.
    """
    with language(order.locale, order.event.settings.region):
        subject = _("Refund for your order %(number)s") % {"number": order.code}
        facts = {"amount": shop.money_text(refund.amount, refund.payment.currency)}
        _send(order, refund.payment, subject, "refunded.txt", REFUND_MAILED, facts)


def tell_of_second_payment(order: Any, payment: Payment) -> None:
    """Mail the shopper once that an order which was paid before was paid again; in the event's
    transaction too.
    """
    with language(order.locale, order.event.settings.region):
        subject = _("Two payments for your order %(number)s") % {"number": order.code}
        _tell_once(order, payment, subject, "paid_twice.txt", PAID_TWICE_MAILED)


def tell_of_held_money(order: Any, payment: Payment) -> None:
    """Mail the shopper once that the money arrived, did not pay the order, and the organizer
    decides; in the event's transaction too.
    """
    with language(order.locale, order.event.settings.region):
        subject = _("Your payment for order %(number)s") % {"number": order.code}
        _tell_once(order, payment, subject, "held.txt", HELD_MAILED)


def _tell_once(order: Any, payment: Payment, subject: str, template: str, logged: str) -> None:
    told = order.all_logentries().filter(action_type=logged)
    # staff had the event delivered again
    if any(payment.reference in str(entry.parsed_data) for entry in told):
        return
    facts = {
        "amount": shop.money_text(payment.amount, payment.currency),
        "reference": payment.reference,
    }
    _send(order, payment, subject, template, logged, facts)


def _send(
    order: Any,
    payment: Payment,
    subject: str,
    template: str,
    logged: str,
    facts: dict[str, str],
) -> None:
    """Let pretix write the mail into its own queue in the running transaction; it sends it after
    the commit.
    """
    if not order.email:
        _log.warning("order %s has no e-mail address: %r is not mailed", order.code, subject)
        return
    paid = shop.find_payment(PLUGIN, payment_id=payment.id)
    facts = {"number": order.code, "method": paid.paid_with if paid else "", **facts}
    order.send_mail(subject, f"tillgate_pretix/{template}", facts, logged)
