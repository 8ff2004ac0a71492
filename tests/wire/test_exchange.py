"""One exchange with the service: the request, and the proof in an answer (Endpoints, Errors;
unspecified 5, 7, 12, 13, 14, 20).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import (
    GOOD_BODIES,
    OPERATIONS,
    PAYMENT_PAGE,
    REFERENCE,
    TOKEN,
    TOKEN_DIGEST,
    answered,
    created,
    credentials,
    envelope,
    everything_shown,
    found,
    payment,
    refund,
    signature,
)
from tillgate import REFERENCE as REFERENCE_DIALECT
from tillgate import (
    AnswerNotUnderstood,
    CreatedPayment,
    InvalidRequest,
    OrderNotFound,
    OutcomeUnknown,
    Refunded,
    Refused,
    SignatureMismatch,
    SignatureRule,
    TillgateError,
    Transaction,
    TransactionStatus,
    WrongCredentials,
)
from tillgate.wire import exchange
from tillgate.wire.exchange import LARGEST_ANSWER_BYTES, Credentials, HttpAnswer

READ: dict[str, Callable[[Credentials, HttpAnswer], Any]] = {
    "pay": lambda at, answer: exchange.read_pay(at, payment(), answer),
    "query": lambda at, answer: exchange.read_query(at, REFERENCE, answer),
    "refund": lambda at, answer: exchange.read_refund(at, refund(), answer),
}
INCONCLUSIVE: dict[str, Any] = {
    "pay": OutcomeUnknown,
    "query": AnswerNotUnderstood,
    "refund": OutcomeUnknown,
}
"""The outcome of each answer that proves nothing."""
ODD_STATUSES = (100, 101, 300, 301, 302, 304, 307, 429, 500, 502, 503, 504, 599, 600, 999)
BROKEN_BODIES = [
    pytest.param(b"", id="empty"),
    pytest.param(b"<html>502 Bad Gateway</html>", id="not JSON"),
    pytest.param(b'{"ret_code":"000100"', id="cut"),
    pytest.param(b"\xff\xfe{", id="not UTF-8"),
    pytest.param(b'{"ret_code":"000100"}x', id="something after it"),
    pytest.param(b'{"ret_code":"000100"}\n{"ret_code":"000030"}', id="two envelopes"),
    pytest.param(b"[]", id="a list"),
    pytest.param(json.dumps([GOOD_BODIES["pay"]]).encode(), id="the envelope in a list"),
    pytest.param(b'"000100"', id="text"),
    pytest.param(b"null", id="null"),
    pytest.param(b"{}", id="nothing in it"),
    pytest.param(b'{"ret_msg":"success"}', id="ret_code missing"),
    pytest.param(b'{"ret_code":100,"ret_msg":"success"}', id="ret_code a number"),
    pytest.param(b'{"ret_code":null}', id="ret_code null"),
    pytest.param(b'{"ret_code":""}', id="ret_code empty"),
    pytest.param(b'{"ret_code":["000100"]}', id="ret_code in a list"),
    pytest.param(b'{"ret_code":"0001\\n00"}', id="ret_code of two lines"),
    pytest.param(b'{"ret_code":"%s"}' % (b"0" * 41), id="ret_code too long"),
    pytest.param(b'{"ret_code":"000100","ret_code":"000030"}', id="ret_code twice"),
    pytest.param(b'{"ret_code":"000100","ret_msg":7}', id="ret_msg a number"),
    pytest.param(b'{"ret_code":"000100","result":"success"}', id="result is text"),
    pytest.param(b'{"ret_code":"000100","result":[{}]}', id="result is a list"),
    pytest.param(b'{"ret_code":"000100","n":NaN}', id="NaN"),
    pytest.param(
        b'{"ret_code":"000100","n":1e99999999999999999999}',
        id="a number beyond all bounds",
    ),
    pytest.param(b'{"ret_code":"000100","n":' + b"[" * 100_000, id="nested too deep"),
    pytest.param(
        b'{"ret_code":"000100","n":'
        + b"[" * 400
        + b'"\\u0000"'
        + b"]" * 400
        + b',"result":{"a":"a","a":"b"}}',
        id="a name twice, deep",
    ),
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("body", BROKEN_BODIES)
def test_a_broken_or_missing_envelope_proves_nothing(operation: str, body: bytes) -> None:
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        READ[operation](credentials(), answered(body))
    assert caught.value.http_status == 200
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("code", ["000100", "000022", "000030", "999999"])
@pytest.mark.parametrize("status", ODD_STATUSES)
def test_429_5xx_and_redirects_prove_nothing(
    operation: str,
    code: str,
    status: int,
) -> None:
    """This holds for any body."""
    with pytest.raises(INCONCLUSIVE[operation], match=f"HTTP {status}") as caught:
        READ[operation](
            credentials(),
            answered({**GOOD_BODIES[operation], "ret_code": code}, status),
        )
    assert not isinstance(caught.value, Refused)
    assert caught.value.http_status == status


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("status", [400, 404, 422])
def test_success_code_needs_2xx_status(operation: str, status: int) -> None:
    """A success code under another HTTP status proves nothing."""
    with pytest.raises(INCONCLUSIVE[operation], match="success, under HTTP"):
        READ[operation](credentials(), answered(GOOD_BODIES[operation], status))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_truncated_answer_proves_nothing(operation: str) -> None:
    with pytest.raises(INCONCLUSIVE[operation], match=f"longer than {LARGEST_ANSWER_BYTES} bytes"):
        READ[operation](credentials(), HttpAnswer(status=200, body=b"", too_long=True))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("status", [200, 201, 299])
def test_000100_under_2xx_is_success(operation: str, status: int) -> None:
    kinds = {"pay": CreatedPayment, "query": Transaction, "refund": Refunded}
    assert (
        type(READ[operation](credentials(), answered(GOOD_BODIES[operation], status)))
        is kinds[operation]
    )


@pytest.mark.parametrize("operation", OPERATIONS)
def test_space_around_an_envelope_is_nothing(operation: str) -> None:
    body = b" \r\n" + json.dumps(GOOD_BODIES[operation], indent=1).encode() + b"\n\t "
    assert READ[operation](credentials(), answered(body)).reference == REFERENCE


# --- pay


@pytest.mark.parametrize(
    "changes",
    [
        {"cashierUrl": None},
        {"cashierUrl": ""},
        {"cashierUrl": "/cashier/1"},
        {"cashierUrl": "//pay.example/cashier/1"},
        {"cashierUrl": "pay.example/cashier"},
        {"cashierUrl": "http://pay.example/cashier/1"},
        {"cashierUrl": "javascript:alert(1)"},
        {"cashierUrl": "https://"},
        {"cashierUrl": "https://pay.example/\r\nSet-Cookie: a=b"},
        {"cashierUrl": "https://shop@evil.example/"},
        {"cashierUrl": "https://pay.examp\ud800le/cashier/1"},
        {"cashierUrl": 7},
        {"cashierUrl": [PAYMENT_PAGE]},
        {"transactionNo": None},
        {"transactionNo": ""},
        {"transactionNo": {"a": 1}},
        {"transactionNo": True},
        {"transactionNo": "9" * 256},
        {"cashierUrl": "https://pay.example/" + "x" * 4096},
        {"reference": None},
        {"reference": ""},
        {"reference": "100017-OTHER"},
        {"reference": "100017-7q2mzk4rxw3da"},
        {"amount": "12.51"},
        {"amount": 1250},
        {"amount": "12,50"},
        {"amount": "-12.50"},
        {"amount": True},
        {"amount": 0},
        {"amount": [12.5]},
        {"currency": "EUR"},
        {"currency": "usd"},
        {"currency": ["USD"]},
    ],
)
def test_doubtful_creation_has_unknown_outcome(changes: dict[str, Any]) -> None:
    with pytest.raises(OutcomeUnknown) as caught:
        READ["pay"](credentials(), answered(envelope(created(**changes))))
    error = caught.value
    assert (error.operation, error.reference, error.may_have_arrived) == ("pay", REFERENCE, True)
    assert isinstance(error.__cause__, AnswerNotUnderstood)


@pytest.mark.parametrize(
    "changes",
    [
        {"cashierUrl": "/cashier/7f3a9c01d2"},
        {"cashierUrl": "//pay.example/cashier/7f3a9c01d2"},
        {"cashierUrl": "http://pay.example/cashier/7f3a9c01d2"},
        {"cashierUrl": "https://shop@evil.example/cashier/7f3a9c01d2"},
        {"cashierUrl": "https://pay.example/cashier/7f3a9c01d2" + "x" * 4096},
        {"cashierUrl": ["https://pay.example/cashier/7f3a9c01d2"]},
        {"cashierUrl": "https://pay.example/cashier/7f3a9c01d2", "reference": "100017-OTHER"},
    ],
)
def test_i11_payment_page_error_hides_key(
    changes: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = answered(envelope(created(**changes)))
    with caplog.at_level(logging.DEBUG), pytest.raises(OutcomeUnknown) as caught:
        READ["pay"](credentials(), body)
    logging.getLogger("tillgate").error("a payment could not be created", exc_info=caught.value)
    assert "AnswerNotUnderstood" in caplog.text
    assert "7f3a9c01d2" not in caplog.text + everything_shown(caught.value)


def test_creation_without_result_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown, match="cashierUrl"):
        READ["pay"](credentials(), answered(envelope()))


@pytest.mark.parametrize("amount", ["12.50", "12.5", 12.5, None, ""])
@pytest.mark.parametrize("leave_out", [{}, {"currency": None}, {"settleCurrency": None}])
def test_creation_says_where_to_send_shopper(amount: Any, leave_out: dict[str, Any]) -> None:
    made = READ["pay"](credentials(), answered(envelope(created(amount=amount, **leave_out))))
    assert (made.transaction_no, made.payment_url, made.reference) == (
        "297553575",
        PAYMENT_PAGE,
        REFERENCE,
    )
    assert made.amount == (Decimal("12.50") if amount else None)
    assert made.currency == (None if "currency" in leave_out else "USD")
    assert made.settle_currency == (None if "settleCurrency" in leave_out else "USD")


def test_http_payment_page_only_in_sandboxes() -> None:
    answer = answered(envelope(created(cashierUrl="http://127.0.0.1:8000/cashier/1")))
    assert (
        READ["pay"](credentials(sandbox=True), answer).payment_url
        == "http://127.0.0.1:8000/cashier/1"
    )


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 422, 499])
@pytest.mark.parametrize("code", ["000022", "000030", "999999", "INVALID SIGN"])
def test_unspecified_behaviour_12_code_refuses_creation(status: int, code: str) -> None:
    """A code other than success and 000000 refuses a creation."""
    with pytest.raises(Refused) as caught:
        READ["pay"](credentials(), answered(envelope(code=code, message="no such vendor"), status))
    assert type(caught.value) is (WrongCredentials if code == "000030" else Refused), (
        "an unknown order has no place in a creation"
    )
    assert (caught.value.ret_code, caught.value.ret_msg, caught.value.http_status) == (
        code,
        "no such vendor",
        status,
    )


@pytest.mark.parametrize("operation", ["pay", "refund"])
@pytest.mark.parametrize("status", [200, 400])
def test_unspecified_behaviour_12_000000_is_unknown(
    operation: str,
    status: int,
) -> None:
    """000000 leaves the outcome of a creation or a refund unknown."""
    with pytest.raises(OutcomeUnknown, match="000000"):
        READ[operation](credentials(), answered(envelope(code="000000"), status))


# --- the documented answers of the public service

WRONG_TOKEN = b'{"ret_code":"000000","retMsg":"data error : verifySign"}'
"""The documented answer to a wrong signature (docs.2pay.co, guide/signing-api-parameters)."""


@pytest.mark.parametrize("operation", ["pay", "query", "refund"])
def test_wrong_token_is_recognised_by_answer(
    operation: str,
) -> None:
    """The documented answer proves that nothing has happened."""
    with pytest.raises(WrongCredentials) as caught:
        READ[operation](credentials(), answered(WRONG_TOKEN, 400))
    assert (caught.value.ret_code, caught.value.ret_msg, caught.value.http_status) == (
        "000000",
        "data error : verifySign",
        400,
    )


@pytest.mark.parametrize("operation", ["pay", "query", "refund"])
def test_missing_rights_deny_the_account(operation: str) -> None:
    with pytest.raises(WrongCredentials, match="000030"):
        READ[operation](credentials(), answered(envelope(code="000030", message="no rights"), 400))


@pytest.mark.parametrize("code", ["000040", "000010", "000021"])
def test_other_query_code_denies_no_account(code: str) -> None:
    with pytest.raises(Refused) as caught:
        READ["query"](
            credentials(),
            answered(envelope(code=code, message="supplier system error"), 400),
        )
    assert type(caught.value) is Refused


@pytest.mark.parametrize("operation", ["pay", "query", "refund"])
def test_trouble_of_the_supplier_proves_nothing(operation: str) -> None:
    with pytest.raises((OutcomeUnknown, AnswerNotUnderstood), match="000080"):
        READ[operation](
            credentials(),
            answered(envelope(code="000080", message="supplier system error"), 400),
        )


def refunded(**result: object) -> HttpAnswer:
    return answered(
        envelope(
            {
                "reference": REFERENCE,
                "refundAmount": "2.50",
                "refundTransactionNo": "301",
                **result,
            },
        ),
    )


def test_refund_with_agreeing_facts_is_done() -> None:
    assert READ["refund"](credentials(), refunded(status="success")).amount == Decimal("2.50")
    assert READ["refund"](credentials(), refunded(refundAmount=2.5)).amount == Decimal("2.50")


def test_refund_called_failed_was_refused() -> None:
    with pytest.raises(Refused, match="failed"):
        READ["refund"](credentials(), refunded(status="failed"))


@pytest.mark.parametrize(
    "result",
    [
        {"status": "who knows"},
        {"status": "closed"},
        {"refundAmount": "2.49"},
        {"refundAmount": "x"},
        {"reference": "R-2"},
    ],
)
def test_unclear_or_foreign_refund_is_unknown(
    result: dict[str, object],
) -> None:
    """Unknown words, or facts about something else, leave the refund unknown."""
    with pytest.raises(OutcomeUnknown):
        READ["refund"](credentials(), refunded(**result))


# --- refund


@pytest.mark.parametrize(
    "code",
    ["000010", "000020", "000021", "000022", "000023", "000030", "000040"],
)
@pytest.mark.parametrize("status", [200, 400])
def test_unspecified_behaviour_12_code_refuses_refund(code: str, status: int) -> None:
    """A known refusal code refuses a refund."""
    with pytest.raises(Refused) as caught:
        READ["refund"](credentials(), answered(envelope(code=code, message="too much"), status))
    assert (caught.value.ret_code, caught.value.ret_msg, caught.value.http_status) == (
        code,
        "too much",
        status,
    )


@pytest.mark.parametrize("code", ["000011", "999999", "000100 ", "0001", "100"])
@pytest.mark.parametrize("status", [200, 400, 403])
def test_unspecified_behaviour_12_refund_stays_unknown(
    code: str,
    status: int,
) -> None:
    """A code that is not known to be a refusal leaves a refund unknown."""
    with pytest.raises(OutcomeUnknown, match="not known to be a refusal") as caught:
        READ["refund"](credentials(), answered(envelope(code=code), status))
    assert (caught.value.operation, caught.value.reference) == ("refund", REFERENCE)


@pytest.mark.parametrize(
    "more",
    [{}, {"result": None}, {"result": {}}, {"result": []}, {"result": ""}, {"ret_msg": None}],
)
def test_unspecified_behaviour_14_000100_means_refunded(
    more: dict[str, Any],
) -> None:
    done = READ["refund"](credentials(), answered({**envelope(message="refund success"), **more}))
    assert (done.reference, done.amount) == (REFERENCE, Decimal("2.50"))
    assert done.ret_msg == ("" if "ret_msg" in more else "refund success")


# --- query


@pytest.mark.parametrize(
    "changes",
    [
        {"status": None},
        {"status": ""},
        {"status": True},
        {"status": ["success"]},
        {"reference": None},
        {"reference": "100017-OTHER"},
        {"reference": ""},
        {"reference": [REFERENCE]},
        {"reference": "X" * 1000},
        {"transactionNo": {}},
        {"transactionNo": "9" * 256},
        {"status": "x" * 65},
        {"currency": True},
        {"settleCurrency": []},
    ],
)
def test_foreign_or_empty_answer_not_understood(
    changes: dict[str, Any],
) -> None:
    """A query answer about something else, or about nothing, is not understood."""
    with pytest.raises(AnswerNotUnderstood) as caught:
        READ["query"](credentials(), answered(envelope(found(**changes))))
    assert len(str(caught.value)) < 300


def test_query_answer_needs_a_result() -> None:
    with pytest.raises(AnswerNotUnderstood):
        READ["query"](credentials(), answered(envelope()))


@pytest.mark.parametrize("status", [200, 401, 403, 404, 422])
def test_unspecified_behaviour_12_000022_needs_400(status: int) -> None:
    """Under another status, 000022 does not prove that the order does not exist."""
    with pytest.raises(Refused) as caught:
        READ["query"](
            credentials(),
            answered(envelope(code="000022", message="order not found"), status),
        )
    assert not isinstance(caught.value, OrderNotFound)


def test_unspecified_behaviour_12_000000_answers_nothing() -> None:
    """000000 says nothing about the payment that a query named."""
    with pytest.raises(
        AnswerNotUnderstood,
        match="it says 000000 'system error', which is no refusal",
    ):
        READ["query"](credentials(), answered(envelope(code="000000", message="system error"), 200))


@pytest.mark.parametrize("code", ["000010", "000023", "999999"])
def test_unspecified_behaviour_12_400_needs_000022(code: str) -> None:
    """Under 400, another code does not prove that the order does not exist."""
    with pytest.raises(Refused) as caught:
        READ["query"](credentials(), answered(envelope(code=code), 400))
    assert not isinstance(caught.value, OrderNotFound)


def test_000022_under_400_means_not_found() -> None:
    with pytest.raises(OrderNotFound) as caught:
        READ["query"](
            credentials(),
            answered(envelope(code="000022", message="order not found"), 400),
        )
    assert (caught.value.ret_code, caught.value.ret_msg, caught.value.http_status) == (
        "000022",
        "order not found",
        400,
    )


@pytest.mark.parametrize("word", ["repaid", "PAID", "\u6210\u529f", "success "])
def test_unknown_status_keeps_its_text(word: str) -> None:
    """It is read as unrecognised."""
    answer = READ["query"](credentials(), answered(envelope(found(status=word))))
    assert (answer.status, answer.status_text) == (TransactionStatus.UNRECOGNISED, word)


@pytest.mark.parametrize("amount", [None, "", "12.505", "twelve", [], "١٢"])
def test_unspecified_behaviour_5_unreadable_amount_none(amount: Any) -> None:
    """A missing or unreadable amount is None."""
    assert READ["query"](credentials(), answered(envelope(found(amount=amount)))).amount is None


@pytest.mark.parametrize("field", ["currency", "settleCurrency"])
@pytest.mark.parametrize("value", [None, "", "EUR"])
def test_unspecified_behaviour_20_currencies_reported_verbatim(
    field: str,
    value: str | None,
) -> None:
    answer = READ["query"](credentials(), answered(envelope(found(**{field: value}))))
    told = {"currency": answer.currency, "settleCurrency": answer.settle_currency}
    assert told == {"currency": "USD", "settleCurrency": "USD", field: value or None}


def test_query_answer_tells_whole_transaction() -> None:
    answer = READ["query"](
        credentials(),
        answered(envelope(found(status="pending", channel="alipay", paid=False))),
    )
    assert answer == Transaction(
        reference=REFERENCE,
        status=TransactionStatus.PENDING,
        status_text="pending",
        transaction_no="297553575",
        amount=Decimal("12.50"),
        currency="USD",
        settle_currency="USD",
        raw=found(status="pending", channel="alipay", paid=False),
    )


def test_numeric_transaction_number_keeps_digits() -> None:
    answer = answered(envelope(found(transactionNo=297553575000000001)))
    assert READ["query"](credentials(), answer).transaction_no == "297553575000000001"


# --- signatures of answers (unspecified 7)


def signed_flat(operation: str, **tampered: Any) -> dict[str, Any]:
    """Sign the plain fields of envelope and result together, beside ret_code."""
    body = GOOD_BODIES[operation]
    outer = {name: value for name, value in body.items() if name != "result"}
    return {**body, "verifySign": signature({**outer, **body.get("result", {})}), **tampered}


def signed_inside(operation: str, **tampered: Any) -> dict[str, Any]:
    """Sign the result's fields alone, within it."""
    result = GOOD_BODIES[operation]["result"]
    return {
        **GOOD_BODIES[operation],
        "result": {**result, "verifySign": signature(result), **tampered},
    }


