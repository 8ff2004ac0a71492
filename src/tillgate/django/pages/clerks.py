"""The timeline for clerks: a few plain lines about an order's money, from the rows as they are.

The technician's timeline has every step, with its actor and evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tillgate.django import words
from tillgate.django.amounts import money_text
from tillgate.django.masking import Mask
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review
from tillgate.django.orders.timeline import ACCEPTED, FORCE_EXPIRE, IMPORTED, NOTED
from tillgate.django.outbox.remote import NOT_SENT
from tillgate.django.pages.summaries import declined_text, paid_with
from tillgate.lifecycle import OutboxStatus, PaymentStatus, RefundStatus, ReviewReason

_MOST_LINES: Final = 6

_MAILS: Final[dict[str, str | Promise]] = {
    "order-paid": gettext_lazy("Confirmation mailed"),
    "order-waits": gettext_lazy("Reminder to pay mailed"),
    "paid-twice": gettext_lazy("Mailed that it was paid twice"),
    "payment-link": gettext_lazy("Payment link mailed"),
    "cancelled": gettext_lazy("Mailed that it was cancelled"),
    "refunded": gettext_lazy("Mail about the refund sent"),
}
"""The lines of remote events, by their names."""
_REFUNDS: Final[dict[str, tuple[str | Promise, str, str]]] = {
    RefundStatus.SUCCEEDED: (gettext_lazy("Refunded %(amount)s"), "back", "good"),
    RefundStatus.FAILED: (gettext_lazy("%(amount)s was not refunded"), "cross", "bad"),
    RefundStatus.UNKNOWN: (
        gettext_lazy("Refund of %(amount)s: nobody knows whether it was done"),
        "question",
        "ask",
    ),
}
_ON_ITS_WAY: Final = (gettext_lazy("Refund of %(amount)s is on its way"), "clock", "wait")
_DECISIONS: Final = (ACCEPTED, FORCE_EXPIRE, IMPORTED)
_BANKS: Final = (ReviewReason.DISPUTED, ReviewReason.CHANGED_AFTER_PAID)
"""Reasons that stay in the history after staff have resolved them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkLine:
    """One line of a timeline for clerks: its time, its text in the active language, and its icon
    and tone (good, bad, wait, ask or plain). `is_note`: staff wrote it.
    """

    at: datetime
    text: str
    icon: SafeString
    tone: str
    is_note: bool = False


def clerk_lines(order: Order, payment: Payment | None = None) -> list[ClerkLine]:
    """Return a few lines about an order, or about one payment and its order, the oldest first.

    At most six, the first and the newest; and every note of staff.
    """
    payments = [payment] if payment else list(order.payments.order_by("id"))
    refunds = list(Refund.objects.filter(payment__in=payments).order_by("id"))
    mask = Mask(payments, refunds)
    told = order.timeline.filter(Q(payment__in=payments) | Q(payment=None))
    entries = list(told.filter(event__in=(*_DECISIONS, NOTED)).order_by("id"))
    decided = {one.payment_id: one for one in entries if one.event != NOTED}
    lines = [_line(order.created_at, _("Ordered"), "plus")]
    if order.closed_at:
        lines.append(_line(order.closed_at, _("Cancelled by the shop"), "lock"))
    lines += _of_payments(payments, {pk: entry.actor for pk, entry in decided.items()})
    lines += _of_refunds(refunds, {one.pk: one for one in payments})
    lines += _of_reviews(order, payments)
    lines += _of_mails(order, payments)
    lines.sort(key=lambda line: line.at)
    if len(lines) > _MOST_LINES:
        lines = [lines[0], *lines[1 - _MOST_LINES :]]
    lines += (
        _line(one.at, f"{words.actor_of(one.actor)}: {one.message}", "staff", is_note=True)
        for one in entries
        if one.event == NOTED and one.message
    )
    lines = [_masked(line, mask) for line in lines]
    return sorted(lines, key=lambda line: line.at)


