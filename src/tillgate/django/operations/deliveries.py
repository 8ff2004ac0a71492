"""Deliveries: the shop hears of each change, in order per order.

A local one (the shop's database) takes effect exactly once: one transaction runs the handler and marks it done, or does neither (I3). A
remote one (HTTP, mail) is carried at least once under a stable event id, claimed by a lease. The two kinds do not wait for each other.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils import translation

from tillgate import hooks
from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Attention, Delivery, DeliveryKind, Order, Payment, Refund
from tillgate.django.operations.attention import NOT_APPLIED_REASONS, raise_attention, settle
from tillgate.django.operations.locking import (
    database,
    durable,
    in_the_shops_hands,
    locked_order,
    network,
    outside_transactions,
)
from tillgate.django.operations.timeline import record
from tillgate.django.operations.values import attention_value, delivery_value, order_value, payment_value, refund_value
from tillgate.errors import ConfigurationError
from tillgate.lifecycle import BOUND_REFUND_STATUSES, OPEN_PAYMENT_STATUSES, AttentionReason, PaymentStatus
from tillgate.wire.texts import storable

__all__ = ["AGAIN", "deliver", "deliver_due", "deliver_remote", "enqueue_remote", "give_up", "is_unpaid"]

_log = logging.getLogger("tillgate")

AGAIN: Final = "again"
"""In the data of a delivery that a person wished repeated: the attention that it is about."""
GIVEN_UP: Final = "given-up"
"""The outcome of a remote delivery that a person has let be."""
_LEASE: Final = timedelta(minutes=2)
_LONGEST_PAUSE: Final = timedelta(hours=1)
_FIRST_PAUSE: Final = timedelta(seconds=10)


def deliver(order_id: int) -> int:
    """Carry out an order's local deliveries that are due, oldest first; return how many were done."""
    done = 0
    while True:
        more, delivered = _deliver_next(order_id)
        done += delivered
        if not more:
            return done


def deliver_due(order_id: int) -> None:
    """Return when the shop was told what is due about an order: whoever brought the news may be at it still, or have died before it."""
    waiting = Delivery.objects.using(database()).filter(order_id=order_id, done_at__isnull=True)
    if waiting.exclude(kind=DeliveryKind.REMOTE).exists():
        deliver(order_id)  # waits for the order's lock


def _deliver_next(order_id: int) -> tuple[bool, bool]:
    """Carry out the oldest local delivery, and tell whether there is another and whether this one was done."""
    delivery: Delivery | None = None
    try:
        with locked_order(order_id) as order:
            waiting = order.deliveries.exclude(kind=DeliveryKind.REMOTE).filter(done_at__isnull=True)
            refunds = Refund.objects.filter(payment=OuterRef("payment"), status__in=BOUND_REFUND_STATUSES)
            oldest = list(waiting.select_related("payment").annotate(has_refunds=Exists(refunds)).order_by("id")[:2])
            if not oldest or (oldest[0].due_at and oldest[0].due_at > clock.now()):
                return False, False
            delivery = oldest[0]
            _carry_out(order, delivery)
    except Exception as error:  # whatever a shop's handler raises, the payment stays what it truly is
        if delivery is None:
            raise
        # In a transaction of its own: a database that found a deadlock has given up the whole of the other.
        _log.exception("delivery %s of order %s failed", delivery.event_id, order_id)
        _note_failure(order_id, delivery.pk, error)
        return False, False
    return len(oldest) > 1, True


def _carry_out(order: Order, delivery: Delivery) -> None:
    # Whoever brought the news may read another language than the shop's staff.
    with translation.override(settings.LANGUAGE_CODE), in_the_shops_hands():
        delivery.outcome = _HANDLERS[DeliveryKind(delivery.kind)](order, delivery)
    delivery.done_at, delivery.due_at, delivery.fault = clock.now(), None, ""
    delivery.attempts += 1
    delivery.save(update_fields=["done_at", "due_at", "attempts", "fault", "outcome"])
    _settle_failing(delivery)
    sentence = f"the shop was told: {delivery.kind}" + (f" ({delivery.outcome})" if delivery.outcome else "")
    record("delivery.done", order, f"delivery:{delivery.event_id}", sentence, payment=delivery.payment, refund=delivery.refund)


