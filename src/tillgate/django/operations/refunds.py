"""Refunds: queued under the order's lock, sent once, settled by an answer, a notification or a person."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import Error as DatabaseFault
from django.db import transaction
from django.utils import timezone

from tillgate import hooks, money
from tillgate.django.conf import get_settings
from tillgate.django.models import (
    LONGEST_IDEMPOTENCY_KEY,
    NOTHING,
    Order,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
    database,
)
from tillgate.django.operations.accounts import account_of
from tillgate.django.operations.bounds import unpaid_check_at
from tillgate.django.operations.locking import (
    AFTER_A_CALL_SECONDS,
    OrderHeld,
    durable,
    joined_order,
    locked_order,
    network,
    outside_transactions,
    reconnect_if_cut,
)
from tillgate.django.operations.outbox import deliver
from tillgate.django.operations.reviews import ITSELF, open_review, resolve, settle
from tillgate.django.operations.status import queue_event, write_status
from tillgate.django.operations.timeline import record
from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, TillgateError
from tillgate.lifecycle import (
    BOUND_REFUND_STATUSES,
    REFUND_LATE_AFTER,
    UNSETTLED_REFUND_STATUSES,
    Answer,
    End,
    Found,
    KnownRefund,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
    decide_refund,
    match_refunds,
    next_refund_poll,
    reasons,
)
from tillgate.money import Money
from tillgate.wire.dialects import RefundOutcome, TransactionStatus
from tillgate.wire.messages import Refunded, RefundRequest, ReportedRefund
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")

_UNDER_WAY: Final = frozenset({RefundStatus.SENDING}) | UNSETTLED_REFUND_STATUSES
"""From these an answer of the gateway settles a refund."""
_KNOWN: Final = (RefundStatus.PENDING, RefundStatus.SUCCEEDED, RefundStatus.FAILED)
_OVER_ONCE_REFUNDED: Final = reasons(ends=End.FULL_REFUND)
_ELSEWHERE_REASONS: Final = reasons(blocks_refunds=True)
"""Reasons by which money may have left without a refund here."""
_UNSETTLED_REASONS: Final = (ReviewReason.REFUND_UNKNOWN, ReviewReason.REFUND_LATE)
_RETURNED: Final = (RefundStatus.SUCCEEDED, RefundOutcome.FAILED)
"""The status here and the gateway's word of a refund that came back."""
_LOST_AFTER: Final = timedelta(minutes=15)
"""A refund that is still *sending* after this was cut off by a crash: longer than any call may take."""
_SEND_AGAIN_AFTER: Final = timedelta(minutes=1)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_TOLD_AFTER: Final = timedelta(hours=3)
"""A refund that could not leave for so long opens a review."""


class RefundNotPossible(TillgateError):
    """The payment cannot be refunded now, and nothing was; the message says why, to a person."""


def refundable(payment: Payment, refunds: Iterable[Refund] | None = None) -> Decimal:
    """Return how much of a payment can still be refunded. `refunds` are its refunds, if the caller has read them."""
    if payment.status != PaymentStatus.PAID:
        return NOTHING
    if refunds is None:
        refunds = payment.refunds.filter(status__in=BOUND_REFUND_STATUSES)
    return max(NOTHING, money.left_of(payment.amount, [one.amount for one in refunds if one.status in BOUND_REFUND_STATUSES]))


def refund(
    payment_id: int,
    amount: Decimal | str,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    seen: int | None = None,
    about: Review | None = None,
) -> Refund:
    """Refund part or all of a payment now, and return the refund with its outcome.

    A key that a refund of the payment already has returns that refund, even a failed one; with another amount it raises
    `RefundNotPossible`. Without a key each call asks for a refund of its own.

    `seen` is the id of the newest refund on the form, 0 for none: if there is a newer one by now (a second press of the button, or a
    colleague), nothing is sent and `RefundNotPossible` is raised. The same happens if `about`, the review that the refund is to resolve, is
    resolved: the event may have been delivered again, so that this money pays the order. Another transaction may hold the order: before the
    refund is queued that is `RefundNotPossible` too; later the refund is returned as it stands, and the worker goes on with it.
    """
    outside_transactions("refund")
    try:
        queued, is_new = _queue(payment_id, amount, staff, reason, data or {}, idempotency_key, seen, about)
    except OrderHeld as error:
        raise RefundNotPossible(str(error)) from None
    # An earlier refund of the same key is the worker's, which asks the gateway before it sends.
    if not is_new:
        return queued
    try:
        return send_refund(queued.pk)
    except OrderHeld:
        return Refund.objects.select_related("payment__order").get(pk=queued.pk)


