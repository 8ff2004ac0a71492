"""The handlers of events: each calls the shop, and writes its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils import timezone

from tillgate import hooks
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Review
from tillgate.django.orders.status import mark_order_paid
from tillgate.django.orders.values import order_value, payment_value, refund_value, review_value
from tillgate.django.reviews.closing import settle
from tillgate.django.reviews.opening import open_review
from tillgate.errors import ConfigurationError
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, End, PaymentStatus, ReviewReason, reasons

AGAIN: Final = "again"
"""In the data of an outbox event that a person wished repeated: the review that it is about."""
_NOT_APPLIED_REASONS: Final = reasons(ends=End.APPLIED)
_OUTCOMES: Final[dict[ReviewReason, hooks.PaidOutcome]] = {
    ReviewReason.UNDERPAID: hooks.PaidOutcome.UNDERPAID,
    ReviewReason.PAID_NOT_PAYABLE: hooks.PaidOutcome.NOT_PAYABLE,
}
"""The outcomes of a paid payment that does not pay its order, by the reasons of their reviews."""


def _payment_paid(order: Order, outbox_event: OutboxEvent) -> str:
    """Deliver a paid payment, unless the order was paid by another, closed, or costs more by now
    (I4).
    """
    payment = outbox_event.payment
    assert payment is not None
    payment.order = order
    if detail := _why_needless(outbox_event, payment):
        return detail
    if order.paid_by_id and order.paid_by_id != payment.pk:
        _hold(payment, ReviewReason.SECOND_PAYMENT, {})
        return "second-payment"
    described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if held := _why_held(order, payment, described):
        reason, facts = held
        _hold(payment, reason, facts)
        return _OUTCOMES[reason].value
    outcome = _call_shop(order, payment)
    if outcome is hooks.PaidOutcome.APPLIED:
        _note_applied(order, payment, described, is_again=AGAIN in outbox_event.data)
    else:
        reason = next(reason for reason, other in _OUTCOMES.items() if other is outcome)
        _hold(payment, reason, {"case": "outcome", "outcome": outcome})
    return outcome.value


def _why_held(
    order: Order,
    payment: Payment,
    described: hooks.OrderDescription | None,
) -> tuple[ReviewReason, dict[str, Any]] | None:
    """Return why a paid payment does not pay its order, as the reason and facts of a review. The
    first case that fits is the one that staff read.
    """
    if described is None:
        return ReviewReason.PAID_NOT_PAYABLE, {"case": "unknown"}
    if because := described.not_payable_detail:
        return ReviewReason.PAID_NOT_PAYABLE, {"case": "shop", "because": because}
    if order.closed_at or because is not None:
        return ReviewReason.PAID_NOT_PAYABLE, {"case": "closed"}
    if described.currency != payment.currency:
        facts = {"case": "currency", "found": payment.currency, "expected": described.currency}
        return ReviewReason.PAID_NOT_PAYABLE, facts
    if described.amount > payment.amount:
        return ReviewReason.UNDERPAID, _amounts(payment, described)
    return None


def _call_shop(order: Order, payment: Payment) -> hooks.PaidOutcome:
    value = payment_value(payment)
    outcome = hooks.call_owner(order.plugin, "tillgate_payment_paid", payment=value)
    if outcome is None and not hooks.implements(order.plugin, "tillgate_payment_paid"):
        detail = "does not implement tillgate_payment_paid, which marks an order paid"
        raise ConfigurationError("plugin", order.plugin, detail)
    if outcome not in set(hooks.PaidOutcome):
        detail = f"of plugin {order.plugin} must return a PaidOutcome"
        raise ConfigurationError("tillgate_payment_paid", outcome, detail)
    return hooks.PaidOutcome(outcome)


def _note_applied(
    order: Order,
    payment: Payment,
    described: hooks.OrderDescription,
    *,
    is_again: bool,
) -> None:
    mark_order_paid(order, payment)
    if is_again:  # staff have decided about the former refusal
        held = Review.objects.filter(payment=payment, reason__in=_NOT_APPLIED_REASONS)
        settle(held, "the shop was told again, and has applied the payment")
    if described.amount < payment.amount:
        _hold(payment, ReviewReason.OVERPAID, _amounts(payment, described))


def _why_needless(outbox_event: OutboxEvent, payment: Payment) -> str:
    """Return why an event needs no delivery any more, or an empty text."""
    # The statement that found the event tells of refunds; nearly all payments have none.
    if vars(outbox_event)["has_refunds"] and (
        AGAIN in outbox_event.data or payment.refunded_amount >= payment.amount
    ):
        # it pays nothing any more, and a payment that staff redeliver must be whole
        return "given-back"
    if (
        AGAIN in outbox_event.data
        and Review.objects.filter(pk=outbox_event.data[AGAIN], resolved_at__isnull=False).exists()
    ):
        return "settled-otherwise"  # while it waited; resolving takes the order's lock too
    return ""


def _amounts(payment: Payment, described: hooks.OrderDescription) -> dict[str, Any]:
    return {"found": payment.amount, "expected": described.amount, "currency": payment.currency}


def _hold(payment: Payment, reason: ReviewReason, facts: Mapping[str, Any]) -> None:
    open_review(reason, facts, "outbox", payment)


def is_unpaid(order: Order) -> bool:
    """Return whether no payment has paid an order and none of it is open. Entirely refunded money
    that never paid it does not count.
    """
    if order.paid_by_id or order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists():
        return False
    return all(
        payment.refunded_amount >= payment.amount
        for payment in order.payments.filter(status=PaymentStatus.PAID)
    )


def ended_unpaid(order: Order) -> bool:
    """Return whether the shop heard that the time to pay an order had passed, and the order was not
    closed before.
    """
    told = order.outbox_events.filter(kind=OutboxEventKind.ORDER_UNPAID, done_at__isnull=False)
    if order.closed_at:
        told = told.filter(created_at__lte=order.closed_at)
    return order.paid_by_id is None and told.exists()


def _order_unpaid(order: Order, outbox_event: OutboxEvent) -> str:
    is_expected_anew = order.unpaid_check_at is not None and order.unpaid_check_at > timezone.now()
    if is_expected_anew or not is_unpaid(order):
        return "not-any-more"
    described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if described is not None and described.payable and described.is_free:
        return "nothing-to-pay"
    hooks.call_owner(order.plugin, "tillgate_order_unpaid", order=order_value(order))
    return ""


def _refund_changed(order: Order, outbox_event: OutboxEvent) -> str:
    refund, payment = outbox_event.refund, outbox_event.payment
    assert refund is not None
    assert payment is not None
    refund.payment, payment.order = payment, order
    hooks.call_owner(
        order.plugin,
        "tillgate_refund_changed",
        refund=refund_value(refund, outbox_event.data.get("status")),
    )
    return str(outbox_event.data.get("status", ""))


def _review_opened(order: Order, outbox_event: OutboxEvent) -> str:
    review = outbox_event.review
    assert review is not None
    review.order = order
    if review.payment is not None:
        review.payment.order = order
    hooks.call_owner(order.plugin, "tillgate_review_opened", review=review_value(review))
    return ""


HANDLERS: Final[dict[OutboxEventKind, Any]] = {
    OutboxEventKind.PAYMENT_PAID: _payment_paid,
    OutboxEventKind.ORDER_UNPAID: _order_unpaid,
    OutboxEventKind.REFUND_CHANGED: _refund_changed,
    OutboxEventKind.REVIEW_OPENED: _review_opened,
}
