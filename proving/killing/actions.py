"""The acts in which a process dies: the preparation of each, the act, and the acts of others after
the death.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from django.db import transaction

from tillgate.django.models import Payment, Refund
from tillgate.django.outbox import delivering
from tillgate.django.outbox.remote import deliver_remote
from tillgate.django.payments import reconciling
from tillgate.django.refunds import limits, queueing
from tillgate.testing.conformance.judging import at_gateway
from tillgate.testing.gateway_driver import SentNotification
from tillgate.testing.world import World

__all__ = ["ACTIONS", "ReviewAction", "Subject"]

_REFUNDED: Final = "5.00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of one act; it goes to the process that acts."""

    orders: list[str]
    payment: Payment | None = None
    notifications: list[SentNotification] = field(default_factory=list)

    @property
    def order(self) -> str:
        """Its first order."""
        return self.orders[0]

    @property
    def paid(self) -> Payment:
        """Its payment."""
        assert self.payment
        return self.payment


Step = Callable[[World, Subject], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAction:
    """One act; the recoveries have names, and after each a day passes in which the worker runs."""

    name: str
    prepare: Callable[[World], Subject]
    do: Step
    recoveries: Mapping[str, Step]
    is_alone: bool = False
    """Whether it does all due work, so that only its own subject may be due."""


def _nothing(_: World, __: Subject) -> None:
    """Leave it to the worker."""


def _redeliver(world: World, subject: Subject) -> None:
    """Send unacknowledged notifications once more, as gateways do."""
    for notification in subject.notifications:
        answer = world.post(notification)
        assert answer.status_code == 200, (
            f"the notification was answered with HTTP {answer.status_code}"
        )


def _notify(world: World, subject: Subject) -> None:
    world.gateway_notification(subject.paid)


def _come_back(world: World, subject: Subject) -> None:
    answer = world.come_back(subject.paid)
    assert answer.status_code < 400, f"the return is answered with HTTP {answer.status_code}"


# Starting -----------------------------------------------------------------------------------------


def _place(world: World) -> Subject:
    return Subject(orders=[world.order()])


def _choose(world: World, subject: Subject) -> None:
    answer = world.choose(subject.order)
    assert answer.status_code < 400, (
        f"choosing a payment method is answered with HTTP {answer.status_code}"
    )


def _pay_what_was_begun(world: World, subject: Subject) -> None:
    """Pay on the payment page, if the gateway has made one: its address may have arrived."""
    for payment in at_gateway(world, subject.order):
        world.shopper_pays(payment)


def _press_again(world: World, subject: Subject) -> None:
    """Choose once more, when the creation that was cut off can last no longer, and pay on the page
    that comes.
    """
    world.time.advance(seconds=40)
    world.shopper_pays(world.pay_page(subject.order))


# Paid ---------------------------------------------------------------------------------------------


def _paid_at_gateway(world: World) -> Subject:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    return Subject(orders=[payment.order.key], payment=payment)


def _notified(world: World) -> Subject:
    subject = _paid_at_gateway(world)
    return Subject(
        orders=subject.orders,
        payment=subject.payment,
        notifications=world.sent(subject.paid),
    )


def _untold(world: World) -> Subject:
    """Prepare a paid payment that the shop does not know as paid: the process died before the
    delivery.
    """
    subject = _paid_at_gateway(world)
    with patch.object(reconciling, "deliver", return_value=0):
        world.gateway_notification(subject.paid)
    return subject


def _deliver(_: World, subject: Subject) -> None:
    delivering.deliver(subject.paid.order_id)
    deliver_remote(subject.paid.order_id)


# Refunds ------------------------------------------------------------------------------------------


def _paid(world: World) -> Subject:
    payment = world.paid_payment()
    return Subject(orders=[payment.order.key], payment=payment)


def _refund(_: World, subject: Subject) -> None:
    queueing.refund(subject.paid.pk, _REFUNDED)


def _refund_again(_: World, subject: Subject) -> None:
    """Press the button again on the page that showed no refund yet."""
    with suppress(limits.RefundNotPossible):
        queueing.refund(subject.paid.pk, _REFUNDED, newest_refund=0)


def _notify_refund(world: World, subject: Subject) -> None:
    if world.refunded_amount(subject.paid):
        world.gateway_notification(subject.paid, "refund")


def _unknown_refund(world: World) -> Subject:
    """Prepare a refund with a lost answer, and its notification."""
    subject = _paid(world)
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(subject.paid.pk, _REFUNDED)
    assert refund.status == "unknown"
    return Subject(
        orders=subject.orders,
        payment=subject.payment,
        notifications=world.sent(subject.paid, "refund"),
    )


# Worker ------------------------------------------------------------------------------------------


def _due(world: World) -> Subject:
    subject = _paid_at_gateway(world)
    world.time.advance(seconds=6)
    return subject


def _left(world: World) -> Subject:
    """Prepare an order that the time to pay has passed."""
    order = world.order()
    payment = world.start(order)
    world.sandbox.control.decline(payment.reference)
    world.gateway_notification(payment)
    world.time.advance(minutes=61)
    return Subject(orders=[order])


def _queued(world: World) -> Subject:
    """Prepare a refund whose process died before it could send it."""
    subject = _paid(world)
    with transaction.atomic():
        queueing.queue_refund(subject.paid.pk, _REFUNDED)
        transaction.get_connection().run_on_commit.clear()
    return subject


def _cut_off(world: World) -> Subject:
    """Prepare a refund whose process died long ago while it sent the refund."""
    subject, now = _queued(world), world.time.now()
    Refund.objects.filter(payment=subject.paid).update(
        status="sending",
        status_since=now,
        due_at=now,
    )
    return subject


def _worker(world: World, _: Subject) -> None:
    work_done = world.run_worker()
    assert work_done.faults == [], f"the worker run failed: {work_done.faults}"


def _working(name: str, prepare: Callable[[World], Subject]) -> ReviewAction:
    return ReviewAction(
        name=name,
        prepare=prepare,
        do=_worker,
        recoveries={"worker": _nothing},
        is_alone=True,
    )


ACTIONS: Final = {
    action.name: action
    for action in (
        ReviewAction(
            name="start",
            prepare=_place,
            do=_choose,
            recoveries={"leave": _nothing, "pay": _pay_what_was_begun, "press-again": _press_again},
        ),
        ReviewAction(
            name="notification",
            prepare=_notified,
            do=_redeliver,
            recoveries={"worker": _nothing, "redelivery": _redeliver, "return": _come_back},
        ),
        ReviewAction(
            name="refund-notification",
            prepare=_unknown_refund,
            do=_redeliver,
            recoveries={"worker": _nothing, "redelivery": _redeliver},
        ),
        ReviewAction(
            name="return",
            prepare=_paid_at_gateway,
            do=_come_back,
            recoveries={"worker": _nothing, "notification": _notify, "reload": _come_back},
        ),
        ReviewAction(
            name="reconcile",
            prepare=_paid_at_gateway,
            do=lambda _, subject: reconciling.reconcile(subject.paid, "killed"),
            recoveries={"worker": _nothing, "notification": _notify},
        ),
        ReviewAction(
            name="refund",
            prepare=_paid,
            do=_refund,
            recoveries={
                "worker": _nothing,
                "notification": _notify_refund,
                "press-again": _refund_again,
            },
        ),
        ReviewAction(
            name="deliver",
            prepare=_untold,
            do=_deliver,
            recoveries={"worker": _nothing, "notification": _notify},
        ),
        _working("worker-payment", _due),
        _working("worker-outbox_event", _untold),
        _working("worker-refund", _queued),
        _working("worker-lost-refund", _cut_off),
        _working("worker-unpaid-order", _left),
    )
}
