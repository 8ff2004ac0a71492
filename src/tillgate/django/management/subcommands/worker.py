"""Run due work: poll payments, send refunds, deliver shop events, mail open reviews."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseFault
from django.db import connections

from tillgate.django.conf import get_settings
from tillgate.django.management.terminal import (
    Stop,
    Voice,
    require_tables,
    stopped_by_signals,
    unusable,
)
from tillgate.django.orders.times import stop_after
from tillgate.django.worker.run import run_worker
from tillgate.django.worker.runner import Progress, WorkDone

_log = logging.getLogger("tillgate")

_PAUSE_SECONDS: Final = 10.0
"""After a run that ended early, without the database perhaps."""
HANGS_AFTER_SECONDS: Final = 900
"""A worker that ends no batch for so long hangs: it ends with status 1 and its threads' stacks, and
its supervisor starts it again.
"""
_LONGEST_SECONDS: Final = 300.0
"""The time budget of a worker run with `--once`: cron starts the next run each minute, and every
run holds connections.
"""


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= 3600:
            return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a number of seconds above 0 and at most 3600, such as 5",
    )


def add_arguments(parser: CommandParser) -> None:
    """Add the worker's options."""
    parser.add_argument(
        "--once",
        action="store_true",
        help="do everything that is due and end, for cron; without it the worker goes on until "
        "SIGINT or SIGTERM",
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="without --once: S seconds between runs (default: 5)",
    )


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Run the worker, once or until it is stopped."""
    get_settings()  # report a wrong setting now, instead of at the first payment
    require_tables()
    voice = Voice(command, options["verbosity"], tells_time=not options["once"])
    with stopped_by_signals() as stopped, _ended_where_it_hangs():
        if not options["once"]:
            _loop(options["interval"], voice, stopped)
            return
        stop = stop_after(_LONGEST_SECONDS, stopped)
        try:
            work_done = run_worker(_progress(voice), stop)
        except DatabaseFault as error:
            raise CommandError(unusable(error)) from error
    voice.done(
        _message(work_done) + ("; the rest is for the next worker run" if stop() else ""),
    )
    if work_done.faults:
        for fault in work_done.faults:
            command.stderr.write(fault)
        sys.exit(1)


@contextmanager
def _ended_where_it_hangs() -> Iterator[None]:
    """End the process where a shop's handler or a plugin hangs, since Python cannot end a
    thread.
    """
    _watch_for_hanging()
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _watch_for_hanging() -> None:
    """Begin to wait again for a sign of life."""
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True, file=sys.__stderr__ or 2)


def _loop(interval_seconds: float, voice: Voice, stopped: Stop) -> None:
    """Run until stopped. Log a failure and try again later, because payments stay open without a
    worker.
    """
    voice.done(f"The worker runs, every {interval_seconds:g} s, until SIGINT or SIGTERM.")
    while not stopped():
        _watch_for_hanging()
        try:
            work_done = run_worker(_progress(voice), stopped)
        except Exception as error:  # plugins and the project's code may raise anything
            # No traceback: during an hour without the database, tracebacks would hide everything
            # else.
            _log.error(
                "the worker run ended early (%s: %s); the next one begins in %.0f s",
                type(error).__name__,
                error,
                _PAUSE_SECONDS,
            )
            connections.close_all()  # the next worker run opens new connections
            stopped.wait(_PAUSE_SECONDS)
            continue
        if work_done.work or work_done.faults:
            voice.done(_message(work_done))
        stopped.wait(interval_seconds)


def _progress(voice: Voice) -> Progress:
    return partial(_show, voice)


def _show(voice: Voice, work_done: WorkDone) -> None:
    _watch_for_hanging()
    if work_done.work:
        voice.progress(_message(work_done))


def _message(work_done: WorkDone) -> str:
    counts = {"payments": 0} | work_done.counts | work_done.news | {"faults": len(work_done.faults)}
    return ", ".join(
        f"{name} {count}" for name, count in counts.items() if count or name == "payments"
    )
