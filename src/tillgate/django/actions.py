"""The review actions: staff resolve reviews with them. The table of policies says which action fits
which reason.

An action that uses the network runs outside transactions like every other operation. An action on a
resolved review changes nothing and names the colleague that resolved it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from django.db.models import QuerySet

from tillgate.django.models import Order, OutboxEventKind, Payment, Refund, Review
from tillgate.django.orders.locking import locked_order, outside_transactions, shop_savepoint
from tillgate.django.orders.status import mark_order_reopened, queue_event
from tillgate.django.orders.timeline import record
from tillgate.django.orders.values import order_value
from tillgate.django.outbox.attempts import abandon, retry
from tillgate.django.outbox.delivering import deliver
from tillgate.django.outbox.handlers import AGAIN
from tillgate.django.outbox.remote import deliver_remote
from tillgate.django.payments.by_staff import accept_as_paid, force_expire
from tillgate.django.payments.details import is_storable, note_number
from tillgate.django.payments.reconciling import apply_answer, ask, claim_poll, decide_about
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.limits import refundable
from tillgate.django.refunds.queueing import find_repeated, refund
from tillgate.django.refunds.sending import poll_refund
from tillgate.django.refunds.settling import settle_by_staff, withdraw
from tillgate.django.reviews.closing import ITSELF, is_over, resolve
from tillgate.django.reviews.opening import UNAPPLIED_REASONS
from tillgate.errors import TillgateError
from tillgate.hooks import Hint, PaidOutcome, call_owner, implements
from tillgate.lifecycle import (
    POLICIES,
    Answer,
    Inconclusive,
    NotFound,
    PaymentStatus,
    RefundStatus,
    ReviewAction,
    ReviewReason,
)
from tillgate.wire.dialects import DisputeStatus
from tillgate.wire.texts import storable

_AS_READ: Final = frozenset(
    {
        ReviewAction.FORCE_EXPIRE,
        ReviewAction.ACCEPT_AS_PAID,
        ReviewAction.REFUND_REPORTED,
        ReviewAction.RECORD_EXTERNAL_REFUND,
        ReviewAction.DISMISS,
    },
)
"""Actions with which staff vouch for the statement of a review."""


_OF_REPORTED: Final = frozenset({ReviewAction.ACCEPT_AS_PAID, ReviewAction.REFUND_REPORTED})
"""Actions on money that the gateway reports for an open payment."""


class ActionNotPossible(TillgateError):
    """The act does not fit; the message says why, to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an action: whether the review is resolved now, a message, and the refund if the
    action made one.
    """

    resolved: bool
    message: str
    refund: Refund | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The input of staff."""

    staff: str
    note: str
    amount: Decimal | str | None
    idempotency_key: str | None
    newest_refund: int | None
    expected_version: str
    withdraws: int | None


def actions_for(
    review: Review,
    refunds: Iterable[Refund] | None = None,
) -> tuple[ReviewAction, ...]:
    """Return the actions that fit a review, the likeliest first; none once the review is resolved.

    `refunds` are those of its payment, if the caller has them. Without a queued refund there is
    nothing to withdraw.
    """
    if review.resolved_at:
        return ()
    fitting = tuple(action for action in _fitting(review) if action is not _unfit(review))
    if ReviewAction.REFUND not in fitting or any(
        one.status == RefundStatus.QUEUED
        for one in (_unsent(review) if refunds is None else refunds)
    ):
        return fitting
    return tuple(action for action in fitting if action is not ReviewAction.WITHDRAW)


def _fitting(review: Review) -> tuple[ReviewAction, ...]:
    if review.reason == ReviewReason.SIGNATURE_MISMATCH and review.payment_id is None:
        return (
            ReviewAction.DISMISS,
            # a creation raised it, and the answer to a query proves nothing about the signing of
            # creations
        )
    fitting = (
        POLICIES[ReviewReason(review.reason)].actions
        if review.reason in POLICIES
        else (ReviewAction.DISMISS,)
    )
    if review.reason == ReviewReason.DISPUTED and review.facts.get("case") != DisputeStatus.LOST:
        # nothing is lost yet
        fitting = tuple(
            action for action in fitting if action is not ReviewAction.RECORD_EXTERNAL_REFUND
        )
    missing = frozenset() if review.reported_paid else _OF_REPORTED
    if review.payment and review.payment.status == PaymentStatus.PAID:
        missing |= {ReviewAction.REFUND_REPORTED}
    if review.payment and review.payment.transaction_no:
        missing |= {ReviewAction.ENTER_NUMBER}
    if not _can_reopen(review):
        missing |= {ReviewAction.REOPEN}
    return tuple(action for action in fitting if action not in missing)


