"""The texts about money that is awaited: a voucher that is still to be paid, money under way, or a
payment page that a shopper may have just paid on. One place, for Tillgate's pages and the shop's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from tillgate.django import dates
from tillgate.django.models import Payment
from tillgate.wire.details import NextStep

__all__ = ["Awaited", "awaited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """The text for the shopper of an open payment, in the active language.

    `is_voucher`: a voucher or transfer is still to be paid. `url` is its page, or empty, and
    `link_text` the text of a link there; `until` is its end, with a time zone, or None; `is_over`:
    that end has passed. `not_too` asks a shopper who pays in another way not to pay it as well.
    `title` is empty while the shopper has not finished paying.
    """

    title: str
    text: str
    is_voucher: bool = False
    url: str = ""
    link_text: str = ""
    not_too: str = ""
    until: datetime | None = None
    is_over: bool = False

    @classmethod
    def of_step(cls, step: NextStep | None) -> Self:
        """Return the text about money under way, or about the voucher that is the shopper's next
        step.
        """
        if step is None:
            return cls(
                title=_("Your payment is on its way"),
                text=_(
                    "You have finished, and your money needs some time to arrive, perhaps some "
                    "days. The shop keeps your order until then. You need not pay again.",
                ),
            )
        is_over = step.until is not None and step.until <= timezone.now()
        texts = _transfer() if step.is_transfer else _voucher()
        url = "" if is_over else step.url or ""
        return cls(
            title=_title(texts, step.until, is_over=is_over),
            text=_text(texts, step.until, is_over=is_over, has_page=bool(step.url)),
            is_voucher=True,
            url=url,
            link_text=texts.link if url else "",
            not_too=texts.not_too,
            until=step.until,
            is_over=is_over,
        )


def awaited(payment: Payment) -> Awaited | None:
    """Return the text about an open payment; None for any other, and before its page exists."""
    if not payment.is_open or not (payment.is_processing or payment.payment_url):
        return None
    if not payment.is_processing:
        return Awaited(title="", text=may_be_paid())
    return Awaited.of_step(payment.known.next_step)


def may_be_paid() -> str:
    """Return the text that stands with every offer to pay while a payment is open."""
    return _(
        "You may have paid already: then it shows in a moment, and you need not pay again. If you "
        "have not paid, nothing was charged.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """The texts about one kind of next step: its title without and with an end and after it, and
    what else a shopper needs to know.
    """

    title: str
    by: str
    over: str
    if_over: str
    link: str
    kept: str
    kept_until: str
    where: str
    if_paid: str
    not_too: str


def _voucher() -> _Texts:
    return _Texts(
        title=_("Pay the voucher"),
        by=_("Pay the voucher by %(day)s"),
        over=_("The time to pay the voucher has passed"),
        if_over=_(
            "If you paid it in time, your money is on its way, and you need not pay again. If you "
            "did not, please do not pay it any more: pay in another way.",
        ),
        link=_("Show the voucher"),
        kept=_(
            "The shop keeps your order as long as the voucher is valid. After that you can pay in "
            "another way for a while.",
        ),
        kept_until=_(
            "The voucher is valid until %(until)s, and the shop keeps your order until then. After "
            "that you can pay in another way for a while.",
        ),
        where=_("The payment service has shown you the voucher or sent it to you."),
        if_paid=_("If you have paid it, you need do nothing more: the money may need some days."),
        not_too=_("If you pay in another way now, do not pay the voucher as well."),
    )


def _transfer() -> _Texts:
    return _Texts(
        title=_("Make the bank transfer"),
        by=_("Make the bank transfer by %(day)s"),
        over=_("The time for the bank transfer has passed"),
        if_over=_(
            "If you made it in time, your money is on its way, and you need not pay again. If you "
            "did not, please do not make it any more: pay in another way.",
        ),
        link=_("Show the bank details"),
        kept=_(
            "The shop keeps your order while it waits for your transfer. After that you can pay "
            "in another way for a while.",
        ),
        kept_until=_(
            "The shop waits for your transfer until %(until)s, and keeps your order until then. "
            "After that you can pay in another way for a while.",
        ),
        where=_("The payment service has shown you the bank details or sent them to you."),
        if_paid=_("If you have made it, you need do nothing more: the money may need some days."),
        not_too=_("If you pay in another way now, do not make the bank transfer as well."),
    )


def _title(texts: _Texts, until: datetime | None, *, is_over: bool) -> str:
    if until is None:
        return texts.title
    if is_over:
        return texts.over
    # a voucher that ends at midnight has to be paid on the day before
    day = date_format(dates.local(until - timedelta(seconds=1)), "MONTH_DAY_FORMAT")
    return texts.by % {"day": day}


def _text(texts: _Texts, until: datetime | None, *, is_over: bool, has_page: bool) -> str:
    if is_over:
        return texts.if_over
    end = texts.kept
    if until is not None:
        moment = dates.local(until)
        shown = f"{date_format(moment, 'DATE_FORMAT')} {date_format(moment, 'H:i T')}"
        end = texts.kept_until % {"until": shown}
    return " ".join([*([] if has_page else [texts.where]), end, texts.if_paid])