def queue_refund(
    payment_id: int,
    amount: Decimal | str,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    seen: int | None = None,
) -> Refund:
    """Queue a refund inside the running transaction; it is sent on commit, or by the worker. The options are as in `refund`."""
    with transaction.atomic(using=database()):  # where the host commits by hand, only in here can something be done on commit
        queued, is_new = _queue(payment_id, amount, staff, reason, data or {}, idempotency_key, seen)
        if is_new:
            transaction.on_commit(lambda: _send_quietly(queued.pk), using=database())
    return queued


def _queue(
    payment_id: int,
    amount: Decimal | str,
    staff: str,
    reason: str,
    data: Mapping[str, Any],
    idempotency_key: str | None = None,
    seen: int | None = None,
    about: Review | None = None,
) -> tuple[Refund, bool]:
    """Return the refund of a wish, and whether this call has written it."""
    _check_key(idempotency_key)
    order_id, currency = Payment.objects.values_list("order_id", "currency").get(pk=payment_id)
    exact = money.amount(amount, currency)
    with joined_order(order_id) as order:
        # Under locks, since the host's transaction may see an old snapshot where it reads without.
        payment = Payment.objects.select_for_update().get(pk=payment_id)
        payment.order = order
        refunds = list(payment.refunds.select_for_update())
        # Before all other checks: what happened since the first call, such as its own refund, must not refuse the second.
        if earlier := _refund_of_key(payment, refunds, idempotency_key, exact):
            return earlier, False
        if payment.status != PaymentStatus.PAID:
            raise RefundNotPossible(f"payment {payment.reference} is {payment.status}, and only a paid one can be refunded")
        if (blocked_by := _blocking_reason(payment)) == ReviewReason.DISPUTED:
            detail = "is disputed: no refund is sent until the shopper's bank has decided, since it may take the money itself"
            raise RefundNotPossible(f"payment {payment.reference} {detail}")
        if blocked_by:
            raise RefundNotPossible(f"payment {payment.reference} may have been refunded elsewhere: enter that amount first")
        _check_seen(payment, seen)
        _check_open(about)
        left = refundable(payment, refunds)
        if exact > left:
            remedy = f"is more than the {Money(left, currency)} that can still be refunded of {payment.reference}"
            raise InvalidRequest("amount", str(Money(exact, currency)), remedy)
        now = timezone.now()
        queued = Refund(
            payment=payment,
            amount=exact,
            requested_by=staff[:150],
            reason=without_personal_data(storable(reason))[:255],
            data=dict(data),
            idempotency_key=idempotency_key,
            created_at=now,
            status_since=now,
            due_at=now,
        )
        queued.save(force_insert=True)
        actor = f"staff:{staff}" if staff else "shop"
        record("refund.queued", order, actor, str(queued.money) + (f": {queued.reason}" if reason else ""), payment=payment, refund=queued)
    return queued, True


def _check_key(key: str | None) -> None:
    if key is not None and (not 0 < len(key) <= LONGEST_IDEMPOTENCY_KEY or storable(key) != key):
        # An empty key, such as one that a form has lost, would make one refund of all.
        raise InvalidRequest("idempotency_key", key[:40], f"must have 1 to {LONGEST_IDEMPOTENCY_KEY} characters that a database stores")


def _refund_of_key(payment: Payment, refunds: Iterable[Refund], key: str | None, amount: Decimal) -> Refund | None:
    earlier = next((one for one in refunds if one.idempotency_key == key), None) if key else None
    if earlier is None:
        return None
    earlier.payment = payment
    if earlier.amount != amount:
        asked = Money(amount, payment.currency)
        remedy = f"repeat that amount, or choose a new key to refund {asked} as well"
        raise RefundNotPossible(f"idempotency key {key!r} already names a refund of {earlier.money} of {payment.reference}: {remedy}")
    return earlier


def find_repeated(payment: Payment, amount: Decimal | str, idempotency_key: str | None) -> Refund | None:
    """Return the refund that the same key has named before, or None; raise `RefundNotPossible` where its amount is another."""
    if not idempotency_key:
        return None
    return _refund_of_key(payment, payment.refunds.all(), idempotency_key, money.amount(amount, payment.currency))


