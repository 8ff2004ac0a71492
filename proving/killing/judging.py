"""The judge: gateway, Tillgate and shop must agree about an order, to the cent, after any death."""

from __future__ import annotations

from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review
from tillgate.lifecycle import PaymentStatus, RefundStatus, ReviewReason
from tillgate.sandbox.transactions import Transaction
from tillgate.testing.books import fault_of_books
from tillgate.testing.world import World

__all__ = ["judge"]


def judge(world: World, key: str) -> None:
    """Fail unless the promises hold for an order, a day after the last act.

    The judgement follows from the gateway's book, since only the gateway knows where the money is.
    """
    created = {one.reference: one for one in world.sandbox.service.transactions()}
    known = set(Payment.objects.filter(reference__in=created).values_list("reference", flat=True))
    assert known == set(created), (
        f"the gateway created {sorted(set(created) - known)}, which Tillgate knows nothing of (I2)"
    )
    order = Order.objects.filter(plugin=world.shop.plugin, key=key).first()
    payments = list(order.payments.order_by("pk")) if order else []
    paid = [payment for payment in payments if _is_paid(payment, created.get(payment.reference))]
    expected = {
        reason
        for payment in payments
        for reason in _judge_refunds(payment, created.get(payment.reference))
    }
    expected |= _judge_order(world, key, order, paid)
    open_ = Review.objects.filter(resolved_at__isnull=True)
    told = list(open_.filter(order=order).values_list("reason", flat=True)) if order else []
    assert sorted(told) == sorted(expected), (
        f"a person was told {sorted(told)}, and should be told {sorted(expected)}"
    )
    accounts = list(open_.filter(order__isnull=True).values_list("reason", flat=True))
    assert accounts == [], f"a person was told {accounts} of an account"


def _is_paid(payment: Payment, transaction: Transaction | None) -> bool:
    """Tell whether the gateway holds a payment as paid; Tillgate must agree (I1, I2, I9, I10)."""
    is_paid = transaction is not None and transaction.status == "paid"
    if transaction is not None and is_paid:
        assert payment.status == PaymentStatus.PAID, (
            f"{payment} is paid, and Tillgate holds it to be {payment.status} (I2)"
        )
        assert payment.transaction_no == transaction.transaction_no, (
            f"{payment} has the number of another transaction (I1)"
        )
        assert payment.amount * 100 == transaction.units, (
            f"USD {transaction.amount} of {payment} was paid, and USD {payment.amount} noted (I1)"
        )
    else:
        assert payment.status != PaymentStatus.PAID, (
            f"nobody paid {payment}, and Tillgate holds it to be paid (I1)"
        )
        assert not payment.is_open, f"{payment} is {payment.status} for ever (I2)"
    entries = payment.timeline.filter(event="payment.paid").count()
    assert entries == is_paid, f"the timeline says {entries} times that {payment} became paid (I10)"
    outbox_events = payment.outbox_events.filter(kind="payment-paid").count()
    assert outbox_events == is_paid, (
        f"the shop is told {outbox_events} times that {payment} is paid (I3)"
    )
    return is_paid


def _judge_refunds(payment: Payment, transaction: Transaction | None) -> list[str]:
    """Fail unless each refund is known, once, or blocked (I5, I6); return the reviews that staff
    must see.
    """
    refunds = list(Refund.objects.filter(payment=payment))
    refunded_amount = transaction.refunds if transaction else []
    unsettled = [
        refund.status
        for refund in refunds
        if refund.status in (RefundStatus.QUEUED, RefundStatus.SENDING)
    ]
    assert unsettled == [], f"refunds of {payment} are {unsettled} for ever"
    assert len(refunded_amount) <= len(refunds), (
        f"the gateway refunded {len(refunded_amount)} times, and was asked {len(refunds)} times "
        "(I6)"
    )
    gone = sum((one.units for one in refunded_amount), 0)
    surely, perhaps = _cents(refunds, RefundStatus.SUCCEEDED), _cents(refunds, RefundStatus.UNKNOWN)
    assert surely <= gone <= surely + perhaps, (
        f"{payment}: {gone} cents are gone; Tillgate knows of {surely}, and {perhaps} are unknown "
        "(I6)"
    )
    assert surely + perhaps <= payment.amount * 100, (
        f"more of {payment} was refunded than was paid (I5)"
    )
    return [
        str(ReviewReason.REFUND_UNKNOWN)
        for refund in refunds
        if refund.status == RefundStatus.UNKNOWN
    ]


def _cents(refunds: list[Refund], status: RefundStatus) -> int:
    return sum(int(refund.amount * 100) for refund in refunds if refund.status == status)


def _judge_order(world: World, key: str, order: Order | None, paid: list[Payment]) -> set[str]:
    """Fail unless the shop holds the truth (I3, I4); return the reviews that staff must see."""
    shop = world.shop
    expected = set[str]()
    assert not (fault := fault_of_books(shop, key)), f"{fault} (I3)"
    waiting = (
        list(
            OutboxEvent.objects.filter(order=order, done_at__isnull=True).values_list(
                "kind",
                flat=True,
            ),
        )
        if order
        else []
    )
    assert waiting == [], f"the shop is never told {waiting} (I2)"
    if order and paid:
        assert order.paid_by_id in [payment.pk for payment in paid], (
            "money came, and the order is not paid by it (I2)"
        )
        assert not shop.is_released(key), "the order is paid, and the shop gave it up"
        assert not shop.is_payable(key), "the order is paid, and the shop still asks for money"
        if len(paid) > 1:
            expected.add(str(ReviewReason.SECOND_PAYMENT))
    elif order:
        assert shop.is_released(key), (
            "nobody pays the order any more, and the shop keeps it for ever"
        )
        assert shop.times_released(key) in (None, 1), (
            f"giving the order up took effect {shop.times_released(key)} times (I3)"
        )
    _judge_remote(world, key, order)
    return expected


def _judge_remote(world: World, key: str, order: Order | None) -> None:
    """Fail unless the remote systems have received every payment and refund at least once, and
    nothing else (I3).
    """
    heard = world.shop.heard_elsewhere(key)
    if heard is None:
        return
    queued = (
        list(
            OutboxEvent.objects.filter(order=order, kind="remote").values_list(
                "event_id", "refund"
            ),
        )
        if order
        else []
    )
    assert sum(refund is None for _, refund in queued) == bool(order and order.paid_by_id), (
        f"remote outbox events are {queued} (I3)"
    )
    assert set(heard) == {str(event_id) for event_id, _ in queued}, (
        f"elsewhere {heard} was heard, of {queued} (I3)"
    )
