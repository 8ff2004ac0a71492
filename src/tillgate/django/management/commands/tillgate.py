"""`manage.py tillgate SUBCOMMAND`. Each subcommand is a module of
`tillgate.django.management.subcommands`.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tillgate.django.management.subcommands import (
    audit,
    check_settlement,
    doctor,
    erase_order,
    export_order,
    export_payments,
    import_payments,
    mails,
    restored,
    worker,
)
from tillgate.errors import TillgateError

SUBCOMMANDS: Final[dict[str, Any]] = {
    "worker": worker,
    "audit": audit,
    "doctor": doctor,
    "import-payments": import_payments,
    "export-payments": export_payments,
    "export-order": export_order,
    "erase-order": erase_order,
    "check-settlement": check_settlement,
    "mails": mails,
    "restored": restored,
}
"""The modules by the name of the subcommand. Each has a docstring, `add_arguments(parser)` and
`run(command, options)`.
"""


class Command(BaseCommand):
    """Look after payments: worker, audit, doctor, import, export, erasure, settlement check."""

    help = (
        "Looks after payments: worker does due work, audit compares the ledger, and doctor tells "
        "whether all is well."
    )
    # If a wrong setting elsewhere in the project stopped the worker, paid orders would stay unpaid;
    # the doctor reports all problems.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add a parser for each subcommand, which takes Django's own options after its name too."""
        parsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for name, module in SUBCOMMANDS.items():
            summary, _, details = (module.__doc__ or "").partition("\n\n")
            own = parsers.add_parser(name, help=summary, description=f"{summary}\n\n{details}")
            own.add_argument(
                "-v",
                "--verbosity",
                type=int,
                choices=(0, 1, 2, 3),
                default=argparse.SUPPRESS,
                help="0 says nothing",
            )
            own.add_argument("--settings", default=argparse.SUPPRESS, help="the settings module")
            own.add_argument(
                "--pythonpath",
                default=argparse.SUPPRESS,
                help="a folder to import from",
            )
            own.add_argument(
                "--traceback",
                action="store_true",
                default=argparse.SUPPRESS,
                help="show where an error came from",
            )
            own.add_argument(
                "--no-color",
                action="store_true",
                default=argparse.SUPPRESS,
                help="no colours",
            )
            module.add_arguments(own)

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the subcommand; print an exception of Tillgate's as one line."""
        try:
            SUBCOMMANDS[options["subcommand"]].run(self, options)
        except TillgateError as error:
            raise CommandError(f"{type(error).__name__}: {error}") from error
