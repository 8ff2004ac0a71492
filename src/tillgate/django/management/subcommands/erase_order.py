"""Erase the details of an order: notifications, answers of the gateway and texts. Without --apply
nothing is written.

The facts about the money stay. An order with anything open is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from tillgate.django.management.subcommands import export_order
from tillgate.django.management.terminal import Voice, require_tables
from tillgate.django.models import database
from tillgate.django.worker.retention import erase_order


def add_arguments(parser: CommandParser) -> None:
    """Add the order's names and the flag."""
    export_order.add_arguments(parser)
    parser.add_argument(
        "--apply",
        action="store_true",
        help="erase; without it the order is only checked",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Erase, or check whether that is possible."""
    require_tables()
    with transaction.atomic(using=database()):
        had_details = erase_order(options["plugin"], options["order_key"], "staff:erase-order")
        if not options["apply"]:
            transaction.set_rollback(True, using=database())
    if not had_details:
        message = "there is nothing to erase"
    else:
        message = (
            "the details were erased"
            if options["apply"]
            else "the details can be erased; nothing was written: add --apply"
        )
    Voice(command, options["verbosity"]).done(
        f"{options['plugin']}:{options['order_key']}: {message}",
    )
