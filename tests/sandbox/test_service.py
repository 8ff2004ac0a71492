"""The three operations and the life of a transaction, in process, under every switch."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tillgate.sandbox import NotPossible, Options, UnknownTransaction
from tillgate.sandbox.ledger import Decision
from tillgate.sandbox.requests import Refusal
from tillgate.sandbox.signing import matches, signature

if TYPE_CHECKING:
    from tests.sandbox.conftest import Merchant

    Build = Callable[..., Merchant]

TOKEN = Options().merchants["200043"]


def said(answer: Any) -> Any:
    return json.loads(answer.body, parse_float=Decimal)


# Failure first.


def test_unknown_reference_query_answers_000022(
    merchant: Build,
) -> None:
    """The answer is HTTP 400 and has no result."""
    answer = merchant(refusal_http_status=200).query("NOBODY")
    assert (answer.http_status, said(answer)) == (
        400,
        {"ret_code": "000022", "ret_msg": "order not found"},
    )


def test_a_reference_is_refused_the_second_time(merchant: Build) -> None:
    shop = merchant()
    shop.pay()
    again = shop.pay()
    assert (again.http_status, said(again)["ret_code"]) == (400, "000023")


def test_repeated_creation_can_replay_first_answer(merchant: Build) -> None:
    shop = merchant(repeated_reference="replay")
    assert shop.pay().body == shop.pay().body
    assert said(shop.pay(amount="12.51"))["ret_code"] == "000023"


@pytest.mark.parametrize("action", ["leave", "decline", "expire"])
def test_only_a_paid_transaction_can_be_refunded(merchant: Build, action: str) -> None:
    shop = merchant()
    number = said(shop.pay())["result"]["transactionNo"]
    if action == "expire":
        shop.service.expire(number)
    else:
        shop.service.decide(number, "leave" if action == "leave" else "decline")
    assert said(shop.refund("1.00"))["ret_code"] == "000040"


@pytest.mark.parametrize("amount", ["12.51", "100", "0", "-1", "1.234", "", "NaN", 1, 12.5])
def test_wrong_refund_amount_changes_nothing(
    merchant: Build,
    amount: Any,
) -> None:
    """The refund is refused."""
    shop = merchant()
    number = shop.paid()
    assert shop.refund(amount).http_status == 400
    assert shop.service.find(number).refunds == []


def test_refund_of_unknown_reference_is_refused(merchant: Build) -> None:
    assert said(merchant().refund("1.00", "NOBODY"))["ret_code"] == "000022"


def test_merchants_do_not_see_each_other(merchant: Build) -> None:
    shop = merchant(merchants={"200043": TOKEN, "200044": "another"})
    shop.pay()
    other = {"merchantNo": "200044", "reference": "100017-7Q2MZK4RXW3DA"}
    answer = shop.send(
        "/online/v1/tran-query",
        {**other, "verifySign": signature(other, "another")},
    )
    assert said(answer)["ret_code"] == "000022"


@pytest.mark.parametrize("action", ["pay", "decline", "leave"])
def test_what_is_settled_cannot_be_decided_again(merchant: Build, action: Any) -> None:
    shop = merchant()
    number = shop.paid()
    with pytest.raises(NotPossible):
        shop.service.decide(number, action)
    with pytest.raises(NotPossible):
        shop.service.expire(number)


def test_unknown_path_and_transaction_not_found(merchant: Build) -> None:
    shop = merchant()
    assert shop.send("/online/v2/secure-pay", {}).http_status == 404
    with pytest.raises(UnknownTransaction):
        shop.service.decide("1", "pay")


# Promises.


def test_creation_answer_has_every_field(merchant: Build) -> None:
    answer = merchant().pay()
    result = said(answer)["result"]
    assert (answer.http_status, said(answer)["ret_code"], said(answer)["ret_msg"]) == (
        200,
        "000100",
        "prepay success",
    )
    assert set(result) == {
        "amount",
        "currency",
        "transactionNo",
        "reference",
        "cashierUrl",
        "settleCurrency",
    }
    assert (result["amount"], result["currency"], result["settleCurrency"]) == (
        "12.50",
        "USD",
        "USD",
    )
    assert result["cashierUrl"].startswith("https://pay.example/cashier/")


def test_payment_succeeds_and_refunds_in_parts(
    merchant: Build,
) -> None:
    shop = merchant(query_amount="text")
    number = said(shop.pay())["result"]["transactionNo"]
    assert said(shop.query())["result"]["status"] == "pending"
    shop.service.decide(number, "pay")
    assert said(shop.query()) == {
        "ret_code": "000100",
        "ret_msg": "success",
        "result": {
            "transactionNo": number,
            "reference": "100017-7Q2MZK4RXW3DA",
            "amount": "12.50",
            "status": "success",
            "currency": "USD",
            "settleCurrency": "USD",
        },
    }
    assert said(shop.refund("2.50")) == {"ret_code": "000100", "ret_msg": "refund success"}
    assert said(shop.refund("10"))["ret_code"] == "000100"
    assert said(shop.refund("0.01"))["ret_code"] == "000040"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # the fixture only builds: every example has its own shop
@given(paid_cents=st.integers(1, 100_000), refunds=st.lists(st.integers(1, 60_000), max_size=20))
def test_refunds_never_exceed_the_payment(
    merchant: Build,
    paid_cents: int,
    refunds: list[int],
) -> None:
    shop = merchant(magic_amounts=False)
    number = shop.paid(amount=f"{paid_cents // 100}.{paid_cents % 100:02d}")
    left = paid_cents
    for cents in refunds:
        accepted = said(shop.refund(f"{cents // 100}.{cents % 100:02d}"))["ret_code"] == "000100"
        assert accepted == (cents <= left)
        left -= cents if accepted else 0
    assert shop.service.find(number).refunded_units == paid_cents - left


@pytest.mark.parametrize(("minutes", "sent"), [(120, None), (5, "5")])
def test_transaction_expires_when_time_ends(
    merchant: Build,
    minutes: int,
    sent: str | None,
) -> None:
    shop = merchant()
    number = said(shop.pay(timeout=sent))["result"]["transactionNo"]
    shop.clock.advance(minutes * 60 - 1)
    assert said(shop.query())["result"]["status"] == "pending"
    shop.clock.advance(1)
    assert said(shop.query())["result"]["status"] == "closed"
    with pytest.raises(NotPossible):
        shop.service.decide(number, "pay")


def test_expired_or_failed_transaction_pays_late(merchant: Build) -> None:
    """The gateway may still take the money afterwards."""
    shop = merchant()
    number = said(shop.pay())["result"]["transactionNo"]
    shop.service.expire(number)
    shop.service.decide(number, "pay", late=True)
    assert said(shop.query())["result"]["status"] == "success"


def test_leaving_keeps_the_payment_open(merchant: Build) -> None:
    shop = merchant()
    number = said(shop.pay())["result"]["transactionNo"]
    assert "status=pending" in (shop.service.decide(number, "leave") or "")
    shop.service.decide(number, "pay")
    assert said(shop.query())["result"]["status"] == "success"


def test_payment_changes_behind_merchants_back(merchant: Build) -> None:
    """It can be reversed or refunded without the merchant."""
    shop = merchant()
    number = shop.paid()
    shop.service.give_back(shop.service.find(number), 250)
    assert said(shop.refund("10.01"))["ret_code"] == "000040"
    shop.service.reverse(number)
    assert said(shop.query())["result"]["status"] == "reversed"
    with pytest.raises(Refusal):
        shop.service.give_back(shop.service.find(number), 1)


def test_same_seed_and_calls_repeat_bytes(merchant: Build) -> None:
    """The calls must come in the same order."""

    def run(seed: int) -> list[bytes]:
        shop = merchant(
            seed=seed,
            server_error=0.2,
            broken_json=0.2,
            cut=0.2,
            wrong_amount=0.2,
            notification_duplicate=0.5,
        )
        heard = []
        for number in range(50):
            answer = shop.pay(reference=f"R{number}")
            heard += [
                answer.body,
                answer.fate.encode(),
                str(answer.cut_after).encode(),
                shop.query(f"R{number}").body,
            ]
        for transaction in shop.service.transactions():
            shop.service.decide(transaction.transaction_no, "pay")
        return heard + [attempt.body for attempt in shop.service.due_notifications(shop.clock())]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_extra_fault_renames_no_transaction(merchant: Build) -> None:
    plain, faulty = merchant(), merchant(delay=0.5)
    assert said(plain.pay())["result"] == said(faulty.pay())["result"]


# Each unspecified behaviour of the interface is a switch.


@pytest.mark.parametrize(
    ("prefixes", "served"),
    [
        ("all", {"online": True, "app-data-search": True}),
        ("online", {"online": True, "app-data-search": False}),
        ("examples", {"online": False, "app-data-search": True}),
    ],
)
def test_unspecified_behaviour_2_path_prefixes(
    merchant: Build,
    prefixes: str,
    served: dict[str, bool],
) -> None:
    """Query and refund can be served under another prefix."""
    shop = merchant(prefixes=prefixes)
    assert shop.pay().http_status == 200
    for prefix, answers in served.items():
        for call in ("tran-query", "refund"):
            assert (shop.send(f"/{prefix}/v1/{call}", {}).http_status != 404) is answers


@pytest.mark.parametrize(
    ("switch", "raw"),
    [("text", b'"amount":"12.50"'), ("number", b'"amount":12.50')],
)
def test_unspecified_behaviour_4_amount_type(
    merchant: Build,
    switch: str,
    raw: bytes,
) -> None:
    """The amount can be text or a number."""
    shop = merchant(pay_amount=switch, query_amount=switch)
    assert raw in shop.pay().body
    assert raw in shop.query().body


def test_unspecified_behaviour_4_exact_numbers(merchant: Build) -> None:
    shop = merchant()
    shop.pay(amount="99999999999999.99")
    assert b'"amount":99999999999999.99' in shop.query().body


@pytest.mark.parametrize(("sent", "written"), [("012.50", "12.50"), ("000.5", "0.5"), ("007", "7")])
def test_unspecified_behaviour_4_no_leading_zeros(
    merchant: Build,
    sent: str,
    written: str,
) -> None:
    shop = merchant(pay_amount="number")
    shop.service.faults.plan("amount_number", occasion="query")
    assert f'"amount":{written},' in shop.pay(amount=sent).body.decode()
    for _ in ("by the fault", "by the switch"):
        assert f'"amount":{written},' in shop.query().body.decode()


def test_unspecified_behaviour_5_missing_amount(merchant: Build) -> None:
    shop = merchant(query_amount="missing")
    shop.pay()
    assert "amount" not in said(shop.query())["result"]


def test_unspecified_behaviour_6_the_status_words(merchant: Build) -> None:
    shop = merchant(
        word_pending="init",
        word_paid="PAID",
        word_failed="fail",
        word_expired="expired",
        word_reversed="charged back",
    )
    words = []
    actions: tuple[tuple[str, Decision], ...] = (("A", "leave"), ("B", "pay"), ("C", "decline"))
    for reference, action in actions:
        number = said(shop.pay(reference=reference))["result"]["transactionNo"]
        shop.service.decide(number, action)
        words.append(said(shop.query(reference))["result"]["status"])
    shop.service.reverse(shop.service.find("B").transaction_no)
    shop.service.expire(shop.service.find("A").transaction_no)
    words += [said(shop.query(reference))["result"]["status"] for reference in ("B", "A")]
    assert words == ["init", "PAID", "fail", "charged back", "expired"]


@pytest.mark.parametrize(
    ("switch", "there", "right"),
    [("none", False, False), ("valid", True, True), ("wrong", True, False)],
)
def test_unspecified_behaviour_7_the_signature_of_answers(
    merchant: Build,
    switch: str,
    there: bool,
    right: bool,
) -> None:
    shop = merchant(answer_signature=switch)
    shop.paid()
    for place in (
        said(shop.query())["result"],
        said(shop.refund("1.00")),
        said(shop.refund("100.00")),
    ):
        assert ("verifySign" in place) is there
        assert matches({name: str(value) for name, value in place.items()}, TOKEN) is right


@pytest.mark.parametrize("status", [200, 400, 422])
def test_unspecified_behaviour_12_the_status_of_refusals(merchant: Build, status: int) -> None:
    shop = merchant(refusal_http_status=status)
    assert shop.pay(vendor="cash").http_status == status
    assert shop.refund("1.00", "NOBODY").http_status == status


def test_unspecified_behaviour_14_refund_message(merchant: Build) -> None:
    shop = merchant(refund_message="done")
    shop.paid()
    assert said(shop.refund("1.00"))["ret_msg"] == "done"


def test_unspecified_behaviour_16_the_rate_limit(merchant: Build) -> None:
    shop = merchant(rate_limit_per_second=2)
    assert [shop.query("R").http_status for _ in range(3)] == [400, 400, 429]
    shop.clock.advance(1)
    assert shop.query("R").http_status == 400


def test_rate_limited_call_uses_no_fault(merchant: Build) -> None:
    shop = merchant(rate_limit_per_second=2)
    shop.pay()
    shop.query()
    shop.service.faults.plan("denied")
    assert shop.query().http_status == 429
    assert [entry.title for entry in shop.service.journal.all() if entry.direction == "fault"] == []
    shop.clock.advance(1)
    assert (said(shop.query())["ret_code"], said(shop.query())["ret_code"]) == ("000022", "000100")


def test_unspecified_behaviour_18_refunded_status_words(merchant: Build) -> None:
    shop = merchant(word_partly_refunded="partial", word_refunded="refunded")
    shop.paid()
    shop.refund("2.50")
    partly = said(shop.query())["result"]["status"]
    shop.refund("10.00")
    assert (partly, said(shop.query())["result"]["status"]) == ("partial", "refunded")


def test_unspecified_behaviour_19_expired_is_forgotten(merchant: Build) -> None:
    shop = merchant(expired_is_forgotten=True)
    shop.pay()
    shop.clock.advance(7200)
    assert said(shop.query())["ret_code"] == "000022"


@pytest.mark.parametrize("word", ["EUR", ""])
def test_unspecified_behaviour_20_answer_currencies(
    merchant: Build,
    word: str,
) -> None:
    """Answers can name other currencies or none."""
    shop = merchant(answer_currency=word, answer_settle_currency=word)
    for result in (said(shop.pay())["result"], said(shop.query())["result"]):
        assert (result.get("currency", ""), result.get("settleCurrency", "")) == (word, word)


def test_forms_and_json_are_answered_alike(merchant: Build) -> None:
    shop = merchant()
    shop.pay()
    by_form = shop.call("query", {"reference": "100017-7Q2MZK4RXW3DA"}, form=True)
    assert by_form == shop.query()
