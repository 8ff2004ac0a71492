"""A client's requests are read strictly to the interface, and a refusal names the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.sandbox.contract import TERMINALS, VENDORS
from tillgate.sandbox.requests import MAXIMUM_BODY_BYTES
from tillgate.sandbox.signing import signature

if TYPE_CHECKING:
    from tests.sandbox.conftest import Merchant

    Build = Callable[..., Merchant]

PAY = "/online/v1/secure-pay"


def refused(answer: Any, code: str, word: str) -> None:
    said = json.loads(answer.body)
    assert (answer.http_status, said["ret_code"]) == (400, code)
    assert word in said["ret_msg"]
    assert "result" not in said


@pytest.mark.parametrize(
    "name",
    ["currency", "amount", "vendor", "reference", "terminal", "ipnUrl", "callbackUrl"],
)
@pytest.mark.parametrize("value", [None, ""])
def test_each_required_field_is_required(merchant: Build, name: str, value: str | None) -> None:
    refused(merchant().pay(**{name: value}), "000020", name)


@pytest.mark.parametrize("name", ["merchantNo", "verifySign"])
def test_nobody_goes_without_name_or_signature(merchant: Build, name: str) -> None:
    refused(
        merchant().send(
            "/online/v1/tran-query",
            {"reference": "R", "merchantNo": "200043", "verifySign": "x", name: ""},
        ),
        "000020",
        name,
    )


def test_signature_is_checked_first(merchant: Build) -> None:
    refused(merchant().send(PAY, {"merchantNo": "200043", "verifySign": "0" * 32}), "000000", "")


def test_an_unknown_merchant_is_refused(merchant: Build) -> None:
    refused(merchant().pay(merchantNo="1"), "000030", "merchantNo")


def test_refusals_reveal_no_token_or_signature(merchant: Build) -> None:
    wrong = {"merchantNo": "200043", "reference": "R", "verifySign": "0" * 32}
    body = merchant().send("/online/v1/tran-query", wrong).body.decode()
    assert PUBLISHED_TEST_TOKEN not in body
    assert signature(wrong, PUBLISHED_TEST_TOKEN) not in body


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("currency", "EUR"),
        ("currency", "usd"),
        ("amount", "0"),
        ("amount", "0.00"),
        ("amount", "-1.00"),
        ("amount", "1.234"),
        ("amount", "1e3"),
        ("amount", "١٢"),
        ("amount", " 1.00"),
        ("amount", 1e22),
        ("amount", 1.234),
        ("amount", True),
        ("vendor", "cash"),
        ("vendor", "Alipay"),
        ("terminal", "WEB"),
        ("timeout", "0"),
        ("timeout", "1.5"),
        ("timeout", "soon"),
        ("timeout", 1.5),
        ("reference", 12),
        ("description", False),
        ("ipnUrl", "/ipn"),
        ("ipnUrl", "ftp://shop.example/ipn"),
        ("ipnUrl", "https:///ipn"),
        ("ipnUrl", "https://shop.example:99999/"),
        ("ipnUrl", "https://[shop/"),
        ("callbackUrl", "javascript:alert(1)"),
        ("callbackUrl", "https://shop.example/\r\nSet-Cookie: a=b"),
        ("callbackUrl", "https://shop.example\\@evil.example/"),
        ("callbackUrl", "//shop.example/back"),
        ("goodsInfo", "tea"),
        ("goodsInfo", "{}"),
        ("goodsInfo", '["tea"]'),
        ("goodsInfo", '[{"goods_name":"Tea"}]'),
        ("goodsInfo", '[{"goods_name":"Tea","quantity":1}]'),
        ("goodsInfo", '[{"goods_name":"Tea","quantity":"0"}]'),
        ("goodsInfo", '[{"goods_name":"Tea","quantity":"some"}]'),
        ("goodsInfo", '[{"goods_name":" ","quantity":"1"}]'),
        ("goodsInfo", '[{"goods_name":"Tea & Cake","quantity":"1"}]'),
        ("goodsInfo", '[{"goods_name":"Tea","quantity":"1","price":"2"}]'),
        ("goodsInfo", [{"goods_name": "Tea", "quantity": "1"}]),
        ("description", {"a": "b"}),
    ],
)
def test_invalid_field_is_refused_by_name(
    merchant: Build,
    name: str,
    value: Any,
) -> None:
    refused(merchant().pay(**{name: value}), "000023", name)


@pytest.mark.parametrize(("name", "number"), [("timeout", 30), ("merchantNo", 200043)])
def test_json_numbers_are_accepted_unless_strict(merchant: Build, name: str, number: int) -> None:
    assert merchant().pay(**{name: number}).http_status == 200
    refused(merchant(json_numbers="refuse").pay(**{name: number}), "000023", name)


@pytest.mark.parametrize("vendor", VENDORS["v1"])
@pytest.mark.parametrize("terminal", TERMINALS["v1"])
def test_every_vendor_and_terminal_is_accepted(merchant: Build, vendor: str, terminal: str) -> None:
    assert merchant().pay(vendor=vendor, terminal=terminal).http_status == 200


@pytest.mark.parametrize("amount", ["12.50", "12.5", "12", 12, 12.5, "99999999999999.99"])
def test_amount_is_echoed_as_sent(
    merchant: Build,
    amount: Any,
) -> None:
    """The amount may be text or a number."""
    answer = json.loads(merchant().pay(amount=amount).body)
    assert answer["result"]["amount"] == str(amount)


def test_goods_of_any_script_are_accepted(merchant: Build) -> None:
    goods = json.dumps(
        [
            {"goods_name": name, "quantity": "2"}
            for name in ("Tea-Set, No. 5", "日本語", "हिन्दी", "Ñandú")
        ],
    )
    assert merchant().pay(goodsInfo=goods).http_status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'"text"',
        b"{",
        b'{"a":NaN}',
        b'{"a":"1","a":"2"}',
        b"[" * 100_000,
        b'{"merchantNo":"\\ud800"}',
        b'{"merchantNo":["200043"]}',
        b"{" + b" " * MAXIMUM_BODY_BYTES + b"}",
    ],
)
def test_non_object_json_body_is_refused(merchant: Build, body: bytes) -> None:
    refused(merchant().service.handle(PAY, "application/json", body), "000023", "")


@pytest.mark.parametrize(
    "body",
    [b"\xff=1", b"a=%ff", b"a=1&a=2", b"&".join(b"a%d=1" % number for number in range(200))],
)
def test_malformed_form_body_is_refused(merchant: Build, body: bytes) -> None:
    refused(merchant().service.handle(PAY, "application/x-www-form-urlencoded", body), "000023", "")


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "multipart/form-data; boundary=x", "application/xml"],
)
def test_another_content_type_is_refused(merchant: Build, content_type: str) -> None:
    refused(merchant().service.handle(PAY, content_type, b"{}"), "000023", "Content-Type")


@pytest.mark.parametrize(
    ("encodings", "as_json", "as_form"),
    [("both", True, True), ("json", True, False), ("form", False, True)],
)
def test_the_encoding_is_a_switch(
    merchant: Build,
    encodings: str,
    as_json: bool,
    as_form: bool,
) -> None:
    shop = merchant(encodings=encodings)
    by_json, by_form = (shop.call("query", {"reference": "R"}, form=form) for form in (False, True))
    assert ("000022" in by_json.body.decode(), "000022" in by_form.body.decode()) == (
        as_json,
        as_form,
    )


@pytest.mark.parametrize("value", [None, False, 0])
def test_signature_skips_null_but_covers_zero(merchant: Build, value: Any) -> None:
    """Null counts as empty, while false and zero are signed."""
    shop = merchant()
    answer = shop.call("query", {"reference": "R", "storeNo": value})
    assert json.loads(answer.body)["ret_code"] == "000022"


def test_unknown_parameter_policy_is_configurable(merchant: Build) -> None:
    """A parameter outside the interface is allowed or refused by a switch."""
    assert merchant().pay(storeNo="300014").http_status == 200
    refused(merchant(extra_fields="refuse").pay(storeNo="300014"), "000023", "storeNo")


def test_addresses_can_be_required_to_be_https(merchant: Build) -> None:
    refused(merchant(address_scheme="https").pay(), "000023", "ipnUrl")


def test_reference_pattern_can_be_required(merchant: Build) -> None:
    shop = merchant(reference_pattern="[A-Z0-9-]{1,32}")
    assert shop.pay().http_status == 200
    refused(shop.pay(reference="a b"), "000023", "reference")


def test_amounts_can_have_limits(merchant: Build) -> None:
    shop = merchant(minimum_amount="1.00", maximum_amount="100.00")
    refused(shop.pay(amount="0.99"), "000023", "amount")
    refused(shop.pay(amount="100.01"), "000023", "amount")
    assert shop.pay(amount="100.00").http_status == 200


def test_special_characters_in_goods_can_be_allowed(merchant: Build) -> None:
    goods = '[{"goods_name":"Tea & Cake","quantity":"1"}]'
    assert merchant(goods_characters="any").pay(goodsInfo=goods).http_status == 200


def test_lone_surrogate_in_goods_is_refused(
    merchant: Build,
) -> None:
    """It is refused whichever characters are allowed, since no page could show it."""
    goods = r'[{"goods_name":"Tea \ud83c","quantity":"1"}]'
    refused(merchant(goods_characters="any").pay(goodsInfo=goods), "000023", "half a character")