def under(rule: SignatureRule, **changes: Any) -> Credentials:
    return credentials(
        dialect=dataclasses.replace(REFERENCE_DIALECT, answer_signature=rule),
        **changes,
    )


WRONG = [
    *(
        (operation, signed_flat(operation, verifySign=claimed))
        for operation in OPERATIONS
        for claimed in ("0" * 32, "x", 7, True, ["x"], "\ud800")
    ),
    *((operation, signed_flat(operation, ret_msg="tampered")) for operation in OPERATIONS),
    *((operation, signed_flat(operation, **{"\ud800": "x"})) for operation in OPERATIONS),
    ("pay", signed_inside("pay", amount="12.49")),
    ("query", signed_inside("query", status="pending")),
    ("query", {**GOOD_BODIES["query"], "verifySign": signature({"a": "b"})}),
]


def our_request(write: Callable[..., Any], *given: Any) -> dict[str, Any]:
    return dict(json.loads(write(credentials(), *given).body))


REFUSAL = {"ret_code": "000020", "ret_msg": "no"}
SIGNED_FOR_SOMETHING_ELSE = [
    ("refund", envelope(our_request(exchange.write_refund, refund()))),
    ("refund", envelope({**our_request(exchange.write_refund, refund()), "transactionNo": ""})),
    ("refund", envelope({**found(), "verifySign": signature(found())})),
    ("query", envelope(our_request(exchange.write_query, REFERENCE))),
    ("pay", envelope(our_request(exchange.write_pay, payment()))),
    *((operation, envelope(REFUSAL, verifySign=signature(REFUSAL))) for operation in OPERATIONS),
    *(
        (
            operation,
            envelope(
                {"ret_msg": "no"},
                verifySign=signature({"ret_code": "000100", "ret_msg": "no"}),
            ),
        )
        for operation in OPERATIONS
    ),
    (
        "query",
        envelope(
            {**found(), "a": "1"},
            a="2",
            verifySign=signature({"ret_code": "000100", "ret_msg": "success", **found(), "a": "1"}),
        ),
    ),
    ("query", envelope({**found(), "verifySign": signature(found())}, code="000020")),
    ("pay", {**signed_inside("pay"), "ret_code": "000020"}),
]


