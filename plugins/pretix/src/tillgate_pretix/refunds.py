"""Refunds: every refund of Tillgate's has one in pretix, and the plugin updates that one when the
result is known.

A refund that pretix requested goes through `created` and `transit` to `done` or `failed`. While it
is pending or its result is unknown, it stays in transit. An external refund is `external` in
pretix, where staff decide about the order. If the order is not paid, the external refund is `done`.
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

from tillgate import InvalidRequest, Money, shop
from tillgate.hooks import PaymentStatus, RefundStatus, RemoteEvent
from tillgate.hooks import Refund as Changed
from tillgate.shop import PaymentState, RefundState
from tillgate_pretix.configuration import PLUGIN
from tillgate_pretix.mail import tell_of_refund
from tillgate_pretix.orders import (
    NOT_OVER,
    REVIEW_LOGGED,
    UNDER_WAY,
    booked_payment,
    conclude,
    found,
    method_of,
    payments_of,
)

_waited_for: ContextVar[int | None] = ContextVar("refund that pretix waits for", default=None)
_LEAVES_WITHIN: Final = timedelta(seconds=25)
NOT_CANCELLED: Final = "refund-not-cancelled"
"""The reason in an order's history that a refund which staff cancelled goes on."""
MAYBE_TWICE: Final = "refund-maybe-twice"
"""The same for a refund that may have been made twice."""
_DECISION: Final = "refund-decided"
"""The name of the remote event that carries a decision of staff to Tillgate.

It is remote because it must wait for a refund that is being sent.
"""


def paid_payment_of(theirs: Any) -> PaymentState | None:
    """Return Tillgate's payment that one of pretix's was paid by, or None."""
    reference = theirs.info_data.get("reference")
    for payment in payments_of(theirs.order):
        is_own = (
            payment.reference == reference
            if reference
            else payment.data.get("payment") == theirs.pk
        )
        if is_own and payment.status == PaymentStatus.PAID:
            return payment
    return None


def execute(asked: Any) -> None:
    """Run pretix's refund: afterwards it is done or in transit. Raises `PaymentException` when no
    money moves.
    """
    held = paid_payment_of(asked.payment)
    if held is None:
        raise PaymentException(_("This payment was not made through Tillgate."))
    about: dict[str, Any] = {
        "staff": "pretix",
        "reason": asked.comment or "",
        "data": {"refund": asked.pk},
        "idempotency_key": f"refund-{asked.pk}",
    }
    is_waited_for = _waited_for.set(asked.pk)
    try:
        # Both or neither: without a queued refund, pretix's would be in transit forever. Tillgate
        # sends it on commit (I12).
        with transaction.atomic():
            queued = shop.refund(held.id, asked.amount, **about)
            # else pretix executes this refund again, and no event would end the transit
            if queued.status in NOT_OVER:
                asked.state = OrderRefund.REFUND_STATE_TRANSIT
                asked.save(update_fields=["state"])
    except (InvalidRequest, shop.RefundNotPossible) as error:
        raise PaymentException(str(error)) from None
    finally:
        _waited_for.reset(is_waited_for)
    asked.refresh_from_db()
    refund = _refund(queued.id)
    if refund.status == RefundStatus.FAILED:
        raise PaymentException(
            _("The payment service refused the refund: %(answer)s") % {"answer": refund.answer},
        )


def changed(refund: Changed) -> None:
    """Apply the result of a refund to pretix's refund, in the outbox event's transaction, and mail
    the shopper if it succeeded.
    """
    with found(refund.payment.order.key, lock=True) as order:
        if order is None:
            return
        _apply(order, refund)
        if refund.status is RefundStatus.SUCCEEDED:
            tell_of_refund(order, refund)


def _apply(order: Any, refund: Changed) -> None:
    row = _row_of(order, refund)
    if row is None:
        _made_elsewhere(order, refund)
    elif refund.status is RefundStatus.SUCCEEDED and row.state != OrderRefund.REFUND_STATE_DONE:
        row.done()
    elif refund.status is RefundStatus.FAILED and row.state in UNDER_WAY:
        row.state = OrderRefund.REFUND_STATE_FAILED
        row.save(update_fields=["state"])
        _record_failure(order, row, refund.id)
    conclude(order)


