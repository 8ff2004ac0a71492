"""The owner's mail about open reviews, no more often than the settings say."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.conf import settings as django_settings
from django.core.mail import EmailMessage
from django.urls import NoReverseMatch
from django.utils.translation import gettext, ngettext

from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Review
from tillgate.django.operations.heartbeats import take_turn
from tillgate.django.operations.locking import durable, network, outside_transactions

__all__ = ["mail_reviews", "recipients_of_reviews"]

HEARTBEAT: Final = "review-mail"
"""When the last mail had its turn."""
_MOST_IN_ONE_MAIL: Final = 20
_MOST_AT_ONCE: Final = 500
"""The reviews of one mail; most of them are only counted there."""


def mail_reviews() -> int:
    """Mail the reviews since the last mail, if mail is due and has recipients; return the number of mails sent.

    Reviews that a mail server refuses stay unmailed, and the next mail carries them.
    """
    outside_transactions("mail_reviews")
    interval = timedelta(minutes=get_settings().review_mail_minutes)
    recipients = recipients_of_reviews()
    unmailed = Review.objects.filter(mailed_at__isnull=True, resolved_at__isnull=True)
    if not recipients or not unmailed.exists() or not take_turn(HEARTBEAT, clock.now(), interval):
        return 0
    waiting = list(unmailed.order_by("id")[:_MOST_AT_ONCE])
    if not waiting:
        return 0  # a person was quicker
    subject = ngettext("%(count)d payment needs review", "%(count)d payments need review", len(waiting))
    lines = [f"- {review.message}" for review in waiting[:_MOST_IN_ONE_MAIL]]
    if more := len(waiting) - len(lines):
        lines.append(ngettext("... and %(count)d more.", "... and %(count)d more.", more) % {"count": more})
    lines.append(_where())
    with network():
        EmailMessage(subject % {"count": len(waiting)}, "\n\n".join(lines), to=recipients).send()
    with durable():
        rows = Review.objects.filter(pk__in=[review.pk for review in waiting])
        counted = {review.pk: review for review in waiting}
        in_words = {review.pk for review in waiting[:_MOST_IN_ONE_MAIL]}
        told = list(rows.select_for_update().order_by("pk"))
        for row in told:
            if row.pk in in_words:
                row.mailed = [*row.mailed, counted[row.pk].version]
            if row.version == counted[row.pk].version:  # else it says something else by now, and is mailed once more
                row.mailed_at = clock.now()
        Review.objects.bulk_update(told, ["mailed", "mailed_at"])
    return 1


def _where() -> str:
    try:
        page = get_settings().address("admin:tillgate_review_changelist")
    except NoReverseMatch:
        return gettext("See “needs review” in the admin.")
    return gettext("See “needs review” in the admin: %(url)s") % {"url": page}


def recipients_of_reviews() -> list[str]:
    """Return the recipients of the mail."""
    chosen = get_settings().review_mail_to
    if chosen:
        return list(chosen)
    # Before Django 6 a manager is a pair of name and address, from then on an address.
    return [manager if isinstance(manager, str) else manager[1] for manager in django_settings.MANAGERS]
