"""The sandbox speaks version 3: its own requests, currencies and answers, to a merchant and to the
client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sandbox.conftest import ORDER, said, signed
from tillgate import (
    V3,
    Account,
    AsyncGateway,
    Gateway,
    Money,
    PaymentRequest,
    RefundRequest,
    Refused,
    TransactionStatus,
    new_reference,
)
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    NotPossible,
    Options,
    Sandbox,
)
from tillgate.wire.dialects import RefundOutcome

if TYPE_CHECKING:
    from tests.sandbox.conftest import HttpMerchant, Merchant

    Build = Callable[..., Merchant]

PATHS = {
    "pay": "/online/v3/secure-pay",
    "query": "/app-data-search/v3/tran-query",
    "refund": "/app-data-search/v3/refund",
}
CURRENCIES = (*V3.currencies, "JPY", "KWD")
# codes are read
ANY_METHOD = replace(V3, currencies=CURRENCIES, methods=("alipay",))  # type: ignore[arg-type]
ORDER_3 = {
    **ORDER,
    "storeNo": PUBLISHED_STORE_NO,
    "settleCurrency": "USD",
    "currency": "KRW",
    "amount": "1250",
    "vendor": "kakaopay",
}


def pay(shop: Merchant, **changes: Any) -> Any:
    wanted = {**ORDER_3, **changes}
    return said(
        shop.send(
            PATHS["pay"],
            signed({name: value for name, value in wanted.items() if value is not None}),
        ),
    )


def query(shop: Merchant, **changes: Any) -> Any:
    return said(
        shop.send(
            PATHS["query"],
            signed({"storeNo": PUBLISHED_STORE_NO, "reference": ORDER["reference"], **changes}),
        ),
    )


def refund(shop: Merchant, amount: str, **changes: Any) -> Any:
    wanted = {
        "storeNo": PUBLISHED_STORE_NO,
        "reference": ORDER["reference"],
        "refundAmount": amount,
        "currency": "KRW",
    }
    return said(shop.send(PATHS["refund"], signed({**wanted, "settleCurrency": "USD", **changes})))


def paid(shop: Merchant, **changes: Any) -> str:
    number = str(pay(shop, **changes)["result"]["transactionNo"])
    shop.service.decide(number, "pay")
    return number


# Requests.


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"storeNo": None}, "000020", "storeNo"),
        ({"storeNo": "999"}, "000021", "storeNo"),
        ({"settleCurrency": None}, "000020", "settleCurrency"),
        ({"settleCurrency": "XYZ"}, "000023", "settleCurrency"),
        ({"currency": "EUR"}, "000023", "currency"),
        ({"amount": "12.50"}, "000023", "amount"),
        ({"terminal": "ANDROID"}, "000023", "terminal"),
        ({"terminal": "WAP"}, "000023", "osType"),
        ({"terminal": "WAP", "osType": "LINUX"}, "000023", "osType"),
    ],
)
def test_wrong_creation_field_is_refused(
    merchant: Build,
    changes: dict[str, Any],
    code: str,
    word: str,
) -> None:
    """The answer names the field."""
    answer = pay(merchant(), **changes)
    assert (answer["ret_code"], word in answer["ret_msg"]) == (code, True)


def test_a_phone_names_its_system(merchant: Build) -> None:
    assert pay(merchant(), terminal="WAP", osType="IOS")["ret_code"] == "000100"


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"currency": "USD"}, "000022", "currency"),
        ({"refundAmount": "1.5"}, "000023", "refundAmount"),
        ({"refundAmount": "1251"}, "000040", "amount"),
        ({"reference": "", "transactionNo": ""}, "000020", "transactionNo"),
        ({"reference": "OTHER"}, "000022", "order"),
        ({"storeNo": "999"}, "000021", "storeNo"),
    ],
)
def test_wrong_refund_field_is_refused(
    merchant: Build,
    changes: dict[str, Any],
    code: str,
    word: str,
) -> None:
    """The answer names the field."""
    shop = merchant()
    paid(shop)
    answer = refund(shop, "250", **changes)
    assert (answer["ret_code"], word in answer["ret_msg"]) == (code, True)
    assert shop.service.totals() == {"KRW": 1250}


def test_a_wrong_signature_is_answered_as_documented(merchant: Build) -> None:
    for path in PATHS.values():
        answer = merchant().send(
            path,
            {"merchantNo": PUBLISHED_MERCHANT_NO, "verifySign": "0" * 32},
        )
        assert (answer.http_status, said(answer)) == (
            400,
            {"ret_code": "000000", "retMsg": "data error : verifySign"},
        )


def test_version_1_takes_dollars_only(merchant: Build) -> None:
    assert said(merchant().pay(currency="KRW", amount="1250"))["ret_code"] == "000023"


def test_transaction_is_found_by_number(merchant: Build) -> None:
    shop = merchant()
    number = paid(shop)
    assert (
        query(shop, reference="", transactionNo=number)["result"]["reference"] == ORDER["reference"]
    )
    assert query(shop, reference="", transactionNo="1")["ret_code"] == "000022"
    assert refund(shop, "250", reference="", transactionNo=number)["ret_code"] == "000100"


# Answers.


def test_the_answers_have_the_documented_fields(merchant: Build) -> None:
    shop = merchant(query_amount="text")
    created = pay(shop)["result"]
    assert set(created) == {
        "amount",
        "cashierUrl",
        "currency",
        "reference",
        "settleCurrency",
        "transactionNo",
    }
    shop.service.decide(created["transactionNo"], "pay")
    refunded = refund(shop, "250", refundReference="R-1")["result"]
    assert refunded == {
        "amount": "1250",
        "currency": "KRW",
        "reference": ORDER["reference"],
        "refundAmount": "250",
        "refundReference": "R-1",
        "refundTransactionNo": refunded["refundTransactionNo"],
        "settleCurrency": "USD",
        "status": "success",
        "transactionNo": created["transactionNo"],
    }
    assert query(shop)["result"] == {
        "amount": "1250",
        "currency": "KRW",
        "reference": ORDER["reference"],
        "settleCurrency": "USD",
        "status": "success",
        "transactionNo": created["transactionNo"],
        "transactionType": "payment",
        "refundInfo": [
            {
                "refundTransactionId": refunded["refundTransactionNo"],
                "refundReference": "R-1",
                "refundAmount": "250",
                "currency": "KRW",
                "settleCurrency": "USD",
            },
        ],
    }


def test_repeated_refund_reference_is_refused(merchant: Build) -> None:
    shop = merchant()
    paid(shop)
    assert refund(shop, "250", refundReference="R-1")["ret_code"] == "000100"
    assert refund(shop, "250", refundReference="R-1")["ret_code"] == "000023"
    assert shop.service.totals() == {"KRW": 1000}


@pytest.mark.parametrize(
    ("refund_info", "listed"),
    [("finished", [None]), ("status", ["pending", "success"]), ("none", [])],
)
def test_the_list_of_refunds_is_a_switch(
    merchant: Build,
    refund_info: str,
    listed: list[str | None],
) -> None:
    shop = merchant(refund_info=refund_info)
    number = paid(shop)
    shop.service.use(Options.read({"refund_outcome": "pending"}, shop.service.options))
    refund(shop, "250")
    shop.service.give_back(shop.service.find(number), 100)
    assert [one.get("status") for one in query(shop)["result"].get("refundInfo", [])] == listed


@pytest.mark.parametrize(("end", "held"), [("succeeded", 1000), ("failed", 1250)])
def test_pending_refund_reserves_its_amount(
    merchant: Build,
    end: Any,
    held: int,
) -> None:
    """The shop is notified when the refund ends."""
    shop = merchant(refund_outcome="pending", notification_on_paid=False)
    number = paid(shop)
    assert (
        refund(shop, "250", ipnUrl="https://shop.example/refunds/1", refundReference="R-1")[
            "result"
        ]["status"]
        == "pending"
    )
    transaction = shop.service.find(number)
    assert (
        transaction.refunded_units,
        transaction.refundable_units,
        shop.service.due_notifications(shop.clock()),
    ) == (0, 1000, [])
    assert refund(shop, "1001")["ret_code"] == "000040"
    shop.service.finish_refund(number, end)
    (notification,) = shop.service.due_notifications(shop.clock())
    assert f"status={'success' if end == 'succeeded' else 'failed'}" in notification.body.decode()
    assert shop.service.totals() == {"KRW": held}
    assert transaction.refundable_units == held
    with pytest.raises(NotPossible):
        shop.service.finish_refund(number)


def test_a_refund_can_fail_at_once(merchant: Build) -> None:
    shop = merchant(refund_outcome="failed")
    paid(shop)
    answer = refund(shop, "250")
    assert (answer["ret_code"], answer["result"]["status"], shop.service.totals()) == (
        "000100",
        "failed",
        {"KRW": 1250},
    )


def test_control_api_finishes_pending_refund(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    with_pending = {"refund_outcome": "pending"}
    headers = {"Content-Type": "application/json"}
    sandbox.control.set_options(with_pending)
    try:
        http.post(PATHS["pay"], signed(ORDER_3))
        sandbox.control.pay(ORDER["reference"])
        wanted = {
            "storeNo": PUBLISHED_STORE_NO,
            "reference": ORDER["reference"],
            "refundAmount": "250",
            "currency": "KRW",
        }
        http.post(PATHS["refund"], signed({**wanted, "settleCurrency": "USD"}))
        address = f"/_control/transactions/{ORDER['reference']}/finish_refund"
        assert http.request("POST", address, b'{"outcome": "perhaps"}', headers)[0] == 400
        status, _, body = http.request("POST", address, b"{}", headers)
        assert (status, json.loads(body)["transaction"]["refunds"][0]["status"]) == (
            200,
            "succeeded",
        )
        assert http.request("POST", address, b"{}", headers)[0] == 409
    finally:
        sandbox.control.set_options({"refund_outcome": "succeeded"})


def test_magic_amounts_use_smallest_unit(merchant: Build) -> None:
    """Magic amounts start at 1301 of the smallest unit of the currency."""
    shop = merchant(currencies=["KRW", "KWD"])
    for currency, magic, ordinary in (("KRW", "1321", "1320"), ("KWD", "1.321", "1.320")):
        assert pay(shop, currency=currency, amount=magic)["ret_code"] == "000040"
        assert (
            pay(shop, currency=currency, amount=ordinary, reference=currency)["ret_code"]
            == "000100"
        )


def test_the_pages_show_the_currency(sandbox: Sandbox, http: HttpMerchant) -> None:
    created = http.post(PATHS["pay"], signed(ORDER_3))[1]["result"]
    page = http.request("GET", f"/cashier/{created['cashierUrl'].rpartition('/')[2]}")[2].decode()
    assert "Pay KRW 1,250<" in page
    sandbox.control.pay(ORDER["reference"])
    for address in ("/", f"/transactions/{created['transactionNo']}"):
        page = http.request("GET", address)[2].decode()
        assert "1,250" in page
        assert "USD 1,250" not in page
    assert "<dd>KRW 1,250</dd>" in http.request("GET", "/")[2].decode()


# The client.


@pytest.fixture(scope="module")
def service_3() -> Iterator[Sandbox]:
    with Sandbox(
        Options(seed=7, currencies=CURRENCIES, magic_amounts=False, notification_on_paid=False),
    ) as running:
        yield running


@pytest.fixture
def account_3(service_3: Sandbox) -> Account:
    service_3.control.reset()
    service_3.control.set_options({"refund_outcome": "succeeded", "refund_info": "finished"})
    return Account(
        base_url=service_3.base_url,
        merchant_no=PUBLISHED_MERCHANT_NO,
        token=PUBLISHED_TEST_TOKEN,
        sandbox=True,
        dialect=ANY_METHOD,
        store_no=PUBLISHED_STORE_NO,
    )


def payment_of(money: Money) -> PaymentRequest:
    return PaymentRequest(
        reference=new_reference("100017"),
        currency=money.currency,
        amount=money.amount,
        method="alipay",
        terminal="WAP",
        ipn_url="http://127.0.0.1:9/ipn",
        callback_url="http://127.0.0.1:9/back",
    )


def refund_of(
    request: PaymentRequest,
    amount: Decimal,
    refund_id: str | None = None,
) -> RefundRequest:
    return RefundRequest(
        reference=request.reference,
        currency=request.currency,
        amount=amount,
        refund_id=refund_id or new_reference("R"),
    )


@pytest.mark.parametrize(
    ("currency", "price", "part"),
    [
        ("JPY", "1250", "250"),
        ("KRW", "1250", "250"),
        ("PHP", "12.50", "2.50"),
        ("USD", "12.50", "2.50"),
        ("KWD", "12.505", "2.501"),
    ],
)
@pytest.mark.parametrize("query_amount", ["number", "text"])
def test_payments_work_in_every_currency(
    service_3: Sandbox,
    account_3: Account,
    currency: str,
    price: str,
    part: str,
    query_amount: str,
) -> None:
    """A payment is created, queried and refunded in parts."""
    service_3.control.set_options({"query_amount": query_amount})
    request = payment_of(Money(price, currency))
    rest = Decimal(price) - Decimal(part)
    with Gateway(account_3) as gateway:
        created = gateway.pay(request)
        assert (created.amount, created.currency, created.settle_currency) == (
            Decimal(price),
            currency,
            "USD",
        )
        service_3.control.pay(request.reference)
        found = gateway.query(request.reference)
        assert (found.status, found.amount, found.currency) == (
            TransactionStatus.PAID,
            Decimal(price),
            currency,
        )
        assert found.refunds is None
        first = gateway.refund(refund_of(request, Decimal(part)))
        gateway.refund(refund_of(request, rest))
        with pytest.raises(Refused):
            gateway.refund(refund_of(request, Money.of_minor_units(1, currency).amount))
        refunds = gateway.query(request.reference).refunds
    assert refunds is not None
    assert [one.amount for one in refunds] == [Decimal(part), rest]
    assert refunds[0].refund_no == first.refund_no
    assert service_3.service.totals() == {currency: 0}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_finished_refund_is_found_by_reference(
    service_3: Sandbox,
    account_3: Account,
    asynchronous: bool,
) -> None:
    request = payment_of(Money("1250", "KRW"))
    wanted = refund_of(request, Decimal(250), "R-1")

    async def find_asynchronously() -> Any:
        async with AsyncGateway(account_3) as gateway:
            return await gateway.query_refund(wanted)

    with Gateway(account_3) as gateway:

        def find() -> Any:
            return (
                asyncio.run(find_asynchronously()) if asynchronous else gateway.query_refund(wanted)
            )

        gateway.pay(request)
        service_3.control.pay(request.reference)
        service_3.control.set_options({"refund_outcome": "pending"})
        sent = gateway.refund(wanted)
        assert (sent.outcome, find()) == (RefundOutcome.PENDING, None)
        service_3.control.set_options({"refund_info": "status"})
        assert find().outcome is RefundOutcome.PENDING
        service_3.control.finish_refund(request.reference)
        for refund_info in ("status", "finished"):
            service_3.control.set_options({"refund_info": refund_info})
            found = find()
            assert (found.outcome, found.amount, found.refund_no) == (
                RefundOutcome.SUCCEEDED,
                Decimal(250),
                sent.refund_no,
            )
        other = refund_of(request, Decimal(250), "R-2")
        assert gateway.query_refund(other) is None
        assert gateway.query_refund(other, sent.refund_no) is not None


def test_portal_refund_has_no_reference(
    service_3: Sandbox,
    account_3: Account,
) -> None:
    """A refund made in the portal is listed without a reference."""
    request = payment_of(Money("12.505", "KWD"))
    with Gateway(account_3) as gateway:
        gateway.pay(request)
        service_3.control.pay(request.reference)
        service_3.control.refund(request.reference, "2.501")
        (listed,) = gateway.query(request.reference).refunds or ()
    assert (listed.amount, listed.refund_id, listed.outcome) == (
        Decimal("2.501"),
        None,
        RefundOutcome.SUCCEEDED,
    )


def test_version_1_lists_no_refunds(service_3: Sandbox, account_3: Account) -> None:
    request = payment_of(Money("12.50", "USD"))
    with Gateway(account_3.model_copy(update={"dialect": "reference"})) as gateway:
        gateway.pay(request)
        service_3.control.pay(request.reference)
        wanted = refund_of(request, Decimal("2.50"))
        assert gateway.refund(wanted).outcome is RefundOutcome.SUCCEEDED
        assert gateway.query_refund(wanted) is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # the fixture only builds: every example has its own shop
@given(
    currency=st.sampled_from(["KRW", "JPY", "USD", "KWD"]),
    price=st.integers(1, 10**6),
    refunds=st.lists(st.integers(1, 10**6), max_size=8),
)
def test_refunds_never_exceed_payment(
    merchant: Build,
    currency: str,
    price: int,
    refunds: list[int],
) -> None:
    """The limit holds in every currency."""
    shop = merchant(magic_amounts=False, currencies=[currency], minimum_amount="0.001")
    paid(shop, currency=currency, amount=str(Money.of_minor_units(price, currency).amount))
    left = price
    for units in refunds:
        answer = refund(shop, str(Money.of_minor_units(units, currency).amount), currency=currency)
        assert (answer["ret_code"] == "000100") == (units <= left)
        left -= units if units <= left else 0
    assert shop.service.totals() == {currency: left}


@pytest.mark.parametrize("name", ["R-1", ""])
def test_refund_notification_names_the_refund(merchant: Build, name: str) -> None:
    shop = merchant(notification_on_paid=False)
    number = pay(shop)["result"]["transactionNo"]
    shop.service.decide(number, "pay")
    refunded = refund(shop, "250", refundReference=name, ipnUrl="http://127.0.0.1:9/refund")[
        "result"
    ]
    [sent] = shop.service.due_notifications(shop.clock())
    fields = dict(parse_qsl(sent.body.decode()))
    del fields["verifySign"]
    names = {
        "refundReference": name,
        "refundTransactionNo": refunded["refundTransactionNo"],
        "refundAmount": "250",
    }
    about = {"transactionNo": number, "status": "success", "reference": ORDER["reference"]}
    assert fields == about | (names if name else {})
