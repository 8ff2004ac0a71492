"""The hooks on the fake Stripe: the promises that the conformance kit does not ask of every
gateway.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from stripe_emulator.driver import KEY, SECRETS, account_at
from stripe_emulator.fake import FakeStripe
from tillgate import (
    Account,
    AnswerNotUnderstood,
    ConfigurationError,
    CreatedPayment,
    Goods,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    PaymentRequest,
    RefundRequest,
    Refused,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    WrongCredentials,
    hooks,
    new_reference,
)
from tillgate.hooks import DisputeStatus, Hint, RefundOutcome, ShippingAddress
from tillgate_stripe.api import API_VERSION


@pytest.fixture
def fake() -> Iterator[FakeStripe]:
    with FakeStripe() as running:
        yield running


@pytest.fixture
def account(fake: FakeStripe) -> Account:
    return account_at(fake.url)


def request_of(amount: str = "12.50", currency: str = "USD", **fields: Any) -> PaymentRequest:
    given = {
        "reference": new_reference("S1"),
        "amount": amount,
        "currency": currency,
        "method": "checkout",
        "terminal": "ONLINE",
        "ipn_url": "https://shop.example/ipn",
        "callback_url": "https://shop.example/return/key/?status={status}",
    }
    return PaymentRequest(**{**given, **fields})


def created(account: Account, **fields: Any) -> tuple[PaymentRequest, CreatedPayment]:
    request = request_of(**fields)
    return request, hooks.pay(account, request)


def sent(fake: FakeStripe, operation: str = "create_session") -> dict[str, Any]:
    parameters: dict[str, Any] = fake.requests(operation)[-1].parameters
    return parameters


def paid(
    fake: FakeStripe,
    account: Account,
    **fields: Any,
) -> tuple[PaymentRequest, CreatedPayment]:
    request, payment = created(account, **fields)
    fake.pay(request.reference)
    return request, payment


def refund_of(
    request: PaymentRequest,
    payment: CreatedPayment,
    amount: str = "5.00",
    name: str = "r1",
) -> RefundRequest:
    return RefundRequest(
        reference=request.reference,
        amount=amount,
        currency=request.currency,
        transaction_no=payment.transaction_no,
        refund_id=f"{request.reference}-{name}",
    )


# The session --------------------------------------------------------------------------------------


def test_session_carries_reference_and_return_address(
    fake: FakeStripe,
    account: Account,
) -> None:
    goods = [Goods.named("Green tea", 2), Goods.named("Pot")]
    request, payment = created(
        account,
        goods_info=goods,
        description="Order 1001",
        email="ann@shopper.example",
        language="de",
        timeout=60,
    )
    asked = sent(fake)
    assert asked["client_reference_id"] == asked["metadata"]["reference"] == request.reference
    assert asked["payment_intent_data"]["metadata"]["reference"] == request.reference
    assert asked["success_url"] == "https://shop.example/return/key/?status=success"
    assert asked["cancel_url"] == "https://shop.example/return/key/?status=cancelled"
    assert (asked["customer_email"], asked["locale"]) == ("ann@shopper.example", "de")
    assert abs(int(asked["expires_at"]) - time.time() - 3600) < 30
    assert payment.transaction_no == fake.session_of(request.reference)["id"]
    assert fake.session_of(request.reference)["amount_total"] == 1250
    headers = fake.requests("create_session")[-1].headers
    assert headers["idempotency-key"] == f"tillgate-pay-{request.reference}"
    assert headers["stripe-version"] == API_VERSION


@pytest.mark.parametrize(
    ("language", "locale"),
    [
        ("zh-hans", "zh"),
        ("zh-hant", "zh-TW"),
        ("pt-br", "pt-BR"),
        ("de-at", "de"),
        ("en-us", "en"),
        ("ur", "auto"),
        (None, "auto"),
    ],
)
def test_page_speaks_shopper_language(
    fake: FakeStripe,
    account: Account,
    language: str | None,
    locale: str,
) -> None:
    """This applies to the languages that Stripe offers."""
    created(account, language=language)
    assert sent(fake)["locale"] == locale


def test_mistyped_email_does_not_stop_sale(fake: FakeStripe, account: Account) -> None:
    request, _ = created(account, email="ann at shopper")
    assert "customer_email" not in sent(fake)
    keys = {one.headers["idempotency-key"] for one in fake.requests("create_session")}
    assert len(keys) == 2, "Stripe may remember the refusal under its key"
    assert fake.session_of(request.reference)["amount_total"] == 1250


def test_stripe_weighs_the_shipping_address(fake: FakeStripe, account: Account) -> None:
    address = ShippingAddress(name="Ada Moss", line1="1 Mill Lane", city="Ely", country="GB")
    created(account, shipping=address)
    assert sent(fake)["payment_intent_data"]["shipping"] == {
        "name": "Ada Moss",
        "address": {"line1": "1 Mill Lane", "city": "Ely", "country": "GB"},
    }


def test_page_offers_only_chosen_method(fake: FakeStripe) -> None:
    account = account_at(fake.url, methods=["card", "ideal"])
    assert [(method.code, method.label) for method in hooks.payment_methods(account)] == [
        ("card", ""),
        ("ideal", "iDEAL"),
    ]
    created(account, method="ideal", currency="EUR")
    assert sent(fake)["allowed_payment_method_types"] in (["ideal"], {"0": "ideal"})


def test_wechat_is_for_the_web(fake: FakeStripe) -> None:
    """Stripe refuses the method without it; others get no options."""
    created(account_at(fake.url, methods=["wechat_pay"]), method="wechat_pay")
    assert sent(fake)["payment_method_options"] == {"wechat_pay": {"client": "web"}}
    created(account_at(fake.url))
    assert "payment_method_options" not in sent(fake)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("checkout", "statement_descriptor_suffix"),
        ("card", "statement_descriptor_suffix"),
        ("alipay", "statement_descriptor"),
    ],
)
def test_statement_names_the_shop(fake: FakeStripe, method: str, name: str) -> None:
    """Of a card only the part after the account's prefix."""
    methods = ["checkout", "card", "alipay"]
    account = account_at(
        fake.url,
        methods=methods,
        options={"statement_descriptor": "TEA AND CO"},
    )
    created(account, method=method)
    given = sent(fake)["payment_intent_data"]
    assert {one for one in given if "statement" in one} == {name}
    assert given[name] == "TEA AND CO"