def _payment_paid(order: Order, delivery: Delivery) -> str:
    """Deliver a paid payment, unless the order was paid by another, closed, or costs more by now (I4)."""
    payment = delivery.payment
    assert payment is not None
    payment.order = order
    if because := _over(delivery, payment):
        return because
    if order.paid_by_id and order.paid_by_id != payment.pk:
        _hold(order, payment, AttentionReason.SECOND_PAYMENT, "the order was paid by another payment already; this one can be refunded")
        return "second-payment"
    described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if described is None:
        _hold(order, payment, AttentionReason.PAID_NOT_PAYABLE, "it was paid, but the shop does not know the order any more")
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if order.closed_at or described.not_payable_because is not None:
        because = described.not_payable_because or "the shop closed the order"
        _hold(order, payment, AttentionReason.PAID_NOT_PAYABLE, f"it was paid, but {because}")
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if described.currency != payment.currency:
        because = f"it was paid in {payment.currency}, and the order is in {described.currency} by now"
        _hold(order, payment, AttentionReason.PAID_NOT_PAYABLE, because)
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if described.amount > payment.amount:
        _hold(order, payment, AttentionReason.UNDERPAID, _costs_by_now(payment, described))
        return hooks.PaidOutcome.UNDERPAID.value
    outcome = hooks.call_owner(order.plugin, "tillgate_payment_paid", payment=payment_value(payment))
    if outcome is None and not hooks.implements(order.plugin, "tillgate_payment_paid"):
        raise ConfigurationError("plugin", order.plugin, "does not implement tillgate_payment_paid, which marks an order paid")
    if outcome not in set(hooks.PaidOutcome):
        raise ConfigurationError("tillgate_payment_paid", outcome, f"of plugin {order.plugin} must return a PaidOutcome")
    if outcome == hooks.PaidOutcome.APPLIED:
        order.paid_by = payment
        order.save(update_fields=["paid_by"])
        if AGAIN in delivery.data:  # whatever had kept it from being applied
            held = Attention.objects.filter(payment=payment, reason__in=NOT_APPLIED_REASONS)
            settle(held, "the shop was told again, and has applied the payment")
        if described.amount < payment.amount:
            _hold(
                order,
                payment,
                AttentionReason.OVERPAID,
                _costs_by_now(payment, described),
            )
    else:
        reason = AttentionReason.UNDERPAID if outcome == hooks.PaidOutcome.UNDERPAID else AttentionReason.PAID_NOT_PAYABLE
        _hold(order, payment, reason, f"it was paid, and the shop says: {outcome}")
    return str(outcome)


def _over(delivery: Delivery, payment: Payment) -> str:
    """Say why there is nothing to deliver any more, or nothing if there is."""
    # Payments that have no refund, nearly all, are told apart by the statement that found the delivery.
    if vars(delivery)["has_refunds"] and (AGAIN in delivery.data or payment.given_back >= payment.amount):
        return "given-back"  # it pays nothing any more, and what a person wished told again must be whole
    if AGAIN in delivery.data and Attention.objects.filter(pk=delivery.data[AGAIN], resolved_at__isnull=False).exists():
        return "settled-otherwise"  # while it waited; whoever resolves the matter has the order's lock too
    return ""


def _settle_failing(delivery: Delivery) -> None:
    """Take back what a person was told of a delivery that has failed and is done now."""
    if delivery.attempts >= get_settings().delivery_attempts_before_attention:  # otherwise nobody was told
        settle(delivery.attentions.all(), f"the shop was told at attempt {delivery.attempts}")


def _costs_by_now(payment: Payment, described: hooks.OrderDescription) -> str:
    return f"USD {payment.amount} was paid, and the order costs USD {described.amount} by now"


def _hold(order: Order, payment: Payment, reason: AttentionReason, because: str) -> None:
    raise_attention(reason, f"Payment {payment.reference}: {because}.", "delivery", order=order, payment=payment, account=payment.account)


def is_unpaid(order: Order) -> bool:
    """Tell whether nobody paid an order and no payment of it is open. Money that never paid it and was given back entirely is not held."""
    if order.paid_by_id or order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists():
        return False
    return all(payment.given_back >= payment.amount for payment in order.payments.filter(status=PaymentStatus.PAID))


def _order_unpaid(order: Order, delivery: Delivery) -> str:
    is_expected_anew = order.unpaid_check_at is not None and order.unpaid_check_at > clock.now()
    if is_expected_anew or not is_unpaid(order):
        return "not-any-more"
    hooks.call_owner(order.plugin, "tillgate_order_unpaid", order=order_value(order))
    return ""


def _refund_changed(order: Order, delivery: Delivery) -> str:
    refund, payment = delivery.refund, delivery.payment
    assert refund is not None
    assert payment is not None
    refund.payment, payment.order = payment, order
    hooks.call_owner(order.plugin, "tillgate_refund_changed", refund=refund_value(refund, delivery.data.get("status")))
    return str(delivery.data.get("status", ""))


def _attention_raised(order: Order, delivery: Delivery) -> str:
    attention = delivery.attention
    assert attention is not None
    attention.order = order
    hooks.call_owner(order.plugin, "tillgate_attention_raised", attention=attention_value(attention))
    return ""


_HANDLERS: Final[dict[DeliveryKind, Any]] = {
    DeliveryKind.PAYMENT_PAID: _payment_paid,
    DeliveryKind.ORDER_UNPAID: _order_unpaid,
    DeliveryKind.REFUND_CHANGED: _refund_changed,
    DeliveryKind.ATTENTION_RAISED: _attention_raised,
}


