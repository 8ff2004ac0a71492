"""The values for plugins: every field of a value is its row's."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import timezone

from tests.django.conftest import World
from tillgate import hooks
from tillgate.django.conf import get_settings
from tillgate.django.models import OutboxEvent, Payment, Refund, Review
from tillgate.django.orders.values import (
    order_value,
    payment_value,
    refund_value,
    remote_event_value,
    review_value,
)
from tillgate.django.outbox import remote
from tillgate.django.payments import starting
from tillgate.django.refunds import queueing
from tillgate.lifecycle import PaymentStatus, RefundStatus


@pytest.fixture
def payment(world: World) -> Payment:
    order = world.order()
    started = starting.start_payment(
        world.shop.plugin,
        order,
        method="paypal",
        data={"language": "de"},
    ).payment
    world.shopper_pays(started)
    world.notification(started)
    return world.fresh(started)


def test_a_payments_value_is_its_row(world: World, payment: Payment) -> None:
    value = payment_value(payment)
    assert value == hooks.Payment(
        id=str(payment.pk),
        order=hooks.Order(plugin=world.shop.plugin, key=payment.order.key),
        reference=payment.reference,
        method="paypal",
        amount=Decimal("12.50"),
        currency="USD",
        status=PaymentStatus.PAID,
        transaction_no=payment.transaction_no,
        data={"language": "de"},
    )
    assert value.transaction_no


def test_refund_value_has_status_being_told(payment: Payment) -> None:
    refund = queueing.refund(payment.pk, "2.50", data={"lines": 1})
    value = refund_value(refund)
    assert value == hooks.Refund(
        id=str(refund.pk),
        payment=payment_value(payment),
        amount=Decimal("2.50"),
        status=RefundStatus.SUCCEEDED,
        data={"lines": 1},
    )
    assert refund_value(refund, "unknown").status is RefundStatus.UNKNOWN


def test_review_value_names_order_and_payment(payment: Payment) -> None:
    """Either may be absent."""
    about = {"order": payment.order, "payment": payment}
    review = Review.objects.create(
        reason="underpaid",
        facts={"detail": "Too little."},
        opened_at=timezone.now(),
        **about,
    )
    assert review_value(review) == hooks.Review(
        id=str(review.pk),
        reason="underpaid",
        message="Too little.",
        order=order_value(payment.order),
        payment=payment_value(payment),
    )
    review.order = review.payment = None
    assert (review_value(review).order, review_value(review).payment) == (None, None)


def test_i11_review_value_holds_no_secret(payment: Payment) -> None:
    refund = queueing.refund(payment.pk, "2.50")
    token = get_settings().accounts["default"].token.get_secret_value()
    secrets = [
        token,
        payment.notification_key,
        payment.return_key,
        payment.payment_url,
        refund.notification_key,
    ]
    about = {"order": payment.order, "payment": payment, "refund": refund}
    review = Review.objects.create(
        reason="underpaid",
        facts={"detail": " ".join(secrets)},
        opened_at=timezone.now(),
        **about,
    )
    assert [secret for secret in secrets if secret in review.message] == secrets
    assert [secret for secret in secrets if secret in review_value(review).message] == []


def test_remote_delivery_value_has_everything_queued(world: World, payment: Payment) -> None:
    refund = queueing.refund(payment.pk, "2.50")
    event = remote.enqueue_remote(
        world.shop.plugin,
        payment.order.key,
        "receipt",
        data={"to": "ann"},
        payment_id=str(payment.pk),
        refund_id=str(refund.pk),
    )
    assert remote_event_value(OutboxEvent.objects.get(event_id=event)) == hooks.RemoteEvent(
        event_id=event,
        name="receipt",
        order=order_value(payment.order),
        payment=payment_value(payment),
        refund=refund_value(Refund.objects.get(pk=refund.pk)),
        data={"to": "ann"},
    )
    plain = remote_event_value(
        OutboxEvent.objects.get(
            event_id=remote.enqueue_remote(world.shop.plugin, payment.order.key, "hello"),
        ),
    )
    assert (plain.payment, plain.refund, plain.data) == (None, None, {})


def test_plugin_delivers_value_of_queued_event(
    world: World,
    payment: Payment,
) -> None:
    carried: list[hooks.RemoteEvent] = []

    class Carrier:
        @hooks.hookimpl
        def tillgate_deliver(self, outbox_event: hooks.RemoteEvent) -> None:
            carried.append(outbox_event)

    hooks.plugin_manager().register(Carrier(), name="carrier")
    try:
        payment.order.plugin = "carrier"
        payment.order.save()
        event = remote.enqueue_remote(
            "carrier",
            payment.order.key,
            "receipt",
            payment_id=str(payment.pk),
        )
        world.run_worker()
    finally:
        hooks.plugin_manager().unregister(name="carrier")
    assert [(one.event_id, one.payment and one.payment.id) for one in carried] == [
        (event, str(payment.pk)),
    ]
    outbox_event = OutboxEvent.objects.get(event_id=event)
    assert (
        outbox_event.attempts,
        outbox_event.due_at,
        outbox_event.fault,
        outbox_event.done_at is not None,
    ) == (1, None, "", True)
    entry = payment.order.timeline.latest("id")
    assert (entry.event, entry.actor, entry.message) == (
        "event.delivered",
        f"outbox:{event}",
        "carried over the network: receipt",
    )
    assert entry.payment == payment