def test_method_keeps_to_its_currency(fake: FakeStripe) -> None:
    """A method of one currency is offered for no other."""
    [ideal] = hooks.payment_methods(account_at(fake.url, methods=["ideal"]))
    assert (ideal.fault(Decimal(10), "EUR"), ideal.fault(Decimal(10), "USD") is None) == (
        None,
        False,
    )


def test_stripe_chooses_methods_by_default(
    fake: FakeStripe,
    account: Account,
) -> None:
    """An account without methods leaves the choice to Stripe's page."""
    assert [method.code for method in hooks.payment_methods(account)] == ["checkout"]
    created(account)
    assert "allowed_payment_method_types" not in sent(fake)


# Money --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("currency", "amount", "units"),
    [
        ("USD", "12.50", 1250),
        ("JPY", "1250", 1250),
        ("KRW", "5000", 5000),
        ("KWD", "1.230", 1230),
        ("ISK", "500", 50000),
        ("UGX", "5000", 500000),
        ("HUF", "450.50", 45050),
        ("TWD", "300.10", 30010),
        ("MGA", "5000.00", 5000),
        ("CLP", "5000", 5000),
    ],
)
def test_amounts_are_exact_in_stripes_own_units(
    fake: FakeStripe,
    account: Account,
    currency: str,
    amount: str,
    units: int,
) -> None:
    request, payment = paid(fake, account, amount=amount, currency=currency)
    assert fake.session_of(request.reference)["amount_total"] == units
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (found.status, found.amount, found.currency) == (
        TransactionStatus.PAID,
        Decimal(amount),
        currency,
    )
    assert str(found.amount) == amount


