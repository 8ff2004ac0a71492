"""The worker: it does all due work, and any number of workers may run at the same time. The database is the queue.

A short transaction claims due payments and moves them forward by a lease (with SKIP LOCKED where the database has it). A bounded pool
queries them at a bounded rate per account, and the answers are applied as any other. A worker that dies lets its lease run out.

Nothing waits for ever behind something slow: every account and every kind of work gets a turn of bounded length, and after it the others
get theirs. Claimed payments that a turn did not reach are due again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import Error as DatabaseFault
from django.db import close_old_connections, connections
from django.db.models import Min, Q, QuerySet

from tillgate.django import clock
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review, database
from tillgate.django.operations import bounds
from tillgate.django.operations.accounts import find_account
from tillgate.django.operations.bounds import PollLimit, Stop, TimeBudget, never
from tillgate.django.operations.circuit_breaker import has_answered, in_turn, pause, resume
from tillgate.django.operations.heartbeats import set_heartbeat
from tillgate.django.operations.locking import durable, locked_order, outside_transactions, reconnect_if_cut
from tillgate.django.operations.mail import alert_reviews, mail_reviews
from tillgate.django.operations.outbox import deliver_marked, deliver_remote, is_unpaid, left_for_later
from tillgate.django.operations.payments import apply_answer, ask, facts_of, is_unchanged, matter_of, next_poll_after
from tillgate.django.operations.polling import Asker
from tillgate.django.operations.refunds import mark_lost, poll_refund, refund_news, send_refund
from tillgate.django.operations.restores import look_for_restore
from tillgate.django.operations.retention import purge_order
from tillgate.django.operations.reviews import (
    ACCOUNT_REASONS,
    Heard,
    conclude,
    open_among,
    open_review,
)
from tillgate.django.operations.status import queue_event
from tillgate.django.operations.supervision import WORKER, first_of_each_order, look_at_worker
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    UNSETTLED_REFUND_STATUSES,
    Answer,
    Inconclusive,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
    interpret,
    is_unanswered,
)
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")

_BATCH: Final = 50
"""Few enough that a worker which is often killed applies some answers before it is."""
_SLACK: Final = timedelta(minutes=5)
"""For applying a batch's answers, the shop's handlers included."""
_LONGEST_DEADLINE_SECONDS: Final = 600.0
_LANES: Final = 8
"""So many accounts have their turn at the same time; each has its own connection to the database."""
_MOST_AT_ONCE: Final = 10_000
_MOST_PURGED: Final = 200
"""Purging is never urgent: a worker run does a little of it."""
_FAULTS_KEPT: Final = 20
_REMOTE: Final = OutboxEventKind.REMOTE
_REFUND_WORK: Final = frozenset({RefundStatus.QUEUED}) | UNSETTLED_REFUND_STATUSES
"""The refunds that an account's turn sends or asks about."""
_REFUNDS: Final = "payments__refunds"
"""The lookup from an order to its refunds."""


