"""Check the settings, accounts, database and worker; ends with 1 when one of them has a problem."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tillgate.django.management.terminal import say


def add_arguments(parser: CommandParser) -> None:
    """Add the doctor's options."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="one object: healthy, and checks with name, passed, finding",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print every finding as it arrives."""
    from tillgate.django.operating.findings import Warned, examine

    found = []
    for check in examine():
        found.append(check)
        if not options["json"] and (options["verbosity"] or not check.passed):
            mark = (
                command.style.SUCCESS("ok  ")
                if check.passed
                else command.style.WARNING("WARN")
                if isinstance(check, Warned)
                else command.style.ERROR("FAIL")
            )
            say(command, f"{mark}  {check.name:<22} {check.finding}")
    is_healthy = all(check.passed for check in found)
    if options["json"]:
        checks = [
            {"name": check.name, "passed": check.passed, "finding": check.finding}
            for check in found
        ]
        say(command, json.dumps({"healthy": is_healthy, "checks": checks}, indent=2))
    if not is_healthy:
        sys.exit(1)
