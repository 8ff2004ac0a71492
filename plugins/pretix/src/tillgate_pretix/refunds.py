"""Refunds: every refund of Tillgate's has one of pretix's, and pretix's is written when it is known what became of the money.

One that pretix asked for goes `created`, `transit`, then `done` or `failed`; while nobody knows, it stays in transit. One that was made
elsewhere is `external` in pretix, where the staff decide what becomes of the order, and `done` where the order is not paid.
"""

from __future__ import annotations

import json
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _
from pretix.base.models import Order, OrderRefund
from pretix.base.payment import PaymentException
from pretix.helpers import OF_SELF

from tillgate.django import clock, operations
from tillgate.django.models import Payment, Refund, TimelineEntry
from tillgate.django.operations.outbox import deliver_remote
from tillgate.django.operations.refunds import settle_by_staff, withdraw
from tillgate.django.operations.values import refund_value
from tillgate.errors import InvalidRequest
from tillgate.hooks import Refund as Changed
from tillgate.hooks import RemoteEvent
from tillgate.lifecycle import PaymentStatus, RefundStatus
from tillgate_pretix.orders import REVIEW_LOGGED, UNDER_WAY, bills_of, booked_payment, conclude, found, method_of
from tillgate_pretix.plugin import PLUGIN

__all__ = ["BeingSent", "attempt_of", "changed", "execute", "settle", "settled_in_pretix"]

_waited_for: ContextVar[int | None] = ContextVar("refund that pretix waits for", default=None)
_LEAVES_WITHIN: Final = timedelta(seconds=25)
_DECISION: Final = "refund-decided"
"""What is carried to Tillgate itself, since a refund that is being sent must be waited for: what the staff decided about it."""


def attempt_of(theirs: Any) -> Payment | None:
    """Return Tillgate's payment that one of pretix's was paid by, or None."""
    reference = theirs.info_data.get("reference")
    held = Payment.objects.select_related("order").filter(order__in=bills_of(theirs.order), status=PaymentStatus.PAID)
    return held.filter(reference=reference).first() if reference else held.filter(data__payment=theirs.pk).first()


def execute(asked: Any) -> None:
    """Refund what pretix asks for: done or in transit afterwards. Raises `PaymentException` when no money moves."""
    held = attempt_of(asked.payment)
    if held is None:
        raise PaymentException(_("This payment was not made through Tillgate."))
    about: dict[str, Any] = {"staff": "pretix", "reason": asked.comment or "", "data": {"refund": asked.pk}}
    is_waited_for = _waited_for.set(asked.pk)
    try:
        # Both or neither: pretix's would be in transit for ever if nothing were queued. It is sent on commit (I12).
        with transaction.atomic():
            refund = operations.queue_refund(held.pk, asked.amount, **about)
            asked.state = OrderRefund.REFUND_STATE_TRANSIT
            asked.save(update_fields=["state"])
    except (InvalidRequest, operations.RefundNotPossible) as error:
        raise PaymentException(str(error)) from None
    finally:
        _waited_for.reset(is_waited_for)
    asked.refresh_from_db()
    refund.refresh_from_db()
    if refund.status == RefundStatus.FAILED:
        raise PaymentException(_("The payment service refused the refund: %(answer)s") % {"answer": refund.answer})


def changed(refund: Changed) -> None:
    """Write what became of a refund into pretix's; runs in the outbox event's transaction."""
    with found(refund.payment.order.key, lock=True) as order:
        if order is None:
            return
        row = _row_of(order, refund)
        if row is None:
            _made_elsewhere(order, refund)
        elif refund.status is RefundStatus.SUCCEEDED and row.state != OrderRefund.REFUND_STATE_DONE:
            row.done()
        elif refund.status is RefundStatus.FAILED and row.state in UNDER_WAY:
            row.state = OrderRefund.REFUND_STATE_FAILED
            row.save(update_fields=["state"])
            _tell_of_refusal(order, row, int(refund.id))
        conclude(order)


def _tell_of_refusal(order: Any, row: Any, refund_id: int) -> None:
    """Note that a refund has failed, and why; and that somebody waits for it, of which pretix mails its staff.

    pretix took it for made, since it was in transit, and may have cancelled the order. What was withdrawn is what a person wished, and
    whoever still waits for the answer is told by that.
    """
    answer = Refund.objects.values_list("answer", flat=True).get(pk=refund_id)
    order.log_action("pretix.event.order.refund.failed", {"local_id": row.local_id, "provider": row.provider, "error": answer})
    last = TimelineEntry.objects.filter(refund=refund_id).exclude(event="refund.failed").order_by("-pk").values_list("event", flat=True)
    if last.first() != "refund.queued" and _waited_for.get() != row.pk:
        order.log_action("pretix.event.order.refund.requested")


def _row_of(order: Any, refund: Changed) -> Any:
    """Return pretix's refund for one of Tillgate's, or None: the one that asked for it, or the one that was made when it was heard of.

    It need not be of the payment that holds the money: staff may have confirmed another by hand, and given that one back.
    """
    rows = [row for row in order.refunds.select_for_update(of=OF_SELF) if method_of(row.provider)]
    return next((row for row in rows if row.pk == refund.data.get("refund") or row.info_data.get("refund") == refund.id), None)


