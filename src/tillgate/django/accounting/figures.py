"""The figures of a period: payments and refunds by day, payment method, currency and status, with
exact totals. Reads only.

Each payment and each refund counts on the day on which it reached its status: a payment on the day
it was paid, a refund on the day it succeeded. Days are those of the project's time zone. The
database adds by hours, and Python puts hours together to days, as MariaDB may know no time zones.
SQLite would add as floats, so Python adds its rows one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, TypeVar

from django.db import connections
from django.db.models import Count, DateField, F, Q, QuerySet, Value
from django.db.models import Sum as Sum_
from django.db.models.functions import TruncDate, TruncMonth
from django.utils import timezone

from tillgate import money
from tillgate.django import dates
from tillgate.django.models import NOTHING, Payment, Refund, database
from tillgate.lifecycle import PaymentStatus, RefundStatus

_BATCH: Final = 5000
_DAY: Final = timedelta(days=1)
_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row", Payment, Refund)


class Kind(StrEnum):
    """Payments or refunds."""

    PAYMENT = "payment"
    REFUND = "refund"


@dataclass(frozen=True, slots=True, order=True)
class Figure:
    """The number and the amount of the payments, or refunds, of one day, payment method, currency
    and status.
    """

    day: date
    kind: Kind
    method: str
    currency: str
    status: str
    count: int
    amount: Decimal


@dataclass(slots=True)
class Sum:
    """The money that was paid and refunded, in one currency."""

    paid_count: int = 0
    paid: Decimal = NOTHING
    refunded_count: int = 0
    refunded: Decimal = NOTHING

    @property
    def net(self) -> Decimal:
        """The paid money less the refunded."""
        return money.left_of(self.paid, [self.refunded])

    @property
    def is_any(self) -> bool:
        """Any money has moved."""
        return bool(self.paid_count or self.refunded_count)

    def add(self, figure: Figure) -> None:
        """Add a figure, if its money has moved."""
        if (figure.kind, figure.status) == (Kind.PAYMENT, PaymentStatus.PAID):
            self.paid_count, self.paid = (
                self.paid_count + figure.count,
                money.total([self.paid, figure.amount]),
            )
        elif (figure.kind, figure.status) == (Kind.REFUND, RefundStatus.SUCCEEDED):
            self.refunded_count, self.refunded = (
                self.refunded_count + figure.count,
                money.total([self.refunded, figure.amount]),
            )


def payments_between(since: datetime, until: datetime) -> QuerySet[Payment]:
    """Return the payments that reached their status in a period; its end is excluded."""
    return Payment.objects.filter(status_since__gte=since, status_since__lt=until)


def refunds_between(since: datetime, until: datetime) -> QuerySet[Refund]:
    """Return the refunds that reached their status in a period; its end is excluded."""
    return Refund.objects.filter(status_since__gte=since, status_since__lt=until)


def in_batches(rows: QuerySet[_Row], size: int = 1000) -> Iterator[list[_Row]]:
    """Yield rows in lists, in the order in which they reached their status.

    Each list is a statement of its own, which begins after the last row: MariaDB's driver would
    hold all rows of one statement in memory, and PostgreSQL would sort all before the first. A row
    that changes meanwhile belongs to a later period, and comes once.
    """
    rows = rows.filter(status_since__lt=timezone.now()).order_by("status_since", "pk")
    left = rows
    while batch := list(left[:size]):
        yield batch
        if len(batch) < size:
            return
        since, last = batch[-1].status_since, batch[-1].pk
        # An index finds the first of the two conditions.
        left = rows.filter(Q(status_since__gt=since) | Q(pk__gt=last), status_since__gte=since)


def is_tested_only() -> bool:
    """Tell whether every payment is a test: then the figures of the tests are the wanted ones."""
    return not Payment.objects.filter(sandbox=False).exists() and Payment.objects.exists()


def figures(
    since: date,
    until: date,
    *,
    sandbox: bool = False,
    by_month: bool = False,
) -> list[Figure]:
    """Return the figures of some days, the oldest first: of real money, or of the tests. Both days
    are included. `by_month`: those of each month together, as of its first day.
    """
    days = [since + timedelta(days=number) for number in range((until - since).days + 1)]
    bounds = [_in_utc(dates.start_of(day)) for day in (*days, until + timedelta(days=1))]
    adds = connections[database()].vendor != "sqlite"
    sums: dict[tuple[date, Kind, str, str, str], list[Any]] = defaultdict(lambda: [0, NOTHING])
    for first, end in _runs(bounds) if adds else [(0, len(days))]:
        period = (bounds[first], bounds[end])
        payments = payments_between(*period).filter(sandbox=sandbox)
        refunds = refunds_between(*period).filter(payment__sandbox=sandbox)
        kinds: tuple[tuple[Kind, Any, str], ...] = (
            (Kind.PAYMENT, payments, ""),
            (Kind.REFUND, refunds, "payment__"),
        )
        for kind, rows, prefix in kinds:
            names = (f"{prefix}method", f"{prefix}currency", "status")
            found = (
                _added(rows, names, (days[first], bounds[first]), by_month=by_month)
                if adds
                else _read(rows, names, days, bounds)
            )
            for day, *of, number, amount in found:
                entry = sums[(day.replace(day=1) if by_month else day, kind, *of)]
                entry[0] += number
                entry[1] = money.EXACT.add(entry[1], amount)
    return sorted(Figure(*key, count, amount) for key, (count, amount) in sums.items())


def _runs(bounds: list[datetime]) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of each run of days with 24 hours, and each other day alone."""
    first = 0
    for place, (start, end) in enumerate(pairwise(bounds)):
        if end - start != _DAY:
            if first < place:
                yield first, place
            yield place, place + 1
            first = place + 1
    if first < len(bounds) - 1:
        yield first, len(bounds) - 1