def _record_failure(order: Any, row: Any, refund_id: str) -> None:
    """Record in the history that a refund failed, with the reason. pretix mails its staff unless
    they know already.

    pretix treated it as made, because it was in transit, and may have cancelled the order. Two
    cases need no mail: staff withdrew the refund themselves, or their request is still waiting and
    gets the error as its answer.
    """
    answer = _refund(refund_id).answer
    order.log_action(
        "pretix.event.order.refund.failed",
        {"local_id": row.local_id, "provider": row.provider, "error": answer},
    )
    if not shop.was_withdrawn(refund_id) and _waited_for.get() != row.pk:
        order.log_action("pretix.event.order.refund.requested")


def _refund(refund_id: str) -> RefundState:
    refund = shop.find_refund(PLUGIN, refund_id)
    assert refund is not None  # Tillgate deletes none
    return refund


def refund_of_row(row: Any) -> RefundState | None:
    """Return Tillgate's refund of one of pretix's, or None."""
    ours = [refund for payment in payments_of(row.order) for refund in payment.refunds]
    return next(
        (
            one
            for one in ours
            if one.data.get("refund") == row.pk or one.id == row.info_data.get("refund")
        ),
        None,
    )


def _row_of(order: Any, refund: Changed) -> Any:
    """Return pretix's refund for one of Tillgate's, or None: the one that requested it, or the one
    that records an external refund.

    It can belong to a payment without Tillgate's money: staff may have confirmed another one by
    hand, and refunded that.
    """
    rows = [row for row in order.refunds.select_for_update(of=OF_SELF) if method_of(row.provider)]
    return next(
        (
            row
            for row in rows
            if row.pk == refund.data.get("refund") or row.info_data.get("refund") == refund.id
        ),
        None,
    )


def _made_elsewhere(order: Any, refund: Changed) -> None:
    theirs = booked_payment(order, refund.payment)
    if theirs is not None and refund.status is RefundStatus.SUCCEEDED:
        row = theirs.create_external_refund(amount=refund.amount, info=_info(refund))
        # pretix counts the money until staff decide. Here there is nothing to decide, and if pretix
        # counted refunded money, the shopper would owe too little, or nothing.
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
    order.log_action(
        "pretix.event.order.refund.created.externally",
        {"local_id": row.local_id, "provider": row.provider},
    )


_DECIDED: Final = {
    OrderRefund.REFUND_STATE_DONE: True,
    OrderRefund.REFUND_STATE_CANCELED: False,
    OrderRefund.REFUND_STATE_FAILED: False,
}


def settled_in_pretix(row: Any) -> None:
    """Queue a decision of staff about a refund under way, once pretix has saved it: it is done, or
    it was cancelled.

    This runs in pretix's own transaction, if there is one, so that a dying process cannot lose the
    outbox_event. Tillgate applies it after the commit.
    """
    if row.state not in _DECIDED or not method_of(row.provider):
        return
    is_done, refund = _DECIDED[row.state], _refund_of(row)
    if refund is None or (is_done and refund.status == RefundStatus.SUCCEEDED):
        return
    # Money on its way can be found to have come, but cancelling it in pretix does not stop it.
    settles = refund.status == RefundStatus.UNKNOWN or (
        is_done and refund.status == RefundStatus.PENDING
    )
    key, data = refund.payment.order.key, {"is_done": is_done, "settles": settles}
    shop.enqueue_remote(PLUGIN, key, _DECISION, data=data, refund_id=refund.id)
    transaction.on_commit(lambda: shop.deliver_remote(PLUGIN, key), robust=True)