@pytest.mark.parametrize("rule", [SignatureRule.CHECKED, SignatureRule.REQUIRED])
@pytest.mark.parametrize(("operation", "body"), SIGNED_FOR_SOMETHING_ELSE)
def test_unspecified_behaviour_7_foreign_signature_fails(
    rule: SignatureRule,
    operation: str,
    body: dict[str, Any],
) -> None:
    """A signature made over another text fails."""
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        READ[operation](under(rule), answered(body))
    mismatch = caught.value if operation == "query" else caught.value.__cause__
    assert isinstance(mismatch, SignatureMismatch)


@pytest.mark.parametrize("rule", [SignatureRule.CHECKED, SignatureRule.REQUIRED])
@pytest.mark.parametrize(("operation", "body"), WRONG)
def test_unspecified_behaviour_7_wrong_signature_inconclusive(
    rule: SignatureRule,
    operation: str,
    body: dict[str, Any],
) -> None:
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        READ[operation](under(rule), answered(body))
    mismatch = caught.value if operation == "query" else caught.value.__cause__
    assert isinstance(mismatch, SignatureMismatch), "the owner is alerted by this kind"


@pytest.mark.parametrize(("operation", "body"), WRONG)
def test_unspecified_behaviour_7_wrong_signature_ignored(
    operation: str,
    body: dict[str, Any],
) -> None:
    """A wrong signature is ignored where the dialect says so."""
    with contextlib.suppress(TillgateError):
        READ[operation](under(SignatureRule.IGNORED), answered(body))
        return
    assert "tampered" not in body, "only a tampered result may be refused, for another reason"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("more", [{}, {"verifySign": ""}, {"verifySign": None}])