def _can_reopen(review: Review) -> bool:
    """Return whether the plugin of a review's order can reopen orders."""
    return review.order is not None and implements(review.order.plugin, "tillgate_reopen_order")


def _unfit(review: Review) -> ReviewAction | None:
    """Return the action that does not end an unapplied answer: an open payment would keep its order
    waiting for ever.
    """
    if review.reason not in UNAPPLIED_REASONS or review.payment is None:
        return None
    return ReviewAction.DISMISS if review.payment.is_open else ReviewAction.FORCE_EXPIRE


def _unsent(review: Review) -> QuerySet[Refund]:
    """Return the refunds of the payment that have no outcome yet and may still leave, the newest
    first.
    """
    unsent = (RefundStatus.QUEUED, RefundStatus.SENDING)
    return Refund.objects.filter(payment=review.payment_id, status__in=unsent).order_by("-pk")


def to_withdraw(review: Review, refunds: Iterable[Refund] | None = None) -> Refund | None:
    """Return the refund that `withdraw` cancels: the review's own, or the payment's newest queued
    one. `refunds` as in `actions_for`.
    """
    unsent = _unsent(review) if refunds is None else sorted(refunds, key=lambda one: -one.pk)
    return review.refund or next((one for one in unsent if one.status == RefundStatus.QUEUED), None)


def take_action(
    review_id: int,
    action: str,
    *,
    staff: str,
    note: str = "",
    amount: Decimal | str | None = None,
    idempotency_key: str | None = None,
    newest_refund: int | None = None,
    expected_version: str = "",
    withdraws: int | None = None,
) -> Done:
    """Do an action that staff chose for a review.

    `amount` is for the two actions about refunds, `note` for dismissing and for marking as expired;
    for entering the gateway's number it is the number.
    `newest_refund` and `idempotency_key` are as in `refund`; a repeated key returns its refund also
    after the review was resolved. `expected_version` is the review's `version` from the form: staff
    cannot resolve a review with other facts. `withdraws` is the refund from the form, by
    `to_withdraw`: a second press withdraws no other refund.

    Raises `ActionNotPossible`, `RefundNotPossible` or `InvalidRequest` without any change.
    """
    outside_transactions("take_action")
    rows = Review.objects.select_related(
        "order",
        "payment__order",
        "refund__payment",
        "outbox_event",
    )
    review = rows.get(pk=review_id)
    if review.resolved_at:
        payment = review.payment if action == ReviewAction.REFUND else None
        repeated = find_repeated(payment, amount, idempotency_key) if payment else None
        return _refunded(review, repeated) if repeated else _too_late(review)
    if action not in _fitting(review):
        raise ActionNotPossible(f"{action!r} does not resolve {review.reason!r}")
    if action == ReviewAction.DISMISS == _unfit(review):
        remedy = (
            "ask again, or marks it as expired once its time is over, if it is unpaid or "
            "its money is settled elsewhere"
        )
        raise ActionNotPossible(f"its payment is open: {remedy}")
    if expected_version and expected_version != review.version and action in _AS_READ:
        raise _says_something_else(review)
    given = _Given(
        staff=staff,
        note=storable(note.strip()),
        amount=amount,
        idempotency_key=idempotency_key,
        newest_refund=newest_refund,
        expected_version=expected_version,
        withdraws=withdraws,
    )
    return _ACTIONS[ReviewAction(action)](review, given)


def _says_something_else(review: Review) -> ActionNotPossible:
    return ActionNotPossible(f"it says something else by now: {review.message}")


def _too_late(review: Review) -> Done:
    return Done(
        resolved=True,
        message=f"{review.resolved_by} had resolved it already: {review.resolution}",
    )


def _ended(review: Review, done: Done, given: _Given) -> Done:
    """Return the result of a query that has ended the review, or after which a colleague has
    resolved it.
    """
    return (
        replace(done, resolved=True)
        if review.resolved_by in (given.staff, ITSELF)
        else _too_late(review)
    )


def poll_now(payment: Payment, staff: str) -> Done:
    """Query the gateway about a payment now, and report its answer; resolved means that the answer
    is in order.
    """
    outside_transactions("poll_now")
    _, done = _look(payment, staff)
    return done