def _made_elsewhere(order: Any, refund: Changed) -> None:
    theirs = booked_payment(order, refund.payment)
    if theirs is not None and refund.status is RefundStatus.SUCCEEDED:
        row = theirs.create_external_refund(amount=refund.amount, info=_info(refund))
        # pretix goes on to count the money until the staff have decided. Here there is nothing to decide, and with money that went back the
        # shopper would owe too little, or nothing.
        if order.status != Order.STATUS_PAID and row.state != OrderRefund.REFUND_STATE_DONE:
            row.done()
    elif theirs is not None and refund.status is RefundStatus.UNKNOWN:
        _in_transit(order, theirs, refund)


def _info(refund: Changed) -> str:
    return json.dumps({"refund": refund.id})


def _in_transit(order: Any, theirs: Any, refund: Changed) -> None:
    row = order.refunds.create(
        state=OrderRefund.REFUND_STATE_TRANSIT,
        source=OrderRefund.REFUND_SOURCE_EXTERNAL,
        amount=refund.amount,
        payment=theirs,
        provider=theirs.provider,
        info=_info(refund),
    )
    order.log_action("pretix.event.order.refund.created.externally", {"local_id": row.local_id, "provider": row.provider})


_DECIDED: Final = {
    OrderRefund.REFUND_STATE_DONE: True,
    OrderRefund.REFUND_STATE_CANCELED: False,
    OrderRefund.REFUND_STATE_FAILED: False,
}


def settled_in_pretix(row: Any) -> None:
    """Queue what the staff decided about a refund under way, once pretix has saved it: that it is done, or was cancelled.

    In pretix's own transaction, where there is one, so that it is not lost with the process; it is carried out once that is committed.
    """
    if row.state not in _DECIDED or not method_of(row.provider):
        return
    is_done, refund = _DECIDED[row.state], _refund_of(row)
    if refund is None or (is_done and refund.status == RefundStatus.SUCCEEDED):
        return
    bill, data = refund.payment.order, {"is_done": is_done, "was_unknown": refund.status == RefundStatus.UNKNOWN}
    operations.enqueue_remote(PLUGIN, bill.key, _DECISION, data=data, refund_id=str(refund.pk))
    transaction.on_commit(lambda: deliver_remote(bill.pk), robust=True)


def _refund_of(row: Any) -> Refund | None:
    """Return Tillgate's refund that the staff decide about with one of pretix's, or None where it is settled."""
    ours = Refund.objects.select_related("payment__order").filter(payment__order__in=bills_of(row.order))
    for refund in ours.filter(status__in=(RefundStatus.QUEUED, RefundStatus.SENDING, RefundStatus.UNKNOWN)):
        if refund.data.get("refund") == row.pk or str(refund.pk) == row.info_data.get("refund"):
            return refund
    return ours.filter(status=RefundStatus.SUCCEEDED, data__refund=row.pk).first()


class BeingSent(Exception):
    """A refund is being sent: in a moment it is known whether it has left."""


def settle(decision: RemoteEvent) -> None:
    """Carry out what the staff decided about a refund; raise `BeingSent`, and it is tried again.

    One that waits to be sent is withdrawn, since the staff found another way or want none. What nobody knew when they decided is settled as
    they say. Who cancels one that has succeeded in the meantime overwrites that it is done, and might give the money back a second time.
    """
    if decision.refund is None:
        return
    refund_id, is_done = int(decision.refund.id), decision.data["is_done"]
    with suppress(operations.RefundNotPossible):  # it has left, or a notification says that it was done
        withdraw(refund_id, staff="pretix")
    if decision.data["was_unknown"]:
        settle_by_staff(refund_id, done=is_done, staff="pretix")
    refund = Refund.objects.select_related("payment__order").get(pk=refund_id)
    if _may_still_be_withdrawn(refund):
        raise BeingSent(f"a refund of payment {refund.payment.reference} is being sent at this moment")
    if refund.status == RefundStatus.SUCCEEDED and not is_done:
        with transaction.atomic():
            changed(refund_value(refund))
    elif is_done and refund.status != RefundStatus.FAILED and not decision.data["was_unknown"]:
        _may_go_out_twice(refund)


def _may_still_be_withdrawn(refund: Refund) -> bool:
    """Tell whether it is not known yet if a refund has left: it may wait to be sent again.

    A request that could not leave is known not to have within seconds. Longer than that it is on its way, or its process has died: then
    nobody knows, and a person is told.
    """
    if refund.status == RefundStatus.SENDING:
        return bool(clock.now() - refund.status_since < _LEAVES_WITHIN)
    return bool(refund.status == RefundStatus.QUEUED and not refund.confirmed)


def _may_go_out_twice(refund: Refund) -> None:
    """Note in the order's history that money goes back, or may, though the staff entered that it is done."""
    with found(refund.payment.order.key) as order:
        if order is not None:
            message = (
                f"Refund of USD {refund.amount} of payment {refund.payment.reference}: it was on its way when it was marked as done, and "
                "the payment service may have made it. If the money was refunded in another way too, the shopper has it twice."
            )
            order.log_action(REVIEW_LOGGED, {"reason": "refund", "message": message})
