"""The sweeper: whatever is due is done, by any number of workers at once. The database is the queue.

Due payments are claimed in a short transaction that moves them forward by a lease (with SKIP LOCKED where the database has it), queried
through a bounded pool at a bounded rate per account, and the answers applied as any other. A worker that dies lets its lease run out.

Nothing waits for ever behind something slow: every account and every kind of work gets a turn of bounded length, and after it the others
get theirs. What was claimed and not reached in a turn is given back as due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import Error as DatabaseFault
from django.db import close_old_connections, connections
from django.db.models import Exists, Min, OuterRef, QuerySet

from tillgate.django import clock
from tillgate.django.models import Attention, Delivery, DeliveryKind, Order, Payment, Refund
from tillgate.django.operations import turns, wrong_clocks
from tillgate.django.operations.accounts import find_account
from tillgate.django.operations.asking import Asker
from tillgate.django.operations.attention import (
    ACCOUNT_REASONS,
    Heard,
    conclude,
    open_among,
    raise_attention,
)
from tillgate.django.operations.deliveries import deliver, deliver_remote, is_unpaid
from tillgate.django.operations.heartbeats import set_heartbeat
from tillgate.django.operations.locking import database, durable, locked_order, outside_transactions, reconnect_if_cut
from tillgate.django.operations.mail import mail_attentions
from tillgate.django.operations.pauses import has_answered, in_turn, pause, resume
from tillgate.django.operations.payments import apply_answer, ask, facts_of, is_unchanged, matter_of, next_look_after
from tillgate.django.operations.refunds import mark_lost, send_refund
from tillgate.django.operations.turns import Quota, Stop, Turn
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    Answer,
    AttentionReason,
    NoNews,
    PaymentStatus,
    RefundStatus,
    decide,
    is_unanswered,
)
from tillgate.wire.texts import storable

__all__ = ["SWEEPER", "Progress", "Swept", "accounts_due", "beat", "sweep", "sweep_account", "sweep_mail", "sweep_shop", "wake"]

_log = logging.getLogger("tillgate")

SWEEPER: Final = "sweeper"
"""The name of the sweeper's heartbeat."""

_BATCH: Final = 50
"""Few enough that a sweeper which is often killed applies some answers before it is."""
_SLACK: Final = timedelta(minutes=5)
"""For applying a batch's answers, the shop's handlers included."""
_LONGEST_DEADLINE_SECONDS: Final = 600.0
_LANES: Final = 8
"""So many accounts are swept at once; each has its own connection to the database."""
_MOST_AT_ONCE: Final = 10_000
_FAULTS_KEPT: Final = 20
_REMOTE: Final = DeliveryKind.REMOTE
_REFUNDS: Final = "payments__refunds"
"""What of an order its refunds are."""