@pytest.mark.parametrize("rule", SignatureRule)
def test_unspecified_behaviour_7_rule_requires_signature(
    operation: str,
    more: dict[str, Any],
    rule: SignatureRule,
) -> None:
    """A signature is required only where the rule says so."""
    answer = answered({**GOOD_BODIES[operation], **more})
    if rule is SignatureRule.REQUIRED:
        with pytest.raises(INCONCLUSIVE[operation], match="carries no verifySign"):
            READ[operation](under(rule), answer)
    else:
        assert READ[operation](under(rule), answer).reference == REFERENCE


@pytest.mark.parametrize("rule", SignatureRule)
@pytest.mark.parametrize("body", [signed_flat("pay"), signed_inside("pay")])
def test_unspecified_behaviour_7_right_signature_accepted(
    rule: SignatureRule,
    body: dict[str, Any],
) -> None:
    """It may cover the whole answer or the result alone."""
    assert READ["pay"](under(rule), answered(body)).payment_url == PAYMENT_PAGE


@pytest.mark.parametrize("rule", SignatureRule)
def test_unspecified_behaviour_7_signed_refund_accepted(
    rule: SignatureRule,
) -> None:
    """A right signature over a refund's envelope is accepted."""
    assert READ["refund"](under(rule), answered(signed_flat("refund"))).reference == REFERENCE


