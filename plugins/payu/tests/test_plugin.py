"""The hooks on the fake PayU: the promises that the conformance kit does not ask of every
gateway.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from payu_emulator.driver import SECRETS, account_at
from payu_emulator.fake import CARD, CLIENT_SECRET, SECOND_KEY, TRANSFER, FakePayU, signed
from payu_emulator.wire import Fault, Json, Wire
from tillgate import (
    Account,
    AnswerNotUnderstood,
    ConfigurationError,
    CreatedPayment,
    Goods,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    PaymentRequest,
    RefundRequest,
    Refused,
    SignatureMismatch,
    TransactionStatus,
    WrongCredentials,
    hooks,
    new_reference,
)
from tillgate.gateways import NextStep, PaidWith
from tillgate.hooks import Hint, RefundOutcome
from tillgate.money import decimals_of
from tillgate.testing.leaks import everything_logged, holds_secret
from tillgate.wire.personal import kept_fields
from tillgate_payu import api
from tillgate_payu.profile import PAYU

WEBHOOK = "https://shop.example/payments/webhook/default/"


@pytest.fixture
def fake() -> FakePayU:
    return FakePayU()


@pytest.fixture
def wire(fake: FakePayU) -> Iterator[Wire]:
    with Wire(fake.handle) as running:
        fake.page = running.url
        yield running


@pytest.fixture
def account(wire: Wire) -> Account:
    return account_at(wire.url)


def request_of(amount: str = "12.50", currency: str = "PLN", **fields: Any) -> PaymentRequest:
    given = {
        "reference": new_reference("P1"),
        "amount": amount,
        "currency": currency,
        "method": "checkout",
        "terminal": "ONLINE",
        "ipn_url": "https://shop.example/ipn",
        "callback_url": "https://shop.example/return/key/",
    }
    return PaymentRequest(**{**given, **fields})


def created(account: Account, **fields: Any) -> tuple[PaymentRequest, CreatedPayment]:
    request = request_of(**fields)
    return request, hooks.pay(account, request)


def paid(fake: FakePayU, account: Account, **fields: Any) -> tuple[PaymentRequest, CreatedPayment]:
    request, payment = created(account, **fields)
    fake.pay(request.reference)
    return request, payment


def refund_of(request: PaymentRequest, payment: CreatedPayment, **fields: Any) -> RefundRequest:
    given = {
        "reference": request.reference,
        "amount": "5.05",
        "currency": request.currency,
        "transaction_no": payment.transaction_no,
        "refund_id": f"{request.reference}-1",
    }
    return RefundRequest(**{**given, **fields})


def said(status: int, body: bytes = b"<html>a proxy's page</html>") -> Fault:
    return Fault(status=status, body=body)


# The profile --------------------------------------------------------------------------------------


def test_all_currencies_have_hundredths() -> None:
    """PayU counts every currency in hundredths, as Tillgate does these."""
    assert {decimals_of(currency) for currency in PAYU.currencies} == {2}


def test_account_needs_point_of_sale() -> None:
    with pytest.raises(ConfigurationError, match="merchant_no"):
        Account(dialect="payu", token="secret-of-nobody")


@pytest.mark.parametrize(
    ("sandbox", "address"),
    [(True, "https://secure.snd.payu.com"), (False, "https://secure.payu.com")],
)
def test_addresses_are_those_of_payu(sandbox: bool, address: str) -> None:
    account = Account(dialect="payu", merchant_no="1", token="secret", sandbox=sandbox)
    assert account.base_url == address


# Creation -----------------------------------------------------------------------------------------


def test_order_has_lines_with_unit_prices(wire: Wire, account: Account) -> None:
    goods = [
        Goods(goods_name="Linen journal", quantity=2, unit_price="5.00"),
        Goods(goods_name="Shipping", unit_price="2.50"),
    ]
    request, _ = created(
        account,
        goods_info=goods,
        webhook_url=WEBHOOK,
        shopper_ip="203.0.113.7",
        email="ann@shop.example",
        language="pt-br",
        timeout=30,
        description="Order 100018",
    )
    assert wire.of("pay")[-1].json == {
        "extOrderId": request.reference,
        "merchantPosId": account.merchant_no,
        "customerIp": "203.0.113.7",
        "description": "Order 100018",
        "currencyCode": "PLN",
        "totalAmount": "1250",
        "validityTime": "1800",
        "continueUrl": "https://shop.example/return/key/",
        "notifyUrl": WEBHOOK,
        "buyer": {"email": "ann@shop.example", "language": "pt"},
        "products": [
            {"name": "Linen journal", "unitPrice": "500", "quantity": "2"},
            {"name": "Shipping", "unitPrice": "250", "quantity": "1"},
        ],
    }


@pytest.mark.parametrize(
    "goods",
    [
        [],
        [Goods(goods_name="Journal", quantity=2)],
        [Goods(goods_name="Journal", unit_price="99.00")],
    ],
)
def test_lines_that_do_not_add_up_become_one(
    wire: Wire,
    account: Account,
    goods: list[Goods],
) -> None:
    request, _ = created(account, goods_info=goods)
    products = wire.of("pay")[-1].json["products"]
    assert products == [{"name": request.reference, "unitPrice": "1250", "quantity": "1"}]


def test_address_is_written_as_payu_asks(wire: Wire, account: Account) -> None:
    """Eight groups of IPv6, and the machine itself for a shopper with an unknown address."""
    created(account, shopper_ip="2001:db8::1")
    created(account)
    sent = [one.json["customerIp"] for one in wire.of("pay")]
    assert sent == ["2001:0db8:0000:0000:0000:0000:0000:0001", "127.0.0.1"]


@pytest.mark.parametrize(("method", "value"), [("card", "c"), ("blik", "blik"), ("m", "m")])
def test_chosen_method_is_payus_value(
    wire: Wire,
    account: Account,
    method: str,
    value: str,
) -> None:
    created(account, method=method)
    sent = wire.of("pay")[-1].json["payMethods"]
    assert sent == {"payMethod": {"type": "PBL", "value": value}}


def test_account_chooses_its_methods(account: Account) -> None:
    listed = account.model_copy(update={"methods": ("card", "blik")})
    card, blik = hooks.payment_methods(listed)
    assert (card.code, blik.code) == ("card", "blik")
    assert [one.code for one in hooks.payment_methods(account)] == ["checkout"]


@pytest.mark.parametrize(
    "spoiled",
    [
        {"orderId": None},
        {"orderId": "../../ORDER"},
        {"redirectUri": None},
        {"extOrderId": "ANOTHER"},
        {"status": {"statusCode": "ERROR_INTERNAL"}},
    ],
)
def test_creation_without_proof_is_unknown(
    wire: Wire,
    account: Account,
    spoiled: dict[str, Any],
) -> None:
    wire.fault("pay", Fault(spoil=lambda body: json.dumps(json.loads(body) | spoiled).encode()))
    with pytest.raises(OutcomeUnknown):
        created(account)


def test_reference_that_payu_has_is_unknown(account: Account) -> None:
    """A reference is sent once: where PayU has it already, the same request came there twice."""
    request, _ = created(account)
    with pytest.raises(OutcomeUnknown, match="an order of this reference"):
        hooks.pay(account, request)


# Queries ------------------------------------------------------------------------------------------


def test_query_tells_card_and_payus_number(fake: FakePayU, account: Account) -> None:
    request, payment = paid(fake, account)
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert answer.paid_with is not None
    assert (answer.paid_with.method, answer.paid_with.brand) == ("card", "mastercard")
    assert (answer.paid_with.last4, answer.numbers) == ("4014", ("5000000000",))
    assert (answer.status_text, answer.refunds, answer.fee) == ("COMPLETED", (), None)


def test_two_attempts_tell_no_card(fake: FakePayU, account: Account) -> None:
    request, payment = created(account)
    fake.choose(request.reference, CARD)
    fake.pay(request.reference)
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (answer.status, answer.paid_with) == (TransactionStatus.PAID, None)


def test_decline_tells_staff_why(fake: FakePayU, account: Account) -> None:
    request, payment = created(account)
    fake.decline(request.reference)
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    reason = answer.decline_reason
    assert reason is not None
    assert (reason.code, reason.for_shopper) == ("AUT_ERROR_NO_AUTHORIZATION", False)
    assert reason.text == "051 - Insufficient funds"
    assert answer.status is TransactionStatus.CLOSED


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("NEW", TransactionStatus.PENDING),
        ("PENDING", TransactionStatus.PENDING),
        ("WAITING_FOR_CONFIRMATION", TransactionStatus.PROCESSING),
        ("COMPLETED", TransactionStatus.PAID),
        ("CANCELED", TransactionStatus.CLOSED),
        ("REJECTED", TransactionStatus.UNRECOGNISED),
    ],
)
def test_words_of_orders_have_meanings(
    fake: FakePayU,
    account: Account,
    word: str,
    status: TransactionStatus,
) -> None:
    request, payment = created(account)
    fake.order_of(request.reference)["status"] = word
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (answer.status, answer.status_text) == (status, word)


def test_bank_transfer_is_under_way(fake: FakePayU, wire: Wire, account: Account) -> None:
    """Its money comes in days: the order waits for it, and is not cancelled."""
    request, payment = created(account)
    fake.choose(request.reference)
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert answer.status is TransactionStatus.PROCESSING
    until = datetime.fromisoformat("2026-12-20T12:08:07.009+01:00")
    assert answer.next_step == NextStep(until=until, is_transfer=True)
    assert answer.paid_with == PaidWith(method="bank_transfer")
    number = payment.transaction_no
    assert hooks.close(account, request.reference, transaction_no=number) is False
    assert wire.of("close") == []


@pytest.mark.parametrize("odd", [None, 7, "", "soon", "2026-12-20T12:08:07", "9" * 70])
def test_odd_end_of_transfer_is_left_out(fake: FakePayU, account: Account, odd: object) -> None:
    request, payment = created(account)
    fake.choose(request.reference, {**TRANSFER, "validUntil": odd})
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert answer.status is TransactionStatus.PROCESSING
    assert answer.next_step == NextStep(is_transfer=True), "the transfer is still to be made"


def test_query_without_number_proves_nothing(account: Account) -> None:
    request, _ = created(account)
    with pytest.raises(AnswerNotUnderstood, match="by its own number"):
        hooks.query(account, request.reference)


def test_number_of_notification_finds_payment(
    fake: FakePayU,
    wire: Wire,
    account: Account,
) -> None:
    """After a creation without an answer the next notification brings PayU's number."""
    request = request_of()
    wire.fault("pay", Fault(loses_answer=True))
    with pytest.raises(OutcomeUnknown):
        hooks.pay(account, request)
    fake.pay(request.reference)
    (hint,) = hooks.read_notification(account, *fake.notification(request.reference)) or ()
    assert hint.reference == request.reference
    answer = hooks.query(account, request.reference, transaction_no=hint.transaction_no)
    assert (answer.reference, answer.status) == (request.reference, TransactionStatus.PAID)


