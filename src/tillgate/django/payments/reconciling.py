"""Return, notification and worker lead to one `reconcile`: query the gateway and apply the
answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

from django.db import connections, transaction
from django.db.models import Exists
from django.utils import timezone

from tillgate import hooks
from tillgate.django.accounts import account_of
from tillgate.django.conf import get_settings
from tillgate.django.models import NOTHING, Order, OutboxEventKind, Payment, database
from tillgate.django.orders.locking import durable, locked_order, network, outside_transactions
from tillgate.django.orders.status import queue_event, write_status
from tillgate.django.orders.timeline import record
from tillgate.django.orders.times import (
    disputable,
    note_under_way,
    pay_until,
    unpaid_check_at,
)
from tillgate.django.outbox.delivering import deliver, deliver_due
from tillgate.django.payments.admission import note_hung_query, resting_queries
from tillgate.django.payments.details import note_details
from tillgate.django.refunds.external import book_reported_refunds, refund_news
from tillgate.django.reviews.closing import ITSELF, AppliedAnswer, conclude
from tillgate.django.reviews.opening import (
    ACCOUNT_REASONS,
    open_key,
    open_review,
    open_reviews_of,
    version_of,
)
from tillgate.errors import TillgateError
from tillgate.lifecycle import (
    Answer,
    Decision,
    Found,
    Inconclusive,
    PaymentFacts,
    PaymentStatus,
    ReviewReason,
    answer_of,
    interpret,
    next_poll,
    next_retry,
)
from tillgate.wire.personal import kept_fields, without_personal_data

_log = logging.getLogger("tillgate")

_NO_VERSIONS: Final[Mapping[str, str]] = MappingProxyType({})
_NOT_COUNTED: Final[Mapping[str, int]] = MappingProxyType({})
BY_STAFF: Final = "staff:"
_OVER_UNPAID: Final = frozenset({PaymentStatus.FAILED, PaymentStatus.CLOSED, PaymentStatus.EXPIRED})
_QUICK_SECONDS: Final = 5.0
_HANG_SECONDS: Final = 4.0
"""A quick query that took longer held a thread of the web server in vain."""
_POLL_LEASE: Final = timedelta(minutes=1)
"""Longer than a quick query takes: if its process dies, the worker polls then."""
_Claimant = Literal["last_polled_at", "last_returned_at"]
_CLAIMED: Final = (
    "status_since",
    "last_polled_at",
    "last_returned_at",
    "next_poll_at",
    "notifications",
    "forged_notifications",
)
"""A changed row of a payment has another value here. None has an index: InnoDB would lock by the
index first, against the lock order.
"""


def _review_duplicate(payment: Payment, transaction_no: str, actor: str) -> None:
    """Open a review when the gateway gave the same number to another payment; recording goes on."""
    # A sandbox and a live gateway count for themselves.
    duplicates = Payment.objects.filter(
        transaction_no=transaction_no,
        sandbox=payment.sandbox,
    ).exclude(pk=payment.pk)
    if duplicate := duplicates.first():
        facts = {
            "transaction_no": transaction_no,
            "payment": payment.reference,
            "other": duplicate.reference,
        }
        open_review(ReviewReason.DUPLICATE_TRANSACTION_NO, facts, actor, payment)


def reconcile(payment: Payment, actor: str, *, even_if_resting: bool = False) -> Payment:
    """Query the gateway about a payment, apply the answer, and return the payment as it now stands.

    At most one query is sent per payment in the throttle interval (I7); when it is not yet time,
    the next poll is brought forward. While the account's queries rest, none is sent unless it is
    `even_if_resting`.
    """
    outside_transactions("reconcile")
    if not claim_poll(payment, even_if_resting=even_if_resting):
        return Payment.objects.select_related("order").get(pk=payment.pk)
    return apply_answer(payment, ask(payment, quickly=True), actor)


def reconcile_once_more(payment: Payment, after: datetime) -> Payment:
    """Query the gateway once more after the query of the shopper's return, at `after`, and apply
    the answer: the money often comes within a second. Return the payment as it now stands.

    Each query of a return allows one: a later call with the same time asks nothing.
    """
    outside_transactions("reconcile_once_more")
    is_due = payment.is_open and after == payment.last_returned_at
    if not is_due or not claim_poll(payment, column="last_returned_at", once_after=after):
        return payment
    return apply_answer(payment, ask(payment, quickly=True), "return")


def claim_poll(
    payment: Payment,
    hashed: str = "",
    *,
    even_if_paid: bool = False,
    even_if_resting: bool = False,
    column: _Claimant = "last_polled_at",
    once_after: datetime | None = None,
    counted: Mapping[str, int] = _NOT_COUNTED,
) -> bool:
    """Take the right to query a payment now, and return whether it was given: not when the payment
    was queried just now.

    `column` has the time of the last such query: returns have one of their own, so that a
    notification after a return is not held up. `once_after` is the time of the return's query,
    which this one may follow immediately.

    In both cases the worker polls soon, should this process die or the right be denied (I7).
    `counted` are counters of notifications to raise in the same statement, and `hashed` is the hash
    of the notification, which asks about a paid payment only with `even_if_paid`. The statement
    changes an unchanged row only; a changed one is read again, under its lock.
    """
    rows, rest = Payment.objects.filter(pk=payment.pk), resting_queries(payment.account)
    claim = partial(
        _claim,
        payment,
        hashed,
        counted,
        even_if_paid=even_if_paid,
        column=column,
        once_after=once_after,
    )
    changes, may_ask = claim()
    unchanged = rows.filter(**{name: getattr(payment, name) for name in _CLAIMED})
    # The same statement sees whether the gateway hangs.
    if may_ask and not even_if_resting:
        unchanged = unchanged.filter(~Exists(rest))
    if not unchanged.update(**changes):
        # PostgreSQL has locked the row for a change already, though there was none. Raised to FOR
        # UPDATE, that lock may have to queue behind another notification that waits for this one:
        # so it is not raised.
        no_key = connections[database()].features.has_select_for_no_key_update
        with transaction.atomic(using=database()):
            assign(payment, rows.select_for_update(no_key=no_key).values().get())
            changes, may_ask = claim(hangs=not even_if_resting and rest.exists())
            rows.update(**changes)
    assign(payment, changes)
    return may_ask


def _claim(
    payment: Payment,
    hashed: str,
    counted: Mapping[str, int],
    *,
    even_if_paid: bool,
    column: _Claimant,
    once_after: datetime | None,
    hangs: bool = False,
) -> tuple[dict[str, Any], bool]:
    changes: dict[str, Any] = {
        name: getattr(payment, name) + more for name, more in counted.items()
    }
    if hashed:
        changes["last_notification"] = hashed
    if counted and payment.status == PaymentStatus.PAID and not even_if_paid:
        # the notification says no more than paid; tail polls find later changes
        return (
            changes,
            False,
        )
    now, throttle = timezone.now(), timedelta(seconds=get_settings().notification_throttle_seconds)
    if hangs:  # each query would hold one more thread, and the worker asks soon
        return changes | {"next_poll_at": min(now, payment.next_poll_at or now)}, False
    last: datetime | None = getattr(payment, column)
    if last is None or last <= now - throttle or last == once_after:
        return changes | {column: now, "next_poll_at": now + throttle + _POLL_LEASE}, True
    soon = now + throttle
    return changes | {"next_poll_at": min(soon, payment.next_poll_at or soon)}, False


def assign(payment: Payment, values: Mapping[str, object]) -> None:
    """Give a payment in memory the new values of its row."""
    for name, value in values.items():
        setattr(payment, name, value)


def ask(payment: Payment, *, quickly: bool = False) -> Answer:
    """Query the gateway about a payment, through the account that made it. Uses no database
    transaction; never raises.

    `quickly` is for a waiting shopper or gateway: one short attempt, since the worker polls again.
    """
    asked_at = timezone.now()
    try:
        account = account_of(payment)
        hooks.expect_gateway(account)
    except TillgateError as error:
        return Inconclusive(
            detail=without_personal_data(str(error)),
            review=ReviewReason.ACCOUNT_GONE,
        )
    except Exception as error:  # a plugin that keeps the account may raise anything
        _log.exception("the account of %s could not be found", payment.reference)
        return Inconclusive(detail=f"{type(error).__name__} in a plugin")
    deadline_seconds, attempts = (_QUICK_SECONDS, 1) if quickly else (None, None)
    began = time.monotonic()
    try:
        with network():
            found = hooks.query(
                account,
                payment.reference,
                transaction_no=payment.transaction_no or payment.hinted_no,
                deadline_seconds=deadline_seconds,
                attempts=attempts,
            )
        raw = kept_fields(found.raw, account.dialect.kept_fields)
        found = replace(found, raw=raw, status_text=without_personal_data(found.status_text))
        return answer_of(found, asked_at, account.dialect)
    except TillgateError as error:
        return answer_of(error, asked_at, account.dialect)
    except Exception as error:
        # a plugin around the gateway may raise anything, and none of it is news
        _log.exception("the query of %s failed in a plugin", payment.reference)
        return Inconclusive(detail=f"{type(error).__name__} in a plugin")
    finally:
        if quickly and time.monotonic() - began > _HANG_SECONDS:
            note_hung_query(payment.account)


def facts_of(payment: Payment, refunded: Decimal | None = None) -> PaymentFacts:
    """Return the payment as `interpret` needs it; the refunded amount is looked up unless given."""
    if refunded is None:
        refunded = payment.refunding_amount if payment.status == PaymentStatus.PAID else NOTHING
    return PaymentFacts(
        reference=payment.reference,
        amount=payment.amount,
        currency=payment.currency,
        status=PaymentStatus(payment.status),
        expires_at=payment.expires_at,
        closes_at=payment.page_closes_at,
        transaction_no=payment.transaction_no,
        refunded=refunded,
        is_processing=payment.is_processing,
    )


def is_unchanged(
    payment: Payment,
    decision: Decision,
    versions: Mapping[str, str] = _NO_VERSIONS,
) -> bool:
    """Return whether a decision leaves everything about a payment as it is; `versions` has those of
    its open reviews, by their keys.
    """
    if decision.status != payment.status or decision.transaction_no != payment.transaction_no:
        return False
    if decision.is_conclusive and decision.is_processing != payment.is_processing:
        return False
    if decision.review is None:
        return True
    known = versions.get(open_key(decision.review, payment, payment.account))
    return known is not None and (
        decision.review in ACCOUNT_REASONS or known == _compared(payment, decision)[1]
    )


def apply_answer(payment: Payment, answer: Answer, actor: str) -> Payment:
    """Apply an answer of the gateway to a payment, and deliver the events to the shop."""
    fresh = write_answer(payment, answer, actor)
    if fresh is not payment:
        # a payment that does not move seldom has an event
        deliver_events = deliver if fresh.status != payment.status else deliver_due
        deliver_events(payment.order_id)
    return fresh


def write_answer(payment: Payment, answer: Answer, actor: str) -> Payment:
    """Apply an answer of the gateway to a payment, under its order's lock, and queue the events for
    the shop.

    Return the payment itself where the answer leaves its order alone, else its row as it is then.
    """
    note_details(payment, answer, actor)
    decision = interpret(facts_of(payment), (), answer)
    payment.is_in_doubt = not decision.is_in_order
    if is_unchanged(payment, decision) and not refund_news(payment, answer):
        if decision.is_conclusive:
            _conclude(payment, answer, decision, actor)
        reschedule(payment, decision)
        return payment
    if not decision.is_conclusive:
        if decision.review:
            # The account's reviews are in no order's timeline, and need no order's lock.
            is_about_account = decision.review in ACCOUNT_REASONS
            with durable() if is_about_account else locked_order(payment.order_id):
                _review_answer(payment, decision, actor)
        reschedule(payment, decision)
        return payment
    with locked_order(payment.order_id) as order:
        fresh = Payment.objects.select_for_update().get(pk=payment.pk)
        fresh.order = order
        decision = decide_about(fresh, answer)
        fresh.is_in_doubt = not decision.is_in_order
        if not _is_stale(payment, fresh, decision, answer):
            _write_fresh(fresh, decision, answer, actor, payment.notifications)
    return fresh


def _write_fresh(
    payment: Payment,
    decision: Decision,
    answer: Answer,
    actor: str,
    notifications_before: int,
) -> None:
    """Write a decision about a payment that was read under its order's lock, if it changes
    anything, and book the refunds that the answer lists.
    """
    is_written = not is_unchanged(payment, decision)
    if is_written:
        write_decision(payment, decision, answer, actor, notifications_before=notifications_before)
    if reported := refund_news(payment, answer):
        book_reported_refunds(payment.order, payment, reported, actor)
    if not is_written and not isinstance(answer, Inconclusive):
        _conclude(payment, answer, decision, actor)
        reschedule(payment, decision)


def decide_about(payment: Payment, answer: Answer) -> Decision:
    """Return the decision about an answer, with the payment's open reviews."""
    return interpret(
        facts_of(payment),
        open_reviews_of(payment.reviews.filter(resolved_at__isnull=True)),
        answer,
    )


