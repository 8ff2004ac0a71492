"""Refunds are sent once, and unfinished ones are polled."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from django.db import Error as DatabaseFault
from django.utils import timezone

from tillgate import hooks
from tillgate.django.accounts import account_of
from tillgate.django.conf import get_settings
from tillgate.django.models import (
    Refund,
)
from tillgate.django.orders.locking import (
    durable,
    locked_order,
    network,
    outside_transactions,
    reconnect_if_cut,
)
from tillgate.django.orders.status import write_status
from tillgate.django.orders.timeline import record
from tillgate.django.refunds.limits import blocking_reason
from tillgate.django.refunds.settling import (
    LONGEST_PAUSE,
    due_after,
    open_refund_review,
    review_waiting,
    settle_refund,
)
from tillgate.django.reviews.opening import open_review
from tillgate.errors import ConfigurationError, NotSent, TillgateError
from tillgate.lifecycle import (
    REFUND_LATE_AFTER,
    UNSETTLED_REFUND_STATUSES,
    RefundStatus,
    ReviewReason,
    decide_refund,
    next_refund_poll,
)
from tillgate.wire.messages import Refunded, RefundRequest
from tillgate.wire.personal import without_personal_data

_log = logging.getLogger("tillgate")

_UNDER_WAY: Final = frozenset({RefundStatus.SENDING}) | UNSETTLED_REFUND_STATUSES
"""From these an answer of the gateway settles a refund."""
_KNOWN: Final = (RefundStatus.PENDING, RefundStatus.SUCCEEDED, RefundStatus.FAILED)
_LOST_AFTER: Final = timedelta(minutes=15)
"""A refund that is still *sending* after this was cut off by a crash: longer than any call may
take.
"""


def send_refund(refund_id: int) -> Refund:
    """Send a queued refund, once, and return it with its outcome. One that is not queued any more
    is returned as it stands.
    """
    outside_transactions("send_refund")
    claimed = _claim(refund_id)
    if claimed is None:
        return Refund.objects.select_related("payment__order").get(pk=refund_id)
    # an earlier request, which was taken not to have left, has left after all
    if claimed.confirmed:
        return settle_refund(
            claimed,
            RefundStatus.SUCCEEDED,
            "a notification had confirmed it",
            actor="refund",
        )
    outcome = _send(claimed)
    refund_no = outcome.refund_no if isinstance(outcome, Refunded) else None
    numbers = (claimed.payment.transaction_no, refund_no)
    answer = without_personal_data(
        outcome.ret_msg if isinstance(outcome, Refunded) else str(outcome),
        numbers,
    )
    status = decide_refund(outcome)
    # It may have been taken for lost while this process was away; its answer is as good as ever.
    only_from = _UNDER_WAY if status in _KNOWN else (RefundStatus.SENDING,)
    settled = settle_refund(
        claimed,
        status,
        answer,
        actor="refund",
        only_from=only_from,
        refund_no=refund_no,
    )
    if isinstance(outcome, ConfigurationError):  # it stays queued, and would for ever
        with durable():
            open_review(ReviewReason.ACCOUNT_GONE, {"error": outcome}, "refund", claimed.payment)
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
    """Query a pending or unknown refund, apply the answer, and return the refund as it stands.

    The gateway may have no such query, and no answer proves that an unknown refund was not made:
    only the gateway's word ends it.
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
        _log.info(
            "the query of refund %s of %s was inconclusive: %s", refund_id, refund.payment, error
        )
    except Exception:  # a plugin around the gateway may raise anything, and none of it is news
        _log.exception("the query of refund %s of %s failed in a plugin", refund_id, refund.payment)
    if found is not None and RefundStatus(found.outcome.value) != refund.status:
        status = RefundStatus(found.outcome.value)
        answer = without_personal_data(
            found.ret_msg,
            (refund.payment.transaction_no, found.refund_no),
        )
        return settle_refund(
            refund,
            status,
            answer,
            actor,
            only_from=UNSETTLED_REFUND_STATUSES,
            refund_no=found.refund_no,
        )
    return _ask_again_later(refund, found.refund_no if found else None)


def _ask_again_later(polled: Refund, refund_no: str | None) -> Refund:
    """Set the next query of a refund that is as it was, and open a review if it is late."""
    with locked_order(polled.payment.order_id) as order:
        refund = Refund.objects.select_related("payment").get(pk=polled.pk)
        refund.payment.order = order
        if refund.status != polled.status:
            return refund
        now = timezone.now()
        refund.due_at, refund.refund_no = (
            next_refund_poll(refund.status_since, now),
            refund.refund_no or refund_no,
        )
        refund.save(update_fields=["due_at", "refund_no"])
        if refund.status == RefundStatus.PENDING and now - refund.status_since >= REFUND_LATE_AFTER:
            open_refund_review(
                ReviewReason.REFUND_LATE,
                {"answer": refund.answer, "days": REFUND_LATE_AFTER.days},
                "worker",
                refund,
            )
    return refund


def _send(claimed: Refund) -> Refunded | TillgateError:
    """Send a refund, and return the gateway's answer or the error in its place."""
    try:
        account = account_of(claimed.payment)
        request = _request(claimed)
        if not _is_under_way(claimed):
            # Staff may have settled it by now.
            detail = (
                "the process slept until others took it for dead, a notification has "
                "confirmed it just now, or the database is away"
            )
            return NotSent("refund", request.reference, detail)
        with network():
            return hooks.refund(account, request)
    except TillgateError as error:
        return error
    except (
        Exception
    ) as error:  # a plugin around the gateway may raise anything, after sending or before
        _log.exception("refund %s of %s failed in a plugin", claimed.pk, claimed.payment)
        return TillgateError(f"{type(error).__name__} in a plugin")


def _is_under_way(claimed: Refund) -> bool:
    """Return whether a refund is still this process's to send: the row says so, and the time has
    not come at which it counts as lost.
    """
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
        if blocking_reason(refund.payment) and not refund.confirmed:
            refund.due_at = timezone.now() + LONGEST_PAUSE
            refund.save(update_fields=["due_at"])
            return None
        changed = write_status(refund, RefundStatus.SENDING, timezone.now())
        refund.due_at = refund.status_since + _LOST_AFTER
        refund.save(update_fields=[*changed, "due_at"])
        record(
            "refund.sending",
            order,
            "refund",
            str(refund.money),
            payment=refund.payment,
            refund=refund,
        )
    return refund


def postpone(refund_id: int, answer: str) -> Refund:
    """Let a queued refund wait, since the gateway did not say whether it was made already."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        refund = Refund.objects.select_related("payment").get(pk=refund_id)
        refund.payment.order = order
        if refund.status != RefundStatus.QUEUED:
            return refund
        refund.answer, refund.due_at = (
            answer[:255],
            due_after(refund, RefundStatus.QUEUED, timezone.now()),
        )
        refund.save(update_fields=["answer", "due_at"])
        record("refund.queued", order, "worker", answer, payment=refund.payment, refund=refund)
        review_waiting(refund, answer)
    return refund


def mark_lost(refund_id: int) -> Refund:
    """Note that a refund was cut off while it was being sent: its outcome is unknown (I6)."""
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    return settle_refund(
        row,
        RefundStatus.UNKNOWN,
        "the process ended while it was being sent",
        "worker",
        patience_seconds=0,
    )
