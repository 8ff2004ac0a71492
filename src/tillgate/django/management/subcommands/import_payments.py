"""Import payments that another plugin has made, so that they can be refunded here. Without --apply
nothing is written.

The file is CSV in UTF-8 with the columns reference, amount and currency, and if wanted order,
transaction_no, method and paid_at. The gateway is queried about every payment. All are imported, or
none: every wrong line is printed with its remedy, and the command ends with 1.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tillgate.django.accounting.importing import ImportRow, read_rows, verify_rows, write_payments
from tillgate.django.accounting.settlement import FileFault
from tillgate.django.management.terminal import Voice, require_tables, say
from tillgate.django.models import Payment
from tillgate.django.operating.health import totals
from tillgate.hooks.manager import IMPORTED_NAME, plugin_manager
from tillgate.wire.messages import Transaction
from tillgate.wire.texts import printable


def add_arguments(parser: CommandParser) -> None:
    """Add the import's options."""
    parser.add_argument("file", type=Path, help="the CSV file")
    parser.add_argument(
        "--account",
        default="default",
        metavar="ALIAS",
        help="the account that made the payments (default: default)",
    )
    parser.add_argument(
        "--plugin",
        default=IMPORTED_NAME,
        metavar="NAME",
        help="the plugin that owns the orders; without it no shop hears of refunds",
    )
    parser.add_argument(
        "--skip",
        action="store_true",
        help="leave out payments that the gateway does not confirm, and import the rest",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="write the payments; without it they are only checked",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Read the file, query the gateway about each payment, and with --apply write them."""
    require_tables()
    plugin = options["plugin"]
    if plugin_manager().get_plugin(plugin) is None:
        raise CommandError(
            f"--plugin {plugin}: there is no such plugin; see manage.py tillgate doctor"
        )
    rows, faults, known = _read(options["file"], options["account"])
    if faults:
        _refuse(command, faults)
    voice = Voice(command, options["verbosity"])
    verified: list[tuple[ImportRow, Payment, Transaction]] = []
    for row, payment, answer in verify_rows(rows, options["account"], plugin):
        if isinstance(answer, FileFault):
            faults.append(answer)
        else:
            verified.append((row, payment, answer))
        voice.progress(
            f"{len(verified) + len(faults):,} of {len(rows):,} payments verified, {len(faults):,} "
            "not confirmed",
        )
    if faults and not options["skip"]:
        _refuse(command, faults)
    for fault in faults:
        say(command, printable(f"left out: {fault}"))
    if options["apply"] and (faults := write_payments(verified, "staff:import")):
        _refuse(command, faults)
    done = "imported" if options["apply"] else "can be imported; nothing was written: add --apply"
    voice.done(
        f"{len(verified):,} payments ({_totals(verified)}) {done}"
        + (f"; {known:,} were here already" if known else ""),
    )


def _read(path: Path, alias: str) -> tuple[list[ImportRow], list[FileFault], int]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            return read_rows(reader, reader.fieldnames or [], alias)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{path} cannot be read as CSV in UTF-8: {error}") from error


def _refuse(command: BaseCommand, faults: list[FileFault]) -> None:
    for fault in faults:
        say(command, printable(str(fault)))
    say(command, f"{len(faults):,} lines are wrong, and nothing was imported.")
    sys.exit(1)


def _totals(verified: list[tuple[ImportRow, Payment, Transaction]]) -> str:
    return (
        ", ".join(
            map(str, totals((row.price.amount, row.price.currency) for row, _, _ in verified)),
        )
        or "no money"
    )