@pytest.mark.parametrize(("currency", "amount"), [("KWD", "1.234"), ("MGA", "12.50")])
def test_impossible_amount_is_refused_before_sending(
    fake: FakeStripe,
    account: Account,
    currency: str,
    amount: str,
) -> None:
    with pytest.raises(InvalidRequest, match="in steps of"):
        hooks.pay(account, request_of(amount, currency))
    assert fake.journal == []
    method = hooks.payment_methods(account)[0]
    assert "in steps of" in (method.fault(Decimal(amount), currency) or "")


def test_too_small_amount_shows_stripes_message(
    fake: FakeStripe,
    account: Account,
) -> None:
    """An amount below Stripe's minimum is refused in Stripe's words."""
    assert hooks.payment_methods(account)[0].fault(Decimal("0.49"), "USD") is not None
    with pytest.raises(Refused, match="amount_too_small"):
        hooks.pay(account, request_of("0.49"))


# The way of a payment -----------------------------------------------------------------------------


def status_of(
    account: Account,
    request: PaymentRequest,
    payment: CreatedPayment,
) -> TransactionStatus:
    return hooks.query(account, request.reference, transaction_no=payment.transaction_no).status


@pytest.mark.parametrize(
    ("end", "status"),
    [("settle", TransactionStatus.PAID), ("fail_delayed", TransactionStatus.FAILED)],
)
def test_bank_debit_is_pending_until_settled(
    fake: FakeStripe,
    account: Account,
    end: str,
    status: TransactionStatus,
) -> None:
    """It counts as on its way until it succeeds or fails."""
    request, payment = created(account, currency="EUR")
    fake.pay_with_delay(request.reference)
    assert status_of(account, request, payment) is TransactionStatus.PROCESSING
    getattr(fake, end)(request.reference)
    assert status_of(account, request, payment) is status


def test_declined_card_leaves_page_open(
    fake: FakeStripe,
    account: Account,
) -> None:
    """Another card can still pay."""
    request, payment = created(account)
    fake.decline(request.reference)
    assert status_of(account, request, payment) is TransactionStatus.PENDING
    fake.pay(request.reference)
    assert status_of(account, request, payment) is TransactionStatus.PAID


def test_lost_answer_is_found_despite_lag(
    fake: FakeStripe,
    account: Account,
) -> None:
    """The payment is found although Stripe's search index lags."""
    fake.hold_search()
    request = request_of()
    fake.lose_next("create_session")
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, request)
    fake.pay(request.reference)
    assert hooks.query(account, request.reference).status is TransactionStatus.PAID


def test_search_finds_old_lost_payment(
    fake: FakeStripe,
    account: Account,
) -> None:
    """The answer to its creation was lost long ago."""
    request, _ = paid(fake, account)
    fake.session_of(request.reference)["created"] -= 3 * 24 * 3600
    assert hooks.query(account, request.reference).status is TransactionStatus.PAID


def test_list_finds_old_payment_without_search(
    fake: FakeStripe,
    account: Account,
) -> None:
    """Some merchants cannot use Stripe's search."""
    request, _ = paid(fake, account)
    fake.session_of(request.reference)["created"] -= 3 * 24 * 3600
    for _ in range(2):
        fake.fail_next("search_intents", 400)
    assert hooks.query(account, request.reference).status is TransactionStatus.PAID
    with pytest.raises(OrderNotFound):
        hooks.query(account, "S1-NEVER")


def test_a_payment_among_hundreds_is_found(fake: FakeStripe, account: Account) -> None:
    request, _ = paid(fake, account)
    for _number in range(130):
        created(account)
    assert hooks.query(account, request.reference).status is TransactionStatus.PAID


def test_received_amount_counts_over_requested(
    fake: FakeStripe,
    account: Account,
) -> None:
    request, payment = paid(fake, account)
    session = fake.session_of(request.reference)
    fake.intents[session["payment_intent"]]["amount_received"] = 100
    assert hooks.query(
        account,
        request.reference,
        transaction_no=payment.transaction_no,
    ).amount == Decimal("1.00")


def test_an_evidence_holds_nothing_about_the_shopper(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account, email="ann@shopper.example")
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert "shopper" not in repr(found.raw)
    assert found.raw["paid_with"] == "card"