@dataclass
class WorkDone:
    """The work of a worker run. `polled` counts the payments that were queried."""

    polled: int = 0
    changed: int = 0
    inconclusive: int = 0
    refunds_sent: int = 0
    refunds_polled: int = 0
    refunds_lost: int = 0
    outbox_events: int = 0
    orders_unpaid: int = 0
    mails: int = 0
    purged: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def work(self) -> int:
        """How much was done in all."""
        return (
            self.polled + self.refunds_sent + self.refunds_polled + self.refunds_lost + self.outbox_events + self.orders_unpaid + self.mails
        )

    def note(self, error: Exception, about: str) -> None:
        """Keep a failure, within a bound: a broken database must not fill the memory."""
        if len(self.faults) < _FAULTS_KEPT:
            self.faults.append(without_personal_data(storable(f"{about}: {type(error).__name__}: {error}"))[:300])

    def add(self, other: WorkDone) -> None:
        """Add the work of another thread."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        del self.faults[_FAULTS_KEPT:]


Progress = Callable[[WorkDone], object]
Due = Callable[[], list[int]]


def _quiet(_: WorkDone) -> None:
    """Show nothing."""


def run_worker(limit: int | None = None, progress: Progress = _quiet, stop: Stop = never, *, is_first: bool = False) -> WorkDone:
    """Do all due work, and return a summary. Safe to run many times at the same time.

    `limit` bounds the payments polled; `progress` receives the summary now and then; once `stop` returns true, the current work is
    finished and the rest left for the next worker run. `is_first`: where a delivery has failed, poll and mail once before any delivery,
    since a handler that hangs may have ended the process before this one.
    """
    outside_transactions("worker")
    work_done, began, poll_limit = WorkDone(), clock.now(), PollLimit(limit)
    if is_first and OutboxEvent.objects.filter(done_at__isnull=True, attempts__gt=0).exclude(kind=_REMOTE).exists():
        _accounts(work_done, poll_limit, progress, stop)
        _mails(work_done)
        beat(work_done)
    while True:
        before = work_done.work
        _guarded(work_done, "restore", look_for_restore)
        shop_left = _shop(work_done, stop)
        progress(work_done)
        accounts_left = _accounts(work_done, poll_limit, progress, stop)
        reconnect_if_cut()  # it has idled while other threads swept accounts
        if work_done.work > before:
            shop_left |= _shop(work_done, stop)  # new events for the shops
        _mails(work_done)
        beat(work_done)
        progress(work_done)
        is_done = not shop_left and not (accounts_left and _accounts_with_work(began))
        if is_done or stop() or poll_limit.is_spent or work_done.work == before:
            _guarded(work_done, "worker", look_at_worker)
            _purge(work_done, stop)
            return work_done


def wake() -> list[str]:
    """Begin a run for other processes: write the heartbeat, and return the accounts that have due work."""
    work_done = WorkDone()
    _guarded(work_done, "restore", look_for_restore)
    beat(work_done)
    return accounts_due()


def accounts_due() -> list[str]:
    """Return the accounts that have due work and do not rest, the longest waiting first."""
    return in_turn(_accounts_with_work(clock.now()))


def _accounts_with_work(until: datetime) -> dict[str, datetime]:
    """Return the accounts that have something due, and since when."""
    payments = Payment.objects.filter(next_poll_at__lte=until)
    refunds = Refund.objects.filter(due_at__lte=until, status__in=_REFUND_WORK)
    oldest: dict[str, datetime] = dict(payments.order_by().values_list("account").annotate(Min("next_poll_at")))
    for account, due in refunds.order_by().values_list("payment__account").annotate(Min("due_at")):
        oldest[account] = min(due, oldest.get(account, due))
    return oldest


def run_account(account: str) -> WorkDone:
    """Give one account its turn: send its queued refunds, ask about its due refunds and payments, and deliver what follows to the shops."""
    outside_transactions("run_account")
    work_done = WorkDone()
    _account(account, work_done, PollLimit(None), _quiet, never)
    if work_done.work:
        _shop(work_done, never)  # new events for the shops
    return work_done


def run_shop() -> WorkDone:
    """Do the due work for shops: lost refunds, unpaid orders, outbox events, details that are older than they are kept."""
    outside_transactions("run_shop")
    work_done = WorkDone()
    _shop(work_done, never)
    _purge(work_done, never)
    return work_done


def run_mail() -> WorkDone:
    """Mail open reviews, if it is time."""
    outside_transactions("run_mail")
    work_done = WorkDone()
    _guarded(work_done, "worker", look_at_worker)
    _mails(work_done)
    return work_done


def beat(work_done: WorkDone) -> None:
    """Write the heartbeat with a summary of the work."""
    detail: dict[str, Any] = {**asdict(work_done), "faults": work_done.faults[:5]}
    set_heartbeat(WORKER, clock.now(), detail)
    close_old_connections()


def _guarded(work_done: WorkDone, about: str, action: Callable[[], object]) -> bool:
    """Do something, and tell whether it was done; its failure keeps nothing else from being done, unless the database itself is away."""
    try:
        action()
    except Exception as error:
        _log.exception("the worker run failed at %s", about)
        work_done.note(error, about)
        if isinstance(error, DatabaseFault):
            _reconnect()
        return False
    return True


def _reconnect() -> None:
    """Replace a connection that broke; raise when the database is away, since then nothing can be done."""
    connection = connections[database()]
    connection.close_if_unusable_or_obsolete()
    connection.ensure_connection()


def _each(work_done: WorkDone, about: str, due: Due, action: Callable[[int], object], budget: TimeBudget, of_order: str = "pk") -> bool:
    """Call an action once for each due id, and return whether some are left. `of_order` is the lookup from an order to these ids.

    The turn would wait for each order that a hanging transaction holds, one after the other. So after the first failure the orders that are
    locked at that moment are left to a later worker run.
    """
    ids: list[int] = []
    _guarded(work_done, f"{about}s", lambda: ids.extend(due()))
    passed: set[int] = set()
    for place, pk in enumerate(ids, 1):
        if budget.is_over:
            return True
        if pk in passed:
            continue
        passed.add(pk)
        if not _guarded(work_done, f"{about} {pk}", lambda pk=pk: action(pk)):  # type: ignore[misc]  # a default that holds the loop's value
            _guarded(work_done, "locked orders", lambda place=place: passed.update(_held(ids[place : place + _BATCH], of_order)))  # type: ignore[misc]
    return len(ids) == _MOST_AT_ONCE


def _held(ids: list[int], of_order: str) -> set[int]:
    """Return the ids of locked orders; none, where a database cannot tell."""
    if not connections[database()].features.has_select_for_update_skip_locked:
        return set()
    orders = Order.objects
    order_of = dict(orders.filter(**{f"{of_order}__in": ids}).values_list(of_order, "pk"))
    with durable():
        free = set(orders.filter(pk__in=order_of.values()).select_for_update(skip_locked=True).values_list("pk", flat=True))
    return {pk for pk, order_id in order_of.items() if order_id not in free}


def _ids(rows: QuerySet[Any], due: str, name: str = "pk", most: int | None = None) -> Due:
    """Return a search for due ids, the longest due first: a failed one comes after those that were not tried yet."""
    return lambda: list(rows.order_by(due, "pk").values_list(name, flat=True)[: most or _MOST_AT_ONCE])


# The shops' side --------------------------------------------------------------------------------------------------------------------------


def _shop(work_done: WorkDone, stop: Stop) -> bool:
    now = clock.now()
    lost = Refund.objects.filter(due_at__lte=now, status=RefundStatus.SENDING)
    orders = Order.objects.filter(unpaid_check_at__lte=now)

    def lose(pk: int) -> None:
        mark_lost(pk)
        work_done.refunds_lost += 1

    def tell(order_id: int) -> None:
        _tell(order_id, work_done)

    def carry(order_id: int) -> None:
        work_done.outbox_events += deliver_remote(order_id)

    left = _each(work_done, "lost refund", _ids(lost, "due_at"), lose, TimeBudget(stop), _REFUNDS)
    left |= _each(work_done, "order", _ids(orders, "unpaid_check_at"), lambda pk: _queue_unpaid(pk, work_done), TimeBudget(stop))
    if not OutboxEvent.objects.filter(done_at__isnull=True, due_at__lte=clock.now()).exists():
        return left  # as nearly always, and each of the four searches below costs more
    # What has failed comes last: a handler that hangs ends this process, and each worker after it would begin with the same events.
    for state in (Q(attempts=0), Q(attempts__gt=0)):
        for about, kind, act in (("outbox events", ~Q(kind=_REMOTE), tell), ("remote outbox events", Q(kind=_REMOTE), carry)):
            now = clock.now()  # the local events before may have queued remote ones
            waiting = first_of_each_order(OutboxEvent.objects.filter(kind, done_at__isnull=True, created_at__lte=now))
            due = _ids(waiting.filter(state, due_at__lte=now), "due_at", "order_id")
            left |= _each(work_done, f"{about} of order", due, act, TimeBudget(stop))
    return left


def _queue_unpaid(order_id: int, work_done: WorkDone) -> None:
    """Queue "the order is unpaid" for an unpaid order whose time to pay again has passed."""
    with locked_order(order_id) as order:
        if order.unpaid_check_at is None or order.unpaid_check_at > clock.now():
            return  # another worker was quicker
        is_told = is_unpaid(order)
        order.unpaid_check_at = None
        if is_told:
            order.tried_since = None  # a shop that still offers the order begins a new time to pay
        order.save(update_fields=["unpaid_check_at", "tried_since"])
        if not is_told:
            return
        queue_event(order, OutboxEventKind.ORDER_UNPAID)
        work_done.orders_unpaid += 1


def _purge(work_done: WorkDone, stop: Stop) -> None:
    """Purge a bounded number of orders whose details are older than they are kept; the next worker run goes on."""

    def purge(pk: int) -> None:
        work_done.purged += purge_order(pk)

    due = Order.objects.filter(purge_check_at__lte=clock.now())
    _each(work_done, "order to purge", _ids(due, "purge_check_at", most=_MOST_PURGED), purge, TimeBudget(stop))


def _mails(work_done: WorkDone) -> None:
    """Send the mail and the alert about open reviews; the failure of one does not keep back the other."""

    def tell(send: Callable[[], int]) -> None:
        work_done.mails += send()

    for about, send in (("mail", mail_reviews), ("alert", alert_reviews)):
        _guarded(work_done, about, partial(tell, send))


# The gateways' side -----------------------------------------------------------------------------------------------------------------------


def _accounts(work_done: WorkDone, poll_limit: PollLimit, progress: Progress, stop: Stop) -> bool:
    """Give the accounts their turns, several at the same time, and return whether some have more to do.

    After a turn's time no other account begins: with hundreds of them the shop's work would wait for the last.
    """
    accounts = accounts_due()
    if not accounts:
        return False
    if len(accounts) == 1:
        return _account(accounts[0], work_done, poll_limit, progress, stop)
    parts, round_ = [WorkDone() for _ in accounts], TimeBudget(stop)

    def take_turn(alias: str, part: WorkDone) -> bool:
        if round_.is_over:
            return True
        try:
            return _account(alias, part, poll_limit, _quiet, stop)
        except DatabaseFault as error:  # there may be no connection left for this lane: the others go on
            part.note(error, f"account {alias}")
            return True
        finally:
            connections.close_all()  # this thread's own

    def so_far() -> WorkDone:
        total = WorkDone()
        for part in (work_done, *parts):
            total.add(part)
        return total

    with ThreadPoolExecutor(min(_LANES, len(accounts)), thread_name_prefix="tillgate-account") as lanes:
        bounds = [lanes.submit(take_turn, alias, part) for alias, part in zip(accounts, parts, strict=True)]
        while wait(bounds, timeout=1).not_done:
            progress(so_far())
    for part in parts:
        work_done.add(part)
    left = [budget.result() for budget in bounds]
    return any(left)


@left_for_later()
def _account(account: str, work_done: WorkDone, poll_limit: PollLimit, progress: Progress, stop: Stop) -> bool:
    """Give one account its turn, and tell whether it has more to do.

    The shop hears of a batch's changes after the batch: a handler that hangs would end this process before its other answers are written.
    """
    now = clock.now()
    due = Refund.objects.filter(due_at__lte=now, payment__account=account)
    unsent, unsettled = due.filter(status=RefundStatus.QUEUED), due.filter(status__in=UNSETTLED_REFUND_STATUSES)

    def send(pk: int) -> None:
        look_for_restore()  # a refund that another server sent already is unknown by now, and is not sent
        send_refund(pk)
        work_done.refunds_sent += 1

    def poll(pk: int) -> None:
        poll_refund(pk)
        work_done.refunds_polled += 1

    left = [
        _each(work_done, "refund", _ids(rows, "due_at"), act, TimeBudget(stop), _REFUNDS)
        for rows, act in ((unsent, send), (unsettled, poll))
    ]
    _guarded(work_done, f"payments of {account}", lambda: left.append(_payments(account, work_done, poll_limit, progress, stop)))
    return any(left)


def _payments(account: str, work_done: WorkDone, poll_limit: PollLimit, progress: Progress, stop: Stop) -> bool:
    """Look at the due payments of one account, batch by batch, and tell whether some are left."""
    until, budget = clock.now(), TimeBudget(stop)
    is_left = True
    with Asker(ask, budget) as asker:
        while is_left and not asker.is_over:
            taken = poll_limit.take(_BATCH)
            if not taken:
                break  # unless another account gives some back, the next worker run goes on
            batch, leased_until = _claim(account, until, taken)
            answers = asker.about(batch)
            reconnect_if_cut()
            asked = len(batch) - answers.count(None)
            poll_limit.give_back(taken - asked)
            _deliver(_apply(batch, answers, leased_until, work_done), work_done, budget)
            progress(work_done)
            is_left = len(batch) == taken or None in answers
    breaker = asker.breaker
    if breaker.too_many:
        pause(account, breaker.detail, is_told=breaker.is_told)
        return False
    if breaker.heard_conclusive:
        resume(account)
    elif breaker.any:
        pause(account, breaker.detail, is_told=breaker.is_told, rest=timedelta(0))
    # A claim may come short though some are due: MariaDB locks all that a claim of another account reads, and this one's passes over it.
    return is_left or _due(account, until).exists()


def _due(account: str, until: datetime) -> QuerySet[Payment]:
    return Payment.objects.filter(account=account, next_poll_at__lte=until)


def _claim(account: str, until: datetime, count: int) -> tuple[list[Payment], datetime]:
    """Take payments that are due, the longest first, until the lease runs out. They keep in memory when they were due."""
    now = clock.now()
    leased_until = now + _lease(account)
    with durable():
        # Not by key too: after a restore all are due at the same moment, and PostgreSQL would sort all of them for each claim.
        due = _due(account, until).order_by("next_poll_at")
        skip_locked = connections[database()].features.has_select_for_update_skip_locked
        batch = list(due.select_for_update(skip_locked=skip_locked)[:count])
        rows = Payment.objects.filter(pk__in=[payment.pk for payment in batch])
        if batch:
            rows.update(next_poll_at=leased_until)
    return batch, leased_until


def _lease(account: str) -> timedelta:
    """Return a time longer than a turn, the longest call that may begin at its end, and the applying of the answers."""
    try:
        deadline_seconds = find_account(account).deadline_seconds
    except Exception:  # a plugin that keeps the account may raise anything; `ask` reports it
        deadline_seconds = _LONGEST_DEADLINE_SECONDS
    return timedelta(seconds=bounds.TURN_SECONDS + deadline_seconds) + _SLACK


def _deliver(order_ids: list[int], work_done: WorkDone, budget: TimeBudget) -> None:
    """Tell the shop about the orders that a batch moved: a shopper may wait for it."""
    for order_id in order_ids:
        if budget.is_over:
            return
        _guarded(work_done, f"outbox events of order {order_id}", partial(_tell, order_id, work_done))


def _tell(order_id: int, work_done: WorkDone) -> None:
    work_done.outbox_events += deliver_marked(order_id)


def _apply(batch: list[Payment], answers: list[Answer | None], leased_until: datetime, work_done: WorkDone) -> list[int]:
    """Apply a batch's answers, and return the orders of the payments that moved.

    Answers that bring nothing new are put back together, a statement for all that are due at the same moment.
    """
    moved: list[int] = []
    put_back: dict[datetime | None, list[int]] = {}
    heard: list[Heard] = []
    unanswered: list[Payment] = []
    now = clock.now()
    decisions = [interpret(facts_of(payment), (), answer) if answer else None for payment, answer in zip(batch, answers, strict=True)]
    told = open_among(matter_of(payment, made.review) for payment, made in zip(batch, decisions, strict=True) if made and made.review)
    for payment, answer, decision in zip(batch, answers, decisions, strict=True):
        if answer is None or decision is None:
            # At its old time, since the longest waiting payment is next.
            put_back.setdefault(payment.next_poll_at, []).append(payment.pk)
            continue
        work_done.polled += 1
        work_done.inconclusive += not decision.is_conclusive
        if decision.is_conclusive and not isinstance(answer, Inconclusive):
            # `apply_answer` concludes an answer that moves the payment, with all that is known then.
            heard.append(Heard(payment, answer, is_in_order=decision.is_in_order and decision.status == payment.status))
        if not decision.is_conclusive and not payment.is_processing and is_unanswered(decision.status, payment.expires_at, now):
            unanswered.append(payment)
        if is_unchanged(payment, decision, told) and not refund_news(payment, answer):
            put_back.setdefault(next_poll_after(payment, decision, now), []).append(payment.pk)
            continue
        change = partial(_change, payment, answer, work_done, moved)
        is_applied = _guarded(work_done, f"payment {payment.reference}", change)
        if not is_applied and not payment.is_processing and is_unanswered(PaymentStatus(payment.status), payment.expires_at, now):
            unanswered.append(payment)
    if heard:
        _guarded(work_done, "reviews", lambda: conclude(heard))
    if unanswered:
        _guarded(work_done, "reviews", lambda: _tell_of_unanswered(unanswered))
    for due, ids in put_back.items():
        # Where the lease does not stand any more, another process has decided: a notification brought the poll forward, or the lease ran
        # out.
        leased = Payment.objects.filter(pk__in=ids, next_poll_at=leased_until)
        _guarded(work_done, "putting back", lambda leased=leased, due=due: leased.update(next_poll_at=due))  # type: ignore[misc]
    return moved


def _tell_of_unanswered(payments: list[Payment]) -> None:
    """Open a review about payments of one account that should long have been settled, unless the account itself has the trouble."""
    account = payments[0].account
    wrong = Review.objects.filter(account=account, reason__in=ACCOUNT_REASONS, resolved_at__isnull=True)
    told_at = wrong.order_by("-opened_at").values_list("opened_at", flat=True).first()
    if told_at and not has_answered(account, told_at):
        return
    for payment in payments:
        with locked_order(payment.order_id) as order:
            if order.payments.filter(pk=payment.pk, status__in=OPEN_PAYMENT_STATUSES).exists():
                reason = ReviewReason.PAYMENT_UNANSWERED
                open_review(reason, {}, "worker", order=order, payment=payment, account=account)


def _change(payment: Payment, answer: Answer, work_done: WorkDone, moved: list[int]) -> None:
    applied = apply_answer(payment, answer, "worker")
    if applied.status != payment.status:
        work_done.changed += 1
        moved.append(payment.order_id)
