"""Compare Tillgate's ledger with the gateway and the shop; ends with 1 when they differ. Changes
nothing.

Ends with 0 when nothing differs, with 1 when something does, and with 2 when a query failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFault
from django.utils import timezone

from tillgate.django.accounting.audit import Audited, audit
from tillgate.django.accounting.differences import Difference, DifferenceKind
from tillgate.django.amounts import money_text
from tillgate.django.conf import get_settings
from tillgate.django.management.period import add_period, ends, shown, starts
from tillgate.django.management.terminal import (
    Voice,
    require_account,
    require_tables,
    say,
    stopped_by_signals,
    unusable,
)
from tillgate.errors import TillgateError
from tillgate.money import amount_text
from tillgate.wire.texts import printable

_DIFFERS, _NOT_ASKED = 1, 2


def add_arguments(parser: CommandParser) -> None:
    """Add the audit's options."""
    add_period(parser, since="30d", until="0m", about="payments started")
    parser.add_argument("--account", metavar="ALIAS", help="only payments of this account")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one object: the period, the compared rows, and the differences",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print every difference as it is found, and then a summary."""
    now = timezone.now()
    since, until = starts(options["since"], now), ends(options["until"], now)
    if since >= until:
        remedy = "give an earlier --since or a later --until"
        raise CommandError(
            f"--since {shown(since)} is not before --until {shown(until)}: {remedy}",
            returncode=_NOT_ASKED,
        )
    voice = Voice(command, 0 if options["json"] else options["verbosity"])
    found, done = [], Audited()

    def progress(audited: Audited) -> None:
        nonlocal done
        done = audited
        voice.progress(
            f"{audited.payments:,} of {audited.total:,} payments compared, "
            f"{_counted(audited.differences, 'difference')}",
        )

    try:
        get_settings()  # report a wrong setting now
        require_tables(_NOT_ASKED)
        with stopped_by_signals() as stopped:
            for difference in audit(
                since,
                until,
                account=options["account"],
                progress=progress,
                stop=stopped,
            ):
                found.append(difference)
                if not options["json"]:
                    say(command, _line(difference))
        if options["account"] is not None and not done.total:
            require_account(options["account"], _NOT_ASKED)
    except TillgateError as error:
        raise CommandError(f"{type(error).__name__}: {error}", returncode=_NOT_ASKED) from error
    except DatabaseFault as error:
        raise CommandError(unusable(error), returncode=_NOT_ASKED) from error
    if options["json"]:
        say(command, json.dumps(_object(since, until, done, found), indent=2))
    for line in _summary(since, until, done, found):
        voice.done(line)
    if found:
        sys.exit(
            _NOT_ASKED if any(one.kind is DifferenceKind.NOT_ASKED for one in found) else _DIFFERS,
        )


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _total(amounts: Mapping[str, Decimal]) -> str:
    return (
        ", ".join(money_text(amount, currency) for currency, amount in sorted(amounts.items()))
        or "no money"
    )


def _line(difference: Difference) -> str:
    about = f" {difference.reference} of order {difference.order}" if difference.reference else ""
    told = f" ({difference.told})" if difference.told else ""
    return printable(
        f"{difference.kind}{about}: {difference.here} | {difference.there}{told} | "
        f"{difference.remedy}",
    )


def _summary(since: datetime, until: datetime, done: Audited, found: list[Difference]) -> list[str]:
    differing = [one for one in found if one.kind is not DifferenceKind.NOT_ASKED]
    known = sum(bool(one.told) for one in differing)
    lines = [
        f"{done.compared:,} of {_counted(done.total, 'payment')} compared, started from "
        f"{shown(since)} until {shown(until)}: "
        + (
            _counted(len(differing), "difference")
            if differing
            else "no difference"
            if done.compared
            else "nothing was compared"
        )
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


def _object(
    since: datetime,
    until: datetime,
    done: Audited,
    found: list[Difference],
) -> dict[str, Any]:
    counts = {name: value for name, value in asdict(done).items() if name != "differences"}
    for name in ("paid_here_amounts", "paid_there_amounts", "refunded_amounts"):
        counts[name] = {
            currency: amount_text(amount, currency) for currency, amount in counts[name].items()
        }
    return {
        "since": since.isoformat(),
        "until": until.isoformat(),
        **counts,
        "differences": [asdict(one) for one in found],
    }