def _added(
    rows: QuerySet[_Row],
    names: tuple[str, ...],
    first: tuple[date, datetime],
    *,
    by_month: bool,
) -> Iterator[Any]:
    """Yield the sums of a run of days, which the database adds, with a day of each: of a run whose
    first day begins at a moment.
    """
    day, start = first
    # Moved so that each day begins at its own midnight, read as UTC.
    midnight = datetime(day.year, day.month, day.day, tzinfo=start.tzinfo)
    moved: Any = F("status_since") + (midnight - start)
    named = (TruncMonth if by_month else TruncDate)(
        moved, tzinfo=start.tzinfo, output_field=DateField()
    )
    grouped = rows.order_by().annotate(day=named).values("day", *names)
    # Not of a column: PostgreSQL would leave the index to read it.
    summed = grouped.annotate(number=Count("*"), sum=Sum_("amount"))
    yield from summed.values_list("day", *names, "number", "sum")


def _read(
    rows: QuerySet[_Row],
    names: tuple[str, ...],
    days: list[date],
    bounds: list[datetime],
) -> Iterator[Any]:
    """Yield each row, with its day."""
    chosen = rows.order_by().values_list("status_since", *names, Value(1), "amount")
    for moment, *found in chosen.iterator(chunk_size=_BATCH):
        yield days[bisect_right(bounds, moment) - 1], *found


def _in_utc(moment: datetime) -> datetime:
    """Return the same moment, compared faster; without USE_TZ it stays as it is stored."""
    return moment.astimezone(UTC) if moment.tzinfo else moment


def sums_by(some: Iterable[Figure], key: Callable[[Figure], _Key]) -> dict[_Key, Sum]:
    """Return the sums of figures of one currency, in groups, in the order of the figures."""
    sums: dict[_Key, Sum] = defaultdict(Sum)
    for figure in some:
        sums[key(figure)].add(figure)
    return dict(sums)