def _is_stale(before: Payment, payment: Payment, decision: Decision, answer: Answer) -> bool:
    """Return whether an answer that moves the payment nowhere comes from a query before its last
    change. `before` is the payment as it was before the query.
    """
    has_moved = payment.status_since != before.status_since
    is_earlier = not isinstance(answer, Inconclusive) and answer.asked_at < payment.status_since
    is_stale = decision.status == payment.status and (has_moved or is_earlier)
    # An unpaid payment may be settled by staff, or because the gateway did not know it: a late
    # report that it is paid counts.
    return is_stale and not (decision.reported_paid and payment.status in _OVER_UNPAID)


def reschedule(payment: Payment, decision: Decision) -> None:
    """Set the next poll of a payment that an answer left as it was."""
    # A notification that came since it was claimed has brought the next poll forward (I7).
    rows = Payment.objects.filter(
        pk=payment.pk,
        status_since=payment.status_since,
        notifications=payment.notifications,
    )
    rows.update(next_poll_at=next_poll_after(payment, decision, timezone.now()))


def next_poll_after(payment: Payment, decision: Decision, now: datetime) -> datetime | None:
    """Return when a payment is polled next after an answer that has been written."""
    when = next_poll if decision.is_last_word else next_retry
    return when(
        PaymentStatus(payment.status),
        payment.created_at if payment.is_open else payment.status_since,
        payment.expires_at,
        now,
        disputable(),
    )


