"""The audit: it compares the ledger with the gateway and the shops. It changes no row, and sends
nothing but signed queries.

It reads payments in batches, queries them as the worker does, and judges them by `ledger`. Other
processes go on writing, so no first finding counts: a payment that changed during its query is
queried again, and the rows of an order are read again under its lock, where no change is half done.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from tillgate import hooks, money
from tillgate.django.accounting.differences import (
    STATUS_OF_EVENT,
    Difference,
    DifferenceKind,
    OrderLedger,
    compare_with_gateway,
    compare_with_shop,
    duplicates,
    examine,
    is_held_as_paid,
)
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
from tillgate.django.orders.locking import locked_order, outside_transactions
from tillgate.django.orders.times import Stop, never
from tillgate.django.payments.reconciling import ask as ask_gateway
from tillgate.django.payments.reconciling import facts_of
from tillgate.django.reviews.opening import ACCOUNT_REASONS
from tillgate.django.worker.calls import Ask, Calls
from tillgate.lifecycle import (
    Answer,
    Found,
    Inconclusive,
    PaymentFacts,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
)
from tillgate.wire.dialects import TransactionStatus

_log = logging.getLogger("tillgate")

_BATCH: Final = 200
_TRIES: Final = 3
_NAMED: Final = 5
"""So many of those that could not be asked about are named."""


@dataclass
class Audited:
    """How far an audit is: `payments` of `total` were reached, `compared` with an answer; amounts
    are by currency.
    """

    total: int = 0
    payments: int = 0
    compared: int = 0
    paid_here: int = 0
    paid_here_amounts: dict[str, Decimal] = field(default_factory=dict)
    paid_there: int = 0
    paid_there_amounts: dict[str, Decimal] = field(default_factory=dict)
    refunds: int = 0
    refunded_amounts: dict[str, Decimal] = field(default_factory=dict)
    differences: int = 0


Progress = Callable[[Audited], object]


def _quiet(_: Audited) -> None:
    """Show nothing."""


def audit(
    since: datetime,
    until: datetime,
    *,
    account: str | None = None,
    ask: Ask = ask_gateway,
    connections: int | None = None,
    progress: Progress = _quiet,
    stop: Stop = never,
) -> Iterator[Difference]:
    """Yield every difference about the payments that were started in a period: at `since` or later,
    and before `until`.

    A failed query is a difference too, `not-asked`: such a payment is not known to be right.
    `account` limits the audit to one account; `connections` bounds the queries at a time, as
    `POLL_CONNECTIONS` unless given, and with 1 everything happens in this thread; `progress` hears
    after every batch how far it is; once `stop` says so, it ends early.
    """
    started = Payment.objects.filter(created_at__gte=since, created_at__lt=until)
    if account is not None:
        started = started.filter(account=account)
    running = _Audit(started, ask, connections, progress, stop)
    for difference in running.differences():
        running.audited.differences += 1
        yield difference
    progress(running.audited)


def _add(amounts: dict[str, Decimal], currency: str, amount: Decimal) -> None:
    amounts[currency] = money.total([amounts.get(currency, NOTHING), amount])


class _Unasked:
    """The payments or orders without an answer, for one reason."""

    def __init__(self) -> None:
        self._count, self._named, self._detail = 0, list[str](), ""

    def note(self, name: str, detail: str) -> None:
        """Count one; the first few are named."""
        self._count += 1
        self._detail = self._detail or detail
        if len(self._named) < _NAMED:
            self._named.append(name)

    def differences(self, what: str, whom: str) -> Iterator[Difference]:
        """Yield one difference for all of them."""
        if self._count:
            names = ", ".join(self._named) + (", …" if self._count > len(self._named) else "")
            here, there = (
                f"{_counted(self._count, what)}: {names}",
                f"{whom} could not be asked: {self._detail}",
            )
            yield _not_asked(here, there, "run `manage.py tillgate doctor`, and the audit again")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _not_asked(here: str, there: str, remedy: str) -> Difference:
    return Difference(
        kind=DifferenceKind.NOT_ASKED,
        reference="",
        order="",
        here=here,
        there=there,
        remedy=remedy,
    )


class _Audit:
    """One audit under way."""

    def __init__(
        self,
        started: QuerySet[Payment],
        ask: Ask,
        connections: int | None,
        progress: Progress,
        stop: Stop,
    ) -> None:
        self._started, self._ask, self._connections, self._progress, self._stop = (
            started,
            ask,
            connections,
            progress,
            stop,
        )
        self._shops: dict[str, _Unasked] = defaultdict(_Unasked)
        self.audited = Audited(total=started.count())

    def differences(self) -> Iterator[Difference]:
        """Yield every difference, account by account."""
        for alias in sorted(self._started.order_by().values_list("account", flat=True).distinct()):
            yield from self._of_account(alias)
        for plugin, unasked in self._shops.items():
            yield from unasked.differences("order", f"the shop, plugin {plugin},")
        if self._stop() and self.audited.payments < self.audited.total:
            left = self.audited.total - self.audited.payments
            yield _not_asked(
                _counted(left, "payment"),
                "the audit was ended before it reached them",
                "run the audit again",
            )

    def _of_account(self, alias: str) -> Iterator[Difference]:
        unasked = _Unasked()
        with Calls(self._ask, stop=self._stop, connections=self._connections) as calls:
            for batch in self._batches(alias):
                if self._stop():
                    break
                outside_transactions("audit")
                facts = self._facts(batch)
                for payment, answer in zip(batch, calls.answers(batch), strict=True):
                    yield from self._judge(payment, facts[payment.pk], answer, calls, unasked)
                yield from _doubles(batch)
                for ledger in _read(
                    [payment.order_id for payment in batch if not payment.has_earlier],
                ):
                    yield from self._of_order(ledger)
                self.audited.payments += len(batch)
                self._progress(self.audited)
        yield from unasked.differences("payment", f"the gateway of account {alias}")

    def _batches(self, alias: str) -> Iterator[list[Any]]:
        """Yield the payments of an account in the order in which they were started; each knows
        whether its order has an earlier one.
        """
        earlier = self._started.filter(order=OuterRef("order"), pk__lt=OuterRef("pk"))
        rows = (
            self._started.filter(account=alias)
            .annotate(has_earlier=Exists(earlier))
            .select_related("order")
            .order_by("created_at", "pk")
        )
        batch = list(rows[:_BATCH])
        while batch:
            yield batch
            last = batch[-1]
            later = Q(created_at__gt=last.created_at) | Q(
                created_at=last.created_at,
                pk__gt=last.pk,
            )
            batch = list(rows.filter(later, created_at__gte=last.created_at)[:_BATCH])

    def _facts(self, batch: list[Payment]) -> dict[int, PaymentFacts]:
        refunded: dict[int, Decimal] = defaultdict(Decimal)
        currencies = {payment.pk: payment.currency for payment in batch}
        accepted = Refund.objects.filter(
            payment__in=batch,
            status__in=(RefundStatus.SUCCEEDED, RefundStatus.PENDING),
        )
        for payment_id, amount, status in accepted.values_list("payment_id", "amount", "status"):
            refunded[payment_id] = money.total([refunded[payment_id], amount])
            if status != RefundStatus.SUCCEEDED:
                continue
            self.audited.refunds += 1
            _add(self.audited.refunded_amounts, currencies[payment_id], amount)
        is_paid = {payment.pk: payment.status == PaymentStatus.PAID for payment in batch}
        return {
            payment.pk: facts_of(payment, refunded[payment.pk] if is_paid[payment.pk] else NOTHING)
            for payment in batch
        }

    def _judge(
        self,
        payment: Payment,
        facts: PaymentFacts,
        answer: Answer | None,
        calls: Calls,
        unasked: _Unasked,
    ) -> Iterator[Difference]:
        """Yield the difference between a payment and the answer about it, asking again about one
        that changed since it was read.
        """
        for _ in range(_TRIES):
            if (
                answer is None
                or isinstance(answer, Inconclusive)
                or compare_with_gateway(payment, facts, answer) is None
            ):
                break
            payment = Payment.objects.select_related("order").get(pk=payment.pk)
            before, facts = facts, facts_of(payment)
            if facts == before:
                break
            [answer] = calls.answers([payment])
        if answer is None or isinstance(answer, Inconclusive):
            ended = "the audit was ended" if self._stop() else calls.detail
            unasked.note(payment.reference, answer.detail if answer else ended)
            return
        self._count(facts, answer)
        if difference := compare_with_gateway(payment, facts, answer):
            yield compare_with_gateway(payment, facts, answer, _reviews_of(payment)) or difference

    def _count(self, facts: PaymentFacts, answer: Answer) -> None:
        self.audited.compared += 1
        if facts.status is PaymentStatus.PAID:
            self.audited.paid_here += 1
            _add(self.audited.paid_here_amounts, facts.currency, facts.amount)
        if isinstance(answer, Found) and answer.transaction.status is TransactionStatus.PAID:
            self.audited.paid_there += 1
            _add(
                self.audited.paid_there_amounts,
                answer.transaction.currency or facts.currency,
                answer.transaction.amount or NOTHING,
            )

    def _of_order(self, ledger: OrderLedger) -> Iterator[Difference]:
        """Yield where the rows of an order differ from each other or from the shop."""
        found, fault = _judge_order(ledger)
        if found:
            with locked_order(ledger.order.pk):
                [ledger] = _read([ledger.order.pk])
                found, fault = _judge_order(ledger)
        if fault:
            if ledger.order.plugin not in self._shops:  # the first is enough of its traceback
                _log.error("order %s could not be described", ledger.order, exc_info=fault)
            self._shops[ledger.order.plugin].note(
                str(ledger.order),
                f"{type(fault).__name__}: {fault}",
            )
        yield from found


def _reviews_of(payment: Payment) -> Iterable[Review]:
    about = Q(payment=payment) | Q(account=payment.account, reason__in=ACCOUNT_REASONS)
    return Review.objects.filter(about).order_by("id")


def _doubles(batch: list[Payment]) -> Iterator[Difference]:
    """Yield the payments of a batch that share their transaction of the gateway with an earlier
    one.
    """
    numbers = [payment.transaction_no for payment in batch if payment.transaction_no]
    paid = Payment.objects.filter(transaction_no__in=numbers, status=PaymentStatus.PAID)
    # a sandbox and a live gateway count for themselves
    by_number: dict[tuple[bool, str | None], list[Payment]] = defaultdict(list)
    for payment in paid.select_related("order").order_by("id"):
        by_number[payment.sandbox, payment.transaction_no].append(payment)
    for payment in batch:
        same = by_number[payment.sandbox, payment.transaction_no]
        if payment in same[1:]:
            told = Review.objects.filter(
                payment__in=same,
                reason=ReviewReason.DUPLICATE_TRANSACTION_NO,
            )
            yield duplicates(payment, same[0], told.order_by("id"))


def _read(order_ids: list[int]) -> list[OrderLedger]:
    """Read the ledger of some orders, with the same few statements however many they are."""
    orders = Order.objects.select_related("paid_by__order").in_bulk(order_ids)
    payments = _grouped(
        Payment.objects.filter(order__in=order_ids).select_related("order"),
        lambda row: row.order_id,
    )
    refunds = _grouped(
        Refund.objects.filter(payment__order__in=order_ids).select_related("payment"),
        lambda row: row.payment.order_id,
    )
    kinds = (OutboxEventKind.PAYMENT_PAID, OutboxEventKind.REFUND_CHANGED)
    outbox_events = _grouped(
        OutboxEvent.objects.filter(order__in=order_ids, kind__in=kinds),
        lambda row: row.order_id,
    )
    reviews = _grouped(Review.objects.filter(order__in=order_ids), lambda row: row.order_id)
    entries = TimelineEntry.objects.filter(
        order__in=order_ids,
        event__in=list(STATUS_OF_EVENT),
    ).order_by("id")
    last: dict[tuple[int | None, int | None], str] = {
        (payment, refund): event
        for payment, refund, event in entries.values_list("payment_id", "refund_id", "event")
    }
    return [
        OrderLedger(
            order=orders[pk],
            payments=payments[pk],
            refunds=refunds[pk],
            outbox_events=outbox_events[pk],
            reviews=reviews[pk],
            last_events={
                **{payment: last.get((payment.pk, None), "") for payment in payments[pk]},
                **{refund: last.get((refund.payment_id, refund.pk), "") for refund in refunds[pk]},
            },
        )
        for pk in order_ids
    ]


def _grouped(rows: QuerySet[Any], order_of: Callable[[Any], int]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = defaultdict(list)
    for row in rows.using(database()).order_by("id"):
        groups[order_of(row)].append(row)
    return groups


def _judge_order(ledger: OrderLedger) -> tuple[list[Difference], Exception | None]:
    """Return the differences about an order, and the shop's exception if there was one."""
    found, order = list(examine(ledger)), ledger.order
    if not is_held_as_paid(ledger):
        return found, None
    try:
        # as at start and delivery: a plugin may lock the rows that it reads
        with transaction.atomic(using=database()):
            described = hooks.call_owner(
                order.plugin,
                "tillgate_describe_order",
                order_key=order.key,
            )
            transaction.set_rollback(True, using=database())  # writes of the plugin are not kept
    except Exception as error:  # a shop's plugin may raise anything
        return found, error
    if difference := compare_with_shop(ledger, described):
        found.append(difference)
    return found, None
