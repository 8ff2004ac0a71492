"""Rows for staff pages: badges, amounts, timelines, and refund results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar

from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext

from tillgate.django import words
from tillgate.django.amounts import money_text
from tillgate.django.masking import Mask
from tillgate.django.models import Refund, TimelineEntry
from tillgate.lifecycle import RefundStatus, ReviewAction

Shown = TypeVar("Shown")
Row = TypeVar("Row", bound=Model)

MAY_REFUND: Final = "tillgate.refund_payment"
MAY_RESOLVE: Final = "tillgate.resolve_review"
_ABOUT_REFUNDS: Final = (
    ReviewAction.REFUND,
    ReviewAction.REFUND_DONE,
    ReviewAction.REFUND_NOT_DONE,
    ReviewAction.REFUND_REPORTED,
    ReviewAction.WITHDRAW,
    ReviewAction.RECORD_EXTERNAL_REFUND,
)
"""The review actions that need the permission to refund as well: they move money, or change how
much can be refunded.
"""

MOST_SHOWN: Final = 300
"""The limit of rows of one kind on a page, such as timeline entries: more than most payments ever
have.
"""

_JUST_REFUNDED: Final = timedelta(minutes=10)
"""The time after a refund in which the same amount again is probably a second press."""

_LONGEST_ID: Final = 18
"""The number of digits that every database accepts for the id of a row."""


def needed_for(action: str) -> list[str]:
    """Return the permissions that a review action needs."""
    return [MAY_RESOLVE, *([MAY_REFUND] if action in _ABOUT_REFUNDS else [])]


def badge(word: words.Word) -> SafeString:
    """Return a word with its icon; the tone only adds a colour."""
    return format_html(
        '<span class="tillgate-badge {}">{} {}</span>',
        word.tone,
        words.icon(word.icon),
        word.label,
    )


def staff_of(request: HttpRequest) -> str:
    """Return the actor for a user, as the timeline names it."""
    return str(request.user.get_username())


def row_id(given: str | None) -> int:
    """Return the id of a row from a form, or 0 if the form has none."""
    return (
        int(given)
        if given and given.isascii() and given.isdigit() and len(given) <= _LONGEST_ID
        else 0
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of a timeline as the page shows it."""

    at: datetime
    label: str
    icon: SafeString
    tone: str
    message: str
    actor: str
    evidence: list[tuple[str, str]]


class Newest(list[Shown]):
    """The newest of some rows for a page, oldest first, and whether older ones exist."""

    is_cut = False


def newest(rows: QuerySet[Row]) -> Newest[Row]:
    """Return the newest of some rows, oldest first."""
    found = list(rows.order_by("-id")[: MOST_SHOWN + 1])
    shown = Newest(reversed(found[:MOST_SHOWN]))
    shown.is_cut = len(found) > MOST_SHOWN
    return shown


def timeline_of(entries: QuerySet[TimelineEntry], mask: Mask) -> Newest[Line]:
    """Return the newest entries of a timeline for a page, oldest first."""
    found, lines = newest(entries), Newest[Line]()
    lines.is_cut = found.is_cut
    for entry in found:
        word = words.event(entry.event)
        message = mask.text(entry.message)
        actor = mask.text(words.actor_of(entry.actor))
        line = Line(
            entry.at,
            str(word.label),
            words.icon(word.icon),
            word.tone,
            message,
            actor,
            mask.evidence(entry.evidence),
        )
        lines.append(line)
    return lines


def just_refunded(
    refunds: Iterable[Any],  # rows, or a plugin's values
    currency: str,
    amount: Decimal | None = None,
) -> str:
    """Return a sentence about the newest refund of the last minutes, of an amount if one is given;
    empty if there is none.

    A page that the browser loads again has a new idempotency key: by this sentence staff see that
    their first press worked.
    """
    since = timezone.now() - _JUST_REFUNDED
    found = [
        one
        for one in refunds
        if one.created_at >= since
        and one.status != RefundStatus.FAILED
        and amount in (None, one.amount)
    ]
    if not found:
        return ""
    newest = max(found, key=lambda one: one.created_at)
    # "0 minutes ago" would be no time
    minutes = timesince(min(newest.created_at, timezone.now() - timedelta(minutes=1)))
    facts = {"amount": money_text(newest.amount, currency), "time": minutes}
    if not newest.requested_by:
        return gettext("A refund of %(amount)s was asked for %(time)s ago.") % facts
    said = gettext("A refund of %(amount)s was asked for %(time)s ago by %(staff)s.")
    return said % {**facts, "staff": newest.requested_by}


def refund_outcome(refund: Refund, mask: Mask, *, repeated: bool = False) -> tuple[int, str]:
    """Return the message about a refund for staff, and its level. `repeated`: it was asked for
    before, with the same key.
    """
    amount = money_text(refund.amount, refund.payment.currency)
    if repeated and refund.status == RefundStatus.SUCCEEDED:
        said = gettext("%(amount)s had been refunded already; nothing more was sent.")
        return messages.INFO, said % {"amount": amount}
    level, said = _outcome(refund, amount, mask)
    return level, f"{said} {gettext('Nothing more was sent.')}" if repeated else said


def _outcome(refund: Refund, amount: str, mask: Mask) -> tuple[int, str]:
    if refund.status == RefundStatus.SUCCEEDED:
        return messages.SUCCESS, gettext("%(amount)s was refunded.") % {"amount": amount}
    if refund.status == RefundStatus.FAILED:
        said = gettext("%(amount)s was not refunded: %(answer)s.")
        return messages.ERROR, said % {"amount": amount, "answer": mask.text(refund.answer)}
    if refund.status == RefundStatus.PENDING:
        said = gettext(
            "The gateway has accepted the refund of %(amount)s. Tillgate asks until it is done.",
        )
        return messages.INFO, said % {"amount": amount}
    if refund.status == RefundStatus.UNKNOWN:
        said = gettext(
            "The outcome of the refund of %(amount)s is unknown, and Tillgate never sends it "
            "again. Check the gateway, and mark the refund "
            "as done or not done in its review.",
        )
        return messages.WARNING, said % {"amount": amount}
    # a sending was tried, and the request could not leave
    if refund.status == RefundStatus.QUEUED and refund.answer:
        said = gettext(
            "The refund of %(amount)s could not be sent yet, and the worker tries it again: "
            "%(answer)s.",
        )
        return messages.WARNING, said % {"amount": amount, "answer": mask.text(refund.answer)}
    return messages.INFO, gettext("The refund of %(amount)s is on its way.") % {"amount": amount}
