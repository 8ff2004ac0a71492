"""Mail to the shopper about refunds and money that paid nothing, about which pretix itself sends
none. Organizers edit its texts and switch it off, as they do with pretix's own mail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from django.utils.translation import gettext_noop
from i18nfield.strings import LazyI18nString
from pretix.base.email import SimpleFunctionalMailTextPlaceholder, get_email_context
from pretix.base.i18n import LazyCurrencyNumber, language
from pretix.base.models import Order
from pretix.base.settings import settings_hierarkey

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

CONTEXT: Final = ("event", "order", "tillgate_money")
"""What pretix fills the placeholders of these mails from."""


@dataclass(frozen=True, slots=True)
class Template:
    """A mail that organizers edit: `about` names its settings, and `logged` its entry in the
    history.
    """

    about: str
    logged: str
    subject: str
    text: str

    @property
    def send_setting(self) -> str:
        """The setting that says whether the mail is sent."""
        return f"mail_send_tillgate_{self.about}"

    @property
    def subject_setting(self) -> str:
        """The setting of the subject."""
        return f"mail_subject_tillgate_{self.about}"

    @property
    def text_setting(self) -> str:
        """The setting of the text."""
        return f"mail_text_tillgate_{self.about}"


_REFUNDED: Final = Template(
    "refunded",
    REFUND_MAILED,
    gettext_noop("Refund for your order {code}"),
    gettext_noop(
        "Hello,\n\n{amount} for your order {code} was refunded to you through the payment method "
        "{payment_method}.\n\nIt can take up to 10 days, depending on your bank or wallet, until "
        "you see the money.\n\n{url}\n\n{event}",
    ),
)
_PAID_TWICE: Final = Template(
    "paid_twice",
    PAID_TWICE_MAILED,
    gettext_noop("Two payments for your order {code}"),
    gettext_noop(
        "Hello,\n\nA second payment of {amount} with {payment_method} has arrived for your order "
        "{code}, which was paid before.\n\nYou need not do anything. The shop reviews it, and one "
        "of the two payments is refunded to you. Another mail tells you when.\n\nReference: "
        "{reference}\n\n{url}\n\n{event}",
    ),
)
_HELD: Final = Template(
    "held",
    HELD_MAILED,
    gettext_noop("Your payment for order {code}"),
    gettext_noop(
        "Hello,\n\n{code}: {amount}, {payment_method}\n\nYour payment has arrived, and has not "
        "paid this order. The organizer knows, and will refund it or give you the tickets.\n\n"
        "Reference: {reference}\n\n{url}\n\n{event}",
    ),
)
TEMPLATES: Final = (_REFUNDED, _PAID_TWICE, _HELD)
"""All mails of the plugin to shoppers."""

for _template in TEMPLATES:
    settings_hierarkey.add_default(_template.send_setting, "True", bool)
    for _name, _default in (
        (_template.subject_setting, _template.subject),
        (_template.text_setting, _template.text),
    ):
        settings_hierarkey.add_default(_name, LazyI18nString.from_gettext(_default), LazyI18nString)


@dataclass(frozen=True, slots=True)
class _Money:
    """What a mail is about."""

    amount: Decimal
    currency: str
    method: str
    reference: str


def placeholders() -> Iterator[Any]:
    """Yield the placeholders of the texts, beside pretix's own of an event and an order."""
    kind, needed = SimpleFunctionalMailTextPlaceholder, ["tillgate_money"]
    yield kind(
        "amount",
        needed,
        lambda tillgate_money: LazyCurrencyNumber(tillgate_money.amount, tillgate_money.currency),
        lambda event: LazyCurrencyNumber(Decimal("42.23"), event.currency),
    )
    yield kind("payment_method", needed, lambda tillgate_money: tillgate_money.method, "PayPal")
    yield kind("reference", needed, lambda tillgate_money: tillgate_money.reference, "7f3c9a")


def tell_of_refund(order: Any, refund: Refund) -> None:
    """Mail the shopper about a refund that succeeded, in the order's language. Call it once for
    each, in the event's transaction.
    """
    if not _was_cancelled_quietly(order):
        _send(order, refund.payment, _REFUNDED, refund.amount)


def tell_of_second_payment(order: Any, payment: Payment) -> None:
    """Mail the shopper once that an order which was paid before was paid again; in the event's
    transaction too.
    """
    _tell_once(order, payment, _PAID_TWICE)


def tell_of_held_money(order: Any, payment: Payment) -> None:
    """Mail the shopper once that the money arrived, did not pay the order, and the organizer
    decides; in the event's transaction too.
    """
    _tell_once(order, payment, _HELD)


def _was_cancelled_quietly(order: Any) -> bool:
    """Tell whether staff have cancelled an order without *Notify customer by email*.

    pretix has that switch for the cancellation, and none for the refund that follows. It cancels a
    whole event in this way too, and can mail everybody about cancellation and refund in one.
    """
    said = ("pretix.event.order.canceled", "pretix.event.order.email.order_canceled")
    if order.status != Order.STATUS_CANCELED:
        return False
    newest = order.all_logentries().filter(action_type__in=said).order_by("-pk").first()
    return newest is not None and newest.action_type == said[0]


def _tell_once(order: Any, payment: Payment, template: Template) -> None:
    key, name = payment.order.key, f"mailed_{template.about}"
    told = shop.order_data(PLUGIN, key).get(name, [])
    # staff had the event delivered again
    if payment.reference not in told:
        _send(order, payment, template, payment.amount)
        shop.set_order_data(PLUGIN, key, **{name: [*told, payment.reference]})


def _send(order: Any, payment: Payment, template: Template, amount: Decimal) -> None:
    """Let pretix write the mail into its own queue in the running transaction; it sends it after
    the commit.
    """
    kept = order.event.settings
    if not kept.get(template.send_setting, as_type=bool):
        return
    if not order.email:
        _log.warning("order %s has no e-mail address: %s is not mailed", order.code, template.about)
        return
    paid = shop.find_payment(PLUGIN, payment_id=payment.id)
    with language(order.locale, kept.region):
        method = paid.paid_with if paid else ""
        money = _Money(amount, payment.currency, method, payment.reference)
        context = get_email_context(event=order.event, order=order, tillgate_money=money)
        subject, text = kept.get(template.subject_setting), kept.get(template.text_setting)
        order.send_mail(subject, text, context, template.logged)