def test_unspecified_behaviour_7_wire_numbers_signed() -> None:
    """A signature is verified over the numbers as they are on the wire."""
    texts = {**found(), "amount": "12.50", "fee": "0.10", "final": "true", "note": ""}
    claimed = signature(texts)
    body = json.dumps(
        envelope(
            {
                **texts,
                "amount": "@1",
                "fee": "@2",
                "final": True,
                "more": {"a": [1]},
                "none": None,
                "verifySign": claimed,
            },
        ),
    )
    body = body.replace('"@1"', "12.50").replace('"@2"', "0.10")
    assert READ["query"](under(SignatureRule.REQUIRED), answered(body.encode())).amount == Decimal(
        "12.50",
    )


def test_unspecified_behaviour_7_missigned_refusal_inconclusive() -> None:
    """So is a wrongly signed answer that the order was not found."""
    not_found = envelope(code="000022", message="order not found", verifySign="0" * 32)
    with pytest.raises(SignatureMismatch):
        READ["query"](credentials(), answered(not_found, 400))
    for operation in ("pay", "refund"):
        with pytest.raises(OutcomeUnknown):
            READ[operation](credentials(), answered(not_found, 400))


# --- requests


@pytest.mark.parametrize("field", ["ipn_url", "callback_url"])
def test_payment_addresses_need_https_outside_sandbox(field: str) -> None:
    request = payment(**{field: "http://shop.example/x"})
    with pytest.raises(InvalidRequest, match="or an account with sandbox=True") as caught:
        exchange.write_pay(credentials(), request)
    assert (caught.value.field, caught.value.value) == (field, "http://shop.example/x")
    assert exchange.write_pay(credentials(sandbox=True), request).operation == "pay"


