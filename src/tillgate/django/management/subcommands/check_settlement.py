"""Compare a settlement file of the gateway with payments and refunds; ends with 1 when they differ.
Changes nothing.

The file is CSV with the columns reference and amount, and if wanted fee, currency and type. A
negative amount, or the type "refund", is a refund. The file must have every payment and refund of
the period; without one, from its own first payment to its last.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from tillgate.django.accounting.settlement import (
    COLUMNS,
    Checked,
    SettlementDifference,
    check_settlement,
    read_file,
)
from tillgate.django.management.period import add_period, ends, shown, starts
from tillgate.django.management.terminal import Voice, require_account, require_tables, say
from tillgate.wire.texts import printable


def add_arguments(parser: CommandParser) -> None:
    """Add the check's options."""
    parser.add_argument("file", type=Path, help="the CSV file")
    parser.add_argument(
        "--account",
        metavar="ALIAS",
        help="only payments of this account must be in the file",
    )
    add_period(parser, since=None, until=None, about="the file must have the payments and refunds")
    for name in COLUMNS:
        parser.add_argument(
            f"--{name}-column",
            default="",
            metavar="NAME",
            help=f"the column of the file that holds the {name}",
        )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print every wrong line and every difference, and then a summary."""
    require_tables()
    if options["account"] is not None:
        require_account(options["account"])
    now = timezone.now()
    try:
        content = options["file"].read_bytes()
    except OSError as error:
        raise CommandError(f"{options['file']} cannot be read: {error}") from error
    rows, faults = read_file(content, {name: options[f"{name}_column"] for name in COLUMNS})
    checked = check_settlement(
        rows,
        faults,
        account=options["account"],
        since=starts(options["since"], now) if options["since"] else None,
        until=ends(options["until"], now) if options["until"] else None,
    )
    for line in [*map(str, checked.faults), *map(_line, checked.differences)]:
        say(command, printable(line))
    voice = Voice(command, options["verbosity"])
    for line in _summary(checked):
        voice.done(line)
    if not checked.is_clean:
        sys.exit(1)


def _line(one: SettlementDifference) -> str:
    place = f" (line {one.line})" if one.line else ""
    here = f"{_money(one.here)}, {one.status}" if one.here else "nothing"
    return (
        f"{one.kind} {one.about} {one.reference}{place}: {here} here | "
        f"{_money(one.there) if one.there else 'nothing'} in the file"
    )


def _money(stated: tuple[Decimal, str]) -> str:
    return f"{stated[1]} {stated[0]}".strip()


def _summary(checked: Checked) -> list[str]:
    lines = [
        f"{checked.rows:,} lines read, {len(checked.faults):,} wrong; {checked.matched:,} agree, "
        f"{len(checked.differences):,} differences",
    ]
    for currency in sorted(checked.fees):
        sums = (
            f"paid {checked.paid[currency]}, refunded {checked.refunded[currency]}, fees "
            f"{checked.fees[currency]}"
        )
        lines.append(f"in the file, {currency or 'currency unknown'}: {sums}")
    if checked.since and checked.until:
        lines.append(
            f"the file must have the payments from {shown(checked.since)} until "
            f"{shown(checked.until)}",
        )
    else:
        lines.append(
            "no payment of the file is paid here, so its period is unknown: give --since and "
            "--until",
        )
    return lines
