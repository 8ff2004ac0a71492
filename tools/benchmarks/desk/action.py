"""What the benchmark has the shop's staff do in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Count, Sum
from django.test import Client
from django.utils import timezone

from tillgate.django.models import Payment, Refund, Review
from tillgate.lifecycle import PaymentStatus
from tools.benchmarks.desk import rows
from tools.benchmarks.measure import median_call
from tools.benchmarks.shop.action import create, destroy, peak

_LIST: Final = "/admin/tillgate/payment/"
_PAGE_ROWS: Final = 50
_TIMES: Final = 3
_TABLES: Final = (
    "tillgate_order, tillgate_payment, tillgate_paymentnumber, tillgate_refund, tillgate_review, "
    "tillgate_notification, tillgate_timelineentry, tillgate_outboxevent"
)


def fill(count: int) -> None:
    """Write the rows, and let the database do now what it would do in the background."""
    rows.fill(count)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")
        elif connection.vendor == "mysql":
            cursor.execute(f"ANALYZE TABLE {_TABLES}")
        else:
            cursor.execute("ANALYZE")


def pages() -> dict[str, str]:
    """Return the address of each page of staff by its name."""
    count = Payment.objects.count()
    paid = Payment.objects.filter(status=PaymentStatus.PAID, last4__gt="").order_by("-pk")
    one = paid.select_related("order")[min(1000, count // 10)]
    refund = Refund.objects.order_by("-pk").select_related("payment")[0]
    review = Review.objects.filter(resolved_at=None).order_by("pk")[0]
    today = timezone.now().date()
    year = {"since": today - timedelta(days=365), "until": today}
    month = {"since": today - timedelta(days=30), "until": today}
    number = one.numbers.get().number
    searched = {
        "order number": one.order.key,
        "#order number": f"%23{one.order.key}",
        "e-mail address": f"ann{one.order.key}@shop.example",
        "name": "Ann",
        "amount": str(one.amount),
        "reference": one.reference,
        "part of a reference": one.reference[:8],
        "transaction number": one.transaction_no,
        "gateway's number": number,
        "refund's number": refund.refund_no,
        "last four digits": one.last4,
        "nonsense": "zzzz qqqq",
    }
    filtered = {
        "paid": "status=paid",
        "failed": "status=failed",
        "pending": "status=pending",
        "method": "method=paypal",
        "account": "account=europe",
        "paid, method, account": "status=paid&method=alipay&account=europe",
        "past 7 days": f"created_at__gte={today - timedelta(days=7)}%2000:00Z",
        "by amount": "o=4",
        "oldest first": "o=2",
    }
    last = min(count, 2000) // _PAGE_ROWS
    return {
        "payments": _LIST,
        "payments, last page": f"{_LIST}?p={last}",
        **{f"payments, {name}": f"{_LIST}?{query}" for name, query in filtered.items()},
        **{f"search, {name}": f"{_LIST}?q={text}" for name, text in searched.items()},
        "orders": "/admin/tillgate/order/",
        "orders, last page": f"/admin/tillgate/order/?p={last}",
        "orders, search": f"/admin/tillgate/order/?q={one.order.key}",
        "reviews": "/admin/tillgate/review/",
        "reviews, resolved": "/admin/tillgate/review/?state=resolved",
        "reviews, all": "/admin/tillgate/review/?state=all",
        "reviews, search": f"/admin/tillgate/review/?q={one.order.key}",
        "payment": f"{_LIST}{one.pk}/change/",
        "payment with a refund": f"{_LIST}{refund.payment_id}/change/",
        "refund": f"{_LIST}{refund.payment_id}/refund/",
        "order": f"/admin/tillgate/order/{one.order_id}/change/",
        "review": f"/admin/tillgate/review/{review.pk}/change/",
        "health": "/admin/tillgate/review/health/",
        "figures of a month": f"{_LIST}figures/?{_query(month)}",
        "figures of a year": f"{_LIST}figures/?{_query(year)}",
        "Django's list": "/plain/tillgate/payment/",
        "Django's search": f"/plain/tillgate/payment/?q={one.order.key}",
        "export of a year": f"{_LIST}figures/?{_query(year)}&csv=payments",
        "export of refunds": f"{_LIST}figures/?{_query(year)}&csv=refunds",
    }


def _query(period: dict[str, Any]) -> str:
    return "&".join(f"{name}={day}" for name, day in period.items())


_kept: dict[str, Client] = {}


def _boss() -> Client:
    if "boss" not in _kept:
        user = User.objects.filter(username="boss").first()
        user = user or User.objects.create_user("boss", is_staff=True, is_superuser=True)
        _kept["boss"] = Client()
        _kept["boss"].force_login(user)
    return _kept["boss"]


def open_page(path: str, times: int = _TIMES) -> float:
    """Return the seconds of a page, the median of some calls; of a stream, its first bytes."""
    boss = _boss()

    def call() -> None:
        answer = boss.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered {answer.status_code}")
        if answer.streaming:
            next(iter(answer))
        answer.close()

    return median_call(call, times)()


def export(path: str) -> float:
    """Return the seconds of a whole export."""
    begun, lines = time.perf_counter(), 0
    for part in _boss().get(path):
        lines += part.count(b"\n")
    if lines < 2:
        raise RuntimeError(f"{path} has no rows")
    return time.perf_counter() - begun


def read_page(times: int = _TIMES) -> float:
    """Return the seconds in which the database gives the newest rows of a page, with their
    orders: the floor of a list.
    """
    newest = Payment.objects.select_related("order").order_by("-pk")
    return median_call(lambda: list(newest[:_PAGE_ROWS]), times)()


def add_year(times: int = 1) -> float:
    """Return the seconds in which the database adds the payments of a year: the floor of the
    figures.
    """
    since = timezone.now() - timedelta(days=365)
    of_year = Payment.objects.filter(sandbox=False, status_since__gte=since).order_by()
    grouped = of_year.values("currency", "status")
    sums = grouped.annotate(number=Count("*"), sum=Sum("amount"))
    return median_call(lambda: list(sums), times)()


def read_year() -> float:
    """Return the seconds in which a program reads the rows of a year one by one: the floor of the
    export.
    """
    since = timezone.now() - timedelta(days=365)
    of_year = Payment.objects.filter(sandbox=False, status_since__gte=since).order_by("pk")
    begun = time.perf_counter()
    for _ in of_year.select_related("order").iterator(chunk_size=1000):
        pass
    return time.perf_counter() - begun


ACTIONS: Final[dict[str, Callable[..., Any]]] = {
    action.__name__: action
    for action in (
        create,
        destroy,
        fill,
        pages,
        open_page,
        export,
        read_page,
        add_year,
        read_year,
        peak,
    )
}
"""What can be asked for, by name."""