def test_test_mode_pays_no_live_order(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account)
    fake.session_of(request.reference)["livemode"] = True
    with pytest.raises(AnswerNotUnderstood, match="test mode"):
        hooks.query(account, request.reference, transaction_no=payment.transaction_no)


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, OutcomeUnknown),
        (503, OutcomeUnknown),
        (409, OutcomeUnknown),
        (429, OutcomeUnknown),
        (402, Refused),
        (401, WrongCredentials),
    ],
)
def test_i6_only_clear_refusal_denies_creation(
    fake: FakeStripe,
    account: Account,
    status: int,
    error: type[Exception],
) -> None:
    fake.fail_next("create_session", status)
    with pytest.raises(error):
        hooks.pay(account, request_of())


@pytest.mark.parametrize("status", [500, 429, 409])
def test_broken_query_never_means_not_found(
    fake: FakeStripe,
    account: Account,
    status: int,
) -> None:
    request, payment = paid(fake, account)
    fake.fail_next("retrieve_session", status)
    with pytest.raises(AnswerNotUnderstood) as caught:
        hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert caught.value.is_overload == (status in (500, 429))


def test_half_an_answer_is_no_answer(fake: FakeStripe, account: Account) -> None:
    fake.break_next("create_session")
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, request_of())


def test_i6_key_of_another_request_denies_no_creation(account: Account) -> None:
    """Stripe refuses a key under which something else was sent: that may have been done."""
    request, _ = created(account)
    other = request_of(reference=request.reference, amount="13.00")
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, other)


@pytest.mark.parametrize("status", [400, 403, 404, 405])
def test_i6_refusal_by_proxy_denies_nothing(
    fake: FakeStripe,
    account: Account,
    status: int,
) -> None:
    """A refusal without Stripe's error object is not Stripe's."""
    request, payment = paid(fake, account)
    fake.html_next("create_session", status)
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, request_of())
    fake.html_next("retrieve_session", status)
    with pytest.raises(AnswerNotUnderstood):
        hooks.query(account, request.reference, transaction_no=payment.transaction_no)


def test_unknown_key_means_wrong_credentials(
    fake: FakeStripe,
) -> None:
    """The error does not show the key."""
    stranger = account_at(fake.url, token="sk_test_of_a_stranger")
    with pytest.raises(WrongCredentials) as caught:
        hooks.pay(stranger, request_of())
    assert "stranger" not in str(caught.value)


@pytest.mark.parametrize(("token", "sandbox"), [("sk_test_fake", False), ("sk_live_fake", True)])
def test_keys_stay_in_their_mode(
    token: str,
    sandbox: bool,
) -> None:
    """A test key pays in no live shop, and a live key in no sandbox."""
    confused = Account(token=token, sandbox=sandbox, dialect="stripe")
    with pytest.raises(ConfigurationError, match="SANDBOX"):
        hooks.pay(confused, request_of())


# Refunds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("succeeded", RefundOutcome.SUCCEEDED),
        ("pending", RefundOutcome.PENDING),
        ("requires_action", RefundOutcome.PENDING),
        ("failed", RefundOutcome.FAILED),
    ],
)
def test_refund_is_done_when_stripe_confirms(
    fake: FakeStripe,
    account: Account,
    status: Any,
    outcome: RefundOutcome,
) -> None:
    request, payment = paid(fake, account)
    fake.next_refund = status
    asked = refund_of(request, payment)
    done = hooks.refund(account, asked)
    assert (done.outcome, done.amount) == (outcome, Decimal("5.00"))
    again = hooks.query_refund(account, asked, done.refund_no)
    by_id = hooks.query_refund(account, asked)
    assert again is not None
    assert by_id is not None
    assert again.outcome == by_id.outcome == outcome


def test_i6_resent_refund_is_made_once(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account)
    fake.lose_next("create_refund")
    with pytest.raises(OutcomeUnknown):
        hooks.refund(account, refund_of(request, payment))
    hooks.refund(account, refund_of(request, payment))
    assert len(fake.refunds) == 1


