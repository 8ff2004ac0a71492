"""Mail to the shopper about slow money, refunds, disputes and money that paid nothing, about which
pretix itself sends none. Organizers edit its texts and switch it off, as they do with pretix's own
mail.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from i18nfield.strings import LazyI18nString
from pretix.base.email import SimpleFunctionalMailTextPlaceholder, get_email_context
from pretix.base.i18n import LazyCurrencyNumber, language
from pretix.base.models import Order
from pretix.base.settings import settings_hierarkey

from tillgate import shop
from tillgate.hooks import Payment, Refund, ReportedDispute
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
WAITS_MAILED: Final = "tillgate_pretix.order.email.waits"
"""The same for the mail that money is on its way, or that a voucher is to be paid."""
REMINDED: Final = "tillgate_pretix.order.email.voucher_ends"
"""The same for the reminder of a voucher."""
FAILED_MAILED: Final = "tillgate_pretix.order.email.failed"
"""The same for the mail that money on its way has not arrived."""
RETURNED_MAILED: Final = "tillgate_pretix.order.email.refund_returned"
"""The same for the mail about a refund that came back."""
DISPUTE_MAILED: Final = "tillgate_pretix.order.email.dispute_lost"
"""The same for the mail about a lost dispute."""

CONTEXT: Final = ("event", "order", "tillgate_money")
"""What pretix fills the placeholders of these mails from."""


@dataclass(frozen=True, slots=True)
class Template:
    """A mail that organizers edit: `about` names its settings, and `logged` its entry in the
    history. `is_sent` is whether it is sent unless the organizer says otherwise.
    """

    about: str
    logged: str
    subject: str
    text: str
    is_sent: bool = True

    @property
    def send_setting(self) -> str:
        """The setting that says whether the mail is sent."""
        return f"mail_send_tillgate_{self.about}"

    @property
    def key(self) -> str:
        """The name in the order's data for what it was sent about."""
        return f"mailed_{self.about}"

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
WAITS: Final = Template(
    "waits",
    WAITS_MAILED,
    gettext_noop("Order {code}: {payment_step}"),
    gettext_noop(
        "Hello,\n\n{code}: {amount}, {payment_method}\n\n{payment_step}\n\n{payment_details}\n\n"
        "{url}\n\n{event}",
    ),
)
VOUCHER_ENDS: Final = Template("voucher_ends", REMINDED, WAITS.subject, WAITS.text)
FAILED: Final = Template(
    "failed",
    FAILED_MAILED,
    gettext_noop("Your order {code} waits for payment"),
    gettext_noop(
        "Hello,\n\nYour payment of {amount} with {payment_method} for your order {code} has not "
        "arrived. {payment_details}\n\nYou can pay now, in another way too:\n\n{url}\n\n{event}",
    ),
)
_RETURNED: Final = Template(
    "refund_returned",
    RETURNED_MAILED,
    _REFUNDED.subject,
    gettext_noop(
        "Hello,\n\nThe refund of {amount} for your order {code} came back: your bank or wallet did "
        "not take it.\n\nThe organizer knows, and will be in touch with you.\n\n{url}\n\n{event}",
    ),
)
_DISPUTE_LOST: Final = Template(
    "dispute_lost",
    DISPUTE_MAILED,
    _REFUNDED.subject,
    gettext_noop(
        "Hello,\n\nYour bank has given {amount} for your order {code} back to you, because the "
        "payment was disputed.\n\nYou need not do anything.\n\n{url}\n\n{event}",
    ),
    is_sent=False,  # it is between the shopper's bank and the shop: the bank tells the shopper
)
TEMPLATES: Final = (
    WAITS,
    VOUCHER_ENDS,
    FAILED,
    _REFUNDED,
    _RETURNED,
    _DISPUTE_LOST,
    _PAID_TWICE,
    _HELD,
)
"""All mails of the plugin to shoppers."""

for _template in TEMPLATES:
    settings_hierarkey.add_default(_template.send_setting, str(_template.is_sent), bool)
    for _name, _default in (
        (_template.subject_setting, _template.subject),
        (_template.text_setting, _template.text),
    ):
        settings_hierarkey.add_default(_name, LazyI18nString.from_gettext(_default), LazyI18nString)