def _blocking_reason(payment: Payment) -> str | None:
    """Return the reason of an open review that blocks refunds, a dispute's first, or None."""
    blocking = Review.objects.filter(payment=payment, reason__in=_ELSEWHERE_REASONS, resolved_at__isnull=True)
    reasons_found = set(blocking.values_list("reason", flat=True))
    return next((one for one in (ReviewReason.DISPUTED, *reasons_found) if one in reasons_found), None)


def _check_seen(payment: Payment, seen: int | None) -> None:
    """Raise when there is a newer refund than the newest on the form."""
    if seen is not None and (newer := payment.refunds.filter(pk__gt=seen).first()):
        raise RefundNotPossible(f"a refund of {newer.money} of payment {payment.reference} was asked for in the meantime")


def _check_open(about: Review | None) -> None:
    """Raise when the review that a refund is to resolve is resolved, or has other facts by now. Both need the order's lock too."""
    if about is None:
        return
    by_now = Review.objects.select_for_update().get(pk=about.pk)
    if by_now.resolved_at:
        raise RefundNotPossible(f"{by_now.resolved_by} had resolved it already: {by_now.resolution}")
    if by_now.version != about.version:
        raise RefundNotPossible(f"it says something else by now: {by_now.message}")


def _send_quietly(refund_id: int) -> None:
    """Send after the host's commit, where an exception would look like a failure of the host's transaction."""
    try:
        send_refund(refund_id)
    except Exception:  # the worker sends it
        _log.exception("refund %s could not be sent on commit", refund_id)


def send_refund(refund_id: int) -> Refund:
    """Send a queued refund, once, and return it with its outcome. One that is not queued any more is returned as it stands."""
    outside_transactions("send_refund")
    claimed = _claim(refund_id)
    if claimed is None:
        return Refund.objects.select_related("payment__order").get(pk=refund_id)
    if claimed.confirmed:  # an earlier request, which was taken not to have left, has left after all
        return _settle(claimed, RefundStatus.SUCCEEDED, "a notification had confirmed it", actor="refund")
    outcome = _send(claimed)
    refund_no = outcome.refund_no if isinstance(outcome, Refunded) else None
    numbers = (claimed.payment.transaction_no, refund_no)
    answer = without_personal_data(outcome.ret_msg if isinstance(outcome, Refunded) else str(outcome), numbers)
    status = decide_refund(outcome)
    # It may have been taken for lost while this process was away; its answer is as good as ever.
    only_from = _UNDER_WAY if status in _KNOWN else (RefundStatus.SENDING,)
    settled = _settle(claimed, status, answer, actor="refund", only_from=only_from, refund_no=refund_no)
    if isinstance(outcome, ConfigurationError):  # it stays queued, and would for ever
        with durable():
            open_review(ReviewReason.ACCOUNT_GONE, {"error": outcome}, "refund", payment=claimed.payment, account=claimed.payment.account)
    return settled


def _request(refund: Refund) -> RefundRequest:
    return RefundRequest(
        reference=refund.payment.reference,
        amount=refund.amount,
        currency=refund.payment.currency,
        transaction_no=refund.payment.transaction_no,
        refund_id=refund.refund_id,
        ipn_url=get_settings().address("tillgate:refund-notification", refund.notification_key),
    )


def poll_refund(refund_id: int, actor: str = "worker") -> Refund:
    """Ask the gateway what became of a pending or unknown refund, apply the answer, and return the refund as it stands.

    The gateway may have no such query, and no answer proves that an unknown refund was not made: only the gateway's word ends it.
    """
    outside_transactions("poll_refund")
    refund = Refund.objects.select_related("payment__order").get(pk=refund_id)
    if refund.status not in UNSETTLED_REFUND_STATUSES:
        return refund
    found: Refunded | None = None
    try:
        account = account_of(refund.payment)
        with network():
            found = hooks.query_refund(account, _request(refund), refund.refund_no)
    except TillgateError as error:
        _log.info("the query of refund %s was inconclusive: %s", refund_id, error)
    except Exception:  # a plugin around the gateway may raise anything, and none of it is news
        _log.exception("the query of refund %s failed in a plugin", refund_id)
    if found is not None and RefundStatus(found.outcome.value) != refund.status:
        status = RefundStatus(found.outcome.value)
        answer = without_personal_data(found.ret_msg, (refund.payment.transaction_no, found.refund_no))
        return _settle(refund, status, answer, actor, only_from=UNSETTLED_REFUND_STATUSES, refund_no=found.refund_no)
    return _ask_again_later(refund, found.refund_no if found else None)