def _note_failure(order_id: int, delivery_id: int, error: Exception) -> None:
    """Note that a delivery failed, unless another worker has carried it out since, and when it is tried next."""
    with locked_order(order_id) as order:
        delivery = order.deliveries.select_related("payment", "refund").get(pk=delivery_id)
        if delivery.done_at is not None:
            return
        delivery.attempts += 1
        delivery.fault = storable(f"{type(error).__name__}: {error}")[:1000]
        delivery.due_at = clock.now() + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(delivery.attempts - 1, 20))
        delivery.save(update_fields=["attempts", "fault", "due_at"])
        if delivery.attempts >= get_settings().delivery_attempts_before_attention:
            payment, refund = delivery.payment, delivery.refund
            failed = f"not send {delivery.name}" if delivery.kind == DeliveryKind.REMOTE else f"not be told {delivery.kind}"
            # Without the number of attempts: what a person has accepted is told again only when it fails in another way.
            sentence = f"The shop could {failed} of order {order}: {delivery.fault[:200]}"
            raise_attention(
                AttentionReason.DELIVERY_FAILING,
                sentence,
                "delivery",
                order=order,
                payment=payment,
                refund=refund,
                delivery=delivery,
                account=payment.account if payment else "",
                evidence={"attempts": delivery.attempts},
            )


def enqueue_remote(
    plugin: str,
    order_key: str,
    name: str,
    *,
    data: dict[str, Any] | None = None,
    payment_id: str | None = None,
    refund_id: str | None = None,
) -> str:
    """Queue something that the plugin carries over the network after commit, by its `tillgate_deliver`; return its event id.

    Called by a plugin inside its own local handler, so that both happen or neither.
    """
    order = Order.objects.using(database()).get(plugin=plugin, key=order_key)
    delivery = Delivery(
        order=order,
        payment=Payment(pk=int(payment_id)) if payment_id else None,
        refund=Refund(pk=int(refund_id)) if refund_id else None,
        kind=DeliveryKind.REMOTE,
        name=name,
        data=data or {},
        created_at=clock.now(),
        due_at=clock.now(),
    )
    delivery.save(force_insert=True)
    return str(delivery.event_id)


def deliver_remote(order_id: int) -> int:
    """Carry an order's remote deliveries that are due over the network, oldest first; return how many were done."""
    outside_transactions("deliver_remote")
    done = 0
    while delivery := _claim_remote(order_id):
        try:
            with network(), translation.override(settings.LANGUAGE_CODE):
                hooks.call_owner(delivery.order.plugin, "tillgate_deliver", delivery=delivery_value(delivery))
        except Exception as error:  # whatever a plugin raises, it is tried again
            _log.exception("remote delivery %s of order %s failed", delivery.event_id, delivery.order)
            _note_failure(order_id, delivery.pk, error)
            break
        with locked_order(order_id) as order:
            # As it is by now: where the lease ran out, another worker may have carried it too, or failed to.
            carried = order.deliveries.filter(pk=delivery.pk, done_at__isnull=True).select_related("payment").first()
            if carried:
                carried.done_at, carried.due_at, carried.fault = clock.now(), None, ""
                carried.attempts += 1
                carried.save(update_fields=["done_at", "due_at", "fault", "attempts"])
                _settle_failing(carried)
                sentence = f"carried over the network: {carried.name}"
                record("delivery.done", order, f"delivery:{carried.event_id}", sentence, payment=carried.payment)
        done += 1
    return done


def give_up(delivery: Delivery, person: str, because: str) -> None:
    """Let a remote delivery that fails be, as a person wishes, so that what waits behind it has its turn."""
    with locked_order(delivery.order_id) as order:
        row = order.deliveries.select_related("payment").get(pk=delivery.pk)
        if row.done_at is not None:
            return
        row.done_at, row.due_at, row.outcome = clock.now(), None, GIVEN_UP
        row.save(update_fields=["done_at", "due_at", "outcome"])
        record("delivery.given-up", order, f"person:{person}", f"not carried over the network: {row.name}: {because}", payment=row.payment)


def _claim_remote(order_id: int) -> Delivery | None:
    """Take the order's oldest remote delivery for the length of the lease, unless it is not due or another worker has it."""
    with locked_order(order_id) as order:
        waiting = order.deliveries.filter(kind=DeliveryKind.REMOTE, done_at__isnull=True)
        delivery = waiting.select_related("payment", "refund__payment").order_by("id").first()
        if delivery is None or (delivery.due_at and delivery.due_at > clock.now()):
            return None
        delivery.due_at = clock.now() + _LEASE
        delivery.save(update_fields=["due_at"])
    delivery.order = order
    for row in (delivery.payment, delivery.refund.payment if delivery.refund else None):
        if row:
            row.order = order
    return delivery


def retry(delivery_id: int) -> None:
    """Make a delivery due at once, as a person wishes."""
    with durable():
        Delivery.objects.filter(pk=delivery_id, done_at__isnull=True).update(due_at=clock.now())
