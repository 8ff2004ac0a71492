"""Every fault acts as its line says, at the occasions it names, called for by plan, amount or
chance.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tillgate.sandbox import FAULTS, MAGIC, Answer, NotPossible, Options, UnknownOption, WrongOption
from tillgate.sandbox.signing import matches

if TYPE_CHECKING:
    from tests.sandbox.conftest import Merchant

    Build = Callable[..., Merchant]

REFERENCE = "100017-7Q2MZK4RXW3DA"
TOKEN = Options().merchants["200043"]
CALLS = ("pay", "query", "refund")


def said(answer: Answer) -> Any:
    return json.loads(answer.body)


def struck(shop: Merchant, fault: str, operation: str) -> Answer:
    """Call an operation that would succeed, with the fault planned for it."""
    if operation != "pay":
        shop.paid()
    shop.service.faults.plan(fault, occasion=operation)
    return {"pay": shop.pay, "query": shop.query, "refund": lambda: shop.refund("1.00")}[
        operation
    ]()


def done(shop: Merchant, operation: str) -> bool:
    """Say whether the work was done."""
    known = shop.service.transactions()
    return bool(known) if operation == "pay" else bool(known[0].refunds)


@pytest.mark.parametrize(
    "name",
    [name for name, fault in FAULTS.items() if fault.stage == "instead"],
)
@pytest.mark.parametrize("operation", ["pay", "refund"])
def test_fault_replacing_work_leaves_it_undone(
    merchant: Build,
    name: str,
    operation: str,
) -> None:
    if operation in FAULTS[name].occasions:
        shop = merchant()
        struck(shop, name, operation)
        assert not done(shop, operation)


@pytest.mark.parametrize(
    "name",
    [name for name, fault in FAULTS.items() if fault.stage == "damage"],
)
@pytest.mark.parametrize("operation", ["pay", "refund"])
def test_answer_fault_comes_after_work(
    merchant: Build,
    name: str,
    operation: str,
) -> None:
    if operation in FAULTS[name].occasions:
        shop = merchant()
        struck(shop, name, operation)
        assert done(shop, operation)


HOW: dict[str, Callable[[Answer], bool]] = {
    "lost_request": lambda answer: answer.fate == "lose_request",
    "lost_response": lambda answer: answer.fate == "lose_response",
    "delay": lambda answer: answer.delay_seconds == 3 and said(answer)["ret_code"] == "000100",
    "server_error": lambda answer: answer.http_status == 503,
    "server_error_done": lambda answer: answer.http_status == 502,
    "rate_limited": lambda answer: (
        answer.http_status == 429 and ("retry-after", "1") in answer.headers
    ),
    "broken_json": lambda answer: answer.http_status == 200 and not answer.body.endswith(b"}"),
    "html_body": lambda answer: answer.http_status == 200 and b"<title>" in answer.body,
    "redirect": lambda answer: (
        answer.http_status == 302
        and answer.headers == (("location", "https://pay.example/elsewhere"),)
    ),
    "json_list": lambda answer: said(answer)[0]["ret_code"] == "000100",
    "missing_ret_code": lambda answer: set(said(answer)) in ({"ret_msg"}, {"ret_msg", "result"}),
    "numeric_ret_code": lambda answer: said(answer)["ret_code"] == 100,
    "huge_body": lambda answer: (
        len(answer.body) >= 10 * 1024 * 1024 and said(answer)["ret_code"] == "000100"
    ),
    "slow_drip": lambda answer: answer.fate == "drip" and answer.pause_seconds == 0.2,
    "cut": lambda answer: answer.fate == "cut" and 0 <= answer.cut_after < len(answer.raw()),
    "empty_body": lambda answer: answer.http_status == 200 and answer.body == b"",
    "system_error": lambda answer: said(answer)["ret_code"] == "000000",
    "bad_signature": lambda answer: "verifySign" in said(answer).get("result", said(answer)),
    "refused": lambda answer: (answer.http_status, said(answer)["ret_code"]) == (400, "000040"),
    "unknown_code": lambda answer: (
        (answer.http_status, said(answer)["ret_code"]) == (200, "000999")
    ),
    "denied": lambda answer: (answer.http_status, said(answer)["ret_code"]) == (400, "000022"),
}


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, one) for name in HOW for one in FAULTS[name].occasions],
)
def test_a_fault_looks_as_its_line_says(merchant: Build, name: str, operation: str) -> None:
    assert HOW[name](struck(merchant(), name, operation))


WHAT: dict[str, Callable[[dict[str, Any], str], bool]] = {
    "payment_page_missing": lambda result, raw: "cashierUrl" not in result,
    "payment_page_relative": lambda result, raw: result["cashierUrl"].startswith("/cashier/"),
    "other_reference": lambda result, raw: result["reference"] == f"{REFERENCE}-OTHER",
    "wrong_amount": lambda result, raw: float(result["amount"]) == 12.51,
    "amount_number": lambda result, raw: '"amount":12.50' in raw,
    "amount_text": lambda result, raw: '"amount":"12.50"' in raw,
    "missing_amount": lambda result, raw: "amount" not in result,
    "wrong_currency": lambda result, raw: result["currency"] == "EUR",
    "missing_currency": lambda result, raw: "currency" not in result,
    "wrong_settle_currency": lambda result, raw: result["settleCurrency"] == "EUR",
    "wrong_transaction_no": lambda result, raw: len(result["transactionNo"]) == 18,
    "unknown_status": lambda result, raw: result["status"] == "quantum",
}


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, one) for name in WHAT for one in FAULTS[name].occasions],
)
def test_fault_signs_what_its_line_says(
    merchant: Build,
    name: str,
    operation: str,
) -> None:
    shop = merchant(answer_signature="valid")
    answer = struck(shop, name, operation)
    result = json.loads(answer.body, parse_float=str)["result"]
    assert WHAT[name](result, answer.body.decode())
    assert matches(result, TOKEN)
    if name == "wrong_transaction_no":
        assert result["transactionNo"] != shop.service.transactions()[0].transaction_no


def test_every_call_fault_is_tested() -> None:
    assert {*HOW, *WHAT} == {name for name, fault in FAULTS.items() if fault.stage != "moment"}


def test_a_bad_signature_is_wrong(merchant: Build) -> None:
    result = said(struck(merchant(), "bad_signature", "query"))["result"]
    assert not matches({name: str(value) for name, value in result.items()}, TOKEN)


def test_cut_is_exact_to_the_byte(merchant: Build) -> None:
    answer = struck(merchant(cut_after_bytes=17), "cut", "query")
    assert answer.cut_after == 17
    assert answer.raw()[:17] == b"HTTP/1.1 200 OK\r\n"


# Callers of a fault.


def test_planned_fault_strikes_as_requested(merchant: Build) -> None:
    """It strikes where and as often as it was asked to."""
    shop = merchant()
    shop.pay(reference="A")
    shop.pay(reference="B")
    shop.service.faults.plan("server_error", occasion="query", reference="B", times=2)
    assert [shop.query(name).http_status for name in "ABABAB"] == [200, 503, 200, 503, 200, 200]
    assert shop.service.faults.planned == []


@pytest.mark.parametrize(
    ("name", "wishes", "error"),
    [
        ("lost", {}, UnknownOption),
        ("denied", {"occasion": "refund"}, WrongOption),
        ("delay", {"occasion": "always"}, WrongOption),
        ("delay", {"times": 0}, WrongOption),
    ],
)
def test_impossible_plan_is_refused(
    merchant: Build,
    name: str,
    wishes: dict[str, Any],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        merchant().service.faults.plan(name, **wishes)


def test_chance_follows_the_probability(merchant: Build) -> None:
    shop = merchant(faults={"query.server_error": 0.3})
    shop.pay()
    failed = sum(shop.query().http_status == 503 for _ in range(1000))
    assert 250 < failed < 350


def test_certain_fault_strikes_only_its_operation(merchant: Build) -> None:
    """With a probability of 1 it strikes always."""
    shop = merchant(faults={"refund.lost_response": 1})
    shop.paid()
    assert shop.query().fate == "answer"
    assert shop.refund("1.00").fate == "lose_response"


# Magic amounts.


@pytest.mark.parametrize(
    "amount",
    [
        "1.00",
        "12.50",
        "2.50",
        "9.99",
        "13",
        "13.00",
        "13.10",
        "13.25",
        "13.50",
        "13.75",
        "13.99",
        "113.02",
    ],
)
def test_ordinary_prices_behave(merchant: Build, amount: str) -> None:
    shop = merchant()
    shop.paid(amount=amount)
    assert said(shop.query())["result"]["status"] == "success"
    assert said(shop.refund("0.50"))["ret_code"] == "000100"
    assert len(shop.service.due_notifications(shop.clock())) == 1


@pytest.mark.parametrize(
    ("cents", "magic"),
    [(cents, magic) for cents, magic in MAGIC.items() if magic.occasion in ("carrier", "pay")],
)
def test_a_magic_payment_meets_its_fault(merchant: Build, cents: int, magic: Any) -> None:
    shop = merchant()
    shop.pay(amount=f"{cents / 100:.2f}")
    assert faults_of(shop) == [magic.fault]


@pytest.mark.parametrize(
    ("cents", "magic"),
    [(cents, magic) for cents, magic in MAGIC.items() if magic.occasion == "carrier"],
)
def test_a_magic_refund_meets_its_fault(merchant: Build, cents: int, magic: Any) -> None:
    shop = merchant()
    shop.paid(amount="50.00")
    shop.refund(f"{cents / 100:.2f}")
    assert faults_of(shop) == [magic.fault]


@pytest.mark.parametrize(
    ("cents", "magic"),
    [(cents, magic) for cents, magic in MAGIC.items() if magic.occasion == "query"],
)
def test_magic_payments_query_meets_its_fault(
    merchant: Build,
    cents: int,
    magic: Any,
) -> None:
    """The fault strikes as often as the table says."""
    shop = merchant()
    shop.pay(amount=f"{cents / 100:.2f}")
    for _ in range(5):
        shop.query()
    assert faults_of(shop) == [magic.fault] * (magic.times or 5)


@pytest.mark.parametrize(
    ("cents", "magic"),
    [
        (cents, magic)
        for cents, magic in MAGIC.items()
        if magic.occasion not in ("carrier", "pay", "query")
    ],
)
def test_magic_payments_life_meets_its_fault(
    merchant: Build,
    cents: int,
    magic: Any,
) -> None:
    shop = merchant(late_seconds=5)
    number = said(shop.pay(amount=f"{cents / 100:.2f}"))["result"]["transactionNo"]
    shop.service.decide(number, "pay")
    assert faults_of(shop) == [magic.fault]


def test_magic_can_be_switched_off(merchant: Build) -> None:
    shop = merchant(magic_amounts=False)
    assert shop.pay(amount="13.02").fate == "answer"
    assert faults_of(shop) == []


def faults_of(shop: Merchant) -> list[str]:
    return [entry.title for entry in shop.service.journal.all() if entry.direction == "fault"]


def test_magic_amounts_name_only_possible_faults() -> None:
    for magic in MAGIC.values():
        wanted = {"pay", "refund"} if magic.occasion == "carrier" else {magic.occasion}
        assert wanted <= set(FAULTS[magic.fault].occasions)


def test_late_money_first_fails_and_then_arrives(merchant: Build) -> None:
    shop = merchant()
    number = said(shop.pay(amount="13.71"))["result"]["transactionNo"]
    assert "status=failed" in (shop.service.decide(number, "pay") or "")
    assert said(shop.query())["result"]["status"] == "failed"
    shop.clock.advance(60)
    assert said(shop.query())["result"]["status"] == "success"


@pytest.mark.parametrize(("amount", "end"), [("13.74", "success"), ("13.77", "failed")])
def test_slow_money_ends_after_its_time(merchant: Build, amount: str, end: str) -> None:
    shop = merchant(slow_seconds=3600)
    number = said(shop.pay(amount=amount))["result"]["transactionNo"]
    assert "status=processing" in (shop.service.decide(number, "pay") or "")
    shop.clock.advance(3599)
    assert said(shop.query())["result"]["status"] == "processing"
    with pytest.raises(NotPossible):
        shop.service.decide(number, "pay")
    shop.clock.advance(1)
    assert said(shop.query())["result"]["status"] == end


@pytest.mark.parametrize(("is_paid", "end"), [(True, "success"), (False, "closed")])
def test_voucher_is_paid_or_expires(merchant: Build, is_paid: bool, end: str) -> None:
    """Its answers name its page and its end, as long as it is to be paid."""
    shop = merchant(slow_seconds=3600)
    result = said(shop.pay(amount="13.76"))["result"]
    number = result["transactionNo"]
    shop.service.decide(number, "pay")
    shop.clock.advance(1800)
    waits = said(shop.query())["result"]
    assert (waits["status"], waits["voucherUrl"]) == ("processing", result["cashierUrl"])
    assert int(waits["voucherUntil"]) - shop.clock() == pytest.approx(1800, abs=1)
    if is_paid:
        shop.service.decide(number, "pay")
    shop.clock.advance(1800)
    ended = said(shop.query())["result"]
    assert ended["status"] == end
    assert "voucherUrl" not in ended
