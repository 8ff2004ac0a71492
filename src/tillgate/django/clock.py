"""The time of the database, the only code that reads the time, so that a simulation can replace it. Clocks of machines decide nothing.

A process measures how far the database's clock is from its own `time.monotonic()`, and adds that offset to it. The query that locks an
order brings a measurement; a process without one asks the database once a minute.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple, TypeVar, cast

from django.conf import settings
from django.db import Error, connections
from django.db.models import FloatField, Func, Model, QuerySet
from django.utils import timezone

_Row = TypeVar("_Row", bound=Model)

_MEASURED_EVERY: Final = 60.0
_TOLERATED: Final = 0.1
"""A smaller difference in seconds keeps the old offset, so that time does not go back by milliseconds."""

_EPOCH_SECONDS: Final = {
    "postgresql": "EXTRACT(EPOCH FROM clock_timestamp())",
    # UNIX_TIMESTAMP(NOW(6)) is an hour wrong where the session's time zone ends its summer time.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1000000",
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
}


class EpochSeconds(Func):
    """The time of the database in seconds since 1970, the same in every time zone of server, session and project."""

    output_field = FloatField()

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> tuple[str, tuple[str | int, ...]]:
        """Return the database's own expression; PostgreSQL's for a database that is not tried."""
        return _EPOCH_SECONDS.get(connection.vendor, _EPOCH_SECONDS["postgresql"]), ()


class _Measurement(NamedTuple):
    """The difference between the database's time and `time.monotonic()`, and the instant of the last measurement."""

    offset: float
    at: float


_measurements: Final[dict[str, _Measurement]] = {}
"""The measurement of each database, by its alias."""


def now() -> datetime:
    """Return the present moment by the database's clock, as Django stores moments."""
    from tillgate.django.models import database  # models cannot be imported while the apps are being loaded

    alias, instant = database(), time.monotonic()
    known = _measurements.get(alias)
    if known is None or instant - known.at >= _MEASURED_EVERY:
        known = _measure(alias, known)
    return datetime.fromtimestamp(known.offset + time.monotonic(), UTC if settings.USE_TZ else None)


def _measure(alias: str, known: _Measurement | None) -> _Measurement:
    """Ask the database for its time. The last measurement stays where the database cannot be asked, in a broken transaction for one."""
    if known is not None:
        _measurements[alias] = known._replace(at=time.monotonic())  # for other threads, until the answer comes
    try:
        connection = connections[alias]
        with connection.cursor() as cursor:
            sql, _ = EpochSeconds().as_sql(None, connection)
            began = time.monotonic()
            cursor.execute(f"SELECT {sql}")
            (seconds,) = cursor.fetchone()
    except Error:
        if known is None:
            raise
        return known
    return _keep(alias, seconds, began)


def get_and_measure(rows: QuerySet[_Row]) -> _Row:
    """Return the only row of a query, and keep the time that the same query brings, unless the query took long: it waited for a lock."""
    began = time.monotonic()
    row: Any = rows.annotate(epoch_seconds=EpochSeconds()).get()
    if time.monotonic() - began <= _TOLERATED:
        _keep(rows.db, row.epoch_seconds, began)
    return cast("_Row", row)


def _keep(alias: str, seconds: float, began: float) -> _Measurement:
    ended = time.monotonic()
    offset, known = float(seconds) - (began + ended) / 2, _measurements.get(alias)
    if known is not None and abs(offset - known.offset) < _TOLERATED + (ended - began) / 2:
        offset = known.offset
    _measurements[alias] = _Measurement(offset, ended)
    return _measurements[alias]


def local(moment: datetime) -> datetime:
    """Return a time in the project's time zone; without USE_TZ it is stored that way."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def start_of(day: date) -> datetime:
    """Return the first moment of a day in the project's time zone, as Django stores moments."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  # made aware in the next line
    return timezone.make_aware(midnight) if settings.USE_TZ else midnight