def test_refund_address_needs_https_outside_sandbox() -> None:
    request = refund(ipn_url="http://shop.example/x")
    with pytest.raises(InvalidRequest) as caught:
        exchange.write_refund(credentials(), request)
    assert caught.value.field == "ipn_url"
    assert exchange.write_refund(credentials(sandbox=True), request).reference == REFERENCE


def test_query_sends_only_reference_and_merchant() -> None:
    written = json.loads(exchange.write_query(credentials(), REFERENCE).body)
    assert written == {
        "reference": REFERENCE,
        "merchantNo": "200043",
        "verifySign": signature({"reference": REFERENCE, "merchantNo": "200043"}),
    }


def test_any_script_is_signed_as_sent() -> None:
    """Text in any script is signed as it is sent."""
    request = payment(
        description='Th\u00e9 \u7dd1\u8336 \U0001f375 "quoted" \\ </script> \u2028 &=%',
        goods_info=[{"goods_name": "\u7dd1\u8336"}],
    )
    parameters = json.loads(exchange.write_pay(credentials(), request).body)
    assert parameters["description"] == request.description
    assert parameters["verifySign"] == signature(parameters)


# --- only errors of the tree, and no secrets


def read_all(body: bytes, status: int = 200) -> None:
    for operation in OPERATIONS:
        for rule in SignatureRule:
            try:
                READ[operation](under(rule), answered(body, status))
            except InvalidRequest:
                pytest.fail("something was sent, so the request was not invalid")
            except TillgateError as error:
                # any of several errors may come, or none
                assert str(error).isprintable()  # noqa: PT017
                str(error).encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3)
    ),
    max_leaves=6,
)
near_answers = st.fixed_dictionaries(
    {"ret_code": st.sampled_from(["000100", "000022", "000000", "000030"]) | json_values},
    optional={
        "ret_msg": json_values,
        "verifySign": json_values,
        "result": json_values
        | st.fixed_dictionaries(
            {},
            optional={
                name: st.sampled_from([REFERENCE, PAYMENT_PAGE, "12.50", "success", "USD"])
                | json_values
                for name in (
                    "reference",
                    "cashierUrl",
                    "amount",
                    "status",
                    "currency",
                    "settleCurrency",
                    "transactionNo",
                    "verifySign",
                )
            },
        ),
    },
)