@pytest.mark.parametrize("number", ["../shops/1", "A B", "1?x=1", "ł", "a" * 256])
def test_strange_number_is_not_sent(wire: Wire, account: Account, number: str) -> None:
    """Staff may enter any number: one that is none of PayU's changes no address."""
    with pytest.raises(AnswerNotUnderstood, match="is not the number"):
        hooks.query(account, "ref", transaction_no=number)
    assert wire.requests == []


def test_payu_knows_no_such_order(account: Account) -> None:
    with pytest.raises(OrderNotFound, match="DATA_NOT_FOUND"):
        hooks.query(account, "ref", transaction_no="NONE")


@pytest.mark.parametrize(
    "body",
    [b"<html>Not Found</html>", b"{}", b'{"status": 404, "error": "Not Found"}', b"[]"],
)
@pytest.mark.parametrize("operation", ["token", "query"])
def test_strange_404_is_not_unknown_order(
    fake: FakePayU,
    wire: Wire,
    account: Account,
    operation: str,
    body: bytes,
) -> None:
    """A proxy's page is not PayU's word: "not found" could end a payment that was paid."""
    request, payment = paid(fake, account)
    api._kept.clear()
    wire.fault(operation, said(404, body))
    with pytest.raises(AnswerNotUnderstood):
        hooks.query(account, request.reference, transaction_no=payment.transaction_no, attempts=1)


