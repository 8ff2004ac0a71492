"""States: orders, payments and refunds as values that tell more than those of the hooks. A plugin
never holds a row of Tillgate's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import (
    Exists,
    F,
    Max,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    prefetch_related_objects,
)
from django.utils import timezone

from tillgate import hooks, money
from tillgate.django.masking import Mask
from tillgate.django.models import (
    NOTHING,
    Order,
    OutboxEvent,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
    TimelineEntry,
    database,
)
from tillgate.django.orders.locking import locked
from tillgate.django.orders.values import order_value, payment_value, refund_value
from tillgate.django.outbox.handlers import AGAIN
from tillgate.django.pages.awaited import Awaited, awaited
from tillgate.django.pages.outcomes import unpaid_detail
from tillgate.django.pages.summaries import paid_with
from tillgate.django.refunds.limits import refundable
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, OrderStatus, PaymentStatus, RefundStatus

__all__ = [
    "Awaited",
    "OrderState",
    "PaymentState",
    "RefundState",
    "find_payment",
    "find_refund",
    "last_change_at",
    "locked_order",
    "order_state",
    "order_states",
    "redelivered_payment",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundState(hooks.Refund):
    """A refund as it stands. `answer` is the gateway's own text, without secrets. `reason` is for
    staff only.

    `confirmed`: a notification on the refund's own address says that it succeeded. `external`: it
    was made in the gateway's portal, and the gateway listed it or staff entered it. `refund_no`:
    the gateway's number of the refund. `idempotency_key`: the caller's key.
    """

    answer: str
    requested_by: str
    reason: str
    external: bool
    confirmed: bool
    refund_no: str | None
    idempotency_key: str | None
    created_at: datetime
    status_since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentState(hooks.Payment):
    """A payment as it stands. Amounts are in its currency.

    The gateway holds `held_amount`: paid and not refunded. Staff can still refund
    `refundable_amount`: it is without refunds that are under way or of unknown outcome.
    `paid_the_order`: the shop applied this payment. `reported_paid`: the gateway says "paid",
    though a check failed, so the shopper should not pay again. `awaits_delivery`: it is paid, and
    the shop has not applied or refused it yet. `is_processing`: it is open, the shopper has
    finished, and the money is on its way. `payment_url` is the gateway's payment page, or empty; it
    takes money until `page_closes_at`, unless the gateway has closed it, at `page_closed_at`.
    `sandbox`: no real money. `unpaid_detail` tells the shopper why the payment ended unpaid, such
    as "Your payment was declined."; it is empty for any other payment. `paid_with` names the card
    or wallet that paid, such as "Visa ending 4242", or else the chosen method. `awaited` is the
    text about an open one, such as "Pay the voucher by December 3". `disputes` are its charge-backs
    by the gateway's newest answer.
    """

    account: str
    terminal: str
    sandbox: bool
    created_at: datetime
    status_since: datetime
    page_closes_at: datetime
    page_closed_at: datetime | None
    payment_url: str
    held_amount: Decimal
    refunded_amount: Decimal
    refundable_amount: Decimal
    paid_the_order: bool
    reported_paid: bool
    awaits_delivery: bool
    is_processing: bool
    unpaid_detail: str = ""
    paid_with: str = ""
    awaited: Awaited | None = None
    disputes: tuple[hooks.ReportedDispute, ...] = ()
    refunds: tuple[RefundState, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the shopper may still pay it."""
        return self.status in OPEN_PAYMENT_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderState:
    """The state of an order: its status and its payments, the oldest first.

    `is_paid`: a payment has paid the order, though the event may not be delivered yet. `data` is
    the plugin's own, see `set_order_data`.

    `kept_until`: the plugin hears `tillgate_order_unpaid` at this time or soon after it, and not
    earlier, if no payment starts. Another payment that ends unpaid moves the time later at most.
    The value has a time zone. It is None while a payment is open or its money is held, for a paid
    or closed order, and once the time has passed.
    """

    plugin: str
    key: str
    status: OrderStatus
    is_closed: bool
    is_paid: bool
    waits_since: datetime | None
    kept_until: datetime | None
    payments: tuple[PaymentState, ...]
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paid_by(self) -> PaymentState | None:
        """The payment that the shop applied."""
        return next((payment for payment in self.payments if payment.paid_the_order), None)

    @property
    def held(self) -> tuple[PaymentState, ...]:
        """The payments with money at the gateway, including payments that did not pay the order."""
        return tuple(payment for payment in self.payments if payment.held_amount > 0)

    @property
    def open_payments(self) -> tuple[PaymentState, ...]:
        """The payments that the shopper may still pay."""
        return tuple(payment for payment in self.payments if payment.is_open)

    @property
    def awaited(self) -> Awaited | None:
        """The text about the open payments: of the newest with money under way, or else of the
        newest.
        """
        newest_last = sorted(self.open_payments, key=lambda payment: payment.is_processing)
        return newest_last[-1].awaited if newest_last else None

    @property
    def held_amount(self) -> Decimal:
        """The money that the gateway holds for the order."""
        return money.total(payment.held_amount for payment in self.payments)

    @property
    def refunded_amount(self) -> Decimal:
        """The money of the order's payments that was refunded."""
        return money.total(payment.refunded_amount for payment in self.payments)

    @property
    def refundable_amount(self) -> Decimal:
        """The money of the payment that paid the order that staff can still refund."""
        return self.paid_by.refundable_amount if self.paid_by else NOTHING

    @property
    def reported_paid(self) -> bool:
        """Whether the gateway reports a payment paid though a check failed: staff decide, and the
        shopper should not pay again.
        """
        return any(payment.reported_paid for payment in self.payments)

    def payment(self, payment_id: str) -> PaymentState | None:
        """Return a payment of the order by its id, or None."""
        return next((payment for payment in self.payments if payment.id == payment_id), None)


