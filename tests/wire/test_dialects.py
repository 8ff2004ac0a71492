"""Dialect: each unspecified behaviour of the interface is one field, and each of its values has its
effect.
"""

from __future__ import annotations

import dataclasses
import json
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import REFERENCE as ORDER
from tests.support import answered, credentials, envelope, found, payment, refund, signature
from tillgate import (
    EXAMPLES,
    REFERENCE,
    V3,
    ConfigurationError,
    Dialect,
    Encoding,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    SignatureMismatch,
    SignatureRule,
    TransactionStatus,
    WrongCredentials,
    callback_url,
)
from tillgate.wire import exchange
from tillgate.wire.dialects import DIALECTS
from tillgate.wire.exchange import HttpRequest
from tillgate.wire.methods import Method

UNRECOGNISED = (
    "Success",
    "SUCCESS",
    " success",
    "paid",
    "repaid",
    "",
    "succes",
    "success\n",
    "\u0441uccess",
)


def written(dialect: Dialect) -> dict[str, HttpRequest]:
    at = credentials(dialect=dialect, store_no="300014")
    return {
        "pay": exchange.write_pay(at, payment(description="a b&c=\u00e4")),
        "query": exchange.write_query(at, ORDER),
        "refund": exchange.write_refund(at, refund()),
    }


@pytest.mark.parametrize("word", UNRECOGNISED)
def test_i1_unknown_word_is_never_paid(word: str) -> None:
    assert REFERENCE.status(word) is TransactionStatus.UNRECOGNISED


@given(st.text())
def test_i1_no_word_but_success_is_paid(word: str) -> None:
    assert (REFERENCE.status(word) is TransactionStatus.PAID) == (word == "success")


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("success", "paid"),
        *((word, "failed") for word in ("failed", "fail")),
        *((word, "closed") for word in ("closed", "reversed", "cancelled", "expired")),
        *((word, "pending") for word in ("pending", "init", "dealing")),
    ],
)
def test_the_vocabulary_of_unspecified_behaviour_6(word: str, status: str) -> None:
    assert REFERENCE.status(word) is TransactionStatus(status)


def test_the_vocabulary_is_data() -> None:
    dialect = dataclasses.replace(
        REFERENCE,
        paid_words=frozenset({"PAID"}),
        pending_words=frozenset({"success"}),
    )
    assert dialect.status("PAID") is TransactionStatus.PAID
    assert dialect.status("success") is TransactionStatus.PENDING
    answer = exchange.read_query(
        credentials(dialect=dialect),
        ORDER,
        answered(envelope(found(status="PAID"))),
    )
    assert (answer.status, answer.status_text) == (TransactionStatus.PAID, "PAID")


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        (REFERENCE, ("/online/v1/secure-pay", "/online/v1/tran-query", "/online/v1/refund")),
        (
            EXAMPLES,
            (
                "/online/v1/secure-pay",
                "/app-data-search/v1/tran-query",
                "/app-data-search/v1/refund",
            ),
        ),
        (
            V3,
            (
                "/online/v3/secure-pay",
                "/app-data-search/v3/tran-query",
                "/app-data-search/v3/refund",
            ),
        ),
    ],
)
def test_both_path_shapes_of_unspecified_behaviour_2(
    dialect: Dialect,
    paths: tuple[str, ...],
) -> None:
    assert tuple(request.url for request in written(dialect).values()) == tuple(
        f"https://pay.example{path}" for path in paths
    )


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("operation", ["pay", "query", "refund"])
def test_unspecified_behaviour_3_signs_same_texts(
    encoding: Encoding,
    operation: str,
) -> None:
    """Both encodings carry the same signed texts."""
    request = written(dataclasses.replace(REFERENCE, encoding=encoding))[operation]
    if encoding is Encoding.JSON:
        assert request.content_type == "application/json"
        parameters = json.loads(request.body)
    else:
        assert request.content_type == "application/x-www-form-urlencoded"
        parameters = dict(parse_qsl(request.body.decode("ascii"), strict_parsing=True))
    assert all(isinstance(value, str) for value in parameters.values())
    assert parameters["merchantNo"] == "200043"
    assert parameters["verifySign"] == signature(parameters)


@pytest.mark.parametrize("value", [*Encoding])
def test_an_encoding_has_a_name(value: Encoding) -> None:
    assert Encoding(value.value) is value