def test_refund_failing_afterwards_is_listed(
    fake: FakeStripe,
    account: Account,
) -> None:
    """It was done at first and is then listed as failed."""
    request, payment = paid(fake, account)
    done = hooks.refund(account, refund_of(request, payment))
    assert done.refund_no is not None
    fake.finish_refund(done.refund_no, "failed")
    [listed] = (
        hooks.query(account, request.reference, transaction_no=payment.transaction_no).refunds or ()
    )
    assert (listed.refund_id, listed.outcome) == (f"{request.reference}-r1", RefundOutcome.FAILED)


def test_dashboard_refund_is_listed_with_number(
    fake: FakeStripe,
    account: Account,
) -> None:
    request, payment = paid(fake, account)
    number = fake.refund_in_dashboard(request.reference, 250)["id"]
    [listed] = (
        hooks.query(account, request.reference, transaction_no=payment.transaction_no).refunds or ()
    )
    assert (listed.amount, listed.refund_no, listed.refund_id) == (Decimal("2.50"), number, None)


def test_long_refund_list_is_complete(
    fake: FakeStripe,
    account: Account,
) -> None:
    """Stripe shows only some of the refunds with a charge."""
    request, payment = paid(fake, account, amount="100.00")
    for _number in range(12):
        fake.refund_in_dashboard(request.reference, 100)
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert len(found.refunds or ()) == 12


def test_i6_rate_limit_leaves_refund_unknown(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account)
    fake.fail_next("create_refund", 429)
    with pytest.raises(OutcomeUnknown) as caught:
        hooks.refund(account, refund_of(request, payment))
    assert caught.value.http_status == 429


def test_i6_unreadable_payment_sends_no_refund(
    fake: FakeStripe,
    account: Account,
) -> None:
    request, payment = paid(fake, account)
    fake.fail_next("retrieve_session", 500)
    fake.drop_next("retrieve_session")
    for _ in range(2):
        with pytest.raises(NotSent):
            hooks.refund(account, refund_of(request, payment))
    assert fake.refunds == {}


# Disputes -----------------------------------------------------------------------------------------


def disputed(fake: FakeStripe, account: Account) -> tuple[PaymentRequest, CreatedPayment, str]:
    request, payment = paid(fake, account)
    dispute = fake.dispute(request.reference, due_by=1_800_000_000)
    return request, payment, dispute["id"]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("needs_response", DisputeStatus.OPEN),
        ("under_review", DisputeStatus.OPEN),
        ("won", DisputeStatus.WON),
        ("lost", DisputeStatus.LOST),
    ],
)
def test_dispute_has_amount_state_and_deadline(
    fake: FakeStripe,
    account: Account,
    word: str,
    status: DisputeStatus,
) -> None:
    request, payment, number = disputed(fake, account)
    fake.set_dispute_status(number, word)
    [found] = hooks.query(
        account,
        request.reference,
        transaction_no=payment.transaction_no,
    ).disputes
    assert (found.dispute_no, found.amount, found.status) == (number, Decimal("12.50"), status)
    assert found.respond_by in (datetime.fromtimestamp(1_800_000_000, UTC), None)


def test_foreign_currency_dispute_risks_whole_payment(
    fake: FakeStripe,
    account: Account,
) -> None:
    request, payment, number = disputed(fake, account)
    fake.disputes[number].update(currency="eur", amount=900)
    [found] = hooks.query(
        account,
        request.reference,
        transaction_no=payment.transaction_no,
    ).disputes
    assert found.amount == Decimal("12.50")


@pytest.mark.parametrize("status", [403, 500, 429, None])
def test_unread_disputes_keep_money_and_hold(
    fake: FakeStripe,
    account: Account,
    caplog: pytest.LogCaptureFixture,
    status: int | None,
) -> None:
    """The charge says that it is disputed: the dispute is open, about all of it."""
    request, payment, number = disputed(fake, account)
    fake.set_dispute_status(number, "won")
    if status:
        fake.fail_next("list_disputes", status)
    else:
        fake.drop_next("list_disputes")
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (found.status, found.amount) == (TransactionStatus.PAID, Decimal("12.50"))
    [dispute] = found.disputes
    assert (dispute.amount, dispute.status) == (Decimal("12.50"), DisputeStatus.OPEN)
    assert f"stripe: disputes of {request.reference} cannot be read" in caplog.text


