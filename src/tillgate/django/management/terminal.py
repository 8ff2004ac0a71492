"""The common part of the subcommands: output on the terminal, a stop flag for signals, and messages
about the database.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseFault
from django.db import connections
from django.utils import timezone

from tillgate.django import dates
from tillgate.django.accounts import find_account
from tillgate.django.conf import get_settings
from tillgate.django.models import Payment, database
from tillgate.errors import ConfigurationError


class Stop:
    """Whether a signal asked the process to end. No `threading.Event`: its lock may be held by the
    very code that a signal interrupts.
    """

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self) -> bool:
        """Return the flag."""
        return self.is_asked

    def wait(self, seconds: float) -> None:
        """Wait, but stop waiting when a signal asks the process to end."""
        until = time.monotonic() + seconds
        while not self.is_asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield the flag that SIGINT and SIGTERM set; a second signal ends the process in the usual
    way.
    """
    stopped = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread receives signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: FrameType | None) -> None:
        stopped.is_asked = True
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Voice:
    """Prints progress on a terminal, one line a second at most; elsewhere it prints only
    results.
    """

    def __init__(self, command: BaseCommand, verbosity: int, *, tells_time: bool = False) -> None:
        self._command = command
        self._tells_time = tells_time
        self._verbosity = verbosity
        self._is_chatty = verbosity > 1 or (verbosity == 1 and command.stdout.isatty())
        self._said, self._said_at = "", 0.0

    def progress(self, line: str) -> None:
        """Print the progress."""
        now = time.monotonic()
        if self._is_chatty and line != self._said and now - self._said_at >= 1:
            self._said, self._said_at = line, now
            self._say(f"... {line}")

    def done(self, line: str) -> None:
        """Print the result."""
        self._said = ""
        if self._verbosity:
            self._say(line)

    def _say(self, line: str) -> None:
        time_of_day = f"{dates.local(timezone.now()):%H:%M:%S} " if self._tells_time else ""
        say(self._command, time_of_day + line)


def say(command: BaseCommand, line: str) -> None:
    """Write a line immediately. If the reader has left, such as `head`, the work and the exit
    status stay the same.
    """
    try:
        command.stdout.write(line)
        command.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_tables(returncode: int = 1) -> None:
    """Raise when the database has no tables of Tillgate. If the database is unreachable, raise
    nothing: its next user reports that.
    """
    try:
        tables = connections[database()].introspection.table_names()
    except DatabaseFault:
        return
    if Payment._meta.db_table not in tables:
        raise CommandError(
            "The database has no tables of Tillgate yet: run `manage.py migrate`.",
            returncode=returncode,
        )


def require_account(alias: str, returncode: int = 1) -> None:
    """Refuse an unknown alias without payments: its empty result would look like one without
    differences.
    """
    if Payment.objects.filter(account=alias).exists():
        return
    try:
        find_account(alias)
    except ConfigurationError as error:
        used = Payment.objects.order_by().values_list("account", flat=True).distinct()
        known = ", ".join(sorted({*get_settings().accounts, *used}))
        refusal = f"--account {alias or repr(alias)}: there is no such account; give one of {known}"
        raise CommandError(refusal, returncode=returncode) from error


def unusable(error: DatabaseFault) -> str:
    """Return a message that names the unusable database and the reason, without secrets."""
    used = connections[database()].settings_dict
    return f"The database cannot be used ({used['ENGINE']}, NAME {str(used['NAME'])!r}): {error}"
