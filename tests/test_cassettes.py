"""Conversations with the gateway, replayed from cassettes/; `nox -s cassettes` records them again.

vcrpy records them from a sandbox of the test's own, or from the account in TILLGATE_BASE_URL,
_MERCHANT_NO and _TOKEN. Tests that ask for `sandbox_when_recording` need the sandbox to record.
Record a live account with invented shoppers only, and read the files before you commit them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import vcr

from tillgate import (
    EXAMPLES,
    REFERENCE,
    V3,
    Account,
    AnswerNotUnderstood,
    AsyncGateway,
    CreatedPayment,
    Dialect,
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
    new_reference,
)
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
    Sandbox,
)
from tillgate.testing import holds_secret
from tillgate.wire.personal import KEPT_FIELDS

FreshReference = Callable[[str], str]

CASSETTES = Path(__file__).parent.parent / "cassettes"
REPLAYED = "https://gateway.example"
IS_RECORDING = os.environ.get("TILLGATE_RECORD") == "1"
LIVE = [os.environ.get(f"TILLGATE_{name}", "") for name in ("BASE_URL", "MERCHANT_NO", "TOKEN")]
IS_LIVE = IS_RECORDING and all(LIVE)
KEPT_HEADERS = ("content-type", "retry-after")
PLACEHOLDERS = {
    "merchantNo": "MERCHANT",
    "storeNo": PUBLISHED_STORE_NO,
    "verifySign": "SIGNATURE",
}
# of a JSON object or of a form
MEMBER = re.compile(r"""(?P<name>\w+)(?P<is>"\s*:\s*"|=)(?P<value>[^"&]*)""")


class Scrubber:
    """Takes the account's own words out of a conversation, and from a live account every text that
    the interface does not name.
    """

    def __init__(self, account: Account) -> None:
        self._known = {account.base_url: REPLAYED, account.merchant_no: "MERCHANT"}
        self._place = urlsplit(account.base_url).netloc

    def reference(self, order_key: str) -> str:
        """Return a fresh reference; a live account may know those on file."""
        on_file = f"{order_key}-{len(self._known) - 1:013}"
        made = new_reference(order_key) if IS_LIVE else on_file
        self._known[made] = on_file
        return made

    def request(self, request: Any) -> Any:
        """Leave out requests to other addresses: the sandbox in this process sends notifications
        too.
        """
        if urlsplit(request.uri).netloc not in (self._place, urlsplit(REPLAYED).netloc):
            return None
        request.uri = self._text(request.uri)
        request.headers = {
            name: value for name, value in request.headers.items() if name.lower() in KEPT_HEADERS
        }
        body = request.body.decode() if isinstance(request.body, bytes) else request.body or ""
        request.body = MEMBER.sub(self._placeholder, self._text(body)).encode()
        return request

    def response(self, response: Any) -> Any:
        text = self._text(response["body"]["string"].decode("utf-8", "replace"))
        if IS_LIVE:
            text = MEMBER.sub(self._kept, re.sub(r',?\s*"verifySign"\s*:\s*"[^"]*"', "", text))
        headers = {
            name: value
            for name, value in response["headers"].items()
            if name.lower() in KEPT_HEADERS
        }
        return {**response, "headers": headers, "body": {"string": text.encode()}}

    def _text(self, text: str) -> str:
        for value, stand_in in self._known.items():
            text = text.replace(value, stand_in)
        return text

    @staticmethod
    def _placeholder(found: re.Match[str]) -> str:
        value = PLACEHOLDERS.get(found["name"], found["value"])
        return found["name"] + found["is"] + value

    @staticmethod
    def _kept(found: re.Match[str]) -> str:
        value = found["value"] if found["name"] in KEPT_FIELDS else "***"
        if found["name"] == "cashierUrl":
            value = f"{REPLAYED}/cashier/1"
        return found["name"] + found["is"] + value


def body_of(request: Any) -> Any:
    text = bytes(request.body or b"").decode()
    return json.loads(text) if text.startswith("{") else sorted(parse_qsl(text))


@pytest.fixture
def sandbox_options() -> Options:
    # its own address would change with each recording, and is signed
    return Options(seed=1, public_url=REPLAYED, notification_hosts=("127.0.0.1",))


@pytest.fixture
def gateway_dialect() -> Dialect:
    return REFERENCE


@pytest.fixture
def gateway_account(request: pytest.FixtureRequest, gateway_dialect: Dialect) -> Account:
    base_url, merchant_no, token = REPLAYED, PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
    if IS_LIVE:
        base_url, merchant_no, token = LIVE
    elif IS_RECORDING:
        base_url = request.getfixturevalue("sandbox").base_url
    return Account(
        base_url=base_url,
        merchant_no=merchant_no,
        token=token,
        store_no=PUBLISHED_STORE_NO,
        sandbox=base_url.startswith("http:"),
        dialect=gateway_dialect,
    )


@pytest.fixture
def sandbox_when_recording(request: pytest.FixtureRequest) -> Sandbox | None:
    if IS_LIVE:
        pytest.skip("needs the sandbox")
    running: Sandbox | None = request.getfixturevalue("sandbox") if IS_RECORDING else None
    return running


@pytest.fixture
def fresh_reference(
    request: pytest.FixtureRequest,
    gateway_account: Account,
) -> Iterator[FreshReference]:
    """Answer the test's requests from its file, or record them."""
    scrubber = Scrubber(gateway_account)
    player = vcr.VCR(
        record_mode="all" if IS_RECORDING else "none",
        match_on=["method", "uri", "members"],
        before_record_request=scrubber.request,
        before_record_response=scrubber.response if IS_RECORDING else None,
        decode_compressed_response=True,
    )
    player.register_matcher("members", lambda one, other: body_of(one) == body_of(other))
    path = CASSETTES / (re.sub(r"[^\w.]+", "-", request.node.name).strip("-") + ".yaml")
    if IS_RECORDING:
        path.unlink(missing_ok=True)
    with player.use_cassette(str(path), allow_playback_repeats=False) as cassette:
        yield scrubber.reference
    assert IS_RECORDING or cassette.all_played, "the test sent less than was recorded"


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


def test_i11_cassettes_hold_no_secret() -> None:
    texts = [path.read_text("utf-8") for path in CASSETTES.glob("*.yaml")]
    assert len(texts) > 20, "a search of an empty folder finds nothing either"
    assert not [text for text in texts if holds_secret(text, [PUBLISHED_TEST_TOKEN])]
    assert not [text for text in texts if PUBLISHED_MERCHANT_NO in text]


def test_cassettes_belong_to_existing_tests() -> None:
    tests = Path(__file__).read_text("utf-8")
    for path in CASSETTES.glob("*.yaml"):
        name = re.match(r"\w+", path.name)
        assert name, path
        assert f"def {name[0]}(" in tests, path
