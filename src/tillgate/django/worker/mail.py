"""The owner's mail and alerts about open reviews, no more often than the settings say."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from html import escape
from typing import Final

from django.conf import settings as django_settings
from django.core.mail import send_mail
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.html import linebreaks, urlize
from django.utils.translation import gettext, ngettext

from tillgate import hooks
from tillgate.django.actions import actions_for
from tillgate.django.amounts import money_text
from tillgate.django.conf import get_settings
from tillgate.django.masking import Mask
from tillgate.django.models import Review
from tillgate.django.orders.locking import durable, network, outside_transactions
from tillgate.django.orders.values import review_value
from tillgate.django.review_text import recommendation_of
from tillgate.django.words import reason
from tillgate.django.worker.lanes import take_turn
from tillgate.wire.urls import is_web_address

_log = logging.getLogger("tillgate")

MAIL_LANE: Final = ":staff:mail"
ALERT_LANE: Final = ":staff:alerts"
"""They rest after each mail and alert."""
TIMESTAMP: Final = "Tillgate-Timestamp"
SIGNATURE: Final = "Tillgate-Signature"
_MOST_IN_ONE_MAIL: Final = 20
_MOST_AT_ONCE: Final = 500
"""The reviews of one mail; most of them are only counted there."""
_HTML: Final = (
    '<html><body style="max-width: 40em; font: 16px/1.5 sans-serif; overflow-wrap: anywhere">'
    "{}</body></html>"
)
"""The frame of the mail's HTML: the same text, in paragraphs and with links to press."""
_ALERT_SECONDS: Final = 10.0


class AlertFailed(Exception):
    """The owner's address has not taken an alert; the next one carries its reviews."""


def mail_reviews() -> int:
    """Mail the reviews since the last mail, if mail is due and has recipients; return the number of
    mails sent.

    Reviews that a mail server refuses stay unmailed, and the next mail carries them.
    """
    outside_transactions("mail_reviews")
    recipients = recipients_of_reviews()

    def send(reviews: list[Review]) -> None:
        subject, text = _rendered(reviews)
        html = _HTML.format(linebreaks(urlize(text, autoescape=True)))
        send_mail(subject, text, get_settings().review_mail_from, recipients, html_message=html)

    return _send_reviews("mailed_at", MAIL_LANE, send) if recipients else 0


def alert_reviews() -> int:
    """Send the same by POST to the owner's address, if it is set; return the number of alerts
    sent.
    """
    outside_transactions("alert_reviews")
    return (
        _send_reviews("alerted_at", ALERT_LANE, _alert) if get_settings().alert_webhook_url else 0
    )


def _send_reviews(column: str, lane: str, send: Callable[[list[Review]], None]) -> int:
    """Send the open reviews with an empty `column`, if it is time, and fill the column."""
    interval = timedelta(minutes=get_settings().review_mail_minutes)
    unsent = Review.objects.filter(**{f"{column}__isnull": True}, resolved_at__isnull=True)
    if not unsent.exists() or not take_turn(lane, interval):
        return 0
    waiting = list(
        unsent.select_related("order", "payment", "refund__payment").order_by("id")[:_MOST_AT_ONCE],
    )
    if not waiting:
        return 0  # a person was quicker
    with network():
        send(waiting)
    with durable():
        rows = Review.objects.filter(pk__in=[review.pk for review in waiting])
        counted = {review.pk: review for review in waiting}
        in_words = {review.pk for review in waiting[:_MOST_IN_ONE_MAIL]}
        fresh = list(rows.select_for_update().order_by("pk"))
        for row in fresh:
            if column == "mailed_at" and row.pk in in_words:
                row.mailed = [*row.mailed, counted[row.pk].version]
            # else it says something else by now, and is sent once more
            if row.version == counted[row.pk].version:
                setattr(row, column, timezone.now())
        Review.objects.bulk_update(fresh, [column, "mailed"])
    return 1


