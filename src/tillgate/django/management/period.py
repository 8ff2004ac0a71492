"""The period of a subcommand: `--since` and `--until`, as a day, a moment, or a past duration."""

from __future__ import annotations

import argparse
import re
from datetime import date, datetime, timedelta
from typing import Final

from django.core.management.base import CommandParser
from django.utils.timezone import is_naive, make_aware, make_naive

from tillgate.django import dates

WHEN: Final = (
    "a day such as 2026-01-31, a moment such as 2026-01-31T18:00, or how long ago: 7d, 12h, 30m"
)

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
# at the ends of the calendar the next day, or the same time in another zone, does not exist
_YEARS: Final = (
    1900,
    9998,
)

Moment = date | datetime | timedelta


def add_period(parser: CommandParser, *, since: str | None, until: str | None, about: str) -> None:
    """Add the two options, with their defaults and the rows that the period is about."""
    parser.add_argument(
        "--since",
        type=moment,
        default=since,
        metavar="WHEN",
        help=f"{about} since then. WHEN is {WHEN}",
    )
    parser.add_argument(
        "--until",
        type=moment,
        default=until,
        metavar="WHEN",
        help=f"{about} until then, that day included",
    )


def moment(text: str) -> Moment:
    """Parse a day, a time, or an age."""
    if ago := re.fullmatch(r"(\d{1,4})([mhd])", text):
        return timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = (
            date.fromisoformat(text)
            if len(text) <= len("2026-01-31")
            else datetime.fromisoformat(text)
        )
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a day (2026-01-31), a moment (2026-01-31T18:00) or how long ago "
            "(7d, 12h, 30m)",
        ) from None
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is out of range: give a year from {_YEARS[0]} to {_YEARS[1]}",
        )
    return moment


def starts(when: Moment, now: datetime) -> datetime:
    """Return the start of a period."""
    if isinstance(when, timedelta):
        return now - when
    if not isinstance(when, datetime):
        return dates.start_of(when)
    if is_naive(now):  # a project without time zones stores its moments so
        return when if is_naive(when) else make_naive(when)
    return make_aware(when) if is_naive(when) else when


def ends(when: Moment, now: datetime) -> datetime:
    """Return the end of a period, which includes the given day."""
    if isinstance(when, date) and not isinstance(when, datetime):
        return dates.start_of(when + timedelta(days=1))
    return starts(when, now)


def shown(moment: datetime) -> str:
    """Return a moment in the project's time zone, for a terminal."""
    return f"{dates.local(moment):%Y-%m-%d %H:%M %Z}".rstrip()