def test_unread_refunds_keep_money(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account, amount="100.00")
    for _number in range(12):
        fake.refund_in_dashboard(request.reference, 100)
    fake.fail_next("list_refunds", 500)
    found = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (found.status, found.refunds) == (TransactionStatus.PAID, None)


def test_full_refund_answers_inquiry(fake: FakeStripe, account: Account) -> None:
    request, payment, number = disputed(fake, account)
    fake.set_dispute_status(number, "warning_needs_response")
    [open_one] = hooks.query(
        account,
        request.reference,
        transaction_no=payment.transaction_no,
    ).disputes
    fake.charge_of(request.reference)["refunded"] = True
    [answered] = hooks.query(
        account,
        request.reference,
        transaction_no=payment.transaction_no,
    ).disputes
    assert (open_one.status, answered.status) == (DisputeStatus.OPEN, DisputeStatus.WON)


# Reviews by Radar --------------------------------------------------------------------------------


def test_review_by_radar_holds_until_approved(fake: FakeStripe, account: Account) -> None:
    request, payment = paid(fake, account)

    def reason() -> str | None:
        number = payment.transaction_no
        return hooks.query(account, request.reference, transaction_no=number).manual_review

    assert reason() is None
    fake.open_review(request.reference)
    assert reason() == "rule"
    fake.fail_next("retrieve_review", 403)
    assert reason() == "unread"
    fake.approve(request.reference)
    assert reason() is None


@pytest.mark.parametrize("kind", ["review.opened", "review.closed"])
def test_event_of_review_names_payment(fake: FakeStripe, account: Account, kind: str) -> None:
    request, _ = paid(fake, account)
    number = fake.open_review(request.reference)["payment_intent"]
    event = fake.event(kind, request.reference)
    assert read(account, *fake.signed(event, SECRETS[0])) == (Hint(transaction_no=number),)


# Notifications ------------------------------------------------------------------------------------


def read(account: Account, headers: dict[str, str], body: bytes) -> tuple[Hint, ...] | None:
    return hooks.read_notification(account, headers, body)


@pytest.mark.parametrize("secret", SECRETS)
def test_both_secrets_work_during_replacement(
    fake: FakeStripe,
    account: Account,
    secret: str,
) -> None:
    request, payment = paid(fake, account)
    notification = fake.signed(fake.event("checkout.session.completed", request.reference), secret)
    assert read(account, *notification) == (
        Hint(reference=request.reference, transaction_no=payment.transaction_no),
    )


@pytest.mark.parametrize(
    "kind",
    ["charge.refunded", "refund.updated", "refund.failed", "charge.dispute.created"],
)
def test_charge_refund_and_dispute_name_payment(
    fake: FakeStripe,
    account: Account,
    kind: str,
) -> None:
    """Events about any of the three say which payment they belong to."""
    request, _ = paid(fake, account)
    fake.refund_in_dashboard(request.reference, 250)
    fake.dispute(request.reference)
    event = fake.event(kind, request.reference)
    before = len(fake.requests("sessions.list"))
    hints = read(account, *fake.signed(event, SECRETS[0]))
    assert hints is not None
    assert len(fake.requests("sessions.list")) == before, "reading asked Stripe"
    [hint] = hints
    if kind == "charge.refunded":
        assert hint.reference == request.reference
    else:
        assert hint == Hint(transaction_no=event["data"]["object"]["payment_intent"])
        assert (
            hooks.query(account, "none", transaction_no=hint.transaction_no).reference
            == request.reference
        )


@pytest.mark.parametrize("about", [None, 7, {"id": "pi_1"}, "ch_1"])
def test_event_without_payment_intent_names_nothing(
    fake: FakeStripe,
    account: Account,
    about: object,
) -> None:
    request, _ = paid(fake, account)
    fake.dispute(request.reference)
    event = fake.event("charge.dispute.created", request.reference, payment_intent=about)
    assert read(account, *fake.signed(event, SECRETS[0])) == ()


def test_unknown_payment_intent_is_not_found(account: Account) -> None:
    with pytest.raises(OrderNotFound, match="pi_of_nobody"):
        hooks.query(account, "none", transaction_no="pi_of_nobody")


