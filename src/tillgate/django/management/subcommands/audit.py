"""Compare Tillgate's ledger with the gateway and the shop; ends with 1 when they differ. Changes nothing.

Ends with 0 when nothing differs, with 1 when something does, and with 2 when a query failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFault
from django.utils.timezone import is_naive, make_aware, make_naive

from tillgate.django import clock
from tillgate.django.amounts import money_text
from tillgate.django.conf import get_settings
from tillgate.django.management.terminal import Voice, require_tables, say, stopped_by_signals, unusable
from tillgate.django.models import Payment
from tillgate.django.operations.accounts import find_account
from tillgate.django.operations.audit import Audited, audit
from tillgate.django.operations.ledger import Difference, DifferenceKind
from tillgate.errors import ConfigurationError, TillgateError
from tillgate.money import amount_text
from tillgate.wire.texts import printable

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_DIFFERS, _NOT_ASKED = 1, 2
_YEARS: Final = (1900, 9998)  # at the ends of the calendar the next day, or the same time in another zone, does not exist

_Moment = date | datetime | timedelta


def _moment(text: str) -> _Moment:
    """Parse a day, a time, or an age."""
    if ago := re.fullmatch(r"(\d{1,4})([mhd])", text):
        return timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = date.fromisoformat(text) if len(text) <= len("2026-01-31") else datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a day (2026-01-31), a moment (2026-01-31T18:00) or how long ago (7d, 12h, 30m)"
        ) from None
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: give a year from {_YEARS[0]} to {_YEARS[1]}")
    return moment


def add_arguments(parser: CommandParser) -> None:
    """Add the audit's options."""
    when = "a day such as 2026-01-31, a moment such as 2026-01-31T18:00, or how long ago: 7d, 12h, 30m"
    parser.add_argument("--since", type=_moment, default="30d", metavar="WHEN", help=f"payments started since then (default: 30d). {when}")
    parser.add_argument("--until", type=_moment, default="0m", metavar="WHEN", help="payments started until then, that day included (now)")
    parser.add_argument("--account", metavar="ALIAS", help="only payments of this account")
    parser.add_argument("--json", action="store_true", help="one object: the period, what was compared, and the differences")


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print every difference as it is found, and then a summary."""
    now = clock.now()
    since, until = _starts(options["since"], now), _ends(options["until"], now)
    if since >= until:
        remedy = "give an earlier --since or a later --until"
        raise CommandError(f"--since {_shown(since)} is not before --until {_shown(until)}: {remedy}", returncode=_NOT_ASKED)
    voice = Voice(command, 0 if options["json"] else options["verbosity"])
    found, done = [], Audited()

    def progress(audited: Audited) -> None:
        nonlocal done
        done = audited
        voice.progress(f"{audited.payments:,} of {audited.total:,} payments compared, {_counted(audited.differences, 'difference')}")

    try:
        get_settings()  # report a wrong setting now
        require_tables(_NOT_ASKED)
        with stopped_by_signals() as stopped:
            for difference in audit(since, until, account=options["account"], progress=progress, stop=stopped):
                found.append(difference)
                if not options["json"]:
                    say(command, _line(difference))
        if options["account"] is not None and not done.total:
            _require_account(options["account"])
    except TillgateError as error:
        raise CommandError(f"{type(error).__name__}: {error}", returncode=_NOT_ASKED) from error
    except DatabaseFault as error:
        raise CommandError(unusable(error), returncode=_NOT_ASKED) from error
    if options["json"]:
        say(command, json.dumps(_object(since, until, done, found), indent=2))
    for line in _summary(since, until, done, found):
        voice.done(line)
    if found:
        sys.exit(_NOT_ASKED if any(one.kind is DifferenceKind.NOT_ASKED for one in found) else _DIFFERS)


def _require_account(alias: str) -> None:
    """Refuse an unknown alias: it has no payments, and an empty result would look like a ledger without differences."""
    try:
        find_account(alias)
    except ConfigurationError as error:
        used = Payment.objects.order_by().values_list("account", flat=True).distinct()
        known = ", ".join(sorted({*get_settings().accounts, *used}))
        refusal = f"--account {alias or repr(alias)}: there is no such account; give one of {known}"
        raise CommandError(refusal, returncode=_NOT_ASKED) from error


def _starts(when: _Moment, now: datetime) -> datetime:
    if isinstance(when, timedelta):
        return now - when
    moment = when if isinstance(when, datetime) else datetime(when.year, when.month, when.day)  # noqa: DTZ001  # made aware below
    if is_naive(now):  # a project without time zones stores its moments so
        return moment if is_naive(moment) else make_naive(moment)
    return make_aware(moment) if is_naive(moment) else moment


def _ends(when: _Moment, now: datetime) -> datetime:
    """Return the end of a period, which includes the given day."""
    if isinstance(when, date) and not isinstance(when, datetime):
        return _starts(when + timedelta(days=1), now)
    return _starts(when, now)


def _shown(moment: datetime) -> str:
    return f"{clock.local(moment):%Y-%m-%d %H:%M %Z}".rstrip()


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _total(amounts: Mapping[str, Decimal]) -> str:
    return ", ".join(money_text(amount, currency) for currency, amount in sorted(amounts.items())) or "no money"


def _line(difference: Difference) -> str:
    about = f" {difference.reference} of order {difference.order}" if difference.reference else ""
    told = f" ({difference.told})" if difference.told else ""
    return printable(f"{difference.kind}{about}: {difference.here} | {difference.there}{told} | {difference.remedy}")


def _summary(since: datetime, until: datetime, done: Audited, found: list[Difference]) -> list[str]:
    differing = [one for one in found if one.kind is not DifferenceKind.NOT_ASKED]
    known = sum(bool(one.told) for one in differing)
    lines = [
        f"{done.compared:,} of {_counted(done.total, 'payment')} compared, started from {_shown(since)} until {_shown(until)}: "
        + (_counted(len(differing), "difference") if differing else "no difference" if done.compared else "nothing was compared")
        + (f", {known:,} of them under review" if known else ""),
        f"paid here: {done.paid_here:,} with {_total(done.paid_here_amounts)}; "
        f"at the gateway: {done.paid_there:,} with {_total(done.paid_there_amounts)}",
    ]
    if done.refunds:
        refunds = f"{_counted(done.refunds, 'refund')} with {_total(done.refunded_amounts)}"
        lines.append(f"refunded here: {refunds}; compare them with the gateway's back office")
    if len(differing) < len(found):
        lines.append("some queries failed: see not-asked")
    return lines


def _object(since: datetime, until: datetime, done: Audited, found: list[Difference]) -> dict[str, Any]:
    counts = {name: value for name, value in asdict(done).items() if name != "differences"}
    for name in ("paid_here_amounts", "paid_there_amounts", "refunded_amounts"):
        counts[name] = {currency: amount_text(amount, currency) for currency, amount in counts[name].items()}
    return {"since": since.isoformat(), "until": until.isoformat(), **counts, "differences": [asdict(one) for one in found]}