@pytest.mark.parametrize("operation", ["transactions", "list_refunds"])
def test_what_is_beside_the_order_may_fail(
    fake: FakePayU,
    wire: Wire,
    account: Account,
    operation: str,
) -> None:
    """Money that came is found, also where PayU does not list the rest. None is not "none"."""
    request, payment = paid(fake, account)
    wire.fault(operation, said(503))
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert answer.status is TransactionStatus.PAID
    assert answer.refunds == (None if operation == "list_refunds" else ())


@pytest.mark.parametrize(
    "change",
    [{"currencyCode": "EUR"}, {"status": "ON_HOLD"}, {"amount": "x"}, {"refundId": None}],
)
def test_strange_refund_is_not_listed(
    fake: FakePayU,
    account: Account,
    change: dict[str, Any],
) -> None:
    request, payment = paid(fake, account)
    hooks.refund(account, refund_of(request, payment))
    fake.refunds[payment.transaction_no][0].update(change)
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    assert (answer.status, answer.refunds) == (TransactionStatus.PAID, None)


# Refunds ------------------------------------------------------------------------------------------


def test_refund_is_pending_first(fake: FakePayU, account: Account) -> None:
    request, payment = paid(fake, account)
    asked = refund_of(request, payment)
    done = hooks.refund(account, asked)
    assert (done.outcome, done.amount) == (RefundOutcome.PENDING, Decimal("5.05"))
    found = hooks.query_refund(account, asked, done.refund_no)
    assert found is not None
    assert found.outcome is RefundOutcome.SUCCEEDED