def _ask_again_later(polled: Refund, refund_no: str | None) -> Refund:
    """Set the next query of a refund that is as it was, and open a review if it is late."""
    with locked_order(polled.payment.order_id) as order:
        refund = Refund.objects.select_related("payment").get(pk=polled.pk)
        refund.payment.order = order
        if refund.status != polled.status:
            return refund
        now = timezone.now()
        refund.due_at, refund.refund_no = next_refund_poll(refund.status_since, now), refund.refund_no or refund_no
        refund.save(update_fields=["due_at", "refund_no"])
        if refund.status == RefundStatus.PENDING and now - refund.status_since >= REFUND_LATE_AFTER:
            _raise(ReviewReason.REFUND_LATE, {"answer": refund.answer, "days": REFUND_LATE_AFTER.days}, "worker", refund)
    return refund


def _send(claimed: Refund) -> Refunded | TillgateError:
    """Send a refund, and return the gateway's answer or the error in its place."""
    try:
        account = account_of(claimed.payment)
        request = _request(claimed)
        if not _is_under_way(claimed):
            # Staff may have settled it by now.
            detail = "the process slept until others took it for dead, a notification has confirmed it just now, or the database is away"
            return NotSent("refund", request.reference, detail)
        with network():
            return hooks.refund(account, request)
    except TillgateError as error:
        return error
    except Exception as error:  # a plugin around the gateway may raise anything, after sending or before
        _log.exception("refund %s failed in a plugin", claimed.pk)
        return TillgateError(f"{type(error).__name__} in a plugin")


def _is_under_way(claimed: Refund) -> bool:
    """Return whether a refund is still this process's to send: the row says so, and the time has not come at which it counts as lost."""
    try:
        ours = Refund.objects.filter(pk=claimed.pk, status=RefundStatus.SENDING, confirmed=False)
        return ours.exists() and (claimed.due_at is None or timezone.now() < claimed.due_at)
    except DatabaseFault:
        reconnect_if_cut()  # no request has left yet, and the next step notes that
        return False


def _claim(refund_id: int) -> Refund | None:
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        refund = Refund.objects.select_related("payment").get(pk=refund_id)
        refund.payment.order = order
        if refund.status != RefundStatus.QUEUED:
            return None
        if _blocking_reason(refund.payment) and not refund.confirmed:
            refund.due_at = timezone.now() + _LONGEST_PAUSE
            refund.save(update_fields=["due_at"])
            return None
        changed = write_status(refund, RefundStatus.SENDING, timezone.now())
        refund.due_at = refund.status_since + _LOST_AFTER
        refund.save(update_fields=[*changed, "due_at"])
        record("refund.sending", order, "refund", str(refund.money), payment=refund.payment, refund=refund)
    return refund


def _settle(
    sent: Refund,
    status: RefundStatus,
    answer: str,
    actor: str,
    *,
    only_from: Collection[RefundStatus] = (RefundStatus.SENDING,),
    staff: str = ITSELF,
    refund_no: str | None = None,
    patience_seconds: float = AFTER_A_CALL_SECONDS,
) -> Refund:
    """Settle a refund under its order's lock, and tell the shop."""
    with locked_order(sent.payment.order_id, patience_seconds=patience_seconds) as order:
        refund, has_moved = _settle_locked(order, sent.pk, status, answer, actor, only_from=only_from, staff=staff, refund_no=refund_no)
    if has_moved:
        deliver(order.pk)
    return refund