def write_decision(
    payment: Payment,
    decision: Decision,
    answer: Answer,
    actor: str,
    *,
    notifications_before: int,
    event: str = "",
) -> None:
    """Write a decision about a payment under its order's lock: its columns, its review, its
    timeline entry and its shop event.

    `notifications_before` counts the notifications before the query; `event` names the timeline
    entry of a new status.
    """
    order = payment.order
    has_moved, was_under_way = decision.status != payment.status, payment.is_processing
    is_identified = decision.transaction_no and decision.transaction_no != payment.transaction_no
    has_finished = decision.is_processing and not payment.is_processing
    if has_moved and decision.status is PaymentStatus.PAID and decision.transaction_no:
        _review_duplicate(payment, decision.transaction_no, actor)
    _write_columns(payment, decision, answer, notifications_before)
    _review_answer(payment, decision, actor)
    _conclude(payment, answer, decision, actor)
    if has_moved:
        name, detail = event or f"payment.{decision.status}", decision.detail
        evidence = dict(answer.transaction.raw) if isinstance(answer, Found) else {}
        extra = {"was_under_way": "yes"} if was_under_way else None
        record(name, order, actor, detail, payment=payment, evidence=evidence, extra=extra)
        after_change(order, payment)
    if has_finished:
        record("payment.processing", order, actor, decision.detail, payment=payment)
    elif is_identified and not has_moved:
        detail = f"transaction {decision.transaction_no}"
        record("payment.identified", order, actor, detail, payment=payment)


