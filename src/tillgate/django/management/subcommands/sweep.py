"""Do what is due: look at payments, send refunds, tell shops, mail what needs a person."""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFault
from django.db import connections

from tillgate.django.conf import get_settings
from tillgate.django.management.terminal import Stop, Voice, require_tables, stopped_by_signals, unusable
from tillgate.django.operations.sweep import Progress, Swept, sweep
from tillgate.django.operations.turns import Turn

__all__ = ["add_arguments", "run"]

_log = logging.getLogger("tillgate")

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_LONGEST_SECONDS: Final = 300.0
"""After so long a sweep that is not a loop begins nothing more: cron starts the next each minute, and all of them hold connections."""


def _count(text: str) -> int:
    with suppress(ValueError):
        if (value := int(text)) >= 1:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more, such as 500")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= 3600:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and at most 3600, such as 5")


def add_arguments(parser: CommandParser) -> None:
    """Add the sweeper's options."""
    parser.add_argument("--loop", action="store_true", help="go on until SIGINT or SIGTERM")
    parser.add_argument("--limit", type=_count, metavar="N", help="look at N payments at most in each sweep")
    parser.add_argument("--interval", type=_seconds, default=5.0, metavar="S", help="with --loop: S seconds between sweeps (default: 5)")


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Sweep once, or on and on."""
    get_settings()  # a wrong setting is told at once, instead of at the first payment
    require_tables()
    voice = Voice(command, options["verbosity"], tells_time=options["loop"])
    with stopped_by_signals() as stopped:
        if options["loop"]:
            _loop(options["limit"], options["interval"], voice, stopped)
            return
        turn = Turn(stopped, _LONGEST_SECONDS)
        try:
            swept = sweep(options["limit"], _progress(voice), lambda: turn.is_over)
        except DatabaseFault as error:
            raise CommandError(unusable(error)) from error
    voice.done(_sentence(swept) + ("; what is left is for the next sweep" if turn.is_over else ""))
    if swept.faults:
        for fault in swept.faults:
            command.stderr.write(fault)
        sys.exit(1)


def _loop(limit: int | None, interval_seconds: float, voice: Voice, stopped: Stop) -> None:
    """Sweep until stopped; whatever goes wrong is logged and tried again later, since a sweeper that ends finds no money."""
    failures = 0
    while not stopped():
        try:
            swept = sweep(limit, _progress(voice), stopped)
        except Exception as error:  # noqa: BLE001  # the database may be away, and come back
            failures += 1
            # No traceback: with a database away for an hour they would hide everything else.
            pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)) * random.uniform(0.5, 1)  # noqa: S311  # spreads load, guards nothing
            _log.error("the sweep ended early (%s: %s); the next one begins in %.0f s", type(error).__name__, error, pause)
            connections.close_all()  # the next sweep connects anew
            stopped.wait(pause)
            continue
        if failures:
            _log.warning("the sweep works again after %d failures", failures)
            failures = 0
        if swept.work or swept.faults:
            voice.done(_sentence(swept))
        if limit is None or swept.looked < limit:
            stopped.wait(interval_seconds)


def _progress(voice: Voice) -> Progress:
    def show(swept: Swept) -> None:
        if swept.work:
            voice.progress(_sentence(swept))

    return show


def _sentence(swept: Swept) -> str:
    counts = {
        "changed": swept.changed,
        "without news": swept.no_news,
        "refund{s} sent": swept.refunds_sent,
        "refund{s} lost": swept.refunds_lost,
        "order{s} unpaid": swept.orders_unpaid,
        "told to shops": swept.deliveries,
        "mail{s}": swept.mails,
        "fault{s}": len(swept.faults),
    }
    said = {"payment{s} looked at": swept.looked, **{name: count for name, count in counts.items() if count}}
    return ", ".join(f"{count} {name.format(s='' if count == 1 else 's')}" for name, count in said.items())