def _of_payments(payments: list[Payment], actors: dict[int | None, str]) -> Iterator[ClerkLine]:
    for one in payments:
        facts = {"amount": money_text(one.amount, one.currency), "method": paid_with(one)}
        by = words.actor_of(actors.get(one.pk, "")) if one.pk in actors else ""
        if one.status == PaymentStatus.PAID:
            text = _("Paid %(amount)s with %(method)s") % facts
            yield _line(one.status_since, _by(text, by), "check", "good")
        elif one.is_open and one.is_processing:
            text = _("The money is on its way: %(amount)s with %(method)s") % facts
            yield _line(one.status_since, text, "clock", "wait")
        elif one.is_open:
            text = _("The shopper pays %(amount)s with %(method)s") % facts
            yield _line(one.created_at, text, "clock", "wait")
    failed = [one for one in payments if not one.is_open and one.status != PaymentStatus.PAID]
    if failed:
        yield _of_failed(failed, actors)


def _of_failed(failed: list[Payment], actors: dict[int | None, str]) -> ClerkLine:
    """Return one line for all attempts that ended unpaid."""
    last = max(failed, key=lambda one: one.status_since)
    text = _("Not paid with %(method)s") % {"method": paid_with(last)}
    if reason := declined_text(last.known.decline_reason):
        text = f"{text}: {reason}"
    if len(failed) > 1:
        text = _("%(count)s attempts without a payment. The last: %(text)s") % {
            "count": len(failed),
            "text": text,
        }
    by = words.actor_of(actors[last.pk]) if last.pk in actors else ""
    return _line(last.status_since, _by(text, by), "cross", "bad")


def _of_refunds(refunds: list[Refund], payments: dict[int, Payment]) -> Iterator[ClerkLine]:
    for one in refunds:
        text, icon, tone = _REFUNDS.get(one.status, _ON_ITS_WAY)
        amount = money_text(one.amount, payments[one.payment_id].currency)
        said = _by(str(text) % {"amount": amount}, one.requested_by)
        yield _line(one.status_since, said, icon, tone)


def _of_reviews(order: Order, payments: list[Payment]) -> Iterator[ClerkLine]:
    about = Review.objects.filter(
        Q(payment__in=payments) | Q(payment=None, order=order),
    ).filter(Q(resolved_at=None) | Q(reason__in=_BANKS))
    for one in about.select_related("payment", "refund").order_by("id"):
        text = words.reason(one.reason)
        if one.resolved_at:
            text = _("%(text)s, resolved by %(staff)s") % {"text": text, "staff": one.resolved_by}
        else:
            text = _("Needs review: %(text)s") % {"text": text}
        yield _line(one.opened_at, text, "bell", "plain" if one.resolved_at else "ask")


def _of_mails(order: Order, payments: list[Payment]) -> Iterator[ClerkLine]:
    sent: Iterable[OutboxEvent] = order.outbox_events.filter(
        Q(payment__in=payments) | Q(payment=None),
        kind=OutboxEventKind.REMOTE,
        name__in=_MAILS,
        done_at__isnull=False,
    ).exclude(outcome__in=(NOT_SENT, OutboxStatus.ABANDONED))
    for one in sent:
        assert one.done_at is not None
        yield _line(one.done_at, str(_MAILS[one.name]), "send")


def _by(text: str, staff: str) -> str:
    return _("%(text)s by %(staff)s") % {"text": text, "staff": staff} if staff else text


def _line(
    at: datetime,
    text: str,
    icon: str,
    tone: str = "plain",
    *,
    is_note: bool = False,
) -> ClerkLine:
    return ClerkLine(at=at, text=text, icon=words.icon(icon), tone=tone, is_note=is_note)


def _masked(line: ClerkLine, mask: Mask) -> ClerkLine:
    return ClerkLine(
        at=line.at,
        text=mask.text(line.text),
        icon=line.icon,
        tone=line.tone,
        is_note=line.is_note,
    )