def _settle_locked(
    order: Order,
    refund_id: int,
    status: RefundStatus,
    answer: str,
    actor: str,
    *,
    only_from: Collection[RefundStatus],
    staff: str = ITSELF,
    refund_no: str | None = None,
) -> tuple[Refund, bool]:
    """Write a refund's new status, its timeline entry, its outbox event and its reviews together.

    Return the refund as it is then, and whether it has moved.
    """
    refund = Refund.objects.select_related("payment").get(pk=refund_id)
    refund.payment.order = order
    if refund.status not in only_from:
        if refund.status == RefundStatus.FAILED and status is RefundStatus.SUCCEEDED and staff == ITSELF:
            _doubt_refusal(refund, "notification" if actor == "webhook" else "answer", actor)
        if refund.status == RefundStatus.SUCCEEDED and status is RefundStatus.FAILED and staff == ITSELF:
            # The shopper has no money, and the shop's books say otherwise.
            _raise_once(ReviewReason.REFUND_RETURNED, {}, actor, refund)
        return refund, False
    was, now = RefundStatus(refund.status), timezone.now()
    nobody_refused = status is not RefundStatus.FAILED or was in UNSETTLED_REFUND_STATUSES
    if refund.confirmed and status is not RefundStatus.SUCCEEDED and nobody_refused:
        status, answer = RefundStatus.SUCCEEDED, f"{answer}; a notification had confirmed it"
    changed = write_status(refund, status, now)
    refund.answer, refund.refund_no = answer[:255], refund.refund_no or refund_no
    refund.due_at = _due_after(refund, status, now)
    refund.save(update_fields=[*changed, "answer", "refund_no", "due_at"])
    record(f"refund.{status}", order, actor, answer or str(refund.money), payment=refund.payment, refund=refund)
    if was in UNSETTLED_REFUND_STATUSES:
        settle(Review.objects.filter(refund=refund, reason__in=_UNSETTLED_REASONS), answer, staff)
    _tell_of_waiting(refund, answer)
    if status is RefundStatus.UNKNOWN:
        _raise(ReviewReason.REFUND_UNKNOWN, {"answer": answer}, actor, refund)
    if status is RefundStatus.FAILED and refund.confirmed:
        _doubt_refusal(refund, "notification", actor)
    if status is RefundStatus.SUCCEEDED:
        _conclude_refund(refund)
    if status not in (RefundStatus.QUEUED, RefundStatus.PENDING):
        _tell_shop(refund)
    return refund, True


def _due_after(refund: Refund, status: RefundStatus, now: datetime) -> datetime | None:
    """Return when a refund that came to a status is sent or asked about next."""
    if status is RefundStatus.QUEUED:
        return now + min(max(_SEND_AGAIN_AFTER, now - refund.created_at), _LONGEST_PAUSE)  # twice as long each time
    return next_refund_poll(now, now) if status in UNSETTLED_REFUND_STATUSES else None


