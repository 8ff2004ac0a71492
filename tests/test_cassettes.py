"""Conversations with the gateway, replayed from cassettes/; `nox -s cassettes` records them again.

Every one asks for `fresh_reference` and so for its cassette. Those that ask for
`sandbox_when_recording` need the sandbox to record.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from tillgate import (
    EXAMPLES,
    REFERENCE,
    V3,
    Account,
    AnswerNotUnderstood,
    AsyncGateway,
    CreatedPayment,
    Encoding,
    Gateway,
    Goods,
    OrderNotFound,
    OutcomeUnknown,
    PaymentRequest,
    RefundRequest,
    Refused,
    SignatureMismatch,
    SignatureRule,
    TransactionStatus,
    WrongCredentials,
)
from tillgate.sandbox import Sandbox
from tillgate.testing import find_leaks

FreshReference = Callable[[str], str]

REPOSITORY = Path(__file__).parent.parent
CASSETTES = REPOSITORY / "cassettes"

every_dialect = pytest.mark.parametrize(
    "gateway_dialect",
    [
        replace(dialect, encoding=encoding)
        for dialect in (REFERENCE, EXAMPLES)
        for encoding in Encoding
    ],
    ids=lambda dialect: f"{dialect.name}-{dialect.encoding}",
)
signed = pytest.mark.parametrize(
    "gateway_dialect",
    [replace(REFERENCE, answer_signature=SignatureRule.REQUIRED)],
    ids=["signed"],
)


def order(
    reference: str,
    amount: str = "12.50",
    currency: str = "USD",
    method: str = "alipay",
) -> PaymentRequest:
    return PaymentRequest(
        reference=reference,
        currency=currency,
        amount=amount,
        method=method,
        terminal="ONLINE",
        ipn_url="https://shop.example/ipn/7f3a",
        callback_url="https://shop.example/back?amount={amount}",
        description="Two cups, café au lait",
        goods_info=[Goods(goods_name="Cup", quantity=2)],
    )


def assert_created(created: CreatedPayment, request: PaymentRequest) -> None:
    assert created.reference == request.reference
    assert created.amount == request.amount
    assert created.currency == created.settle_currency == "USD"
    assert created.transaction_no
    assert created.payment_url.startswith(("https://", "http://127.0.0.1"))


@every_dialect
def test_pay_and_query(gateway_account: Account, fresh_reference: FreshReference) -> None:
    request = order(fresh_reference("100017"))
    with Gateway(gateway_account) as gateway:
        created = gateway.pay(request)
        found = gateway.query(request.reference)
    assert_created(created, request)
    assert found.status is TransactionStatus.PENDING
    assert (found.amount, found.currency, found.settle_currency) == (Decimal("12.50"), "USD", "USD")
    assert found.transaction_no == created.transaction_no


@every_dialect
def test_pay_and_query_async(gateway_account: Account, fresh_reference: FreshReference) -> None:
    request = order(fresh_reference("100017"))

    async def conversation() -> None:
        async with AsyncGateway(gateway_account) as gateway:
            created = await gateway.pay(request)
            found = await gateway.query(request.reference)
        assert_created(created, request)
        assert (found.status, found.amount) == (TransactionStatus.PENDING, Decimal("12.50"))
        assert found.transaction_no == created.transaction_no

    asyncio.run(conversation())


def test_pay_and_query_async_over_httpx(
    gateway_account: Account,
    fresh_reference: FreshReference,
) -> None:
    request = order(fresh_reference("100017"))

    async def conversation() -> None:
        async with AsyncGateway(gateway_account, transport=httpx.AsyncHTTPTransport()) as gateway:
            assert_created(await gateway.pay(request), request)
            assert (await gateway.query(request.reference)).status is TransactionStatus.PENDING

    asyncio.run(conversation())


@pytest.mark.parametrize("written_as", ["text", "number"])
def test_amounts_are_exact(
    written_as: str,
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    """As a float 99999999999999.99 is 99999999999999.98, and 1.10 loses its last digit."""
    if sandbox_when_recording:
        sandbox_when_recording.control.set_options(
            {"query_amount": written_as, "pay_amount": written_as},
        )
    with Gateway(gateway_account) as gateway:
        for amount in ("1.10", "99999999999999.99"):
            request = order(fresh_reference("100017"), amount)
            assert gateway.pay(request).amount == Decimal(amount)
            found = gateway.query(request.reference)
            assert str(found.amount) == amount
            assert isinstance(found.raw["amount"], str) is (written_as == "text")


@every_dialect
def test_query_of_an_unknown_reference(
    gateway_account: Account,
    fresh_reference: FreshReference,
) -> None:
    with Gateway(gateway_account) as gateway, pytest.raises(OrderNotFound) as answer:
        gateway.query(fresh_reference("NOSUCHORDER"))
    assert (answer.value.http_status, answer.value.ret_code, answer.value.ret_msg) == (
        400,
        "000022",
        "order not found",
    )


def test_query_of_an_unknown_reference_async(
    gateway_account: Account,
    fresh_reference: FreshReference,
) -> None:
    async def conversation() -> None:
        async with AsyncGateway(gateway_account) as gateway:
            await gateway.query(fresh_reference("NOSUCHORDER"))

    with pytest.raises(OrderNotFound) as answer:
        asyncio.run(conversation())
    assert (answer.value.http_status, answer.value.ret_code) == (400, "000022")


def test_wrong_token_leaves_creation_unknown(
    gateway_account: Account,
    fresh_reference: FreshReference,
) -> None:
    """A query then says why."""
    stranger = Account(
        base_url=gateway_account.base_url,
        merchant_no=gateway_account.merchant_no,
        token="another token",
        sandbox=gateway_account.sandbox,
    )
    wanted = order(fresh_reference("100017"))
    with Gateway(stranger) as gateway:
        with pytest.raises(OutcomeUnknown, match="000000"):
            gateway.pay(wanted)
        with pytest.raises(WrongCredentials, match="verifySign"):
            gateway.query(wanted.reference)


def test_pay_can_be_refused(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    if sandbox_when_recording:
        sandbox_when_recording.control.fault("refused", occasion="pay")
    with Gateway(gateway_account) as gateway, pytest.raises(Refused) as refusal:
        gateway.pay(order(fresh_reference("100017")))
    assert (refusal.value.ret_code, refusal.value.http_status) == ("000040", 400)


@every_dialect
def test_refund_in_parts_and_no_further(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))
    with Gateway(gateway_account) as gateway:
        gateway.pay(request)
        if sandbox_when_recording:
            sandbox_when_recording.control.pay(request.reference)
        assert gateway.query(request.reference).status is TransactionStatus.PAID
        part = gateway.refund(
            RefundRequest(
                reference=request.reference,
                currency="USD",
                amount="2.50",
                ipn_url="https://shop.example/refund/9c",
            ),
        )
        rest = gateway.refund(
            RefundRequest(reference=request.reference, currency="USD", amount="10.00"),
        )
        with pytest.raises(Refused) as refusal:
            gateway.refund(
                RefundRequest(reference=request.reference, currency="USD", amount="0.01"),
            )
    assert (part.reference, part.amount, rest.amount) == (
        request.reference,
        Decimal("2.50"),
        Decimal("10.00"),
    )
    assert (refusal.value.ret_code, refusal.value.http_status) == ("000040", 400)


@every_dialect
def test_refund_async(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))

    async def conversation() -> None:
        async with AsyncGateway(gateway_account) as gateway:
            await gateway.pay(request)
            if sandbox_when_recording:
                sandbox_when_recording.control.pay(request.reference)
            refunded = await gateway.refund(
                RefundRequest(reference=request.reference, currency="USD", amount="12.50"),
            )
        assert refunded.amount == Decimal("12.50")

    asyncio.run(conversation())


def test_refund_of_an_unknown_reference_is_refused(
    gateway_account: Account,
    fresh_reference: FreshReference,
) -> None:
    with Gateway(gateway_account) as gateway, pytest.raises(Refused) as refusal:
        gateway.refund(
            RefundRequest(reference=fresh_reference("NOSUCHORDER"), currency="USD", amount="1.00"),
        )
    assert refusal.value.ret_code in REFERENCE.refund_refusal_codes


def test_broken_pay_answer_can_be_queried(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    """The outcome of the creation is unknown."""
    request = order(fresh_reference("100017"))
    if sandbox_when_recording:
        sandbox_when_recording.control.fault("broken_json", occasion="pay")
    with Gateway(gateway_account) as gateway:
        with pytest.raises(OutcomeUnknown) as unknown:
            gateway.pay(request)
        assert gateway.query(request.reference).status is TransactionStatus.PENDING
    assert (unknown.value.operation, unknown.value.reference) == ("pay", request.reference)
    assert unknown.value.may_have_arrived


def test_query_with_a_broken_answer_proves_nothing(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))
    if sandbox_when_recording:
        sandbox_when_recording.control.fault("broken_json", occasion="query")
    with Gateway(gateway_account) as gateway:
        gateway.pay(request)
        with pytest.raises(AnswerNotUnderstood):
            gateway.query(request.reference)


def test_refund_answered_with_a_page_is_unknown(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))
    with Gateway(gateway_account) as gateway:
        gateway.pay(request)
        if sandbox_when_recording:
            sandbox_when_recording.control.pay(request.reference)
            sandbox_when_recording.control.fault("html_body", occasion="refund")
        with pytest.raises(OutcomeUnknown) as unknown:
            gateway.refund(
                RefundRequest(reference=request.reference, currency="USD", amount="12.50"),
            )
    assert unknown.value.operation == "refund"


def test_query_is_repeated_after_503(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))
    with Gateway(gateway_account) as gateway:
        gateway.pay(request)
        if sandbox_when_recording:
            sandbox_when_recording.control.fault("server_error", occasion="query")
        assert gateway.query(request.reference).status is TransactionStatus.PENDING


def test_relative_payment_page_address_is_unknown(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    if sandbox_when_recording:
        sandbox_when_recording.control.fault("payment_page_relative", occasion="pay")
    with Gateway(gateway_account) as gateway, pytest.raises(OutcomeUnknown, match="cashierUrl"):
        gateway.pay(order(fresh_reference("100017")))


@signed
def test_signed_answers_are_verified(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"))
    if sandbox_when_recording:
        sandbox_when_recording.control.set_options({"answer_signature": "valid"})
    with Gateway(gateway_account) as gateway:
        gateway.pay(request)
        if sandbox_when_recording:
            sandbox_when_recording.control.pay(request.reference)
        assert gateway.query(request.reference).status is TransactionStatus.PAID
        assert gateway.refund(
            RefundRequest(reference=request.reference, currency="USD", amount="12.50"),
        ).amount == Decimal("12.50")


@signed
def test_required_signature_ignores_unsigned_answer(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    del sandbox_when_recording  # asked for because a live gateway may sign
    with Gateway(gateway_account) as gateway, pytest.raises(SignatureMismatch):
        gateway.query(fresh_reference("NOSUCHORDER"))


def test_wrongly_signed_answers_are_no_news(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    if sandbox_when_recording:
        sandbox_when_recording.control.fault("bad_signature", times=2)
    request = order(fresh_reference("100017"))
    with Gateway(gateway_account) as gateway:
        with pytest.raises(OutcomeUnknown):
            gateway.pay(request)
        with pytest.raises(SignatureMismatch):
            gateway.query(request.reference)
        assert gateway.query(request.reference).status is TransactionStatus.PENDING


@pytest.mark.parametrize("gateway_dialect", [V3], ids=["v3"])
def test_won_payment_is_refunded_in_parts(
    gateway_account: Account,
    fresh_reference: FreshReference,
    sandbox_when_recording: Sandbox | None,
) -> None:
    request = order(fresh_reference("100017"), "1250", "KRW", "kakaopay")
    refunds = [
        RefundRequest(
            reference=request.reference,
            currency="KRW",
            amount=amount,
            refund_id=f"{request.reference}-{number}",
        )
        for number, amount in enumerate(("250", "1000"), 1)
    ]
    with Gateway(gateway_account) as gateway:
        created = gateway.pay(request)
        assert (created.amount, created.currency, created.settle_currency) == (
            Decimal(1250),
            "KRW",
            "USD",
        )
        if sandbox_when_recording:
            sandbox_when_recording.control.pay(request.reference)
        assert gateway.query(request.reference).refunds is None
        numbers = [gateway.refund(refund).refund_no for refund in refunds]
        found = gateway.query(request.reference)
    assert found.status is TransactionStatus.PAID
    assert found.refunds is not None
    assert [(one.amount, one.refund_id, one.refund_no) for one in found.refunds] == [
        (refund.amount, refund.refund_id, number)
        for refund, number in zip(refunds, numbers, strict=True)
    ]


def test_repository_cassettes_hold_no_secret() -> None:
    # Stripe's conversations are not of the interface: they have a test of their own.
    others = [
        folder
        for folder in REPOSITORY.glob("plugins/*/cassettes")
        if folder.parent.name != "stripe"
    ]
    folders = [folder for folder in [CASSETTES, *others] if folder.is_dir()]
    assert [str(leak) for folder in folders for leak in find_leaks(folder)] == []
    # a search of an empty folder finds nothing either
    assert sum(1 for _ in CASSETTES.glob("*.yaml")) > 20


def test_cassettes_belong_to_existing_tests() -> None:
    for path in CASSETTES.glob("*.yaml"):
        owner = re.match(r"# (?P<file>[^:]+)::(?P<name>\w+)", path.read_text("utf-8"))
        assert owner, path
        assert f"def {owner['name']}(" in (REPOSITORY / owner["file"]).read_text("utf-8"), path