@given(st.binary(max_size=200), st.sampled_from([200, 400, 429, 500]))
def test_random_bytes_raise_only_our_errors(body: bytes, status: int) -> None:
    read_all(body, status)


@given(near_answers, st.sampled_from([200, 400]))
def test_malformed_answers_raise_only_our_errors(body: Any, status: int) -> None:
    read_all(json.dumps(body).encode(), status)


@given(near_answers)
def test_unproven_success_is_never_reported(body: Any) -> None:
    answer = answered(json.dumps(body).encode())
    with contextlib.suppress(TillgateError):
        made = READ["pay"](credentials(), answer)
        assert (body["ret_code"], made.reference, made.payment_url) == (
            "000100",
            REFERENCE,
            PAYMENT_PAGE,
        )
    with contextlib.suppress(TillgateError):
        seen = READ["query"](credentials(), answer)
        assert (body["ret_code"], body["result"]["reference"]) == ("000100", REFERENCE)
        assert (seen.status is TransactionStatus.PAID) == (body["result"]["status"] == "success")
    with contextlib.suppress(TillgateError):
        READ["refund"](credentials(), answer)
        assert body["ret_code"] == "000100"


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a\x00b\udfff"])
def test_kept_answer_can_be_stored(text: str) -> None:
    result = found(status=f"w{text}", transactionNo=f"n{text}", more=[text, {text: text}])
    answer = READ["query"](credentials(), answered(envelope(result, message=text)))
    kept = json.dumps([answer.status_text, answer.transaction_no, answer.raw], ensure_ascii=False)
    assert "\\u0000" not in kept
    kept.encode()
    with pytest.raises(Refused) as caught:
        READ["pay"](credentials(), answered(envelope(code="1", message=text)))
    caught.value.ret_msg.encode()
    assert "\0" not in caught.value.ret_msg


