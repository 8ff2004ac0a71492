"""The rows of a shop with years of sales: payments of two accounts over 14 months, with timelines,
notifications, events, refunds, reviews and disputes. The same count gives the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import connection, models, transaction
from django.db.models import CharField, F, Func, UUIDField, Value
from django.db.models.functions import Cast, Concat, Substr
from django.utils import timezone

from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    PaymentNumber,
    Refund,
    Review,
    TimelineEntry,
)
from tillgate.lifecycle import PaymentStatus, RefundStatus, ReviewReason, ReviewStatus

_BATCH: Final = 2000
_BLOCK: Final = 15_000
_PERIOD: Final = timedelta(days=425)
_NEWEST: Final = 7_000
"""The payments whose reviews are open."""
_STATUSES: Final = (
    *[PaymentStatus.PAID] * 44,
    *[PaymentStatus.EXPIRED] * 3,
    *[PaymentStatus.FAILED] * 2,
    PaymentStatus.CLOSED,
)
_REFUNDS: Final = (*[RefundStatus.SUCCEEDED] * 18, RefundStatus.FAILED, RefundStatus.UNKNOWN)
_METHODS: Final = ("creditcard", "creditcard", "paypal", "alipay", "wechatpay")

_NAMES: Final[dict[str, tuple[str, str]]] = {
    "key": ("1", ""),
    "reference": ("P", "-7Q2MZK4RXW3DA"),
    "transaction_no": ("297245675773", ""),
    "notification_key": ("notification-", ""),
    "return_key": ("return-", ""),
    "number": ("ch_3QXb2eZvKYlo2C1I", ""),
    "refund_id": ("R", "-7Q2MZK4RXW3DA"),
    "refund_no": ("re_3QXb2eZvKYlo2C1I", ""),
}
"""The beginning and the end of each name that a row has, around the number of the payment."""


def fill(count: int) -> None:
    """Write so many payments with everything about them: the oldest and the newest from values,
    and those between as copies of the oldest, in the database.
    """
    now = timezone.now()
    # the seconds between two payments are exact, whatever the database does with parts
    apart = timedelta(seconds=_PERIOD // timedelta(seconds=count))
    copies = max(0, count // _BLOCK - 2)
    _write(range(min(_BLOCK, count)), count, now, apart)
    for number in range(1, copies + 1):
        _copy(_BLOCK * number, apart * (_BLOCK * number))
    _write(range(min(_BLOCK * (copies + 1), count), count), count, now, apart)


def _write(numbers: range, count: int, now: datetime, apart: timedelta) -> None:
    for begin in range(numbers.start, numbers.stop, _BATCH):
        some = range(begin, min(begin + _BATCH, numbers.stop))
        sales = [_Sale(number, count, now, apart) for number in some]
        # an order names its payment, and a payment its order
        with transaction.atomic(), connection.constraint_checks_disabled():
            for kind, rows_of in _KINDS.items():
                rows: list[Any] = [row for sale in sales for row in rows_of(sale)]
                kind._default_manager.bulk_create(rows, batch_size=_BATCH)


def _copy(shift: int, later: timedelta) -> None:
    """Copy the rows of the oldest payments to numbers and times that are later."""
    with (
        transaction.atomic(),
        connection.constraint_checks_disabled(),
        connection.cursor() as cursor,
    ):
        for kind in _KINDS:
            values = _later(kind, shift, later)
            column = "order_id" if kind is Order else "payment_id"
            column = "pk" if kind in (Order, Payment) else column
            oldest = kind._default_manager.filter(**{f"{column}__lte": _BLOCK}).order_by("pk")
            read, given = oldest.values_list(*values.values()).query.sql_with_params()
            columns = ", ".join(connection.ops.quote_name(name) for name in values)
            table = connection.ops.quote_name(kind._meta.db_table)
            cursor.execute(f"INSERT INTO {table} ({columns}) {read}", given)


def _later(kind: type[models.Model], shift: int, later: timedelta) -> dict[str, Any]:
    """Return the value of each column of a copy."""
    is_numbered = kind in (Order, Payment)
    number = F("pk") + shift if is_numbered else F("payment_id") + shift
    values: dict[str, Any] = {}
    for field in kind._meta.concrete_fields:
        column = str(field.column)
        if field.primary_key:
            if is_numbered:
                values[column] = number
        elif field.is_relation:
            values[column] = F(field.attname) + shift
        elif field.name in _NAMES:
            before, after = _NAMES[field.name]
            # seven digits, as `_name` writes them
            padded = Cast(number + 10_000_000, CharField())
            parts = [Value(before), Substr(padded, 2), Value(after)]
            values[column] = Concat(*parts, output_field=CharField())
        elif isinstance(field, models.DateTimeField):
            values[column] = F(field.name) + later
        elif isinstance(field, UUIDField):
            values[column] = _uuid()
        else:
            values[column] = F(field.name)
    return values


def _uuid() -> Any:
    """Return an expression that gives each row a fresh UUID."""
    templates = {
        "postgresql": "gen_random_uuid()",
        "mysql": "REPLACE(UUID(), '-', '')",
        "sqlite": "LOWER(HEX(RANDOMBLOB(16)))",
    }
    return Func(template=templates[connection.vendor], output_field=CharField())


def _name(field: str, number: int) -> str:
    before, after = _NAMES[field]
    return f"{before}{number:07}{after}"


class _Sale:
    """What is drawn for one payment. Its row, and that of its order, have the number as their id.

    Every twelfth payment is a failed attempt of the order that the next one pays.
    """

    def __init__(self, number: int, count: int, now: datetime, apart: timedelta) -> None:
        draw = random.Random(number)
        self.id = number + 1
        self.left, self.now = count - number, now
        self.at = now - apart * self.left
        self.is_newest = self.left <= min(count // 3, _NEWEST)
        self.is_first_try = number % 12 == 10 and self.left > 1
        self.is_second_try = number % 12 == 11
        self.order_id = self.id - 1 if self.is_second_try else self.id
        self.reference = _name("reference", self.id)
        self.status = draw.choice(_STATUSES)
        if self.is_first_try:
            self.status = PaymentStatus.FAILED
        elif self.is_second_try:
            self.status = PaymentStatus.PAID
        elif self.left <= count // 1000:
            self.status = PaymentStatus.PENDING
        self.is_paid = self.status == PaymentStatus.PAID
        self.is_europe = draw.random() < 0.3
        self.method = draw.choice(_METHODS)
        self.amount = Decimal(draw.randrange(500, 30_000)) / 100
        self.last4 = f"{draw.randrange(10_000):04}" if self.method == "creditcard" else ""
        self.settled_at = self.at + timedelta(seconds=draw.randrange(20, 900))
        self.refund = draw.choice(_REFUNDS) if self.is_paid and draw.random() < 0.04 else None
        self.has_review = self.is_paid and draw.random() < 0.01
        self.currency = "EUR" if self.is_europe else "USD"

    def after(self, days: int) -> datetime:
        """Return a moment some days after it was settled, now at the latest."""
        return min(self.settled_at + timedelta(days=days), self.now)


def _orders(sale: _Sale) -> Iterator[Order]:
    if not sale.is_second_try:
        paid_by = sale.id + 1 if sale.is_first_try else sale.id if sale.is_paid else None
        yield Order(
            pk=sale.order_id,
            plugin="benchmark-desk",
            key=_name("key", sale.order_id),
            created_at=sale.at,
            paid_by_id=paid_by,
        )


def _payments(sale: _Sale) -> Iterator[Payment]:
    is_open = sale.status == PaymentStatus.PENDING
    closes = sale.at + timedelta(hours=2)
    fee = (sale.amount * Decimal("0.029")).quantize(Decimal("0.01"))
    details: dict[str, Any] = {"dashboard_url": f"https://gateway.example/{sale.reference}"}
    if sale.is_paid:
        details |= {
            "paid_with": {"method": sale.method, "brand": "visa", "last4": sale.last4},
            "fee": {"amount": str(fee), "currency": sale.currency},
            "net": {"amount": str(sale.amount - fee), "currency": sale.currency},
        }
    yield Payment(
        pk=sale.id,
        order_id=sale.order_id,
        reference=sale.reference,
        account="europe" if sale.is_europe else "default",
        merchant_no="200044" if sale.is_europe else "200043",
        base_url="https://gateway.example",
        sandbox=False,
        method=sale.method,
        terminal="ONLINE",
        amount=sale.amount,
        currency=sale.currency,
        status=sale.status,
        notification_key=_name("notification_key", sale.id),
        return_key=_name("return_key", sale.id),
        transaction_no=_name("transaction_no", sale.id),
        payment_url=f"https://gateway.example/cashier/{sale.id}" if is_open else "",
        details=details,
        last4=sale.last4 if sale.is_paid else "",
        created_at=sale.at,
        page_closes_at=closes,
        expires_at=closes + timedelta(minutes=10),
        status_since=sale.at if is_open else sale.settled_at,
        last_polled_at=sale.settled_at,
        next_poll_at=sale.now + timedelta(minutes=10) if is_open else None,
    )


def _numbers(sale: _Sale) -> Iterator[PaymentNumber]:
    if sale.is_paid and sale.last4:
        yield PaymentNumber(payment_id=sale.id, number=_name("number", sale.id))


def _timelines(sale: _Sale) -> Iterator[TimelineEntry]:
    about = {"order_id": sale.order_id, "payment_id": sale.id}
    evidence = {"answer": '{"ret_code": "000100", "result": {"status": "init"}}'}
    yield TimelineEntry(
        **about,
        at=sale.at,
        event="payment.created",
        actor="shopper",
        message=f"{sale.amount} {sale.currency} with {sale.method}",
        evidence=evidence,
    )
    if sale.status != PaymentStatus.PENDING:
        yield TimelineEntry(
            **about,
            at=sale.settled_at,
            event=f"payment.{sale.status}",
            actor="webhook",
            message=f"the gateway says that it is {sale.status}",
            evidence=evidence,
        )


def _notifications(sale: _Sale) -> Iterator[Notification]:
    if sale.is_paid or sale.status == PaymentStatus.FAILED:
        yield Notification(
            payment_id=sale.id,
            kind="payment",
            slot=0,
            received_at=sale.settled_at,
            method="POST",
            signature="valid",
            evidence={"reference": sale.reference, "status": "success"},
        )


def _events(sale: _Sale) -> Iterator[OutboxEvent]:
    if not sale.is_paid:
        return
    common: dict[str, Any] = {
        "order_id": sale.order_id,
        "payment_id": sale.id,
        "created_at": sale.settled_at,
        "done_at": sale.settled_at,
        "outcome": "applied",
    }
    yield OutboxEvent(kind="payment-paid", **common)
    yield OutboxEvent(kind="remote", name="order-paid", **common)


def _refunds(sale: _Sale) -> Iterator[Refund]:
    if sale.refund:
        at = sale.after(days=2)
        is_whole = sale.id % 2
        yield Refund(
            payment_id=sale.id,
            refund_id=_name("refund_id", sale.id),
            refund_no=_name("refund_no", sale.id),
            notification_key=_name("notification_key", sale.id),
            amount=sale.amount if is_whole else Decimal("5.00"),
            status=sale.refund,
            requested_by="ann",
            created_at=at,
            status_since=at,
        )


def _reviews(sale: _Sale) -> Iterator[Review]:
    if not sale.has_review:
        return
    is_open = sale.is_newest
    resolved: dict[str, Any] = {
        "status": ReviewStatus.RESOLVED,
        "resolved_at": sale.after(days=3),
        "resolved_by": "ann",
        "resolution": "answered at the gateway",
    }
    is_dispute = sale.id % 3 == 0
    facts = {"subject": sale.reference, "currency": sale.currency, "amount": str(sale.amount)}
    if is_dispute:
        facts |= {"dispute_no": f"dp_{sale.id}", "status": "open"}
    else:
        facts |= {"status": "refunded"}
    yield Review(
        order_id=sale.order_id,
        payment_id=sale.id,
        account="europe" if sale.is_europe else "default",
        reason=ReviewReason.DISPUTED if is_dispute else ReviewReason.CHANGED_AFTER_PAID,
        facts=facts,
        version="0123456789abcdef",
        open_key=f"{sale.id}" if is_open else None,
        opened_at=sale.after(days=1),
        **({} if is_open else resolved),
    )


_KINDS: Final[dict[type[models.Model], Callable[[_Sale], Iterator[models.Model]]]] = {
    Order: _orders,
    Payment: _payments,
    PaymentNumber: _numbers,
    TimelineEntry: _timelines,
    Notification: _notifications,
    OutboxEvent: _events,
    Refund: _refunds,
    Review: _reviews,
}