def test_lost_refund_is_found_by_id(fake: FakePayU, wire: Wire, account: Account) -> None:
    """Of two refunds one was lost and not made: the other one's success is not its own."""
    request, payment = paid(fake, account)
    first, second = (refund_of(request, payment, refund_id=name) for name in ("one", "two"))
    hooks.refund(account, first)
    wire.fault("refund", Fault(loses_request=True))
    with pytest.raises(OutcomeUnknown):
        hooks.refund(account, second)
    with pytest.raises(OrderNotFound):
        hooks.query_refund(account, second)
    found = hooks.query_refund(account, first)
    assert found is not None
    assert found.outcome is RefundOutcome.SUCCEEDED


@pytest.mark.parametrize(
    "change",
    [
        {"extRefundId": "another"},
        {"currencyCode": "EUR"},
        {"status": "ON_HOLD"},
        {"refundId": None},
        {"amount": None},
    ],
)
def test_refund_without_proof_is_unknown(
    fake: FakePayU,
    wire: Wire,
    account: Account,
    change: dict[str, Any],
) -> None:
    request, payment = paid(fake, account)

    def spoil(body: bytes) -> bytes:
        answer: Json = json.loads(body)
        answer["refund"].update(change)
        return json.dumps(answer).encode()

    wire.fault("refund", Fault(spoil=spoil))
    with pytest.raises(OutcomeUnknown):
        hooks.refund(account, refund_of(request, payment))


def test_refund_of_another_order_is_unknown(
    fake: FakePayU,
    wire: Wire,
    account: Account,
) -> None:
    request, payment = paid(fake, account)
    other = {"orderId": "ANOTHER"}
    wire.fault("refund", Fault(spoil=lambda body: json.dumps(json.loads(body) | other).encode()))
    with pytest.raises(OutcomeUnknown, match="another order"):
        hooks.refund(account, refund_of(request, payment))


@pytest.mark.parametrize("status", [404, 400, 401, 403])
def test_refusal_of_a_proxy_is_unknown(
    fake: FakePayU,
    wire: Wire,
    account: Account,
    status: int,
) -> None:
    request, payment = paid(fake, account)
    wire.fault("refund", said(status))
    with pytest.raises(OutcomeUnknown):
        hooks.refund(account, refund_of(request, payment))