def _alert(reviews: list[Review]) -> None:
    url, (subject, text) = get_settings().alert_webhook_url, _rendered(reviews)
    assert url
    facts = [_facts(review) for review in reviews[:_MOST_IN_ONE_MAIL]]
    # Slack reads the text, and would take "<!channel>" from the description of an order for a
    # command.
    alert = {
        "text": escape(f"{subject}\n\n{text}", quote=False),
        "count": len(reviews),
        "reviews": facts,
    }
    body, sent_at = json.dumps(alert).encode(), str(int(timezone.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        TIMESTAMP: sent_at,
        SIGNATURE: signature_of(sent_at, body),
    }
    from tillgate.transport import post  # imported late: httpx is heavy, and alerts are rare

    if problem := post(url.get_secret_value(), body, headers, seconds=_ALERT_SECONDS):
        raise AlertFailed(problem)


def signature_of(sent_at: str, body: bytes) -> str:
    """Return the signature of an alert: HMAC-SHA256, in hexadecimal digits, over the timestamp, a
    dot and the body.
    """
    key = get_settings().alert_webhook_secret
    assert key
    return hmac.new(
        key.get_secret_value().encode(),
        sent_at.encode() + b"." + body,
        "sha256",
    ).hexdigest()


def _facts(review: Review) -> dict[str, str | None]:
    money = review.money
    return {
        "id": str(review.pk),
        "reason": review.reason,
        "opened_at": review.opened_at.isoformat(),
        "plugin": review.order.plugin if review.order else None,
        "order": review.order.key if review.order else None,
        "payment": review.payment.reference if review.payment else None,
        "account": review.account,
        "amount": str(money.amount) if money else None,
        "currency": money.currency if money else None,
        "message": _mask(review).text(review.message),
        "url": _page_of(review),
    }


def _rendered(reviews: list[Review]) -> tuple[str, str]:
    """Return subject and text of a message about some reviews."""
    subject = ngettext(
        "%(count)d payment needs review",
        "%(count)d payments need review",
        len(reviews),
    ) % {"count": len(reviews)}
    lines = [_in_words(review) for review in reviews[:_MOST_IN_ONE_MAIL]]
    if more := len(reviews) - len(lines):
        lines.append(
            ngettext("... and %(count)d more.", "... and %(count)d more.", more) % {"count": more},
        )
    where = _address("changelist")
    lines.append(
        gettext("All open reviews: %(url)s") % {"url": where}
        if where
        else gettext("See “Needs review” on the staff pages."),
    )
    return subject, "\n\n".join(lines)


def _in_words(review: Review) -> str:
    """Return the message, the amount, the recommendation, and the address of the review's card."""
    title, money = reason(review.reason), review.money
    head = f"- {title}: {money_text(money.amount, money.currency)}" if money else f"- {title}"
    advice, address = recommendation_of(review.reason, actions_for(review)), _page_of(review)
    return "\n  ".join(filter(None, (head, _mask(review).text(review.message), advice, address)))


def _mask(review: Review) -> Mask:
    return Mask([review.payment], [review.refund])


def _page_of(review: Review) -> str:
    """Return the address of the page with a review: the shop plugin's own, or the review's card in
    the admin.
    """
    value, url = review_value(review), None
    try:
        if review.order:
            url = hooks.call_owner(review.order.plugin, "tillgate_review_url", review=value)
        else:
            url = hooks.plugin_manager().hook.tillgate_review_url(review=value)
    except Exception:  # the shop's own code may raise anything
        _log.exception("the shop's page for review %s could not be found", review.pk)
    return url if isinstance(url, str) and is_web_address(url) else _address("change", review.pk)


def _address(page: str, *arguments: int) -> str:
    """Return the address of a page of reviews in the admin, or "" in a project without the
    admin.
    """
    with suppress(NoReverseMatch):
        anchor = f"#review-{arguments[0]}" if arguments else ""
        return get_settings().address(f"admin:tillgate_review_{page}", *arguments) + anchor
    return ""


def recipients_of_reviews() -> list[str]:
    """Return the recipients of the mail."""
    chosen = get_settings().review_mail_to
    if chosen:
        return list(chosen)
    # Before Django 6 a manager is a pair of name and address, from then on an address.
    return [
        manager if isinstance(manager, str) else manager[1] for manager in django_settings.MANAGERS
    ]