def order_state(plugin: str, order_key: str) -> OrderState | None:
    """Return the state of an order, or None for an order that was never opened and has no
    payment.
    """
    return next(iter(order_states(plugin, [order_key])), None)


def order_states(
    plugin: str,
    order_keys: Iterable[str] = (),
    *,
    prefix: str = "",
) -> list[OrderState]:
    """Return the states of several orders, the oldest first: those of the keys, and those with keys
    that begin with `prefix`, if given.
    """
    chosen = Q(key__in=list(order_keys))
    if prefix:
        chosen |= Q(key__startswith=prefix)
    return _states(Order.objects.filter(chosen, plugin=plugin).order_by("pk"))


@contextmanager
def locked_order(plugin: str, order_key: str) -> Iterator[OrderState]:
    """Hold Tillgate's lock of an order inside a transaction, and yield the order's state under it.

    Every event of the order takes the same lock first, so lock the shop's own rows after it. Raises
    `Order.DoesNotExist` of Django's `ObjectDoesNotExist` for an order that Tillgate does not know.
    Outside a transaction it waits for a second at most, for an order that a handler holds, and
    raises a `TillgateError` then, which is Django's `OperationalError` too.
    """
    only, connection = (
        Order.objects.filter(plugin=plugin, key=order_key),
        transaction.get_connection(database()),
    )
    if not connection.in_atomic_block and connection.get_autocommit():
        with locked(only) as order:
            yield _states([order], is_locked=True)[0]
        return
    with transaction.atomic(using=database()):
        yield _states([only.select_for_update().get()], is_locked=True)[0]


def find_payment(
    plugin: str,
    *,
    payment_id: str | None = None,
    reference: str | None = None,
    paid_order: str | None = None,
) -> PaymentState | None:
    """Return a payment of the plugin's orders by its id, by its reference, or by the key of the
    order that it paid; or None.
    """
    chosen = Payment.objects.filter(order__plugin=plugin)
    if paid_order is not None:
        chosen = chosen.filter(order__key=paid_order, order__paid_by=F("pk"))
    elif payment_id is not None:
        chosen = chosen.filter(pk=int(payment_id))
    else:
        chosen = chosen.filter(reference=reference)
    return next(iter(_payment_states(chosen)), None)


def find_refund(plugin: str, refund_id: str) -> RefundState | None:
    """Return a refund of the plugin's orders, or None."""
    chosen = Refund.objects.select_related("payment__order").filter(
        payment__order__plugin=plugin,
        pk=int(refund_id),
    )
    return next(map(refund_state, chosen), None)


def redelivered_payment(plugin: str, order_key: str) -> PaymentState | None:
    """Return the payment that Tillgate is telling the shop once more, because staff chose to
    deliver it again; None where there is none.
    """
    local = OutboxEvent.objects.filter(
        order__plugin=plugin,
        order__key=order_key,
        done_at__isnull=True,
    ).exclude(kind=OutboxEventKind.REMOTE)
    first = local.order_by("pk").first()  # they are delivered in order
    if first is None or first.kind != OutboxEventKind.PAYMENT_PAID or AGAIN not in first.data:
        return None
    return find_payment(plugin, payment_id=str(first.payment_id))


def last_change_at(payment_id: str) -> datetime | None:
    """Return the time of the newest entry in the timeline of a payment. It is in the future where a
    clock was set back since.
    """
    newest: datetime | None = TimelineEntry.objects.filter(payment=int(payment_id)).aggregate(
        newest=Max("at"),
    )["newest"]
    return newest


