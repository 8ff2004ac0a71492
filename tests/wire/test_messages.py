"""The messages of the interface (Endpoints 1 to 3)."""

from __future__ import annotations

import contextlib
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import REFERENCE, payment, refund
from tillgate import (
    CreatedPayment,
    Goods,
    InvalidRequest,
    PaymentMethod,
    PaymentRequest,
    RefundRequest,
    Terminal,
)
from tillgate.wire.messages import DEFAULT_TIMEOUT_MINUTES

PAYMENT_METHODS = (
    *("alipay", "wechatpay", "paypal", "venmo", "unionpay", "creditcard", "truemoney"),
    *("alipay_hk", "tng", "gcash", "dana", "kakaopay", "bkash", "easypaisa"),
)
TERMINALS = ("ONLINE", "WAP", "ANDROID", "IOS")
NOT_AN_ADDRESS = (
    "",
    "shop.example/ipn",
    "/ipn",
    "ftp://shop.example",
    "https://",
    "https://shop.example/a b",
    "https://u:p@shop.example/",
    None,
    7,
)


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("currency", "XAU", "is not a currency of ISO 4217"),
        ("currency", "usd", "is not a currency of ISO 4217"),
        ("currency", "", "is not a currency of ISO 4217"),
        ("currency", None, "is not a currency of ISO 4217"),
        ("amount", 0, "above zero"),
        ("amount", "-1", 'give text such as "12.50"'),
        ("amount", Decimal(-1), "above zero"),
        ("amount", "1.005", 'give text such as "12.50"'),
        ("amount", 12.5, "never a float"),
        ("amount", float("nan"), "never a float"),
        ("amount", "NaN", 'give text such as "12.50"'),
        ("amount", "1e3", 'give text such as "12.50"'),
        ("amount", "١٢", 'give text such as "12.50"'),
        ("method", "ali pay", "is not a code such as alipay"),
        ("method", None, "is not a code such as alipay"),
        ("method", [], "is not a code such as alipay"),
        ("terminal", "", "is not a code such as"),
        ("reference", "", "1 to 32 characters"),
        ("reference", "A" * 33, "1 to 32 characters"),
        ("reference", "A&B", "1 to 32 characters"),
        ("reference", "A B", "1 to 32 characters"),
        ("reference", "A\U0001f600", "1 to 32 characters"),
        *(
            (field, value, "absolute http")
            for field in ("ipn_url", "callback_url")
            for value in NOT_AN_ADDRESS
        ),
        ("timeout", 0, "whole number of minutes"),
        ("timeout", -1, "whole number of minutes"),
        ("timeout", 1.5, "whole number of minutes"),
        ("timeout", True, "whole number of minutes"),
        ("timeout", "2h", "whole number of minutes"),
        ("timeout", "", "whole number of minutes"),
        ("timeout", "\u0661", "whole number of minutes"),
        ("timeout", 60 * 24 * 30 + 1, "whole number of minutes"),
        ("timeout", "9" * 5000, "whole number of minutes"),
        ("description", 7, "is not text"),
        ("description", "\ud800", "not valid Unicode"),
        ("goods_info", "shoes", "cannot be used in PaymentRequest"),
        ("goods_info", None, "cannot be used in PaymentRequest"),
        ("surprise", "***", "is no field of PaymentRequest"),
    ],
)
def test_invalid_payment_names_field_and_remedy(
    field: str,
    value: Any,
    remedy: str,
) -> None:
    """The error also shows the value that was refused."""
    with pytest.raises(InvalidRequest) as caught:
        payment(**{field: value})
    assert caught.value.field == field
    assert caught.value.value is value or caught.value.value == value
    assert remedy in caught.value.remedy
    assert str(caught.value).startswith(f"{field} " if value is None else f"{field}: ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("amount", 2.5),
        ("amount", "0"),
        ("amount", "2.505"),
        ("reference", "A&B"),
        ("surprise", "***"),
        *(("ipn_url", v) for v in NOT_AN_ADDRESS if v),
    ],
)
def test_invalid_refund_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refund(**{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize(
    "field",
    ["reference", "amount", "currency", "method", "terminal", "ipn_url", "callback_url"],
)
def test_missing_required_field_is_named(field: str) -> None:
    fields: dict[str, Any] = {
        name: getattr(payment(), name) for name in PaymentRequest.model_fields if name != field
    }
    with pytest.raises(InvalidRequest, match=f"{field} is missing") as caught:
        PaymentRequest(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "value",
    ["!!!", "\u2605\u2605", "***", "-", "., -", "\U0001f600", 7, "\u200b"],
)
def test_goods_name_without_letters_is_refused(value: Any) -> None:
    """A goods name made up of special characters only is refused."""
    with pytest.raises(InvalidRequest) as caught:
        Goods(goods_name=value)
    assert (caught.value.field, caught.value.value) == ("goods_name", value)
    with pytest.raises(InvalidRequest):
        payment(goods_info=[{"goods_name": value}])


@pytest.mark.parametrize("quantity", [0, -1, "0", "", "1.5", 1.0, True, None, "\u0661", "9" * 10])
def test_quantity_is_positive_whole_number(quantity: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Goods(goods_name="Tea", quantity=quantity)
    assert (caught.value.field, caught.value.value) == ("quantity", quantity)


@pytest.mark.parametrize(
    "line",
    [{"goods_nam": "Tea"}, {"goods_name": "Tea", "price": "1"}, "Tea", 7],
)
def test_goods_line_rejects_other_fields(line: Any) -> None:
    with pytest.raises(InvalidRequest):
        payment(goods_info=[line])


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Tea", "Tea"),
        ("  Green   tea, 2-pack. ", "Green tea, 2-pack."),
        ('Tea "best" & <b>', "Tea best b"),
        ("Caf\u00e9 \u7dd1\u8336 \u0661\u0662", "Caf\u00e9 \u7dd1\u8336 \u0661\u0662"),
        ("a\tb\nc", "a b c"),
        ("Tea\U0001f600", "Tea"),
        ("", "item"),
        ("   ", "item"),
        (None, "item"),
    ],
)
def test_goods_names_keep_only_allowed_characters(name: Any, sent: str) -> None:
    """Letters, digits, spaces, hyphens, dots and commas are kept."""
    assert Goods(goods_name=name).goods_name == sent


@given(st.text())
def test_shop_product_name_is_never_refused(name: str) -> None:
    line = Goods.named(name)
    assert line.goods_name
    assert all(c.isalpha() or c.isdecimal() or c in " -.," for c in line.goods_name)


@pytest.mark.parametrize("name", ["", "***", "-.,", "\U0001f600"])
def test_symbol_only_product_name_becomes_item(name: str) -> None:
    assert Goods.named(name, quantity=2) == Goods(goods_name="item", quantity="2")


def test_goods_info_is_compact_json_of_texts() -> None:
    request = payment(
        goods_info=[Goods(goods_name="Yuansfer"), {"goods_name": "Th\u00e9", "quantity": 2}],
    )
    assert (
        request.parameters()["goodsInfo"]
        == '[{"goods_name":"Yuansfer","quantity":"1"},{"goods_name":"Th\u00e9","quantity":"2"}]'
    )


def test_vendors_and_terminals_match_interface() -> None:
    assert tuple(PaymentMethod) == PAYMENT_METHODS
    assert tuple(Terminal) == TERMINALS


@pytest.mark.parametrize("vendor", PAYMENT_METHODS)
@pytest.mark.parametrize("terminal", TERMINALS)
def test_vendors_and_terminals_are_sent_unchanged(vendor: str, terminal: str) -> None:
    sent = payment(method=vendor, terminal=terminal).parameters()
    assert (sent["vendor"], sent["terminal"]) == (vendor, terminal)
    assert payment(method=PaymentMethod(vendor), terminal=Terminal(terminal)).parameters() == sent


def test_payment_sends_fields_under_interface_names() -> None:
    request = payment(description="Order 100017", timeout=30, goods_info=[Goods(goods_name="Tea")])
    assert request.parameters() == {
        "currency": "USD",
        "amount": "12.50",
        "vendor": "alipay",
        "reference": REFERENCE,
        "terminal": "ONLINE",
        "ipnUrl": "https://shop.example/ipn/x",
        "callbackUrl": "https://shop.example/back?amount={amount}",
        "description": "Order 100017",
        "timeout": "30",
        "goodsInfo": '[{"goods_name":"Tea","quantity":"1"}]',
    }


@pytest.mark.parametrize("absent", [{"description": None}, {"description": ""}, {"goods_info": ()}])
def test_an_empty_parameter_is_never_sent(absent: dict[str, Any]) -> None:
    sent = payment(**absent).parameters()
    assert set(sent) == {
        "currency",
        "amount",
        "vendor",
        "reference",
        "terminal",
        "ipnUrl",
        "callbackUrl",
        "timeout",
    }
    assert "" not in sent.values()


def test_payment_timeout_defaults_to_120_minutes() -> None:
    """The time-out is always sent."""
    assert DEFAULT_TIMEOUT_MINUTES == 120
    assert payment().parameters()["timeout"] == "120"
    assert payment(timeout="15").parameters()["timeout"] == "15"


def test_a_refund_is_sent_with_its_fields() -> None:
    assert refund().parameters() == {"reference": REFERENCE, "amount": "2.50"}
    assert (
        refund(ipn_url="https://shop.example/r").parameters()["ipnUrl"] == "https://shop.example/r"
    )
    assert refund(ipn_url=None) == RefundRequest(reference=REFERENCE, currency="USD", amount="2.5")


@pytest.mark.parametrize(
    "message",
    [payment(goods_info=[Goods(goods_name="Tea")]), refund(), Goods(goods_name="Tea")],
)
def test_messages_are_frozen_hashable_and_picklable(message: Any) -> None:
    """They can also be compared."""
    assert pickle.loads(pickle.dumps(message)) == message
    assert hash(message) == hash(type(message)(**dict(message)))
    with pytest.raises(Exception, match="frozen"):
        message.reference = "OTHER"


def test_i11_printed_message_shows_no_secrets() -> None:
    """Neither secret addresses nor the shopper's e-mail address are printed."""
    key = "k3y-of-an-address"
    address = f"https://shop.example/{key}/"
    asked = payment(ipn_url=address, callback_url=address, email=f"{key}@shopper.example")
    answered = CreatedPayment(
        transaction_no="1",
        payment_url=address,
        reference=REFERENCE,
        amount=None,
        currency=None,
        settle_currency=None,
        raw={"a": address},
    )
    for message in (asked, refund(ipn_url=address), answered):
        assert REFERENCE in repr(message)
        assert key not in f"{message!r} {message}"


def test_messages_take_keywords_only() -> None:
    with pytest.raises(TypeError):
        PaymentRequest("A")  # type: ignore[call-arg]  # that is the point


@given(
    st.dictionaries(
        st.sampled_from([*PaymentRequest.model_fields, "other"]),
        st.none() | st.text() | st.integers() | st.floats() | st.binary(),
    ),
)
def test_bad_fields_raise_only_invalid_request(changes: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest):
        sent = payment(**changes).parameters()
        assert all(value and isinstance(value, str) for value in sent.values())
        json.dumps(sent, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "changes",
    [{"amount": 1.005}, {"reference": "a b&c"}, {"callback_url": "javascript:1"}],
)
def test_copied_request_is_validated(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        payment().model_copy(update=changes)
    assert payment().model_copy(update={"amount": "2.50"}).amount == Decimal("2.50")
