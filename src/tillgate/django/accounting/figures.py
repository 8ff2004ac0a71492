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
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.db import connections
from django.db.models import Count, QuerySet, Value
from django.db.models import Sum as Sum_
from django.db.models.functions import TruncHour

from tillgate import money
from tillgate.django import dates
from tillgate.django.models import NOTHING, Payment, Refund, database
from tillgate.lifecycle import PaymentStatus, RefundStatus

_BATCH: Final = 5000
_Key = TypeVar("_Key", bound=Hashable)


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


def is_tested_only() -> bool:
    """Tell whether every payment is a test: then the figures of the tests are the wanted ones."""
    return not Payment.objects.filter(sandbox=False).exists() and Payment.objects.exists()


def figures(since: date, until: date, *, sandbox: bool = False) -> list[Figure]:
    """Return the figures of some days, the oldest first: of real money, or of the tests. Both days
    are included.
    """
    days = [since + timedelta(days=number) for number in range((until - since).days + 1)]
    starts, end = (
        [_in_utc(dates.start_of(day)) for day in days],
        dates.start_of(until + timedelta(days=1)),
    )
    adds = connections[database()].vendor != "sqlite" and _are_whole_hours(starts)
    sums: dict[tuple[date, Kind, str, str, str], list[Any]] = defaultdict(lambda: [0, NOTHING])
    payments = payments_between(starts[0], end).filter(sandbox=sandbox)
    refunds = refunds_between(starts[0], end).filter(payment__sandbox=sandbox)
    for kind, rows, prefix in ((Kind.PAYMENT, payments, ""), (Kind.REFUND, refunds, "payment__")):
        names = (f"{prefix}method", f"{prefix}currency", "status")
        chosen: Any = rows.order_by()
        if adds:
            chosen = chosen.annotate(moment=TruncHour("status_since", tzinfo=UTC))
            chosen = chosen.values("moment", *names).annotate(
                number=Count("pk"), sum=Sum_("amount")
            )
            chosen = chosen.values_list("moment", *names, "number", "sum")
        else:
            chosen = chosen.values_list("status_since", *names, Value(1), "amount")
        for moment, *of, number, amount in chosen.iterator(chunk_size=_BATCH):
            entry = sums[(days[bisect_right(starts, moment) - 1], kind, *of)]
            entry[0] += number
            entry[1] = money.EXACT.add(entry[1], amount)
    return sorted(Figure(*key, count, amount) for key, (count, amount) in sums.items())


def _are_whole_hours(starts: list[datetime]) -> bool:
    """Tell whether each day begins with an hour in UTC, which it does not in Kathmandu."""
    return all(moment.tzinfo and not moment.minute for moment in starts)


def _in_utc(moment: datetime) -> datetime:
    """Return the same moment, compared faster; without USE_TZ it stays as it is stored."""
    return moment.astimezone(UTC) if moment.tzinfo else moment


def sums_by(some: Iterable[Figure], key: Callable[[Figure], _Key]) -> dict[_Key, Sum]:
    """Return the sums of figures of one currency, in groups, in the order of the figures."""
    sums: dict[_Key, Sum] = defaultdict(Sum)
    for figure in some:
        sums[key(figure)].add(figure)
    return dict(sums)