def _refund_of(row: Any) -> RefundState | None:
    """Return the refund of Tillgate's that belongs to a decision about one of pretix's, or None if
    it is settled.
    """
    ours = [refund for payment in payments_of(row.order) for refund in payment.refunds]
    for refund in ours:
        is_own = refund.data.get("refund") == row.pk or refund.id == row.info_data.get("refund")
        if is_own and refund.status in NOT_OVER:
            return refund
    return next(
        (
            one
            for one in ours
            if one.status == RefundStatus.SUCCEEDED and one.data.get("refund") == row.pk
        ),
        None,
    )


class BeingSent(Exception):
    """A refund is being sent; its result is known in a moment."""


def settle(outbox_event: RemoteEvent) -> None:
    """Apply a decision of staff about a refund. If this raises `BeingSent`, Tillgate retries it.

    A queued refund is withdrawn, because staff found another way or want none. An unknown refund is
    settled as staff decided, and a pending one if staff marked it as done. If staff cancel a refund
    that is pending, or that succeeded in between, they overwrite its status, and might refund the
    money a second time: the status is written again.
    """
    if outbox_event.refund is None:
        return
    refund_id, is_done = outbox_event.refund.id, outbox_event.data["is_done"]
    with suppress(shop.RefundNotPossible):  # it was sent, or a notification says that it was done
        shop.withdraw_refund(refund_id, staff="pretix")
    if outbox_event.data["settles"]:
        shop.settle_refund(refund_id, done=is_done, staff="pretix")
    refund = _refund(refund_id)
    if _may_still_be_withdrawn(refund):
        raise BeingSent(
            f"a refund of payment {refund.payment.reference} is being sent at this moment",
        )
    if refund.status == RefundStatus.SUCCEEDED and not is_done:
        with transaction.atomic(), found(refund.payment.order.key, lock=True) as order:
            if order is not None:
                _apply(order, refund)
    elif refund.status == RefundStatus.PENDING and not is_done:
        _back_in_transit(refund)
    elif is_done and refund.status != RefundStatus.FAILED and not outbox_event.data["settles"]:
        _may_go_out_twice(refund)


def _may_still_be_withdrawn(refund: RefundState) -> bool:
    """Tell whether a refund may still be sending: it may also wait to be sent again.

    If a request could not leave, Tillgate knows it within seconds. After that, the request is on
    its way or its process has died: then the result is unknown, and a review opens.
    """
    if refund.status == RefundStatus.SENDING:
        return bool(shop.now() - refund.status_since < _LEAVES_WITHIN)
    return bool(refund.status == RefundStatus.QUEUED and not refund.confirmed)


def _back_in_transit(refund: RefundState) -> None:
    """Put pretix's refund back in transit and record it: staff cancelled it, although the payment
    service has accepted it.
    """
    with transaction.atomic(), found(refund.payment.order.key, lock=True) as order:
        row = None if order is None else _row_of(order, refund)
        if row is None or row.state not in _DECIDED:
            return
        row.state = OrderRefund.REFUND_STATE_TRANSIT
        row.save(update_fields=["state"])
        message = (
            f"Refund of payment {refund.payment.reference}: the payment service has "
            "accepted it, so it cannot be cancelled any more."
        )
        facts = {"reference": refund.payment.reference}
        data = {"reason": NOT_CANCELLED, "message": message, **facts}
        order.log_action(REVIEW_LOGGED, data)


def _may_go_out_twice(refund: RefundState) -> None:
    """Record in the order's history that the refund was sent, or may have been, although staff
    entered it as done.
    """
    with found(refund.payment.order.key) as order:
        if order is not None:
            amount = Money(refund.amount, refund.payment.currency)
            message = (
                f"Refund of {amount} of payment {refund.payment.reference}: it was on its way "
                "when it was marked as done, and the payment "
                "service may have made it. If the money was refunded in another way too, the "
                "shopper has it twice."
            )
            facts = {"reference": refund.payment.reference, "amount": str(amount)}
            data = {"reason": MAYBE_TWICE, "message": message, **facts}
            order.log_action(REVIEW_LOGGED, data)
