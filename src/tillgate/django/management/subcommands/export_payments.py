"""Write the payments of a period, or its refunds, to the standard output as CSV. Changes nothing.

The columns are named in the first line. A payment belongs to the day on which it reached its
status: a paid one to the day it was paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from tillgate.django.accounting.exports import csv_lines, payment_rows, refund_rows
from tillgate.django.accounting.figures import payments_between, refunds_between
from tillgate.django.management.period import add_period, ends, starts
from tillgate.django.management.terminal import require_tables, say


def add_arguments(parser: CommandParser) -> None:
    """Add the export's options."""
    add_period(parser, since="30d", until="0m", about="payments that reached their status")
    parser.add_argument(
        "--refunds",
        action="store_true",
        help="the refunds instead of the payments",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print a line for each row."""
    require_tables()
    now = timezone.now()
    since, until = starts(options["since"], now), ends(options["until"], now)
    rows = (
        refund_rows(refunds_between(since, until))
        if options["refunds"]
        else payment_rows(payments_between(since, until))
    )
    for line in csv_lines(rows):
        say(command, line)