def _look(payment: Payment, staff: str, number: str = "") -> tuple[Answer | None, Done]:
    """Query a payment, by the number that staff entered if there is one, and apply the answer."""
    if not claim_poll(payment):
        return None, Done(
            resolved=False,
            message="the gateway was asked a moment ago: try again in a few seconds",
        )
    answer = _proved(payment, number) if number else ask(payment)
    fresh = apply_answer(payment, answer, f"staff:{staff}")
    decision = decide_about(fresh, answer)
    return answer, Done(resolved=decision.is_in_order, message=decision.detail)


def _proved(payment: Payment, number: str) -> Answer:
    """Return the answer to a query by a number that staff entered, and keep the number; raise where
    the answer does not prove that it is this payment's.
    """
    known, payment.hinted_no = payment.hinted_no, number
    answer = ask(payment)
    payment.hinted_no = known
    if isinstance(answer, NotFound):
        raise ActionNotPossible(f"the gateway knows no payment with the number {number}")
    if isinstance(answer, Inconclusive):
        raise ActionNotPossible(f"the gateway gives no usable answer about it: {answer.detail}")
    if answer.transaction.reference != payment.reference:
        raise ActionNotPossible(
            f"{number} is the number of another payment: the gateway's reference of it is "
            f"{answer.transaction.reference[:40]!r} instead of {payment.reference!r}",
        )
    note_number(payment, [Hint(reference=payment.reference, transaction_no=number)])
    return answer


def _enter_number(review: Review, given: _Given) -> Done:
    assert review.payment is not None
    if not is_storable(given.note) or any(char.isspace() for char in given.note):
        raise ActionNotPossible(
            f"{given.note[:40]!r} is no number: type it as the gateway's own pages show it",
        )
    _, done = _ask_about(review, review.payment, given, number=given.note)
    return done


def _query(review: Review, given: _Given) -> Done:
    if review.refund is not None:
        return _query_refund(review, review.refund, given)
    # No single payment is affected, so query the newest one.
    newest = Payment.objects.select_related("order").filter(account=review.account).order_by("-id")
    payment = review.payment or newest.first()
    if payment is None:
        raise ActionNotPossible(f"there is no payment of account {review.account} to ask about")
    _, done = _ask_about(review, payment, given)
    return done


def _query_refund(review: Review, refund: Refund, given: _Given) -> Done:
    polled = poll_refund(refund.pk, f"staff:{given.staff}")
    review.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
    done = Done(resolved=False, message=f"asked again: the refund is {polled.status}")
    return _ended(review, done, given) if review.resolved_at else done


def _ask_about(
    review: Review,
    payment: Payment,
    given: _Given,
    *,
    number: str = "",
) -> tuple[Answer | None, Done]:
    """Query the gateway about a payment now, and end the review if the answer does."""
    answer, done = _look(payment, given.staff, number)
    review.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
    if review.resolved_at:
        return answer, _ended(review, replace(done, message=f"asked again: {done.message}"), given)
    payment.refresh_from_db(fields=["status"])
    if answer is None or not is_over(review.reason, answer, payment, is_in_order=done.resolved):
        return answer, replace(done, resolved=False)
    return answer, _resolved(review, f"asked again: {done.message}", given)


def _redeliver(review: Review, given: _Given) -> Done:
    """Deliver the failing event of the review now, or else its payment's `payment_paid` once
    more.
    """
    outbox_event = review.outbox_event
    if outbox_event is None:
        return _tell_again(review, given)
    retry(outbox_event.pk)
    (deliver_remote if outbox_event.kind == OutboxEventKind.REMOTE else deliver)(
        outbox_event.order_id,
    )
    outbox_event.refresh_from_db()
    if outbox_event.done_at is None:
        return Done(resolved=False, message=f"it failed again: {outbox_event.fault}")
    return _resolved(review, f"the shop was told: {outbox_event.kind}", given)


def _reopen_and_deliver(review: Review, given: _Given) -> Done:
    return _tell_again(review, given, reopens=True)