def test_refund_without_number_is_refused(wire: Wire, account: Account) -> None:
    with pytest.raises(Refused, match="number of the order"):
        hooks.refund(account, RefundRequest(reference="ref", amount="1.00", currency="PLN"))
    assert wire.requests == []


# Closing ------------------------------------------------------------------------------------------


def test_paid_order_is_never_cancelled(fake: FakePayU, wire: Wire, account: Account) -> None:
    request, payment = paid(fake, account)
    for word in ("COMPLETED", "WAITING_FOR_CONFIRMATION"):
        fake.order_of(request.reference)["status"] = word
        number = payment.transaction_no
        assert hooks.close(account, request.reference, transaction_no=number) is False
    assert wire.of("close") == []


def test_shopper_may_be_quicker(fake: FakePayU, wire: Wire, account: Account) -> None:
    """Money that comes between the query and the cancelling stays: the order is not closed."""
    request, payment = created(account)

    def pay_meanwhile(body: bytes) -> bytes:
        fake.pay(request.reference)
        return body

    wire.fault("query", Fault(spoil=pay_meanwhile))
    number = payment.transaction_no
    assert hooks.close(account, request.reference, transaction_no=number) is False
    assert len(wire.of("close")) == 1
    assert fake.order_of(request.reference)["status"] == "COMPLETED"


def test_another_payments_order_is_not_cancelled(wire: Wire, account: Account) -> None:
    _, payment = created(account)
    with pytest.raises(AnswerNotUnderstood, match="another order"):
        hooks.close(account, "ANOTHER", transaction_no=payment.transaction_no)
    assert wire.of("close") == []


# Notifications ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256", "SHA-384", "SHA-512"])
@pytest.mark.parametrize("key", SECRETS)
def test_second_keys_verify_notifications(
    fake: FakePayU,
    account: Account,
    algorithm: str,
    key: str,
) -> None:
    request, payment = created(account)
    headers, body = fake.notification(request.reference, key=key, algorithm=algorithm)
    hint = Hint(reference=request.reference, transaction_no=payment.transaction_no)
    assert hooks.read_notification(account, headers, body) == (hint,)
    shouted = {name.upper(): text for name, text in headers.items()}
    assert hooks.read_notification(account, shouted, body) == (hint,)


def test_signature_is_digest_of_body_and_key(account: Account) -> None:
    """By `md5sum`: the body with the key after it, which is no HMAC."""
    body = b'{"order": {"orderId": "A", "extOrderId": "B"}}'
    header = "sender=checkout;signature=44c9f704629fb9495dd36e2ded591d62;algorithm=MD5"
    keyed = account.model_copy(update={"webhook_secrets": ("13a980d4f851f3d9a1cfc792fb1f5e50",)})
    found = hooks.read_notification(keyed, {"OpenPayu-Signature": header}, body)
    assert found == (Hint(reference="B", transaction_no="A"),)


def test_refund_notification_names_its_order(fake: FakePayU, account: Account) -> None:
    request, payment = paid(fake, account)
    hooks.refund(account, refund_of(request, payment))
    told = fake.notification(request.reference, kind="refund")
    assert hooks.read_notification(account, *told) == (
        Hint(reference=request.reference, transaction_no=payment.transaction_no),
    )


@pytest.mark.parametrize(
    "header",
    [
        "",
        "sender=checkout",
        "signature=;algorithm=MD5",
        "signature=ł;algorithm=MD5",
        "signature=00;algorithm=CRC32",
        "algorithm=MD5;;=;signature",
    ],
)
def test_strange_signature_is_forged(fake: FakePayU, account: Account, header: str) -> None:
    request, _ = created(account)
    _, body = fake.notification(request.reference)
    with pytest.raises(SignatureMismatch):
        hooks.read_notification(account, {"OpenPayu-Signature": header}, body)


def test_another_body_under_a_true_signature_is_forged(fake: FakePayU, account: Account) -> None:
    request, _ = created(account)
    headers, body = fake.notification(request.reference)
    with pytest.raises(SignatureMismatch):
        hooks.read_notification(account, headers, body.replace(b'"NEW"', b'"COMPLETED"'))


