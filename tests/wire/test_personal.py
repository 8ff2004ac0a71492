"""The stored parts of a message from outside: the fields of a list, and no address or card number
in any text.
"""

from __future__ import annotations

import logging

import pytest

from tillgate.errors import Refused
from tillgate.wire.personal import KEPT_FIELDS, kept_fields, kept_texts, without_personal_data
from tillgate.wire.texts import described, masked

PERSONAL = {
    "payerName": "Ann Example",
    "payerEmail": "ann@shopper.example",
    "cardNo": "4111111111111111",
    "note": "for Ann",
}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("declined: card 4111 1111 1111 1111", "declined: card ***"),
        ("card 4111-1111-1111-1111 12/27", "card ***/27"),
        ("card 4111 1111 1111 1111 12 27", "card ***"),
        ("card=4111111111111111.", "card=***."),
        ("card 378282246310005", "card ***"),
        ("no card 4111 1111 1111 1112", "no card 4111 1111 1111 1112"),
        ("transaction 301201812260000", "transaction 301201812260000"),
        ("of ORDER-4111111111111111", "of ORDER-4111111111111111"),
        ("4111111111111111", "4111111111111111"),
        ("4111 1111 1111 1111", "***"),
        ("Key (email)=(ann@shopper.example) exists", "Key (email)=(***) exists"),
        ("<ann.b+c@mail.shopper.example>, bob@x.io", "<***>, ***"),
        ("ann@exämple.de said", "*** said"),
        ("a @ b, @ann and user@host", "a @ b, @ann and user@host"),
        ("", ""),
    ],
)
def test_kept_text_hides_personal_data(text: str, kept: str) -> None:
    """Addresses and card numbers are removed."""
    assert without_personal_data(text) == kept


def test_only_listed_fields_are_kept() -> None:
    """The list applies at every depth."""
    answer = {
        "reference": "R-1",
        "ret_msg": "no card 4111 1111 1111 1111",
        "refundInfo": [{"refundAmount": "1.00", "payee": PERSONAL}, "ann@shopper.example"],
        "amount": 12.5,
        "buyer": {"reference": "Ann"},
        **PERSONAL,
    }
    assert kept_fields(answer) == {
        "reference": "R-1",
        "ret_msg": "no card ***",
        "refundInfo": [{"refundAmount": "1.00"}, "***"],
        "amount": 12.5,
    }
    assert kept_fields(answer, {"note"}) == {"note": "for Ann"}


def test_nested_json_follows_same_list() -> None:
    nested = '{"refundAmount":"1.00","payerName":"Ann","status":[{"cardNo":"1"}]}'
    assert kept_texts({"refundInfo": nested, "data": nested}) == {
        "refundInfo": '{"refundAmount":"1.00","status":[{}]}',
    }
    assert kept_texts({"status": '{"payerName": "Ann'}) == {"status": "***"}, (
        "what cannot be read is not kept"
    )


def test_bare_text_in_a_list_is_hidden() -> None:
    assert kept_fields({"refundInfo": ["Ann Other", ["Ann Other"], 1]}) == {
        "refundInfo": ["***", ["***"], 1],
    }


def test_endless_depth_is_cut() -> None:
    deep: object = "ann@shopper.example"
    for _ in range(40):
        deep = {"status": deep}
    assert "ann" not in str(kept_fields({"status": deep}))


def test_kept_fields_exclude_shopper_data() -> None:
    assert not KEPT_FIELDS & {
        *PERSONAL,
        "email",
        "name",
        "phone",
        "address",
        "description",
        "goodsInfo",
        "cashierUrl",
        "verifySign",
    }


def test_foreign_texts_are_masked_first() -> None:
    """Texts of the gateway or a library are masked before any other code sees them."""
    assert masked("card 4111 1111 1111 1111 of ann@shopper.example") == "card *** of ***"
    assert described(ValueError("ann@shopper.example")) == "ValueError: ***"


NUMBER = "301201812260000002"


def test_number_of_gateway_is_no_card() -> None:
    assert without_personal_data(f"transaction {NUMBER} 2026") == "transaction ***"
    assert (
        without_personal_data(f"transaction {NUMBER} 2026", [NUMBER])
        == f"transaction {NUMBER} 2026"
    )
    assert (
        without_personal_data(f"{NUMBER}, card 4111111111111111", [NUMBER]) == f"{NUMBER}, card ***"
    )


def test_kept_text_may_repeat_own_number() -> None:
    """The number of the message itself is not masked."""
    message = {"transactionNo": NUMBER, "ret_msg": f"no {NUMBER}, no 4111111111111111"}
    assert (
        kept_fields(message)["ret_msg"] == kept_texts(message)["ret_msg"] == f"no {NUMBER}, no ***"
    )
    nested = {"refundInfo": [{"refundTransactionNo": NUMBER, "ret_msg": f"no {NUMBER}"}]}
    assert kept_fields(nested) == nested


def test_logs_hold_no_personal_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Addresses and card numbers are masked in log lines and tracebacks."""
    log = logging.getLogger("tillgate")
    try:
        raise ValueError("Key (email)=(ann@shopper.example)")
    except ValueError:
        log.exception("it failed")
    log.warning("said %s", Refused("000020", "card 4111 1111 1111 1111", 400))
    text = caplog.text + "".join(record.exc_text or "" for record in caplog.records)
    assert "***" in text
    assert "ann@" not in text
    assert "4111" not in text