def _write_columns(
    payment: Payment,
    decision: Decision,
    answer: Answer,
    notifications_before: int,
) -> None:
    now, changed, was_processing = timezone.now(), [], payment.is_processing
    if decision.status != payment.status:
        changed = write_status(payment, decision.status, now)
        payment.status_text = (
            answer.transaction.status_text[:32] if isinstance(answer, Found) else ""
        )
    payment.transaction_no, payment.is_processing = decision.transaction_no, decision.is_processing
    due, is_paid = next_poll_after(payment, decision, now), decision.status is PaymentStatus.PAID
    if payment.notifications > notifications_before and payment.next_poll_at and not is_paid:
        # a notification that came since has brought it forward (I7)
        due = min(due or payment.next_poll_at, payment.next_poll_at)
    payment.next_poll_at = due
    payment.save(
        update_fields=[*changed, "status_text", "transaction_no", "is_processing", "next_poll_at"],
    )
    if payment.is_processing != was_processing:
        note_under_way(payment.order)


def _conclude(payment: Payment, answer: Answer, decision: Decision, actor: str) -> None:
    """Close the reviews that an answer ends. The word of staff ends none."""
    if not isinstance(answer, Inconclusive):
        by = actor.removeprefix(BY_STAFF) if actor.startswith(BY_STAFF) else ITSELF
        conclude([AppliedAnswer(payment, answer, is_in_order=decision.is_in_order)], by)


def _review_answer(payment: Payment, decision: Decision, actor: str) -> None:
    """Open the review that a decision calls for, if any."""
    if decision.review is None:
        return
    is_about_account = decision.review in ACCOUNT_REASONS
    open_review(
        decision.review,
        _facts(decision),
        actor,
        payment,
        reported_paid=decision.reported_paid,
        evidence={"reference": payment.reference} if is_about_account else None,
    )


def _facts(decision: Decision) -> Mapping[str, Any]:
    return decision.facts if decision.is_conclusive else {"error": decision.detail}


def _compared(payment: Payment, decision: Decision) -> tuple[dict[str, str], str]:
    """Return the facts of the review that a decision opens, as they are stored, and their
    version.
    """
    assert decision.review is not None
    facts, is_about_account = _facts(decision), decision.review in ACCOUNT_REASONS
    subject = payment.account if is_about_account else payment.reference
    return version_of(decision.review, facts, subject=subject, reported_paid=decision.reported_paid)


def after_change(order: Order, payment: Payment) -> None:
    """Queue the shop event about a payment's new status, in the same transaction."""
    if payment.status == PaymentStatus.PAID:
        queue_event(order, OutboxEventKind.PAYMENT_PAID, payment=payment)
    elif not payment.is_open:
        order.unpaid_check_at = unpaid_check_at(pay_until(order))
        order.save(update_fields=["unpaid_check_at"])