@dataclass(frozen=True, slots=True)
class _Money:
    """What a mail is about. `step` and `details` tell the shopper what to do, or why it failed."""

    amount: Decimal
    currency: str
    method: str
    reference: str
    step: str
    details: str


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
    step = ("payment_step", needed, lambda tillgate_money: tillgate_money.step)
    yield kind(*step, lambda event: _("Pay the voucher"))
    details = ("payment_details", needed, lambda tillgate_money: tillgate_money.details)
    yield kind(*details, lambda event: _("We are waiting for your bank."))


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


def wants(order: Any, template: Template) -> bool:
    """Return whether an order's event sends a mail."""
    return bool(order.event.settings.get(template.send_setting, as_type=bool))


def tell_of_wait(order: Any, payment: shop.PaymentState) -> None:
    """Mail the shopper once that the money is on its way, and once that a voucher is to be paid,
    which may appear later. Call it and the next ones under the order's lock.
    """
    is_voucher = payment.awaited is not None and payment.awaited.is_voucher
    mark = f"{payment.reference}/voucher" if is_voucher else payment.reference
    _tell_once(order, payment, WAITS, mark)


def remind_of_voucher(order: Any, payment: Payment) -> None:
    """Mail the shopper once that a voucher ends soon."""
    _tell_once(order, payment, VOUCHER_ENDS)


def tell_of_failure(order: Any, payment: Payment, until: datetime | None) -> None:
    """Mail the shopper once that money on its way has not arrived; `until` is the end of the time
    to pay in another way, if known.
    """
    _tell_once(order, payment, FAILED, until=until)


def tell_of_returned_refund(order: Any, refund: Refund) -> None:
    """Mail the shopper once that a refund came back."""
    _tell_once(order, refund.payment, _RETURNED, refund.id, amount=refund.amount)


def tell_of_lost_dispute(order: Any, payment: Payment, dispute: ReportedDispute) -> None:
    """Mail the shopper once that the bank gave the money of a dispute back."""
    mark = f"{payment.reference}/{dispute.dispute_no}"
    _tell_once(order, payment, _DISPUTE_LOST, mark, amount=dispute.amount)


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


def _tell_once(
    order: Any,
    payment: Payment,
    template: Template,
    mark: str = "",
    *,
    amount: Decimal | None = None,
    until: datetime | None = None,
) -> None:
    """Mail once about what `mark` names, by default the payment."""
    key, mark = payment.order.key, mark or payment.reference
    told = shop.order_data(PLUGIN, key).get(template.key, [])
    # staff had the event delivered again
    if mark in told:
        return
    if _send(order, payment, template, payment.amount if amount is None else amount, until):
        shop.set_order_data(PLUGIN, key, **{template.key: [*told, mark]})


def _send(
    order: Any,
    payment: Payment,
    template: Template,
    amount: Decimal,
    until: datetime | None = None,
) -> bool:
    """Let pretix write the mail into its own queue in the running transaction, which it sends after
    the commit; return whether the event wants it, and the shopper has an address.
    """
    kept = order.event.settings
    if not wants(order, template):
        return False
    if not order.email:
        _log.warning("order %s has no e-mail address: %s is not mailed", order.code, template.about)
        return False
    with language(order.locale, kept.region), timezone.override(order.event.timezone):
        paid = shop.find_payment(PLUGIN, payment_id=payment.id)
        awaited = paid.awaited if paid else None
        money = _Money(
            amount=amount,
            currency=payment.currency,
            method=paid.paid_with if paid else "",
            reference=payment.reference,
            step=awaited.title if awaited else "",
            details=_details(paid, until) if paid else "",
        )
        context = get_email_context(event=order.event, order=order, tillgate_money=money)
        subject, text = kept.get(template.subject_setting), kept.get(template.text_setting)
        order.send_mail(subject, text, context, template.logged)
    return True


def _details(payment: shop.PaymentState, until: datetime | None) -> str:
    """Return what the shopper needs to know, in one paragraph: it fits anywhere in a text."""
    awaited = payment.awaited
    if awaited is None:
        if until is None:
            return payment.unpaid_detail
        shown = date_format(timezone.localtime(until), "SHORT_DATETIME_FORMAT")
        kept = _("Your order is kept until %(until)s.") % {"until": shown}
        return f"{payment.unpaid_detail} {kept}"
    bank = "" if awaited.is_voucher else _("We are waiting for your bank.")
    link = f"{awaited.link_text}: {awaited.url}" if awaited.url else ""
    return " ".join(filter(None, (bank, awaited.text, link)))