def _tell_again(review: Review, given: _Given, *, reopens: bool = False) -> Done:
    """Queue the outbox event of a paid payment once more; its handler looks at the order afresh, so
    that nothing can take effect twice.
    """
    payment = review.payment
    assert payment is not None
    with locked_order(payment.order_id) as order:
        review.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
        if review.resolved_at:  # in the same moment: resolving takes the order's lock too
            return _too_late(review)
        payment.refresh_from_db(fields=["status"])
        if order.paid_by_id or payment.status != PaymentStatus.PAID:
            raise ActionNotPossible(
                f"order {order} is paid already"
                if order.paid_by_id
                else f"payment {payment.reference} is not paid",
            )
        if refundable(payment) != payment.amount:
            raise ActionNotPossible(
                f"some of payment {payment.reference} was refunded, or may have been: the order "
                "is not paid by the rest",
            )
        _reopen(order, given, by_shop=reopens)
        outbox_event = order.outbox_events.filter(
            payment=payment,
            kind=OutboxEventKind.PAYMENT_PAID,
            done_at__isnull=True,
        ).first()
        about = {AGAIN: review.pk}
        if outbox_event is not None:
            outbox_event.data = about  # its former subject may be resolved before its turn
            outbox_event.save(update_fields=["data"])
        else:
            outbox_event = queue_event(
                order,
                OutboxEventKind.PAYMENT_PAID,
                payment=payment,
                data=about,
            )
            record(
                "event.requeued",
                order,
                f"staff:{given.staff}",
                "the shop is told again that it is paid",
                payment=payment,
            )
    deliver(payment.order_id)
    outbox_event.refresh_from_db()
    if outbox_event.outcome == PaidOutcome.APPLIED:
        return _resolved(review, "the shop was told again, and has applied the payment", given)
    review.refresh_from_db(fields=["resolved_at", "resolved_by", "resolution"])
    if review.resolved_at:
        return _too_late(review)
    outcome = outbox_event.outcome or outbox_event.fault
    return Done(
        resolved=False,
        message=f"the shop says: {outcome or 'not yet, an earlier outbox event is waiting'}",
    )


def _reopen(order: Order, given: _Given, *, by_shop: bool) -> None:
    """Let an order that the shop had closed be paid once more, if the shop takes money for it
    again; `by_shop` has the shop reopen it.
    """
    try:
        with shop_savepoint():
            described = call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
            if by_shop and described is not None and described.not_payable_detail:
                why_not = described.not_payable_detail
                if not call_owner(
                    order.plugin,
                    "tillgate_reopen_order",
                    order=order_value(order),
                ):
                    raise ActionNotPossible(f"the shop cannot reopen the order: {why_not}")
                described = replace(described, not_payable_detail=None)
    except ActionNotPossible:
        raise
    except Exception as error:
        raise ActionNotPossible(
            f"the shop cannot say whether it takes money for the order: {type(error).__name__}: "
            f"{error}",
        ) from error
    if order.closed_at and described is not None and described.not_payable_detail is None:
        mark_order_reopened(order)
        record("order.reopened", order, f"staff:{given.staff}", "the shop takes money for it again")


def _refund(review: Review, given: _Given) -> Done:
    payment = review.payment
    assert payment is not None
    if not given.amount and (earlier := find_repeated(payment, None, given.idempotency_key)):
        return _refunded(review, earlier)
    sent = refund(
        payment.pk,
        given.amount or "",
        staff=given.staff,
        reason=review.reason,
        idempotency_key=given.idempotency_key,
        newest_refund=given.newest_refund,
        about=review,
    )
    review.refresh_from_db()
    return _refunded(review, sent)


def _refunded(review: Review, made: Refund) -> Done:
    return Done(resolved=review.resolved_at is not None, message=made.answer, refund=made)


def _settle(review: Review, given: _Given, *, done: bool) -> Done:
    assert review.refund is not None
    settle_by_staff(review.refund.pk, done=done, staff=given.staff)
    review.refresh_from_db()
    return Done(resolved=review.resolved_at is not None, message=review.resolution)


def _enter(review: Review, given: _Given) -> Done:
    assert review.payment is not None
    entered = record_external_refund(
        review.payment.pk,
        given.amount or "",
        staff=given.staff,
        newest_refund=given.newest_refund,
        about=review,
    )
    return Done(resolved=True, message=f"{entered.money} was refunded elsewhere", refund=entered)


