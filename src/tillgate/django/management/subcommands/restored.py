"""Note that the database was restored, or that another server took over, and lost its changes since
a moment. Sends nothing itself.

Queued refunds that may have been sent become unknown, each with a review. The worker asks about the
payments of the 30 days before.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFault
from django.utils import timezone

from tillgate.django.management.period import WHEN, Moment, ends, moment, shown, starts
from tillgate.django.management.terminal import Voice, require_tables, unusable
from tillgate.django.payments.restores import note_restored


def add_arguments(parser: CommandParser) -> None:
    """Add the options."""
    remedy = (
        "the last moment before the lost changes; if in doubt, the moment at which it "
        "served again; a day or a minute counts whole"
    )
    parser.add_argument(
        "--since",
        type=moment,
        required=True,
        metavar="WHEN",
        help=f"{remedy}. WHEN is {WHEN}",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Note it, and print the consequences."""
    require_tables()
    now = timezone.now()
    first = starts(options["since"], now)
    if first > now:
        raise CommandError(
            f"--since {shown(first)}: lies ahead; give the last moment before the lost changes",
        )
    since = _last(options["since"], now)
    try:
        done = note_restored(since, "restored")
    except DatabaseFault as error:
        raise CommandError(unusable(error)) from error
    counts = (
        f"{done.refunds} queued refund{'' if done.refunds == 1 else 's'} unknown now, each "
        "with a review"
    )
    polled = f"the worker asks about {done.payments} payment{'' if done.payments == 1 else 's'}"
    Voice(command, options["verbosity"]).done(
        f"Changes after {shown(since)} may be lost: {counts}; {polled}.",
    )


def _last(when: Moment, now: datetime) -> datetime:
    """Return the last moment of a day or a minute, and at most now: a refund that was queued in it
    may have been sent.
    """
    if isinstance(when, timedelta):
        return now - when
    end = ends(when, now)
    if isinstance(when, datetime):
        end = end.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return min(end - timedelta(microseconds=1), now)