def refund_state(refund: Refund) -> RefundState:
    """Return the state of a refund's row."""
    return RefundState(
        **_values(refund_value(refund)),
        answer=Mask([refund.payment], [refund]).text(refund.answer),
        requested_by=refund.requested_by,
        reason=refund.reason,
        external=refund.external,
        confirmed=refund.confirmed,
        refund_no=refund.refund_no,
        idempotency_key=refund.idempotency_key,
        created_at=refund.created_at,
        status_since=refund.status_since,
    )


def _states(orders: Iterable[Order], *, is_locked: bool = False) -> list[OrderState]:
    found = {order.pk: order for order in orders}
    paying: dict[str, list[PaymentState]] = {order.key: [] for order in found.values()}
    for payment in (
        _payment_states(Payment.objects.filter(order__in=found), is_locked=is_locked)
        if found
        else ()
    ):
        paying[payment.order.key].append(payment)
    return [_state(order, paying[order.key]) for order in found.values()]


def _state(order: Order, payments: list[PaymentState]) -> OrderState:
    is_applied_soon = any(
        payment.awaits_delivery and payment.refunded_amount < payment.amount for payment in payments
    )
    return OrderState(
        **_values(order_value(order)),
        status=order.status,
        is_closed=order.closed_at is not None,
        is_paid=order.paid_by_id is not None or is_applied_soon,
        waits_since=order.created_at if order.unpaid_check_at else None,
        kept_until=_kept_until(order, payments),
        payments=tuple(payments),
        data=order.data,
    )


def _kept_until(order: Order, payments: list[PaymentState]) -> datetime | None:
    """Return when the worker finds the order unpaid; None where its `is_unpaid` would be false, and
    once the time has passed.
    """
    until = order.unpaid_check_at
    if (
        until is None
        or order.closed_at
        or order.paid_by_id
        or any(payment.is_open or payment.held_amount > 0 for payment in payments)
    ):
        return None
    if until <= timezone.now():
        return None
    return (
        until
        if timezone.is_aware(until)
        else timezone.make_aware(until, timezone.get_default_timezone())
    )


def _payment_states(
    chosen: QuerySet[Payment],
    *,
    is_locked: bool = False,
) -> Iterator[PaymentState]:
    refunds_read = Refund.objects.all()
    if is_locked:  # a transaction of the host may see an old snapshot where it reads without a lock
        chosen, refunds_read = chosen.select_for_update(), refunds_read.select_for_update()
    waiting = OutboxEvent.objects.filter(
        payment=OuterRef("pk"),
        kind=OutboxEventKind.PAYMENT_PAID,
        done_at__isnull=True,
    )
    reported = Review.objects.filter(
        payment=OuterRef("pk"),
        resolved_at__isnull=True,
        reported_paid=True,
    )
    rows = (
        chosen.select_related("order")
        .annotate(awaits_delivery=Exists(waiting), is_reported=Exists(reported))
        .order_by("pk")
    )
    payments = list(rows)
    paid = [payment for payment in payments if payment.status == PaymentStatus.PAID]
    # only paid payments have refunds
    prefetch_related_objects(paid, Prefetch("refunds", refunds_read))
    for payment in payments:
        is_paid = payment.status == PaymentStatus.PAID
        refunds = sorted(payment.refunds.all(), key=lambda refund: refund.pk) if is_paid else []
        for refund in refunds:
            refund.payment = payment
        refunded = money.total(
            refund.amount for refund in refunds if refund.status == RefundStatus.SUCCEEDED
        )
        yield PaymentState(
            **_values(payment_value(payment)),
            account=payment.account,
            terminal=payment.terminal,
            sandbox=payment.sandbox,
            created_at=payment.created_at,
            status_since=payment.status_since,
            payment_url=payment.payment_url,
            held_amount=max(NOTHING, money.left_of(payment.amount, [refunded]))
            if is_paid
            else NOTHING,
            refunded_amount=refunded,
            refundable_amount=refundable(payment, refunds),
            paid_the_order=payment.pk == payment.order.paid_by_id,
            reported_paid=vars(payment)["is_reported"],
            awaits_delivery=vars(payment)["awaits_delivery"],
            is_processing=payment.is_open and payment.is_processing,
            page_closes_at=payment.page_closes_at,
            page_closed_at=payment.page_closed_at,
            unpaid_detail=unpaid_detail(payment),
            paid_with=paid_with(payment),
            awaited=awaited(payment),
            disputes=payment.known.disputes,
            refunds=tuple(map(refund_state, refunds)),
        )


def _values(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}
