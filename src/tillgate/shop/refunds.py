"""Refunds: asked for by staff or the shop, withdrawn while they wait, and settled by staff where
their outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model

from tillgate.django.models import Order, Payment, Refund, TimelineEntry
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.pages.showing import row_id
from tillgate.django.refunds import queueing
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.django.refunds.settling import settle_by_staff, withdraw
from tillgate.errors import InvalidRequest
from tillgate.shop.states import RefundState, refund_state

__all__ = [
    "RefundNotPossible",
    "refund",
    "refund_order",
    "refund_rest",
    "settle_refund",
    "was_withdrawn",
    "withdraw_refund",
]


def refund(
    payment_id: str,
    amount: Decimal | str,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | UUID | None = None,
    newest_refund: str | None = None,
) -> RefundState:
    """Refund part or all of a payment, and return the refund as it stands.

    Outside a transaction the refund is sent now, and the returned status is its outcome. Inside one
    it is queued, and sent after the commit. `newest_refund` is the id of the newest refund that
    staff saw, as a form sends it: a newer one refuses the action.

    `idempotency_key` names one wish for a refund of this payment, a UUID or up to 255 characters. A
    repeated key sends nothing: it returns the existing refund, even a failed one, so use a new key
    to try a failed refund again. The same key with another amount raises `RefundNotPossible`.
    Without a key, each call is a refund of its own.

    Raises `RefundNotPossible` with the reason for staff in `for_staff`, or `InvalidRequest`, for an
    id that no payment has too; nothing was refunded then.
    """
    return _refund(
        payment_id,
        amount,
        staff=staff,
        reason=reason,
        data=data,
        idempotency_key=idempotency_key,
        newest_refund=newest_refund,
    )


def _refund(
    payment_id: str,
    amount: Decimal | str | None,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    idempotency_key: str | UUID | None = None,
    newest_refund: str | None = None,
) -> RefundState:
    seen = None if newest_refund is None else row_id(newest_refund)
    about: dict[str, Any] = {
        "staff": staff,
        "reason": reason,
        "data": data,
        "idempotency_key": key_text(idempotency_key),
        "newest_refund": seen,
    }
    with known_id(Payment, "payment_id", payment_id) as number:
        try:
            row = queueing.refund(number, amount, **about)
        except InsideTransaction:  # of any database, and before anything is queued
            row = queueing.queue_refund(number, amount, **about)
    return _state(row.pk)


def refund_order(plugin: str, order_key: str, amount: Decimal | str, **options: Any) -> RefundState:
    """Refund part or all of the payment that paid an order. Options and errors are those of
    `refund`.
    """
    return refund(_paid_by(plugin, order_key), amount, **options)


def refund_rest(plugin: str, order_key: str, **options: Any) -> RefundState:
    """Refund all that can still be refunded of the payment that paid an order, and return the
    refund.

    The amount is the rest under the order's lock, so a refund in between is not made twice. A
    repeated `idempotency_key` returns the refund that it made. Options and errors are those of
    `refund`: `RefundNotPossible` where nothing is left.
    """
    return _refund(_paid_by(plugin, order_key), None, **options)


def _paid_by(plugin: str, order_key: str) -> str:
    paid_by = (
        Order.objects.filter(plugin=plugin, key=order_key).values_list("paid_by", flat=True).first()
    )
    if paid_by is None:
        raise RefundNotPossible(f"no payment has paid order {plugin}:{order_key}")
    return str(paid_by)


def withdraw_refund(refund_id: str, *, staff: str) -> RefundState:
    """Give up a refund that waits to be sent. Raises `RefundNotPossible` when it does not wait any
    more, and `InvalidRequest` for an id that no refund has.
    """
    with known_id(Refund, "refund_id", refund_id) as number:
        return _state(withdraw(number, staff=staff).pk)


def settle_refund(refund_id: str, *, done: bool, staff: str) -> RefundState:
    """Settle a pending or unknown refund as staff found it at the gateway, and return it. A refund
    with an outcome stays as it is. Raises `InvalidRequest` for an id that no refund has.
    """
    with known_id(Refund, "refund_id", refund_id) as number:
        return _state(settle_by_staff(number, done=done, staff=staff).pk)


def was_withdrawn(refund_id: str) -> bool:
    """Return whether a failed refund was withdrawn before it was sent: the gateway did not refuse
    it.
    """
    changes = TimelineEntry.objects.filter(
        refund=int(refund_id),
        event__startswith="refund.",
    ).order_by("-pk")
    return list(changes.values_list("event", flat=True)[:2]) == ["refund.failed", "refund.queued"]


@contextmanager
def known_id(model: type[Model], field: str, given: object) -> Iterator[int]:
    """Give the id as the number of a row; raise `InvalidRequest` where no row has it."""
    try:
        yield row_id(str(given))
    except model.DoesNotExist:  # type: ignore[attr-defined]  # every model has it
        remedy = f"is the id of no {model._meta.model_name}"
        raise InvalidRequest(field, given, remedy) from None


def key_text(key: object) -> str | None:
    """Return an idempotency key as Tillgate stores it; raise `InvalidRequest` where it is no
    text.
    """
    if isinstance(key, UUID):
        return str(key)
    if key is not None and not isinstance(key, str):
        raise InvalidRequest("idempotency_key", key, "is not text: give a text or a UUID")
    return key


def _state(refund_id: int) -> RefundState:
    return refund_state(Refund.objects.select_related("payment__order").get(pk=refund_id))
