"""The fake Stripe keeps Stripe's promises, seen through the official SDK alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import stripe

from stripe_emulator.fake import API_VERSION, FakeStripe

SECRET = "whsec_fake"


@pytest.fixture
def fake() -> Iterator[FakeStripe]:
    with FakeStripe() as running:
        yield running


@pytest.fixture
def client(fake: FakeStripe) -> stripe.StripeClient:
    return client_of(fake)


def client_of(fake: FakeStripe, key: str = "sk_test_fake") -> stripe.StripeClient:
    return stripe.StripeClient(
        key,
        base_addresses={"api": fake.url},
        max_network_retries=0,
        http_client=stripe.RequestsClient(timeout=5, async_fallback_client=None),
    )


def wanted(
    reference: str = "tg-1",
    *,
    amount: int = 1000,
    currency: str = "eur",
    **more: Any,
) -> Any:
    return {
        "mode": "payment",
        "line_items": [
            {
                "price_data": {
                    "currency": currency,
                    "unit_amount": amount,
                    "product_data": {"name": "Order 1"},
                },
                "quantity": 1,
            },
        ],
        "client_reference_id": reference,
        "metadata": {"reference": reference},
        "payment_intent_data": {"metadata": {"reference": reference}},
        "success_url": "https://shop.example/return",
        "cancel_url": "https://shop.example/cancel",
        **more,
    }


def opened(
    client: stripe.StripeClient,
    reference: str = "tg-1",
    **more: Any,
) -> stripe.checkout.Session:
    return client.v1.checkout.sessions.create(wanted(reference, **more))


def intent_of(client: stripe.StripeClient, session: stripe.checkout.Session, *expand: str) -> Any:
    paths = ["payment_intent", *(f"payment_intent.{path}" for path in expand)]
    return client.v1.checkout.sessions.retrieve(session.id, {"expand": paths}).payment_intent


# Sessions


def test_session_costs_sum_of_its_lines(client: stripe.StripeClient) -> None:
    lines = [
        *wanted(amount=250)["line_items"],
        {**wanted(amount=100)["line_items"][0], "quantity": 3},
    ]
    session = opened(client, line_items=lines, customer_email="ann@example.com", locale="de")
    assert (session.amount_total, session.currency, session.status, session.payment_status) == (
        550,
        "eur",
        "open",
        "unpaid",
    )
    assert session.url is not None
    assert session.url.startswith("https://checkout.stripe.com/c/pay/cs_test_")
    assert session.payment_intent is None
    assert (session.client_reference_id, session.customer_email, session.locale) == (
        "tg-1",
        "ann@example.com",
        "de",
    )
    assert session.metadata is not None
    assert session.metadata["reference"] == "tg-1"
    assert session.expires_at - session.created == 86400


def test_fake_speaks_sdks_api_version(
    client: stripe.StripeClient,
    fake: FakeStripe,
) -> None:
    session = opened(client)
    assert fake.journal[-1].headers["stripe-version"] == API_VERSION == stripe.api_version
    assert session.last_response is not None
    assert session.last_response.request_id


def test_journal_has_parameters_without_key(
    client: stripe.StripeClient,
    fake: FakeStripe,
) -> None:
    opened(client)
    request = fake.requests("create_session")[0]
    assert (request.method, request.path) == ("POST", "/v1/checkout/sessions")
    assert request.parameters["line_items"][0]["price_data"]["product_data"]["name"] == "Order 1"
    assert "sk_test_fake" not in repr(fake.journal)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"expires_at": int(time.time()) + 1700}, "expires_at"),
        ({"expires_at": int(time.time()) + 100_000}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"payment_method_types": ["card"]}, "payment_method_types"),
        ({"allowed_payment_method_types": ["upi"]}, "allowed_payment_method_types"),
        ({"customer_email": "nobody"}, "customer_email"),
        ({"locale": "xx"}, "locale"),
        ({"mode": "subscription"}, "mode"),
        ({"client_reference_id": "x" * 201}, "client_reference_id"),
        ({"metadata": {"note": "x" * 501}}, "metadata"),
        ({"metadata": {"x" * 41: "note"}}, "metadata"),
        (
            {"line_items": wanted()["line_items"] + wanted(currency="usd")["line_items"]},
            "line_items",
        ),
        (
            {"line_items": wanted(amount=1001, currency="kwd")["line_items"]},
            "line_items[0][price_data][unit_amount]",
        ),
        (
            {"line_items": wanted(amount=1050, currency="isk")["line_items"]},
            "line_items[0][price_data][unit_amount]",
        ),
        (
            {"line_items": wanted(amount=1050, currency="ugx")["line_items"]},
            "line_items[0][price_data][unit_amount]",
        ),
        ({"expand": ["customer"]}, "expand"),
    ],
)
def test_refused_request_names_its_parameter(
    client: stripe.StripeClient,
    change: dict[str, Any],
    param: str,
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        opened(client, **change)
    assert refused.value.http_status == 400
    assert refused.value.error is not None
    assert (refused.value.error.type, refused.value.param) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("currency", "least"),
    [("usd", 50), ("eur", 50), ("gbp", 30), ("jpy", 50)],
)
def test_smallest_amount_is_accepted(
    client: stripe.StripeClient,
    currency: str,
    least: int,
) -> None:
    """One unit less is refused."""
    assert opened(client, amount=least, currency=currency).amount_total == least
    with pytest.raises(stripe.InvalidRequestError) as refused:
        opened(client, amount=least - 1, currency=currency)
    assert refused.value.code == "amount_too_small"


def test_unusual_currency_amounts_pass_in_multiples(client: stripe.StripeClient) -> None:
    assert [
        opened(client, amount=units, currency=code).amount_total
        for units, code in ((1010, "kwd"), (1100, "isk"), (1100, "ugx"))
    ]


def test_methods_need_dashboard_and_permission(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    """Only those of the dashboard that the session allows are offered."""
    assert opened(client, allowed_payment_method_types=["card", "upi"]).payment_method_types == [
        "card",
    ]
    assert (
        "alipay"
        not in opened(client, excluded_payment_method_types=["alipay"]).payment_method_types
    )
    with pytest.raises(ValueError, match="not alipay"):
        fake.pay("tg-1", "alipay")
    fake.pay("tg-1", "klarna")
    assert fake.charge_of("tg-1")["payment_method_details"]["type"] == "klarna"


def test_an_unknown_session_is_resource_missing(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.checkout.sessions.retrieve("cs_test_unknown")
    assert (refused.value.http_status, refused.value.code) == (404, "resource_missing")


def test_session_list_starts_with_newest(client: stripe.StripeClient) -> None:
    """It continues on further pages."""
    made = [opened(client, f"tg-{number}").id for number in range(5)]
    page = client.v1.checkout.sessions.list({"limit": 2})
    assert ([each.id for each in page.data], page.has_more) == (made[:2:-1], True)
    page = client.v1.checkout.sessions.list({"limit": 2, "starting_after": page.data[-1].id})
    assert ([each.id for each in page.data], page.has_more) == (made[2:0:-1], True)
    assert [
        each.id for each in client.v1.checkout.sessions.list({"limit": 2}).auto_paging_iter()
    ] == made[::-1]


def test_session_list_respects_creation_time(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    early = opened(client, "tg-early")
    start = early.created
    fake.now = lambda: start + 60
    late = opened(client, "tg-late")
    sessions = client.v1.checkout.sessions
    assert [each.id for each in sessions.list({"created": {"gte": start + 1}}).data] == [late.id]
    assert [each.id for each in sessions.list({"created": {"lte": start}}).data] == [early.id]


def test_session_is_listed_by_payment_intent(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    opened(client, "tg-other")
    session = opened(client)
    intent = fake.pay("tg-1")["payment_intent"]
    assert [
        each.id for each in client.v1.checkout.sessions.list({"payment_intent": intent}).data
    ] == [session.id]


# Paying


def test_paid_session_passes_metadata_to_intent(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.pay("tg-1")
    session = client.v1.checkout.sessions.retrieve(
        session.id,
        {"expand": ["payment_intent.latest_charge.refunds"]},
    )
    intent: Any = session.payment_intent
    assert (session.status, session.payment_status, session.url) == ("complete", "paid", None)
    assert (intent.status, intent.amount_received, intent.metadata["reference"]) == (
        "succeeded",
        1000,
        "tg-1",
    )
    assert (intent.latest_charge.status, intent.latest_charge.refunds.data) == ("succeeded", [])


def test_without_expansion_there_are_only_identifiers(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.pay("tg-1")
    identifier = client.v1.checkout.sessions.retrieve(session.id).payment_intent
    assert isinstance(identifier, str)
    intent = client.v1.payment_intents.retrieve(identifier)
    assert isinstance(intent.latest_charge, str)
    expanded: Any = client.v1.payment_intents.retrieve(
        identifier,
        {"expand": ["latest_charge"]},
    ).latest_charge
    assert (expanded.id, hasattr(expanded, "refunds")) == (intent.latest_charge, False)


def test_balance_transaction_is_expanded_with_permission(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.pay("tg-1")
    moved = intent_of(client, session, "latest_charge.balance_transaction").latest_charge
    moved = moved.balance_transaction
    assert (moved.object, moved.currency, moved.amount) == ("balance_transaction", "eur", 1000)
    assert (moved.fee, moved.net, moved.fee_details[0].amount) == (59, 941, 59)
    fake.restrict("rk_test_no_balance", {"checkout_session_read", "payment_intent_read"})
    with pytest.raises(stripe.PermissionError, match="rak_charge_read"):
        intent_of(client_of(fake, "rk_test_no_balance"), session, "latest_charge")
    fake.restrict(
        "rk_test_no_balance",
        {"checkout_session_read", "payment_intent_read", "charge_read"},
    )
    with pytest.raises(stripe.PermissionError, match="rak_balance_read"):
        intent_of(
            client_of(fake, "rk_test_no_balance"),
            session,
            "latest_charge.balance_transaction",
        )


def test_voucher_completes_session_and_waits(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    fake.methods.append("multibanco")
    session = opened(client)
    fake.take_voucher("tg-1", "multibanco")
    intent = intent_of(client, session)
    after = client.v1.checkout.sessions.retrieve(session.id)
    assert (after.status, after.payment_status) == ("complete", "unpaid")
    assert (intent.status, intent.next_action.type) == (
        "requires_action",
        "multibanco_display_details",
    )
    fake.pay_voucher("tg-1")
    intent = intent_of(client, session)
    assert (intent.status, intent.next_action) == ("succeeded", None)


def test_delayed_payment_stays_unpaid_until_settled(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    """Its session is complete before that."""
    session = opened(client)
    fake.pay_with_delay("tg-1")
    before = client.v1.checkout.sessions.retrieve(session.id)
    assert (before.status, before.payment_status, intent_of(client, session).status) == (
        "complete",
        "unpaid",
        "processing",
    )
    fake.settle("tg-1")
    assert client.v1.checkout.sessions.retrieve(session.id).payment_status == "paid"
    assert intent_of(client, session, "latest_charge").latest_charge.status == "succeeded"


def test_a_delayed_payment_that_fails_stays_unpaid(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.pay_with_delay("tg-1")
    fake.fail_delayed("tg-1")
    intent = intent_of(client, session, "latest_charge")
    assert client.v1.checkout.sessions.retrieve(session.id).payment_status == "unpaid"
    assert (intent.status, intent.last_payment_error.code, intent.latest_charge.status) == (
        "requires_payment_method",
        "card_declined",
        "failed",
    )


def test_declined_session_can_still_be_paid(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.decline("tg-1")
    intent = intent_of(client, session)
    assert client.v1.checkout.sessions.retrieve(session.id).status == "open"
    assert (intent.status, intent.last_payment_error.decline_code) == (
        "requires_payment_method",
        "generic_decline",
    )
    fake.pay("tg-1")
    assert (intent_of(client, session).id, intent_of(client, session).status) == (
        intent.id,
        "succeeded",
    )


def test_only_open_session_can_be_expired(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.decline("tg-1")
    assert client.v1.checkout.sessions.expire(session.id).status == "expired"
    assert intent_of(client, session).status == "canceled"
    with pytest.raises(stripe.InvalidRequestError, match="status of `expired`"):
        client.v1.checkout.sessions.expire(session.id)
    opened(client, "tg-2")
    paid = fake.pay("tg-2")
    with pytest.raises(stripe.InvalidRequestError, match="status of `complete`"):
        client.v1.checkout.sessions.expire(paid["id"])
    with pytest.raises(ValueError, match="complete"):
        fake.pay("tg-2")


def test_session_expires_by_itself(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    end = session.expires_at
    fake.now = lambda: end - 1
    assert client.v1.checkout.sessions.retrieve(session.id).status == "open"
    fake.now = lambda: end
    assert client.v1.checkout.sessions.retrieve(session.id).status == "expired"


def test_search_finds_metadata_after_indexing(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    session = opened(client)
    fake.hold_search()
    fake.pay("tg-1")
    found = client.v1.payment_intents.search
    assert found({"query": "metadata['reference']:'tg-1'"}).data == []
    fake.release_search()
    assert [each.id for each in found({"query": "metadata['reference']:'tg-1'"}).data] == [
        intent_of(client, session).id,
    ]
    assert found({"query": "metadata['reference']:'tg-2'"}).data == []
    with pytest.raises(stripe.InvalidRequestError):
        found({"query": "reference=tg-1"})


# Refunds and disputes


def paid_intent(fake: FakeStripe, client: stripe.StripeClient, reference: str = "tg-1") -> str:
    opened(client, reference)
    identifier: str = fake.pay(reference)["payment_intent"]
    return identifier


def test_refunds_stop_at_charged_amount(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    intent = paid_intent(fake, client)
    refund = client.v1.refunds.create(
        {
            "payment_intent": intent,
            "amount": 400,
            "reason": "requested_by_customer",
            "metadata": {"key": "k1"},
        },
    )
    assert (refund.status, refund.amount, refund.metadata and refund.metadata["key"]) == (
        "succeeded",
        400,
        "k1",
    )
    with pytest.raises(stripe.InvalidRequestError, match="greater than unrefunded amount"):
        client.v1.refunds.create({"payment_intent": intent, "amount": 601})
    assert client.v1.refunds.create({"payment_intent": intent}).amount == 600
    assert fake.charge_of("tg-1")["refunded"] is True
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.refunds.create({"payment_intent": intent})
    assert refused.value.code == "charge_already_refunded"


def test_refunds_are_listed_by_payment_and_page(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    intent, other = paid_intent(fake, client), paid_intent(fake, client, "tg-2")
    made = [
        client.v1.refunds.create({"payment_intent": intent, "amount": 100}).id for _ in range(3)
    ]
    client.v1.refunds.create({"payment_intent": other})
    external = fake.refund_in_dashboard("tg-1", 50)["id"]
    page = client.v1.refunds.list({"payment_intent": intent, "limit": 3})
    assert ([each.id for each in page.data], page.has_more) == ([external, *made[:0:-1]], True)
    assert len(list(page.auto_paging_iter())) == 4


def test_late_refund_failure_restores_charge(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    intent = paid_intent(fake, client)
    fake.next_refund = "pending"
    refund = client.v1.refunds.create({"payment_intent": intent})
    assert (refund.status, fake.charge_of("tg-1")["amount_refunded"]) == ("pending", 1000)
    fake.finish_refund(refund.id, "succeeded")
    assert client.v1.refunds.retrieve(refund.id).status == "succeeded"
    fake.finish_refund(refund.id, "failed")
    refund = client.v1.refunds.retrieve(refund.id)
    assert (refund.status, refund.failure_reason) == ("failed", "expired_or_canceled_card")
    assert (fake.charge_of("tg-1")["amount_refunded"], fake.charge_of("tg-1")["refunded"]) == (
        0,
        False,
    )


def test_refused_refund_does_not_affect_next(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    intent = paid_intent(fake, client)
    fake.next_refund = "refuse"
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.refunds.create({"payment_intent": intent})
    assert refused.value.code == "balance_insufficient"
    assert client.v1.refunds.create({"payment_intent": intent}).status == "succeeded"


def test_what_is_not_paid_cannot_be_refunded(fake: FakeStripe, client: stripe.StripeClient) -> None:
    opened(client)
    intent = fake.pay_with_delay("tg-1")["payment_intent"]
    with pytest.raises(stripe.InvalidRequestError, match="successful charge"):
        client.v1.refunds.create({"payment_intent": intent})
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.refunds.create({"payment_intent": "pi_unknown"})
    assert (refused.value.http_status, refused.value.code) == (400, "resource_missing")


def test_dispute_stops_refunds_until_won(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    """It is listed, too."""
    intent = paid_intent(fake, client)
    dispute = fake.dispute("tg-1", 700, due_by=2_000_000_000)
    [listed] = client.v1.disputes.list({"payment_intent": intent}).data
    assert (listed.id, listed.amount, listed.status, listed.evidence_details.due_by) == (
        dispute["id"],
        700,
        "needs_response",
        2_000_000_000,
    )
    assert (
        intent_of(
            client,
            client.v1.checkout.sessions.list().data[0],
            "latest_charge",
        ).latest_charge.disputed
        is True
    )
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.refunds.create({"payment_intent": intent})
    assert refused.value.code == "charge_disputed"
    fake.set_dispute_status(dispute["id"], "warning_needs_response")
    assert client.v1.refunds.create({"payment_intent": intent, "amount": 1}).status == "succeeded"
    fake.set_dispute_status(dispute["id"], "won")
    assert client.v1.disputes.list({"payment_intent": intent}).data[0].status == "won"
    assert client.v1.refunds.create({"payment_intent": intent}).status == "succeeded"


# Idempotency keys, keys of the API, and faults


def test_idempotency_key_replays_first_answer(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    first = client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"})
    again = client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"})
    assert (again.id, len(fake.sessions)) == (first.id, 1)
    assert again.last_response is not None
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    with pytest.raises(stripe.IdempotencyError):
        client.v1.checkout.sessions.create(wanted(amount=2000), {"idempotency_key": "k"})
    intent = fake.pay("tg-1")["payment_intent"]
    refunds = [
        client.v1.refunds.create(
            {"payment_intent": intent, "amount": 1},
            {"idempotency_key": "r"},
        ).id
        for _ in range(2)
    ]
    assert (refunds[0] == refunds[1], len(fake.refunds)) == (True, 1)
    with pytest.raises(stripe.IdempotencyError):
        client.v1.refunds.create({"payment_intent": intent, "amount": 2}, {"idempotency_key": "r"})


def test_invalid_request_leaves_its_key_free(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    """A request that failed does not."""
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.checkout.sessions.create(wanted(amount=1), {"idempotency_key": "k"})
    assert (
        client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"}).amount_total == 1000
    )
    intent = fake.pay("tg-1")["payment_intent"]
    fake.next_refund = "refuse"
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError, match="Insufficient funds"):
            client.v1.refunds.create({"payment_intent": intent}, {"idempotency_key": "r"})
    assert (
        client.v1.refunds.create({"payment_intent": intent}, {"idempotency_key": "r2"}).status
        == "succeeded"
    )


def test_an_unknown_key_is_refused(fake: FakeStripe) -> None:
    with pytest.raises(stripe.AuthenticationError, match="Invalid API Key provided"):
        client_of(fake, "sk_test_wrong").v1.accounts.retrieve_current()


def test_restricted_key_needs_each_used_permission(fake: FakeStripe) -> None:
    fake.restrict("rk_test_narrow", {"checkout_session_write"})
    client = client_of(fake, "rk_test_narrow")
    session = opened(client)
    fake.pay("tg-1")
    assert client.v1.checkout.sessions.retrieve(session.id).status == "complete"
    with pytest.raises(stripe.PermissionError) as refused:
        client.v1.refunds.list()
    assert refused.value.error is not None
    assert (refused.value.http_status, refused.value.error.code) == (
        403,
        "more_permissions_required",
    )
    assert "rak_refund_read" in str(refused.value)
    with pytest.raises(stripe.PermissionError, match="rak_payment_intent_read"):
        client.v1.checkout.sessions.retrieve(session.id, {"expand": ["payment_intent"]})


def test_account_endpoints_and_balance_are_there(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    fake.add_endpoint("https://shop.example/hook", ["checkout.session.completed"])
    fake.add_endpoint("https://old.example/hook", ["*"], status="disabled")
    assert client.v1.accounts.retrieve_current().charges_enabled is True
    newest, oldest = client.v1.webhook_endpoints.list().data
    assert (oldest.url, oldest.enabled_events, oldest.api_version) == (
        "https://shop.example/hook",
        ["checkout.session.completed"],
        API_VERSION,
    )
    assert newest.status == "disabled"
    assert client.v1.balance.retrieve().available[0].currency == "eur"


def test_a_lost_answer_leaves_the_work_done(fake: FakeStripe, client: stripe.StripeClient) -> None:
    fake.lose_next("create_session")
    with pytest.raises(stripe.APIConnectionError):
        client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"})
    assert len(fake.sessions) == 1
    assert (
        client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"}).id in fake.sessions
    )
    assert len(fake.sessions) == 1


def test_a_slow_answer_leaves_the_work_done(fake: FakeStripe) -> None:
    client = stripe.StripeClient(
        "sk_test_fake",
        base_addresses={"api": fake.url},
        max_network_retries=0,
        http_client=stripe.RequestsClient(timeout=0.3),
    )
    fake.slow_next("create_session", 1)
    with pytest.raises(stripe.APIConnectionError):
        opened(client)
    assert len(fake.sessions) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, stripe.AuthenticationError),
        (402, stripe.CardError),
        (403, stripe.PermissionError),
        (409, stripe.APIError),
        (429, stripe.RateLimitError),
        (500, stripe.APIError),
        (503, stripe.APIError),
    ],
)
def test_failure_raises_sdk_error_without_effect(
    fake: FakeStripe,
    client: stripe.StripeClient,
    status: int,
    error: type[stripe.StripeError],
) -> None:
    fake.fail_next("create_session", status)
    with pytest.raises(error) as failed:
        opened(client)
    assert (failed.value.http_status, len(fake.sessions)) == (status, 0)
    assert opened(client).status == "open"


def test_stored_failure_repeats_for_its_key(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    fake.fail_next("create_session", 500, stored=True)
    for _ in range(2):
        with pytest.raises(stripe.APIError):
            client.v1.checkout.sessions.create(wanted(), {"idempotency_key": "k"})
    assert len(fake.sessions) == 0


def test_broken_json_is_an_api_error(fake: FakeStripe, client: stripe.StripeClient) -> None:
    session = opened(client)
    fake.break_next("retrieve_session")
    with pytest.raises(stripe.APIError, match="Invalid response body"):
        client.v1.checkout.sessions.retrieve(session.id)


# Webhooks


def test_each_event_has_matching_object(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    paid_intent(fake, client)
    fake.refund_in_dashboard("tg-1", 100)
    fake.dispute("tg-1")
    expected = {
        "checkout.session": [
            "completed",
            "async_payment_succeeded",
            "async_payment_failed",
            "expired",
        ],
        "charge": ["refunded"],
        "refund": ["created", "updated", "failed"],
        "charge.dispute": ["created", "updated", "closed", "funds_withdrawn"],
    }
    for noun, endings in expected.items():
        for ending in endings:
            headers, body = fake.signed(fake.event(f"{noun}.{ending}", "tg-1"), SECRET)
            event = stripe.Webhook.construct_event(body, headers["Stripe-Signature"], SECRET)
            assert (event.type, event.api_version) == (f"{noun}.{ending}", API_VERSION)
            assert event.data.object["object"] == noun.removeprefix("charge.")


def test_event_shows_current_state_with_changes(
    fake: FakeStripe,
    client: stripe.StripeClient,
) -> None:
    """Changes made for the event alone do not alter the session."""
    session = opened(client)
    before = fake.event("checkout.session.expired", "tg-1")
    fake.pay("tg-1")
    assert (before["data"]["object"]["id"], before["data"]["object"]["status"]) == (
        session.id,
        "open",
    )
    assert (
        fake.event("checkout.session.completed", "tg-1", amount_total=1)["data"]["object"][
            "amount_total"
        ]
        == 1
    )
    assert fake.sessions[session.id]["amount_total"] == 1000


@pytest.mark.parametrize(
    ("secret", "seconds_ago", "schemes"),
    [("whsec_other", 0, ["v1"]), (SECRET, 301, ["v1"]), (SECRET, 0, ["v0"])],
)
def test_badly_signed_events_are_detected(
    fake: FakeStripe,
    client: stripe.StripeClient,
    secret: str,
    seconds_ago: int,
    schemes: list[str],
) -> None:
    """The secret, the time or the scheme is wrong."""
    paid_intent(fake, client)
    headers, body = fake.signed(
        fake.event("checkout.session.completed", "tg-1"),
        secret,
        int(time.time()) - seconds_ago,
        schemes,
    )
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.Webhook.construct_event(body, headers["Stripe-Signature"], SECRET)


def test_while_a_secret_changes_both_sign(fake: FakeStripe, client: stripe.StripeClient) -> None:
    paid_intent(fake, client)
    headers, body = fake.signed(
        fake.event("checkout.session.completed", "tg-1"),
        ["whsec_new", SECRET],
        schemes=["v1", "v0"],
    )
    assert headers["Stripe-Signature"].count("v1=") == 2
    assert (
        stripe.Webhook.construct_event(body, headers["Stripe-Signature"], SECRET).id
        == json.loads(body)["id"]
    )
