"""The foreign simulator does everything that the plugin's tests use, and lacks the things that its
docstring names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stripe

from stripe_emulator.simulator import PYTHON, WEBHOOK_SECRET, Simulator
from tests.test_fake_stripe import wanted


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "needs .nox/simulator: nox -s simulator",
        )
    with Simulator() as running:
        yield running


@pytest.fixture
def client(simulator: Simulator) -> stripe.StripeClient:
    simulator.received.clear()
    return stripe.StripeClient(
        "sk_test_any",
        base_addresses={"api": simulator.base_url},
        max_network_retries=0,
    )


def opened(client: stripe.StripeClient, reference: str, **more: Any) -> stripe.checkout.Session:
    return client.v1.checkout.sessions.create(wanted(reference, **more))


def intent_of(client: stripe.StripeClient, session: stripe.checkout.Session) -> str:
    intent = client.v1.checkout.sessions.retrieve(session.id).payment_intent
    assert isinstance(intent, str)
    return intent


def test_shopper_pays_and_webhooks_are_signed(
    simulator: Simulator,
    client: stripe.StripeClient,
) -> None:
    session = opened(client, "paid")
    simulator.pay("paid")
    assert client.v1.checkout.sessions.retrieve(session.id).payment_status == "paid"
    assert simulator.session_of("paid")["id"] == session.id
    events = [
        stripe.Webhook.construct_event(
            webhook.body,
            webhook.headers["Stripe-Signature"],
            WEBHOOK_SECRET,
        )
        for webhook in simulator.received
    ]
    assert [event.type for event in events] == [
        "charge.succeeded",
        "checkout.session.completed",
        "payment_intent.succeeded",
    ]


@pytest.mark.parametrize(
    ("acts", "status", "payment_status", "intent_status"),
    [
        ([Simulator.pay_with_delay], "complete", "unpaid", "processing"),
        ([Simulator.pay_with_delay, Simulator.settle], "complete", "paid", "succeeded"),
        (
            [Simulator.pay_with_delay, Simulator.fail_delayed],
            "open",
            "unpaid",
            "requires_payment_method",
        ),
        ([Simulator.decline], "open", "unpaid", "requires_payment_method"),
        ([Simulator.decline, Simulator.pay], "complete", "paid", "succeeded"),
        ([Simulator.expire], "expired", "unpaid", None),
    ],
)
def test_shopper_and_bank_move_session(
    simulator: Simulator,
    client: stripe.StripeClient,
    acts: list[Callable[[Simulator, str], None]],
    status: str,
    payment_status: str,
    intent_status: str | None,
) -> None:
    session = opened(client, "moved")
    for act in acts:
        act(simulator, "moved")
    after = client.v1.checkout.sessions.retrieve(session.id)
    assert (after.status, after.payment_status) == (status, payment_status)
    intent = after.payment_intent
    assert intent_status == (
        client.v1.payment_intents.retrieve(intent).status if isinstance(intent, str) else None
    )


def test_a_refund_succeeds_and_may_fail_later(
    simulator: Simulator,
    client: stripe.StripeClient,
) -> None:
    session = opened(client, "refunded")
    simulator.pay("refunded")
    simulator.received.clear()
    refund = client.v1.refunds.create({"payment_intent": intent_of(client, session), "amount": 400})
    simulator.fail_refund("refunded", refund.id)
    told = [
        (webhook.event["type"], webhook.event["data"]["object"].get("status"))
        for webhook in simulator.received
    ]
    assert (refund.status, told) == (
        "pending",
        [
            ("refund.created", "pending"),
            ("charge.refunded", None),
            ("refund.updated", "succeeded"),
            ("refund.failed", "failed"),
        ],
    )
    simulator.set_refund_mode("refunded", "requires_action")
    assert (
        client.v1.refunds.create({"payment_intent": intent_of(client, session), "amount": 1}).status
        == "requires_action"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda v1: v1.checkout.sessions.list(),
        lambda v1: v1.refunds.list(),
        lambda v1: v1.refunds.retrieve("re_sim_1"),
        lambda v1: v1.disputes.list(),
        lambda v1: v1.accounts.retrieve_current(),
        lambda v1: v1.balance.retrieve(),
        lambda v1: v1.webhook_endpoints.list(),
    ],
)
def test_it_lacks_these_endpoints(
    client: stripe.StripeClient,
    call: Callable[[Any], object],
) -> None:
    with pytest.raises(stripe.APIError, match="Invalid response object"):
        call(client.v1)


def test_it_lacks_search(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError, match="No such payment_intent: 'search'"):
        client.v1.payment_intents.search({"query": "metadata['reference']:'x'"})


def test_it_ignores_idempotency_keys(client: stripe.StripeClient) -> None:
    assert (
        len(
            {
                client.v1.checkout.sessions.create(wanted("twice"), {"idempotency_key": "k"}).id
                for _ in range(2)
            },
        )
        == 2
    )


def test_it_ignores_expand_quantities_and_further_lines(
    simulator: Simulator,
    client: stripe.StripeClient,
) -> None:
    line = wanted(amount=700)["line_items"][0]
    session = opened(client, "lines", line_items=[{**line, "quantity": 2}, line])
    simulator.pay("lines")
    after = client.v1.checkout.sessions.retrieve(session.id, {"expand": ["payment_intent"]})
    assert (after.amount_total, type(after.payment_intent), hasattr(after, "created")) == (
        700,
        str,
        False,
    )


def test_it_accepts_what_stripe_refuses(client: stripe.StripeClient) -> None:
    session = opened(
        client,
        "wrong",
        line_items=wanted(amount=-5, currency="XXXX")["line_items"],
        expires_at=1,
        payment_method_types=["none"],
    )
    assert (session.amount_total, session.currency, session.expires_at) == (-5, "XXXX", 1)
    assert client.v1.checkout.sessions.retrieve(session.id).status == "open"


def test_a_restart_forgets_everything(simulator: Simulator, client: stripe.StripeClient) -> None:
    session = opened(client, "forgotten")
    simulator.stop()
    simulator.start()
    with pytest.raises(stripe.InvalidRequestError, match="No such checkout"):
        stripe.StripeClient(
            "sk_test_any",
            base_addresses={"api": simulator.base_url},
        ).v1.checkout.sessions.retrieve(session.id)