def test_no_second_key_believes_nothing(fake: FakePayU, account: Account) -> None:
    request, _ = created(account)
    keyless = account.model_copy(update={"webhook_secrets": ()})
    with pytest.raises(SignatureMismatch, match="no webhook_secrets"):
        hooks.read_notification(keyless, *fake.notification(request.reference, key=""))


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"\xff", b'{"order": 1}', b'{"order": []}'])
def test_signed_nonsense_is_not_understood(account: Account, body: bytes) -> None:
    with pytest.raises(AnswerNotUnderstood):
        hooks.read_notification(account, signed(body, SECOND_KEY), body)


@pytest.mark.parametrize("body", [b"{}", b'{"order": {}}', b'{"order": {"orderId": "a/b"}}'])
def test_notification_about_nothing_has_no_hint(account: Account, body: bytes) -> None:
    assert hooks.read_notification(account, signed(body, SECOND_KEY), body) == ()


# The access token ---------------------------------------------------------------------------------


def test_token_is_kept_until_its_end(fake: FakePayU, wire: Wire, account: Account) -> None:
    """A token that ends within a minute is not kept: the request might come too late."""
    for _ in range(3):
        created(account)
    assert len(wire.of("token")) == 1
    api._kept.clear()
    fake.token_seconds = 59
    for _ in range(2):
        created(account)
    assert len(wire.of("token")) == 3


def test_other_secret_gets_no_kept_token(wire: Wire, account: Account) -> None:
    created(account)
    other = account.model_copy(update={"token": "the-secret-of-somebody-else"})
    with pytest.raises(WrongCredentials, match="invalid_client"):
        created(other)
    assert len(wire.of("pay")) == 1


def test_client_id_may_differ(wire: Wire, account: Account) -> None:
    named = account.model_copy(update={"options": {"client_id": "77"}})
    with pytest.raises(WrongCredentials):
        created(named)
    assert b"client_id=77" in wire.of("token")[-1].body


def test_withdrawn_token_is_renewed_once(fake: FakePayU, wire: Wire, account: Account) -> None:
    created(account)
    fake.tokens.clear()
    created(account)
    assert [one.operation for one in wire.requests] == ["token", "pay", "pay", "token", "pay"]
    wire.requests.clear()
    denied = json.dumps({"status": {"statusCode": "UNAUTHORIZED"}}).encode()
    wire.fault("pay", said(401, denied), times=2)
    with pytest.raises(WrongCredentials):
        created(account)
    assert [one.operation for one in wire.requests] == ["pay", "token", "pay"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(loses_request=True),
        Fault(loses_answer=True),
        said(500),
        said(429),
        said(404),
        said(200),
        said(200, b"{}"),
        said(200, b'{"access_token": "short", "expires_in": 43199}'),
        said(200, b'{"access_token": "two words of it", "expires_in": 43199}'),
        said(200, b'{"access_token": "a-token-without-end", "expires_in": null}'),
    ],
)
def test_without_token_nothing_is_sent(wire: Wire, account: Account, fault: Fault) -> None:
    wire.fault("token", fault, times=2)
    with pytest.raises(NotSent):
        created(account)
    with pytest.raises(AnswerNotUnderstood):
        hooks.query(account, "ref", transaction_no="NONE", attempts=1)
    assert {one.operation for one in wire.requests} == {"token"}


