"""An answer's texts for clerks and shoppers are kept with its payment, and found again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.toy_gateway import SECRET, TOY, URL, Toy, ToyPlugin
from tillgate import Account, Money, Transaction, hooks
from tillgate.django.models import Payment, PaymentNumber
from tillgate.django.payments.reconciling import reconcile
from tillgate.django.worker.retention import erase_order
from tillgate.gateways import DeclineReason, PaidWith
from tillgate.testing.world import World


class Talkative(ToyPlugin):
    """The toy, whose answers contain the test's texts."""

    says: dict[str, Any]

    @hooks.hookimpl(tryfirst=True)
    def tillgate_query(
        self,
        account: Account,
        reference: str,
        deadline_seconds: float | None,
    ) -> Transaction:
        found = super().tillgate_query(account, reference, deadline_seconds)
        return replace(found, **self.says)


@pytest.fixture
def toy(world: World) -> Iterator[Talkative]:
    """The shop's account is at a toy whose answers say more."""
    plugin = Talkative(Toy())
    plugin.says = {}
    hooks.plugin_manager().register(plugin, name="toy")
    world.configure(
        {
            "BASE_URL": URL,
            "MERCHANT_NO": "T-1",
            "TOKEN": SECRET,
            "SANDBOX": False,
            "DIALECT": TOY,
        },
    )
    yield plugin
    hooks.plugin_manager().unregister(plugin)


def answered(payment: Payment) -> Payment:
    """Poll a payment as a return does, and return its row."""
    Payment.objects.filter(pk=payment.pk).update(last_polled_at=None)
    payment.refresh_from_db()
    reconcile(payment, "return")
    payment.refresh_from_db()
    return payment


def test_declined_card_is_kept_while_open(world: World, toy: Talkative) -> None:
    payment = world.start(world.order())
    toy.says = {"decline_reason": DeclineReason(code="lost_card", text="of ann@shop.example")}
    answered(payment)
    assert (payment.status, payment.details) == (
        "pending",
        {
            "decline_reason": {
                "code": "lost_card",
                "text": "of ***",
                "for_shopper": False,
            },
        },
    )


def test_worker_keeps_details(world: World, toy: Talkative) -> None:
    payment = world.start(world.order())
    toy.says = {"numbers": ("pi_1", "ch_1"), "fee": Money("0.35", "USD")}
    toy.toy.payments[payment.reference].state = "paid"
    Payment.objects.update(next_poll_at=payment.created_at)
    world.run_worker()
    payment.refresh_from_db()
    assert payment.status == "paid"
    assert payment.known.fee == Money("0.35", "USD")
    assert set(PaymentNumber.objects.values_list("number", flat=True)) == {"pi_1", "ch_1"}


def test_newest_answer_replaces_details(world: World, toy: Talkative) -> None:
    payment = world.start(world.order())
    toy.says = {"decline_reason": DeclineReason(code="lost_card"), "numbers": ("pi_1",)}
    answered(payment)
    toy.says = {"paid_with": PaidWith(method="card", brand="visa", last4="4242")}
    toy.toy.payments[payment.reference].state = "paid"
    answered(payment)
    assert payment.known.decline_reason is None
    assert payment.known.paid_with == PaidWith(method="card", brand="visa", last4="4242")
    assert PaymentNumber.objects.get().number == "pi_1"


def test_answer_about_another_payment_leaves_details(world: World, toy: Talkative) -> None:
    payment = world.start(world.order())
    toy.says = {"numbers": ("pi_1",), "reference": "ANOTHER-1"}
    answered(payment)
    assert (payment.details, PaymentNumber.objects.count()) == ({}, 0)


def test_erasure_empties_details(world: World, toy: Talkative) -> None:
    order = world.order()
    payment = world.start(order)
    toy.says = {"decline_reason": DeclineReason(code="lost_card")}
    toy.toy.payments[payment.reference].state = "declined"
    answered(payment)
    assert payment.details
    world.run_worker()
    erase_order(payment.order.plugin, payment.order.key, "staff:ann")
    payment.refresh_from_db()
    assert payment.details == {}


def test_creation_names_webhook_and_shopper(world: World, toy: Talkative) -> None:
    seen = []

    class Watching:
        @hooks.hookimpl(wrapper=True)
        def tillgate_pay(self, request: Any) -> Iterator[None]:
            seen.append(request)
            return (yield)

    watching = Watching()
    hooks.plugin_manager().register(watching)
    try:
        world.start(world.order())
    finally:
        hooks.plugin_manager().unregister(watching)
    assert seen[0].webhook_url.endswith("/webhook/default/")