def _withdraw(review: Review, given: _Given) -> Done:
    waiting = to_withdraw(review)
    if given.withdraws is not None:
        waiting = Refund.objects.filter(pk=given.withdraws, payment=review.payment_id).first()
    if waiting is None:
        raise ActionNotPossible("no refund of this payment waits to be sent")
    withdrawn = withdraw(waiting.pk, staff=given.staff)
    review.refresh_from_db(fields=["resolved_at"])
    message = f"{withdrawn.money}: {withdrawn.answer}"
    return Done(resolved=review.resolved_at is not None, message=message, refund=withdrawn)


def _dismiss(review: Review, given: _Given) -> Done:
    if not given.note:
        raise ActionNotPossible("a note must say why it can stay as it is")
    if review.outbox_event and review.outbox_event.kind == OutboxEventKind.REMOTE:
        # it would fail again, and keep others waiting
        abandon(review.outbox_event, given.staff, given.note)
    if review.order_id is None:
        return _resolved(review, given.note, given, dismissed=True)
    with locked_order(review.order_id):
        review.refresh_from_db(fields=["facts", "version", "reported_paid"])
        # no update can come now: this process has the order's lock
        if given.expected_version and given.expected_version != review.version:
            raise _says_something_else(review)
        # It would go out although the money is to stay.
        if ReviewAction.REFUND in _fitting(review) and (unsent := _unsent(review).first()):
            remedy = (
                "withdraw it first"
                if unsent.status == RefundStatus.QUEUED
                else "look again in a moment"
            )
            raise ActionNotPossible(
                f"a refund of {unsent.money} of this payment is {unsent.status}: {remedy}",
            )
        return _resolved(review, given.note, given, dismissed=True)


def _force_expire(review: Review, given: _Given) -> Done:
    assert review.payment is not None
    if not given.note:
        raise ActionNotPossible(
            "a note must say how it is known that it is unpaid, or where the money is settled",
        )
    newest = review.payment.reviews.latest("pk").pk
    # A second query: the staff's reading may be an hour old.
    answer, done = _ask_about(review, review.payment, given)
    if answer is None or done.resolved:
        return done
    expired = force_expire(review, given.staff, given.note, newest)
    review.refresh_from_db(fields=["resolved_at"])
    return Done(
        resolved=review.resolved_at is not None,
        message=f"payment {expired.reference} is {expired.status}",
    )


def _accept_as_paid(review: Review, given: _Given) -> Done:
    assert review.payment is not None
    # Queried once more, since the answer that staff read may be an hour old.
    answer, done = _ask_about(review, review.payment, given)
    if answer is None or done.resolved:
        return done
    payment = accept_as_paid(review, given.staff, answer)
    return Done(
        resolved=True,
        message=f"payment {payment.reference} is paid with {payment.currency} {payment.amount}",
    )


def _refund_reported(review: Review, given: _Given) -> Done:
    assert review.payment is not None
    answer, done = _ask_about(review, review.payment, given)
    if answer is None or done.resolved:
        return done
    payment = accept_as_paid(review, given.staff, answer, delivers=False)
    try:
        sent = refund(payment.pk, payment.amount, staff=given.staff, reason=review.reason)
    finally:
        deliver(payment.order_id)  # after the refund: the shop need not take the money first
    return Done(resolved=True, message=f"{sent.money}: {sent.answer}", refund=sent)


def _resolved(review: Review, resolution: str, given: _Given, *, dismissed: bool = False) -> Done:
    return Done(
        resolved=True,
        message=resolve(review.pk, resolution, given.staff, dismissed=dismissed).resolution,
    )


_ACTIONS: Final[Mapping[ReviewAction, Callable[[Review, _Given], Done]]] = MappingProxyType(
    {
        ReviewAction.POLL: _query,
        ReviewAction.REDELIVER: _redeliver,
        ReviewAction.REOPEN: _reopen_and_deliver,
        ReviewAction.REFUND: _refund,
        ReviewAction.REFUND_DONE: lambda review, given: _settle(review, given, done=True),
        ReviewAction.REFUND_NOT_DONE: lambda review, given: _settle(review, given, done=False),
        ReviewAction.WITHDRAW: _withdraw,
        ReviewAction.RECORD_EXTERNAL_REFUND: _enter,
        ReviewAction.REFUND_REPORTED: _refund_reported,
        ReviewAction.ENTER_NUMBER: _enter_number,
        ReviewAction.FORCE_EXPIRE: _force_expire,
        ReviewAction.ACCEPT_AS_PAID: _accept_as_paid,
        ReviewAction.DISMISS: _dismiss,
    },
)