@pytest.mark.parametrize("operation", OPERATIONS)
def test_i11_refusal_masks_signature_and_token(operation: str) -> None:
    wanted = signature({"a": "b"})
    answer = answered(
        envelope(
            code="000010",
            message=f"sign {wanted.upper()}, want {wanted} of {TOKEN}, {TOKEN_DIGEST}",
        ),
        400,
    )
    with pytest.raises(TillgateError) as caught:
        READ[operation](credentials(), answer)
    assert getattr(caught.value, "ret_msg", None) == "sign ***, want *** of ***, ***"
    shown = everything_shown(caught.value).lower()
    assert not [secret for secret in (wanted, TOKEN, TOKEN_DIGEST) if secret in shown]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("body", ["nested", "plain", "not JSON", "wrong"])
def test_i11_answer_signature_never_kept_or_shown(operation: str, body: str) -> None:
    claimed = signature({"a": "b"})
    texts: dict[str, Any] = {
        "nested": {
            **GOOD_BODIES[operation],
            "result": {**created(), **found(), "data": [{"verifySign": claimed}]},
        },
        "plain": {**envelope(code="000011"), "echo": {"verifySign": claimed}},
        "not JSON": f"<pre>POST verifySign={claimed}</pre>".encode(),
        "wrong": {**GOOD_BODIES[operation], "verifySign": claimed},
    }
    try:
        answer = READ[operation](credentials(), answered(texts[body]))
        shown = repr(answer) + str(getattr(answer, "raw", ""))
    except TillgateError as error:
        shown = everything_shown(error)
    assert claimed not in shown


def test_i11_no_repr_shows_a_secret() -> None:
    request = exchange.write_pay(credentials(), payment())
    written = json.loads(request.body)["verifySign"]
    shown = repr(
        [
            credentials(),
            request,
            answered(signed_flat("pay")),
            READ["pay"](credentials(), answered(signed_inside("pay"))),
        ],
    )
    assert not [
        secret for secret in (TOKEN, TOKEN_DIGEST, written, "verifySign") if secret in shown
    ]