def test_unspecified_behaviour_5_paid_without_amount() -> None:
    """The answer is paid, and its amount is None."""
    answer = exchange.read_query(credentials(), ORDER, answered(envelope(found(amount=None))))
    assert (answer.status, answer.amount) == (TransactionStatus.PAID, None)


def test_the_defaults_of_the_unspecified_behaviour() -> None:
    assert REFERENCE.encoding is Encoding.JSON  # 3
    assert REFERENCE.answer_signature is SignatureRule.CHECKED  # 7
    assert REFERENCE.notification_signature is SignatureRule.CHECKED  # 8
    assert REFERENCE.acknowledgement == "success"  # 9
    # 10
    assert REFERENCE.macros == (
        "amount",
        "status",
        "transactionNo",
        "reference",
        "time",
        "note",
    )
    assert (REFERENCE.success_code, REFERENCE.not_found_code) == ("000100", "000022")  # 12
    assert REFERENCE.unknown_codes == {"000000", "000080"}  # 12
    # 12
    assert sorted(REFERENCE.refund_refusal_codes) == [
        "000010",
        "000020",
        "000021",
        "000022",
        "000023",
        "000030",
        "000040",
    ]
    assert {method.fault(Decimal("0.01"), "USD") for method in REFERENCE.methods} == {None}  # 17
    assert REFERENCE.expired_is_forgotten is False  # 19
    assert (
        dataclasses.replace(
            EXAMPLES,
            name="reference",
            query_path=REFERENCE.query_path,
            refund_path=REFERENCE.refund_path,
        )
        == REFERENCE
    )


def test_unspecified_behaviour_10_macros_are_data() -> None:
    dialect = dataclasses.replace(REFERENCE, macros=("amount", "orderNo"))
    assert callback_url("https://shop.example/", dialect.macros).endswith(
        "?amount={amount}&orderNo={orderNo}",
    )


def test_unspecified_behaviour_12_codes_are_data() -> None:
    dialect = dataclasses.replace(
        REFERENCE,
        success_code="OK",
        unknown_codes=frozenset({"E9"}),
        rights_codes=frozenset({"E7"}),
        refund_refusal_codes=frozenset({"E1"}),
        not_found_code="E4",
    )
    at = credentials(dialect=dialect)
    assert exchange.read_refund(at, refund(), answered(envelope(code="OK"))).amount == Decimal(
        "2.50",
    )
    with pytest.raises(Refused):
        exchange.read_refund(at, refund(), answered(envelope(code="E1")))
    with pytest.raises(OutcomeUnknown):
        exchange.read_refund(at, refund(), answered(envelope(code="000030")))
    with pytest.raises(OutcomeUnknown):
        exchange.read_pay(at, payment(), answered(envelope(code="E9")))
    with pytest.raises(WrongCredentials, match="E7"):
        exchange.read_query(at, ORDER, answered(envelope(code="E7")))
    with pytest.raises(Refused, match="E4"):
        exchange.read_query(at, ORDER, answered(envelope(code="E4"), 400))


@pytest.mark.parametrize(
    ("amount", "is_refused"),
    [("0.99", True), ("1.00", False), ("12.50", False)],
)
def test_unspecified_behaviour_17_minimums_are_data(
    amount: str,
    is_refused: bool,
) -> None:
    at = credentials(
        methods=[
            {"code": "gcash", "minimums": {"USD": "50"}},
            {"code": "alipay", "minimums": {"USD": "1.00"}},
            "wechatpay",
        ],
    )
    if is_refused:
        with pytest.raises(InvalidRequest, match=r"alipay takes at least USD 1\.00"):
            exchange.write_pay(at, payment(amount=amount))
    else:
        assert exchange.write_pay(at, payment(amount=amount)).operation == "pay"


@pytest.mark.parametrize("name", ["pay_path", "query_path", "refund_path"])
@pytest.mark.parametrize(
    "path",
    [
        "",
        "online/v1",
        "//evil.example/",
        "/a?b",
        "/a b",
        "https://evil.example/",
        "/a#b",
        ".evil.example/",
        "@evil.example",
    ],
)
def test_host_changing_path_is_refused(name: str, path: str) -> None:
    changes: dict[str, Any] = {name: path}
    with pytest.raises(ConfigurationError) as caught:
        dataclasses.replace(REFERENCE, **changes)
    assert (caught.value.field, caught.value.value) == (name, path)