def test_old_event_names_the_clock(fake: FakeStripe, account: Account) -> None:
    """A rightly signed event is no forgery: the machine's clock may be wrong."""
    request, _ = paid(fake, account)
    event = fake.event("checkout.session.completed", request.reference)
    old = fake.signed(event, SECRETS[0], timestamp=int(time.time()) - 400)
    with pytest.raises(
        SignatureMismatch,
        match=r"rightly signed, but was signed 40\d seconds ago.*clock",
    ):
        read(account, *old)
    assert read(account, *fake.signed(event, SECRETS[0], timestamp=int(time.time()) - 200))


def test_thin_event_names_the_payload_style(fake: FakeStripe, account: Account) -> None:
    thin = {
        "object": "v2.core.event",
        "type": "v1.charge.dispute.created",
        "related_object": {"id": "dp_1"},
    }
    with pytest.raises(AnswerNotUnderstood, match="snapshot"):
        read(account, *fake.signed(thin, SECRETS[0]))


def test_i7_untrusted_notifications_are_refused(
    fake: FakeStripe,
    account: Account,
) -> None:
    """They are old, unsigned or signed by another sender."""
    request, _ = paid(fake, account)
    event = fake.event("checkout.session.completed", request.reference)
    headers, body = fake.signed(event, SECRETS[0])
    for wrong_headers, wrong_body in (
        fake.signed(event, SECRETS[0], timestamp=int(time.time()) - 3600),
        fake.signed(event, "whsec_of_somebody_else"),
        fake.signed(event, SECRETS[0], schemes=("v0",)),
        (headers, body.replace(b"complete", b"expired ")),
        ({}, body),
        ({"Stripe-Signature": "nonsense"}, body),
    ):
        with pytest.raises(SignatureMismatch) as caught:
            read(account, wrong_headers, wrong_body)
        assert "whsec" not in str(caught.value)


def test_an_account_without_secrets_believes_no_notification(fake: FakeStripe) -> None:
    account = account_at(fake.url, webhook_secrets=())
    request, _ = paid(fake, account)
    with pytest.raises(SignatureMismatch, match="no webhook_secrets"):
        read(account, *fake.signed(fake.event("checkout.session.completed", request.reference), ""))


def test_unrelated_events_are_no_news(
    fake: FakeStripe,
    account: Account,
) -> None:
    """They belong to the other mode or to other software."""
    request, _ = paid(fake, account)
    event = fake.event("checkout.session.completed", request.reference)
    assert read(account, *fake.signed({**event, "livemode": True}, SECRETS[0])) == ()
    other = {**event, "data": {"object": {"object": "customer", "id": "cus_1"}}}
    assert read(account, *fake.signed(other, SECRETS[0])) == ()
    foreign = fake.event("checkout.session.completed", request.reference, client_reference_id=None)
    assert read(account, *fake.signed(foreign, SECRETS[0])) == ()


def test_signed_non_event_is_unreadable(fake: FakeStripe, account: Account) -> None:
    headers, _ = fake.signed({"object": "event"}, SECRETS[0])
    _, body = fake.signed({"object": "event"}, SECRETS[0])
    with pytest.raises(AnswerNotUnderstood):
        read(account, headers, body)


# Other gateways -----------------------------------------------------------------------------------


def test_accounts_of_other_gateways_are_left_alone() -> None:
    other = Account(base_url="http://127.0.0.1:1", merchant_no="1", token=KEY, sandbox=True)
    with pytest.raises(NotSent, match="ConnectError"):
        hooks.pay(other, request_of(method="alipay"))
    assert read(other, {}, b"{}") is None


def test_an_unknown_reference_is_not_found(fake: FakeStripe, account: Account) -> None:
    with pytest.raises(OrderNotFound):
        hooks.query(account, "S1-NEVER")


def test_answer_is_about_requested_session(
    fake: FakeStripe,
    account: Account,
) -> None:
    first, _ = paid(fake, account)
    _, second = created(account)
    found: Transaction = hooks.query(account, first.reference, transaction_no=second.transaction_no)
    assert found.reference != first.reference  # the lifecycle holds this answer (I1)