def test_no_token_reaches_any_text(fake: FakePayU, wire: Wire, account: Account) -> None:
    """Neither the client_secret nor the second keys nor an access token is in a log, an error, a
    value, or the stored parts of an answer.
    """
    request, payment = paid(fake, account)
    asked = refund_of(request, payment)
    texts = [repr(account), repr(account.options)]

    def note(call: Callable[[], Any]) -> None:
        try:
            answer = call()
            texts.extend((repr(answer), repr(getattr(answer, "raw", ""))))
        except Exception as error:  # noqa: BLE001 - any error
            texts.extend((repr(error), *traceback.format_exception(error)))

    def echo(body: bytes) -> bytes:
        """Tell the token back in an error, as a debugging gateway might."""
        said_back = {
            "statusCode": "ERROR",
            "statusDesc": wire.requests[-1].headers["authorization"],
        }
        return json.dumps({"status": said_back}).encode()

    denied = json.dumps({"error": CLIENT_SECRET, "error_description": CLIENT_SECRET}).encode()
    faults = (Fault(loses_answer=True), said(500), Fault(status=400, spoil=echo), said(401, denied))
    with everything_logged() as lines:
        note(lambda: hooks.query(account, request.reference, transaction_no=payment.transaction_no))
        for operation in ("query", "refund", "pay", "token"):
            for fault in faults:
                if operation == "token":
                    api._kept.clear()
                wire.fault(operation, fault)
                note(lambda: hooks.query(account, "ref", transaction_no="NONE", attempts=1))
                note(lambda: hooks.refund(account, asked))
                note(lambda: created(account))
                wire.faults.clear()
        note(lambda: hooks.examine_account(account, online=True))
        note(lambda: hooks.read_notification(account, {}, b"{}"))
    secrets = (CLIENT_SECRET, *SECRETS, *fake.tokens)
    assert len(fake.tokens) > 1
    leaks = [text for text in (*texts, *lines) if holds_secret(text, secrets)]
    assert leaks == []


def test_stored_evidence_is_of_the_order_alone(fake: FakePayU, account: Account) -> None:
    """Of notifications and answers no address, name or key is stored."""
    request, payment = paid(
        fake,
        account,
        email="ann@shop.example",
        shopper_ip="203.0.113.7",
        webhook_url=f"{WEBHOOK}?key=of-the-shop",
    )
    hooks.refund(account, refund_of(request, payment))
    answer = hooks.query(account, request.reference, transaction_no=payment.transaction_no)
    told = [fake.notification(request.reference, kind=kind)[1] for kind in ("order", "refund")]
    found = [payment.raw, answer.raw, *map(json.loads, told)]
    stored = [kept_fields(one, PAYU.kept_fields) for one in found]
    assert [one.get("orderId") or one["order"]["orderId"] for one in stored] == [
        payment.transaction_no,
    ] * 4
    assert stored[3]["refund"]["status"] == "FINALIZED"
    texts = json.dumps(stored)
    secret = ("ann@shop", "203.0.113", "of-the-shop", *fake.tokens, CLIENT_SECRET, *SECRETS)
    assert [one for one in secret if one in texts] == []


# The examination ----------------------------------------------------------------------------------


def findings(account: Account, *, online: bool = False) -> dict[str, tuple[bool, str]]:
    found = hooks.examine_account(account, online=online) or ()
    return {one.name: (one.passed, one.finding) for one in found}


def test_doctor_proves_credentials(account: Account) -> None:
    found = findings(account, online=True)
    assert found["credentials"] == (True, "PayU gave an access token: play money")
    assert found["methods"] == (True, "PayU offers: blik, c")


def test_doctor_says_that_secret_is_wrong(account: Account) -> None:
    wrong = account.model_copy(update={"token": "the-secret-of-somebody-else"})
    passed, finding = findings(wrong, online=True)["credentials"]
    assert not passed
    assert "check client_id and token" in finding


def test_doctor_says_that_payu_is_away(wire: Wire, account: Account) -> None:
    wire.fault("token", said(503))
    passed, finding = findings(account, online=True)["credentials"]
    assert not passed
    assert "PayU cannot be asked" in finding


def test_settings_that_disagree_are_found() -> None:
    right = Account(
        dialect="payu",
        merchant_no="1",
        token="secret",
        sandbox=True,
        webhook_secrets="key",
    )
    assert findings(right) == {}
    assert set(findings(right.model_copy(update={"sandbox": False}))) == {"base_url"}
    assert set(findings(right.model_copy(update={"base_url": PAYU.base_url}))) == {"base_url"}
    assert set(findings(right.model_copy(update={"webhook_secrets": ()}))) == {"webhook_secrets"}