@pytest.mark.parametrize(
    "words",
    [
        {"PAID", "success"},
        ["PAID", "success"],
        ("PAID", "success"),
        dict.fromkeys(("PAID", "success")).keys(),
    ],
)
def test_word_collections_make_equal_hashable_dialects(words: Any) -> None:
    dialect = dataclasses.replace(REFERENCE, paid_words=words, refund_refusal_codes=words)
    same = dataclasses.replace(
        REFERENCE,
        paid_words=frozenset(words),
        refund_refusal_codes=frozenset(words),
    )
    assert (dialect, hash(dialect)) == (same, hash(same))


def test_list_becomes_hashable_tuple() -> None:
    given: dict[str, Any] = {"macros": ["amount"], "methods": ["alipay"]}
    dialect = dataclasses.replace(REFERENCE, **given)
    assert (dialect.macros, dialect.methods) == (("amount",), (Method(code="alipay"),))
    assert hash(dialect)


def test_a_choice_as_text_is_that_choice() -> None:
    given: dict[str, Any] = {
        "encoding": "form",
        "answer_signature": "required",
        "notification_signature": "ignored",
    }
    dialect = dataclasses.replace(REFERENCE, **given)
    assert (dialect.encoding, dialect.answer_signature) == (Encoding.FORM, SignatureRule.REQUIRED)
    assert type(dialect.notification_signature) is SignatureRule
    with pytest.raises(SignatureMismatch):
        exchange.read_query(credentials(dialect=dialect), ORDER, answered(envelope(found())))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        *(
            (name, "REQUIRED", "is not one of: checked, required, ignored")
            for name in ("answer_signature", "notification_signature")
        ),
        ("encoding", "xml", "is not one of: json, form"),
        ("encoding", None, "is not one of: json, form"),
        ("encoding", ["json"], "is not one of: json, form"),
        *(
            (name, "success", "is not a collection of texts")
            for name in ("paid_words", "failed_words", "closed_words", "pending_words")
        ),
        *(
            (name, "000010", "is not a collection of texts")
            for name in ("unknown_codes", "refund_refusal_codes", "macros")
        ),
        ("paid_words", [["success"]], "is not a collection of texts"),
        ("paid_words", None, "is not a collection of texts"),
        ("refund_refusal_codes", {10}, "is not a collection of texts"),
        ("pending_words", {"init": "pending"}, "is not a collection of texts"),
        ("success_code", 100, "is not text"),
        ("acknowledgement", b"success", "is not text"),
        ("pay_path", None, "is not a path"),
        ("expired_is_forgotten", "false", "is not True or False"),
        ("methods", "alipay", "is not a list of payment methods"),
        ("methods", ["alipay", "alipay"], "is listed twice"),
        ("currencies", ["usd"], "is not the code of a currency"),
    ],
)
def test_unusable_value_is_named_on_creation(
    name: str,
    value: Any,
    says: str,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        dataclasses.replace(REFERENCE, **{name: value})
    assert caught.value.field == name
    assert caught.value.value in (value, *(value if isinstance(value, list) else ()))
    assert says in str(caught.value)


def test_presets_are_found_and_frozen() -> None:
    assert DIALECTS == {"reference": REFERENCE, "examples": EXAMPLES, "v3": V3}
    with pytest.raises(dataclasses.FrozenInstanceError):
        REFERENCE.encoding = Encoding.FORM  # type: ignore[misc]  # that is the point
    assert hash(REFERENCE) != hash(EXAMPLES)


V3_PAYMENT = {"currency": "KRW", "amount": "1250", "method": "kakaopay"}


def parameters_of(request: HttpRequest) -> dict[str, str]:
    parameters: dict[str, str] = json.loads(request.body)
    assert parameters.pop("verifySign") == signature(parameters)
    assert parameters.pop("merchantNo") == "200043"
    return parameters


def v3(**changes: Any) -> exchange.Credentials:
    return credentials(dialect=V3, store_no="300014", **changes)


def test_v3_sends_every_documented_parameter() -> None:
    paid = parameters_of(exchange.write_pay(v3(), payment(**V3_PAYMENT)))
    assert paid["amount"] == "1250"
    assert set(paid) == {
        *(
            "storeNo",
            "amount",
            "currency",
            "settleCurrency",
            "vendor",
            "ipnUrl",
            "callbackUrl",
            "reference",
            "terminal",
            "timeout",
        ),
    }
    assert parameters_of(exchange.write_query(v3(), ORDER)) == {
        "storeNo": "300014",
        "reference": ORDER,
    }
    assert parameters_of(
        exchange.write_refund(v3(), refund(currency="KRW", amount="250", refund_id="R-1")),
    ) == {
        "storeNo": "300014",
        "reference": ORDER,
        "refundAmount": "250",
        "currency": "KRW",
        "settleCurrency": "USD",
        "refundReference": "R-1",
    }


def test_v1_sends_no_v3_parameter() -> None:
    for dialect in (REFERENCE, EXAMPLES):
        for request in written(dialect).values():
            assert not parameters_of(request).keys() & {
                "storeNo",
                "settleCurrency",
                "osType",
                "refundAmount",
                "refundReference",
            }


@pytest.mark.parametrize(
    ("currency", "amount", "method", "given", "settled"),
    [
        ("KRW", "1250", "kakaopay", "", "USD"),
        ("GBP", "12.50", "alipay", "", "GBP"),
        ("CNY", "12.50", "alipay", "GBP", "GBP"),
    ],
)
def test_v3_settles_pounds_as_pounds(
    currency: str,
    amount: str,
    method: str,
    given: str,
    settled: str,
) -> None:
    """All other currencies are settled in dollars."""
    request = exchange.write_pay(
        v3(settle_currency=given),
        payment(currency=currency, amount=amount, method=method),
    )
    assert parameters_of(request)["settleCurrency"] == settled


@pytest.mark.parametrize(
    ("terminal", "os_type"),
    [("ONLINE", None), ("WAP", "ANDROID"), ("MWEB", "ANDROID")],
)
def test_v3_names_phones_operating_system(terminal: str, os_type: str | None) -> None:
    assert (
        parameters_of(exchange.write_pay(v3(), payment(terminal=terminal))).get("osType") == os_type
    )


@pytest.mark.parametrize("terminal", ["YIP", "IOS", "ANDROID"])
def test_v3_terminal_needs_payment_page(terminal: str) -> None:
    with pytest.raises(InvalidRequest, match="terminal"):
        exchange.write_pay(v3(), payment(terminal=terminal))


@pytest.mark.parametrize(
    ("method", "currency", "amount", "is_taken"),
    [
        ("kakaopay", "KRW", "50", True),
        ("kakaopay", "KRW", "49", False),
        ("kakaopay", "USD", "0.01", True),
        ("kakaopay", "PHP", "50", False),
        ("dana", "IDR", "299.99", False),
        ("dana", "IDR", "300", True),
        ("gcash", "PHP", "1", True),
        ("alipay", "GBP", "1", True),
        ("venmo", "CNY", "1", False),
    ],
)
def test_v3_method_limits_currency_and_minimum(
    method: str,
    currency: str,
    amount: str,
    is_taken: bool,
) -> None:
    wanted = payment(method=method, currency=currency, amount=amount)
    if is_taken:
        assert exchange.write_pay(v3(), wanted).operation == "pay"
    else:
        with pytest.raises(InvalidRequest, match=method):
            exchange.write_pay(v3(), wanted)


def test_v3_methods_use_v3_currencies() -> None:
    assert all(set(method.currencies) <= set(V3.currencies) for method in V3.methods)
    assert {method.code for method in V3.methods} == {
        method.code for method in REFERENCE.methods
    } | {"cashapppay"}
    assert set(V3.currencies) == {
        currency for method in V3.methods for currency in method.currencies
    }


def test_removed_currency_can_still_be_refunded() -> None:
    """The account took it when the payment was made."""
    at = credentials(dialect="v3", store_no="300014", currencies=["USD"])
    sent = exchange.write_refund(at, refund(currency="KRW", amount="5000"))
    assert json.loads(sent.body)["refundAmount"] == "5000"
    with pytest.raises(InvalidRequest, match="currencies: USD"):
        exchange.write_refund(credentials(), refund(currency="KRW", amount="5000"))


@pytest.mark.parametrize(
    "limits",
    [{"KRW": 0.5}, {"KRW": "0"}, {"KRW": "-1"}, {"KRW": "x"}, {"KRW": "Infinity"}, ["KRW"], 7],
)
def test_limits_that_are_no_amounts_are_refused(limits: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not limits by currency"):
        Method(code="kakaopay", minimums=limits)