@dataclass
class Swept:
    """What a sweep did. `looked` counts the payments that the gateway was asked about."""

    looked: int = 0
    changed: int = 0
    no_news: int = 0
    refunds_sent: int = 0
    refunds_lost: int = 0
    deliveries: int = 0
    orders_unpaid: int = 0
    mails: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def work(self) -> int:
        """How much was done in all."""
        return self.looked + self.refunds_sent + self.refunds_lost + self.deliveries + self.orders_unpaid + self.mails

    def note(self, error: Exception, about: str) -> None:
        """Keep a failure, within a bound: a broken database must not fill the memory."""
        if len(self.faults) < _FAULTS_KEPT:
            self.faults.append(storable(f"{about}: {type(error).__name__}: {error}"[:300]))

    def add(self, other: Swept) -> None:
        """Add what another did."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        del self.faults[_FAULTS_KEPT:]


Progress = Callable[[Swept], object]
Due = Callable[[], list[int]]


def _quiet(_: Swept) -> None:
    """Show nothing."""


def _never() -> bool:
    return False


def sweep(limit: int | None = None, progress: Progress = _quiet, stop: Stop = _never) -> Swept:
    """Do everything that is due, and return what was done. Safe to run many times at once.

    `limit` bounds the payments looked at; `progress` hears now and then what was done so far; once `stop` says so, what is under way is
    finished and the rest left for the next sweep.
    """
    outside_transactions("sweep")
    swept, began, quota = Swept(), clock.now(), Quota(limit)
    while True:
        before = swept.work
        _put_right(swept)  # in every round: a sweep goes on for hours where more comes than it can do
        shop_left = _shop(swept, stop)
        progress(swept)
        accounts_left = _accounts(swept, quota, progress, stop)
        reconnect_if_cut()  # it has idled while other threads swept accounts
        if swept.work > before:
            shop_left |= _shop(swept, stop)  # what all this brought
        _guarded(swept, "mail", lambda: _mails(swept))
        beat(swept)
        progress(swept)
        is_done = not shop_left and not (accounts_left and _accounts_with_work(began))
        if is_done or stop() or quota.is_spent or swept.work == before:
            return swept


def _put_right(swept: Swept) -> None:
    """Make due what a clock that was wrong has put off. Every round begins with it."""
    _guarded(swept, "what was put off too far", wrong_clocks.bring_forward)
    _guarded(swept, "what a wrong clock has looked at", wrong_clocks.look_again)


def wake() -> list[str]:
    """Begin a sweep whose parts others do: put right what a wrong clock has put off, beat, and return the accounts that have their turn."""
    swept = Swept()
    _put_right(swept)
    beat(swept)
    return accounts_due()


def accounts_due() -> list[str]:
    """Return the accounts that have something due and whose gateway answers, as far as is known, those first that have waited longest."""
    return in_turn(_accounts_with_work(clock.now()))


def _accounts_with_work(until: datetime) -> dict[str, datetime]:
    """Return the accounts that have something due, and since when."""
    payments = Payment.objects.using(database()).filter(next_look_at__lte=until)
    refunds = Refund.objects.using(database()).filter(due_at__lte=until, status=RefundStatus.QUEUED)
    oldest: dict[str, datetime] = dict(payments.order_by().values_list("account").annotate(Min("next_look_at")))
    for account, due in refunds.order_by().values_list("payment__account").annotate(Min("due_at")):
        oldest[account] = min(due, oldest.get(account, due))
    return oldest


def sweep_account(account: str) -> Swept:
    """Give one account its turn: send its queued refunds and look at its due payments."""
    outside_transactions("sweep_account")
    swept = Swept()
    _account(account, swept, Quota(None), _quiet, _never)
    return swept


def sweep_shop() -> Swept:
    """Carry out what is due for shops: lost refunds, unpaid orders, deliveries."""
    outside_transactions("sweep_shop")
    swept = Swept()
    _shop(swept, _never)
    return swept


def sweep_mail() -> Swept:
    """Mail what needs a person, if it is time."""
    outside_transactions("sweep_mail")
    swept = Swept()
    _guarded(swept, "mail", lambda: _mails(swept))
    return swept


def beat(swept: Swept) -> None:
    """Note that the sweeper is alive, and what it did."""
    detail: dict[str, Any] = {**asdict(swept), "faults": swept.faults[:5]}
    set_heartbeat(SWEEPER, clock.now(), detail)
    close_old_connections()


def _guarded(swept: Swept, about: str, act: Callable[[], object]) -> bool:
    """Do something, and tell whether it was done; its failure keeps nothing else from being done, unless the database itself is away."""
    try:
        act()
    except Exception as error:
        _log.exception("the sweep failed at %s", about)
        swept.note(error, about)
        if isinstance(error, DatabaseFault):
            _reconnect()
        return False
    return True


def _reconnect() -> None:
    """Replace a connection that broke; raise when the database is away, since then nothing can be done."""
    connection = connections[database()]
    connection.close_if_unusable_or_obsolete()
    connection.ensure_connection()


def _each(swept: Swept, about: str, due: Due, act: Callable[[int], object], turn: Turn, of_order: str = "pk") -> bool:
    """Do something once for everything that is due, and tell whether some is left. `of_order` says what of an order it is.

    Each order that a hanging transaction holds would be waited for, one after the other, until the turn is over: after the first failure
    those that are held at that moment are left to a later sweep.
    """
    ids: list[int] = []
    _guarded(swept, f"{about}s", lambda: ids.extend(due()))
    passed: set[int] = set()
    for place, pk in enumerate(ids, 1):
        if turn.is_over:
            return True
        if pk in passed:
            continue
        passed.add(pk)
        if not _guarded(swept, f"{about} {pk}", lambda pk=pk: act(pk)):  # type: ignore[misc]  # a default that holds the loop's value
            _guarded(swept, "what is held", lambda place=place: passed.update(_held(ids[place : place + _BATCH], of_order)))  # type: ignore[misc]
    return len(ids) == _MOST_AT_ONCE


def _held(ids: list[int], of_order: str) -> set[int]:
    """Return those whose orders somebody holds; none, where a database cannot tell."""
    if not connections[database()].features.has_select_for_update_skip_locked:
        return set()
    orders = Order.objects.using(database())
    order_of = dict(orders.filter(**{f"{of_order}__in": ids}).values_list(of_order, "pk"))
    with durable():
        free = set(orders.filter(pk__in=order_of.values()).select_for_update(skip_locked=True).values_list("pk", flat=True))
    return {pk for pk, order_id in order_of.items() if order_id not in free}


def _ids(rows: QuerySet[Any], due: str, name: str = "pk") -> Due:
    """Look for what rows are about: what has been due longest is first, so that whatever fails comes after what was not tried yet."""
    return lambda: list(rows.order_by(due, "pk").values_list(name, flat=True)[:_MOST_AT_ONCE])


# The shops' side --------------------------------------------------------------------------------------------------------------------------


def _shop(swept: Swept, stop: Stop) -> bool:
    now = clock.now()
    lost = Refund.objects.using(database()).filter(due_at__lte=now, status=RefundStatus.SENDING)
    orders = Order.objects.using(database()).filter(unpaid_check_at__lte=now)
    waiting = Delivery.objects.using(database()).filter(done_at__isnull=True)
    local, remote = (_first_of_each_order(rows, now) for rows in (waiting.exclude(kind=_REMOTE), waiting.filter(kind=_REMOTE)))

    def lose(pk: int) -> None:
        mark_lost(pk)
        swept.refunds_lost += 1

    def tell(order_id: int) -> None:
        swept.deliveries += deliver(order_id)

    def carry(order_id: int) -> None:
        swept.deliveries += deliver_remote(order_id)

    left = _each(swept, "lost refund", _ids(lost, "due_at"), lose, Turn(stop), _REFUNDS)
    left |= _each(swept, "order", _ids(orders, "unpaid_check_at"), lambda pk: _queue_unpaid(pk, swept), Turn(stop))
    left |= _each(swept, "deliveries of order", _ids(local, "due_at", "order_id"), tell, Turn(stop))
    left |= _each(swept, "remote deliveries of order", _ids(remote, "due_at", "order_id"), carry, Turn(stop))
    return left


def _first_of_each_order(waiting: QuerySet[Delivery], now: datetime) -> QuerySet[Delivery]:
    """Return what is due and waits for no older delivery of its order: what stands behind one that fails would come first for ever."""
    return waiting.filter(~Exists(waiting.filter(order=OuterRef("order"), pk__lt=OuterRef("pk"))), due_at__lte=now)


def _queue_unpaid(order_id: int, swept: Swept) -> None:
    """Queue "the order is unpaid" for an order whose time to pay again has passed and that nobody paid."""
    with locked_order(order_id) as order:
        now = clock.now()
        if order.unpaid_check_at is None or order.unpaid_check_at > now:
            return  # another sweeper was quicker
        order.unpaid_check_at = None
        order.save(update_fields=["unpaid_check_at"])
        if not is_unpaid(order):
            return
        Delivery(order=order, kind=DeliveryKind.ORDER_UNPAID, created_at=now, due_at=now).save(force_insert=True)
        swept.orders_unpaid += 1


def _mails(swept: Swept) -> None:
    swept.mails += mail_attentions()


# The gateways' side -----------------------------------------------------------------------------------------------------------------------


def _accounts(swept: Swept, quota: Quota, progress: Progress, stop: Stop) -> bool:
    """Give the accounts their turns, several at once, and tell whether some have more to do.

    After a turn's time no other account begins: with hundreds of them the shop's work would wait for the last.
    """
    accounts = accounts_due()
    if not accounts:
        return False
    if len(accounts) == 1:
        return _account(accounts[0], swept, quota, progress, stop)
    parts, round_ = [Swept() for _ in accounts], Turn(stop)

    def take_turn(alias: str, part: Swept) -> bool:
        if round_.is_over:
            return True
        try:
            return _account(alias, part, quota, _quiet, stop)
        except DatabaseFault as error:  # there may be no connection left for this lane: the others go on
            part.note(error, f"account {alias}")
            return True
        finally:
            connections.close_all()  # this thread's own

    def so_far() -> Swept:
        total = Swept()
        for part in (swept, *parts):
            total.add(part)
        return total

    with ThreadPoolExecutor(min(_LANES, len(accounts)), thread_name_prefix="tillgate-account") as lanes:
        turns = [lanes.submit(take_turn, alias, part) for alias, part in zip(accounts, parts, strict=True)]
        while wait(turns, timeout=1).not_done:
            progress(so_far())
    for part in parts:
        swept.add(part)
    left = [turn.result() for turn in turns]
    return any(left)


def _account(account: str, swept: Swept, quota: Quota, progress: Progress, stop: Stop) -> bool:
    """Give one account its turn, and tell whether it has more to do."""
    due = Refund.objects.using(database()).filter(due_at__lte=clock.now(), status=RefundStatus.QUEUED, payment__account=account)

    def send(pk: int) -> None:
        send_refund(pk)
        swept.refunds_sent += 1

    left = [_each(swept, "refund", _ids(due, "due_at"), send, Turn(stop), _REFUNDS)]
    _guarded(swept, f"payments of {account}", lambda: left.append(_payments(account, swept, quota, progress, stop)))
    return any(left)


def _payments(account: str, swept: Swept, quota: Quota, progress: Progress, stop: Stop) -> bool:
    """Look at the due payments of one account, batch by batch, and tell whether some are left."""
    until, turn = clock.now(), Turn(stop)
    is_left = True
    with Asker(ask, turn) as asker:
        while is_left and not asker.is_over:
            taken = quota.take(_BATCH)
            if not taken:
                break  # unless another account gives some back, the next sweep goes on
            batch, leased_until = _claim(account, until, taken)
            answers = asker.about(batch)
            reconnect_if_cut()
            asked = len(batch) - answers.count(None)
            quota.give_back(taken - asked)
            _apply(batch, answers, leased_until, swept)
            progress(swept)
            is_left = len(batch) == taken or None in answers
    silences = asker.silences
    if silences.too_many:
        pause(account, silences.because, is_told=silences.is_told)
        return False
    if silences.heard_news:
        resume(account)
    elif silences.any:
        pause(account, silences.because, is_told=silences.is_told, rest=timedelta(0))
    # A claim may come short though some are due: MariaDB locks all that a claim of another account reads, and this one's passes over it.
    return is_left or _due(account, until).exists()


def _due(account: str, until: datetime) -> QuerySet[Payment]:
    return Payment.objects.using(database()).filter(account=account, next_look_at__lte=until)


def _claim(account: str, until: datetime, count: int) -> tuple[list[Payment], datetime]:
    """Take payments that are due, the longest first, until the lease runs out. They keep in memory when they were due."""
    now = clock.now()
    leased_until = now + _lease(account)
    with durable():
        due = _due(account, until).order_by("next_look_at", "pk")
        skip_locked = connections[database()].features.has_select_for_update_skip_locked
        batch = list(due.select_for_update(skip_locked=skip_locked)[:count])
        rows = Payment.objects.using(database()).filter(pk__in=[payment.pk for payment in batch])
        if batch:
            rows.update(next_look_at=leased_until, looked_at=now)
    return batch, leased_until


def _lease(account: str) -> timedelta:
    """Return a time longer than a turn, the longest call that may begin at its end, and the applying of the answers."""
    try:
        deadline_seconds = find_account(account).deadline_seconds
    except Exception:  # a plugin that keeps the account may raise anything; `ask` says what
        deadline_seconds = _LONGEST_DEADLINE_SECONDS
    return timedelta(seconds=turns.TURN_SECONDS + deadline_seconds) + _SLACK


def _apply(batch: list[Payment], answers: list[Answer | None], leased_until: datetime, swept: Swept) -> None:
    """Apply a batch's answers; those that bring nothing new are put back together, a statement for all that are due at the same moment."""
    put_back: dict[datetime | None, list[int]] = {}
    heard: list[Heard] = []
    unanswered: list[Payment] = []
    now = clock.now()
    decisions = [decide(facts_of(payment), answer) if answer else None for payment, answer in zip(batch, answers, strict=True)]
    told = open_among(matter_of(payment, made.attention) for payment, made in zip(batch, decisions, strict=True) if made and made.attention)
    for payment, answer, decision in zip(batch, answers, decisions, strict=True):
        if answer is None or decision is None:
            # In its place, since who waited longest is next; but due as it was, though the clock that said so was ahead of this one.
            put_back.setdefault(min(payment.next_look_at or now, now), []).append(payment.pk)
            continue
        swept.looked += 1
        swept.no_news += not decision.is_news
        if decision.is_news and not isinstance(answer, NoNews):
            # What moves may be heard otherwise by what is known of it; that is concluded where it is written.
            heard.append(Heard(payment, answer, is_in_order=decision.is_in_order and decision.status == payment.status))
        if not decision.is_news and is_unanswered(decision.status, payment.expires_at, now):
            unanswered.append(payment)
        if is_unchanged(payment, decision, told):
            put_back.setdefault(next_look_after(payment, decision, now), []).append(payment.pk)
            continue
        is_applied = _guarded(swept, f"payment {payment.reference}", lambda payment=payment, answer=answer: _change(payment, answer, swept))  # type: ignore[misc]  # defaults that hold the loop's values
        if not is_applied and is_unanswered(PaymentStatus(payment.status), payment.expires_at, now):
            unanswered.append(payment)
    if heard:
        _guarded(swept, "attentions", lambda: conclude(heard))
    if unanswered:
        _guarded(swept, "attentions", lambda: _tell_of_unanswered(unanswered))
    for due, ids in put_back.items():
        # Where the lease stands no more, somebody else has decided meanwhile: a notice brought the look forward, or the lease ran out.
        leased = Payment.objects.using(database()).filter(pk__in=ids, next_look_at=leased_until)
        _guarded(swept, "putting back", lambda leased=leased, due=due: leased.update(next_look_at=due, looked_at=now))  # type: ignore[misc]


def _tell_of_unanswered(payments: list[Payment]) -> None:
    """Tell a person of payments of one account that should long have been settled, unless the account itself is what is wrong."""
    account = payments[0].account
    wrong = Attention.objects.using(database()).filter(account=account, reason__in=ACCOUNT_REASONS, resolved_at__isnull=True)
    told_at = wrong.order_by("-raised_at").values_list("raised_at", flat=True).first()
    if told_at and told_at <= clock.now() + clock.SKEW and not has_answered(account, told_at):
        return
    for payment in payments:
        sentence = f"Payment {payment.reference}: its time to pay is long over, and the gateway gives no usable answer about it."
        with locked_order(payment.order_id) as order:
            if order.payments.filter(pk=payment.pk, status__in=OPEN_PAYMENT_STATUSES).exists():
                reason = AttentionReason.PAYMENT_UNANSWERED
                raise_attention(reason, sentence, "sweep", order=order, payment=payment, account=account)


def _change(payment: Payment, answer: Answer, swept: Swept) -> None:
    applied = apply_answer(payment, answer, "sweep")
    swept.changed += applied.status != payment.status