def _tell_of_waiting(refund: Refund, answer: str) -> None:
    """Open a review about a refund that could not be sent for hours, and take it back once it waits no longer."""
    if refund.status != RefundStatus.QUEUED:
        settle(Review.objects.filter(refund=refund, reason=ReviewReason.REFUND_NOT_SENT), f"it waits no longer: {refund.status}")
        return
    waited = timezone.now() - refund.created_at
    if waited >= _TOLD_AFTER:
        hours = int(waited.total_seconds() // 3600)
        _raise_once(ReviewReason.REFUND_NOT_SENT, {"answer": answer, "hours": hours}, "refund", refund)


def _conclude_refund(refund: Refund) -> None:
    """Resolve the reviews that a refund has ended."""
    staff = refund.requested_by or ITSELF
    if refund.reason == ReviewReason.OVERPAID:
        settle(Review.objects.filter(payment=refund.payment, reason=ReviewReason.OVERPAID), f"{refund.money} was refunded", staff)
    # Behind two orders there may be the same money: refunded for another reason, it leaves the other order without.
    asked = {ReviewReason.DUPLICATE_TRANSACTION_NO} if refund.reason == ReviewReason.DUPLICATE_TRANSACTION_NO else set()
    _conclude_refunded(refund.payment, staff, _OVER_ONCE_REFUNDED | asked)


def _conclude_refunded(payment: Payment, staff: str, over: Collection[ReviewReason]) -> None:
    """Resolve the reviews that an entirely refunded payment has ended (I4).

    `over` has their reasons: all of them where staff entered an external refund. A refund of ours that completes the amount may follow
    a *failed* one that was made after all, and then more than the paid amount was refunded.

    If the payment never paid its order, the order may be unpaid by now, and its stock is to be released.
    """
    refunded_amount, order = payment.refunded_amount, payment.order
    if refunded_amount < payment.amount:
        return
    settle(
        Review.objects.filter(payment=payment, reason__in=over),
        f"all of it was refunded: {Money(refunded_amount, payment.currency)}",
        staff,
    )
    if order.paid_by_id is None:
        # The shopper may try again, however long the shop held the money.
        order.unpaid_check_at, order.tried_since = unpaid_check_at(), None
        order.save(update_fields=["unpaid_check_at", "tried_since"])


def _tell_shop(refund: Refund) -> None:
    payment = refund.payment
    queue_event(payment.order, OutboxEventKind.REFUND_CHANGED, payment=payment, refund=refund, data={"status": str(refund.status)})


def settle_by_notification(order: Order, refund_id: int) -> bool:
    """Let a notification on the refund's own address settle a pending or unknown refund: the one thing that it settles alone (I7).

    Under the order's lock, in the transaction that stores the notification; returns whether there is an event for the shop. The worker
    books a queued refund soon, whose request was taken not to have left.
    """
    Refund.objects.filter(pk=refund_id, status=RefundStatus.QUEUED).update(due_at=timezone.now())
    answer = "the gateway's notification confirmed it"
    _, has_moved = _settle_locked(order, refund_id, RefundStatus.SUCCEEDED, answer, "webhook", only_from=UNSETTLED_REFUND_STATUSES)
    return has_moved


def _doubt_refusal(refund: Refund, who: str, actor: str) -> None:
    """Open a review when a refund that is held to be refused was made: nothing more is refunded until a person has polled (I5)."""
    _raise_once(ReviewReason.REFUND_CONTRADICTED, {"answer": refund.answer, "case": who}, actor, refund)


def _raise_once(reason: ReviewReason, facts: Mapping[str, Any], actor: str, refund: Refund) -> None:
    """Open a review about a refund that had none for this reason, not even a closed one: gateways repeat their notifications."""
    if not Review.objects.filter(refund=refund, reason=reason).exists():
        _raise(reason, facts, actor, refund)


def _raise(reason: ReviewReason, facts: Mapping[str, Any], actor: str, refund: Refund) -> None:
    payment = refund.payment
    facts = {"amount": refund.amount, "currency": payment.currency, "payment": payment.reference, **facts}
    open_review(reason, facts, actor, order=payment.order, payment=payment, refund=refund, account=payment.account)


def settle_by_staff(refund_id: int, *, done: bool, staff: str) -> Refund:
    """Settle a refund that is unknown or pending as a person found it at the gateway."""
    refund = Refund.objects.select_related("payment").get(pk=refund_id)
    status = RefundStatus.SUCCEEDED if done else RefundStatus.FAILED
    answer = f"{staff} found that it was {'done' if done else 'not done'}"
    return _settle(refund, status, answer, f"staff:{staff}", only_from=UNSETTLED_REFUND_STATUSES, staff=staff)


def record_external_refund(
    payment_id: int,
    amount: Decimal | str,
    *,
    staff: str,
    seen: int | None = None,
    about: Review | None = None,
    read: str | None = None,
) -> Refund:
    """Enter a refund that was made elsewhere, so that the refundable amount is right again (I5). `seen` is as in `refund`.

    A made refund is a fact and a queued one a wish: queued refunds without a refundable amount are withdrawn, the newest first. A queued
    one that a notification has confirmed is a fact as well. `about` is the review that it resolves, by default the payment's
    `changed-after-paid`: each *failed* refund that was made after all is entered alone. `read` is the version of that review on the form,
    or empty without one: a review with other facts is not resolved.
    """
    payment = Payment.objects.get(pk=payment_id)
    exact = money.amount(amount, payment.currency)
    with locked_order(payment.order_id) as order:
        payment = Payment.objects.get(pk=payment_id)
        payment.order = order
        _check_seen(payment, seen)
        _check_open(about)
        open_rows = Review.objects.filter(payment=payment, resolved_at__isnull=True)
        chosen = {"pk": about.pk} if about else {"reason": ReviewReason.CHANGED_AFTER_PAID}
        review = open_rows.filter(**chosen).first()
        if read is not None and review is not None and review.version != read:
            raise RefundNotPossible(f"it says something else by now: {review.message}")
        entered = enter_external(order, payment, exact, f"staff:{staff}", requested_by=staff)
        if review is not None:
            resolve(review.pk, f"{entered.money} was refunded elsewhere", staff)
        _conclude_refunded(payment, staff, _OVER_ONCE_REFUNDED | _ELSEWHERE_REASONS)
        _tell_shop(entered)
    deliver(order.pk)
    return entered


def enter_external(
    order: Order, payment: Payment, amount: Decimal, actor: str, *, requested_by: str = "", refund_no: str | None = None
) -> Refund:
    """Write a refund that was made elsewhere, under the order's lock; raise `InvalidRequest` where it is more than can be refunded (I5)."""
    left = refundable(payment)
    waiting = list(payment.refunds.filter(status=RefundStatus.QUEUED, confirmed=False).order_by("-pk"))
    most = Money(money.total([left, *(refund.amount for refund in waiting)]), payment.currency)
    if amount > most.amount:
        remedy = f"is more than the {most} that can still be refunded of {payment.reference}"
        raise InvalidRequest("amount", str(Money(amount, payment.currency)), remedy)
    for refund in waiting:
        if amount <= left:
            break
        _withdraw(refund, order, actor, "a refund made elsewhere left nothing for it")
        left = money.total([left, refund.amount])
    now = timezone.now()
    entered = Refund(
        payment=payment,
        refund_no=refund_no,
        amount=amount,
        status=RefundStatus.SUCCEEDED.value,
        external=True,
        requested_by=requested_by[:150],
        reason="made elsewhere",
        created_at=now,
        status_since=now,
    )
    entered.save(force_insert=True)
    record("refund.external", order, actor, f"{entered.money} was refunded elsewhere", payment=payment, refund=entered)
    return entered


def refund_news(payment: Payment, answer: Answer) -> tuple[ReportedRefund, ...]:
    """Return the refunds of a paid payment that an answer lists, or none where each is known here as it is listed."""
    if payment.status != PaymentStatus.PAID or not isinstance(answer, Found) or not answer.transaction.refunds:
        return ()
    pairs, made_elsewhere = match_refunds(_known_refunds(payment), answer.transaction.refunds)
    is_news = _moves(pairs) or any(one.outcome is RefundOutcome.SUCCEEDED for one in made_elsewhere)
    return answer.transaction.refunds if is_news else ()


def book_reported_refunds(order: Order, payment: Payment, reported: Collection[ReportedRefund], actor: str) -> None:
    """Settle refunds as the gateway lists them, and enter those that were made elsewhere, once, under the order's lock."""
    pairs, made_elsewhere = match_refunds(_known_refunds(payment), reported)
    for known, there in _moves(pairs):
        if known.status is RefundStatus.QUEUED:
            _note_as_sent(order, payment, known.id, actor, "the gateway lists it: its request has left")
        message, status = f"the gateway lists it as {there.outcome}", RefundStatus(there.outcome.value)
        only_from = UNSETTLED_REFUND_STATUSES if known.status is not RefundStatus.QUEUED else (RefundStatus.SENDING,)
        _settle_locked(order, known.id, status, message, actor, only_from=only_from, refund_no=there.refund_no)
    returned = money.total(here.amount for here, there in pairs if (here.status, there.outcome) == _RETURNED)
    for there in made_elsewhere:
        if there.outcome is not RefundOutcome.SUCCEEDED:
            continue
        try:
            entered = enter_external(order, payment, there.amount, actor, refund_no=there.refund_no)
        except InvalidRequest:
            if there.amount <= returned:  # in place of one that came back, which the books still have
                returned = money.left_of(returned, [there.amount])
                reviews = Review.objects.filter(refund__payment=payment, reason=ReviewReason.REFUND_RETURNED)
                settle(reviews, f"{Money(there.amount, payment.currency)} was refunded again elsewhere", ITSELF)
                continue
            facts = {"status": f"refunded {Money(there.amount, payment.currency)} more"}
            open_review(ReviewReason.CHANGED_AFTER_PAID, facts, actor, order=order, payment=payment, account=payment.account)
            continue
        _conclude_refunded(payment, ITSELF, _OVER_ONCE_REFUNDED)
        _tell_shop(entered)


def _note_as_sent(order: Order, payment: Payment, refund_id: int, actor: str, message: str) -> None:
    """Let a queued refund count as sent, since its request has left after all: it can be settled, and is never sent again (I6)."""
    refund = Refund.objects.get(pk=refund_id)
    refund.save(update_fields=write_status(refund, RefundStatus.SENDING, timezone.now()))
    record("refund.sending", order, actor, message, payment=payment, refund=refund)


def _moves(pairs: Iterable[tuple[KnownRefund, ReportedRefund]]) -> list[tuple[KnownRefund, ReportedRefund]]:
    """Return the pairs of which the gateway's word says more than is known here."""
    contradicted = (RefundStatus.FAILED, RefundOutcome.SUCCEEDED), _RETURNED
    return [
        (here, there)
        for here, there in pairs
        if (here.status in UNSETTLED_REFUND_STATUSES and here.status.value != there.outcome.value)
        or here.status is RefundStatus.QUEUED  # found by its names: its request has left
        or (here.status, there.outcome) in contradicted
    ]


def _known_refunds(payment: Payment) -> list[KnownRefund]:
    columns = ("pk", "amount", "status", "refund_id", "refund_no", "external")
    return [
        KnownRefund(id=pk, amount=amount, status=RefundStatus(status), refund_id=refund_id, refund_no=refund_no, external=external)
        for pk, amount, status, refund_id, refund_no, external in payment.refunds.order_by("pk").values_list(*columns)
    ]


def withdraw(refund_id: int, *, staff: str) -> Refund:
    """Give up a refund that waits to be sent, as a person wishes. Raises `RefundNotPossible` when it does not wait any more."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        refund = Refund.objects.get(pk=refund_id)
        if refund.status != RefundStatus.QUEUED:
            raise RefundNotPossible(f"the refund is {refund.status} by now, and only one that waits to be sent can be withdrawn")
        if refund.confirmed:
            raise RefundNotPossible("a notification says that the refund was done; it is booked when it is sent next, and not sent again")
        withdrawn = _withdraw(refund, order, f"staff:{staff}", f"by {staff}")
    deliver(order.pk)
    return withdrawn


def _withdraw(refund: Refund, order: Order, actor: str, detail: str) -> Refund:
    """Give up a refund that was not sent, under the order's lock."""
    answer = f"withdrawn before it was sent: {detail}"
    withdrawn, _ = _settle_locked(order, refund.pk, RefundStatus.FAILED, answer, actor, only_from=(RefundStatus.QUEUED,))
    return withdrawn


def doubt(refund_id: int, actor: str, message: str) -> bool:
    """Note that a queued refund may have been sent before: its outcome is unknown (I6). Return whether it was queued."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        if not Refund.objects.filter(pk=refund_id, status=RefundStatus.QUEUED).exists():
            return False
        row.payment.order = order
        _note_as_sent(order, row.payment, refund_id, actor, message)
        _settle_locked(order, refund_id, RefundStatus.UNKNOWN, message, actor, only_from=(RefundStatus.SENDING,))
    deliver(order.pk)
    return True


def find_trace(payment: Payment, answer: Answer) -> str:
    """Return what in an answer shows a refund of which the database knows nothing, or an empty text.

    The refunds that the answer lists are booked before. The rows are read after the answer: a
    refund that another process sends meanwhile has its row.
    """
    if not isinstance(answer, Found):
        return ""
    known, found = _known_refunds(payment), answer.transaction
    _, made_elsewhere = match_refunds(known, found.refunds or ())
    if any(one.outcome is not RefundOutcome.FAILED for one in made_elsewhere):
        return "the gateway lists a refund that is not known here, and it may be this one"
    has_left = any(one.status not in (RefundStatus.QUEUED, RefundStatus.FAILED) for one in known)
    is_listed = bool(found.refunds)  # this one by its names: it is booked
    if found.status is TransactionStatus.REFUNDED and not has_left and not is_listed:
        return "the gateway says refunded, though no refund is known to have left: it may be this one"
    return ""


def put_off(refund_id: int, answer: str) -> Refund:
    """Let a queued refund wait, since the gateway did not say whether it was made already."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        refund = Refund.objects.select_related("payment").get(pk=refund_id)
        refund.payment.order = order
        if refund.status != RefundStatus.QUEUED:
            return refund
        refund.answer, refund.due_at = answer[:255], _due_after(refund, RefundStatus.QUEUED, timezone.now())
        refund.save(update_fields=["answer", "due_at"])
        record("refund.queued", order, "worker", answer, payment=refund.payment, refund=refund)
        _tell_of_waiting(refund, answer)
    return refund


def mark_lost(refund_id: int) -> Refund:
    """Note that a refund was cut off while it was being sent: its outcome is unknown (I6)."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    return _settle(row, RefundStatus.UNKNOWN, "the process ended while it was being sent", "worker", patience_seconds=0)
