"""Macros: placeholders in the callback address (Create payment, callbackUrl; unspecified 10)."""

from __future__ import annotations

import contextlib
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import payment
from tillgate import InvalidRequest, callback_url, read_callback
from tillgate.wire.urls import is_web_address

BARE = "amount={amount}&status={status}&transactionNo={transactionNo}&reference={reference}&time={time}&note={note}"
NOTHING = {
    "amount": None,
    "status": None,
    "transactionNo": None,
    "reference": None,
    "time": None,
    "note": None,
}
texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/back",
        "shop.example",
        "ftp://shop.example/",
        "https://[x/",
        "https://[v1.x]/",
        "https://shop.example/?a=\ud800",
        "https:///",
    ],
)
def test_non_web_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an absolute http") as caught:
        callback_url(address)
    assert caught.value.field == "callback_url"


def test_non_utf8_query_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        callback_url("https://shop.example/?a=%ff")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://shop.example", f"https://shop.example/?{BARE}"),
        ("https://shop.example/back?", f"https://shop.example/back?{BARE}"),
        ("https://shop.example/back#top", f"https://shop.example/back?{BARE}#top"),
        (
            "https://shop.example/#!/orders/7;v=1:{amount}",
            f"https://shop.example/?{BARE}#!/orders/7;v=1:%7Bamount%7D",
        ),
        ("https://shop.example/b?a=1&a=2&b=", f"https://shop.example/b?a=1&a=2&b=&{BARE}"),
        (
            "https://shop.example/b?q=\u00e4 {x}&r=a%26b+c",
            f"https://shop.example/b?q=%C3%A4%20%7Bx%7D&r=a%26b%20c&{BARE}",
        ),
        (
            "https://shop.example/\u00e4 {a}/%20",
            f"https://shop.example/%C3%A4%20%7Ba%7D/%20?{BARE}",
        ),
        (
            "https://shop.example/100%/%4/%e4#5%",
            f"https://shop.example/100%25/%254/%e4?{BARE}#5%25",
        ),
    ],
)
def test_shop_query_is_escaped_except_braces(
    address: str,
    expected: str,
) -> None:
    assert callback_url(address) == expected
    assert payment(callback_url=expected).parameters()["callbackUrl"] == expected


def test_placed_macro_is_not_added_again() -> None:
    assert callback_url("https://shop.example/?amount={amount}&a=1", ["amount", "status"]) == (
        "https://shop.example/?amount={amount}&a=1&status={status}"
    )


def test_macro_under_other_name_is_added() -> None:
    """The shop's own placement under another name stays."""
    address = callback_url("https://shop.example/?total={amount}")
    assert address == f"https://shop.example/?total={{amount}}&{BARE}"
    assert read_callback(urlsplit(address).query.replace("{amount}", "12.50"))["amount"] == "12.50"


def test_escaped_value_is_no_macro() -> None:
    assert (
        callback_url("https://shop.example/?q=%7Bamount%7D", ["amount"])
        == "https://shop.example/?q=%7Bamount%7D&amount={amount}"
    )


@pytest.mark.parametrize("macros", [(), ("amount",), ("amount", "orderNo")])
def test_the_list_of_macros_is_data(macros: tuple[str, ...]) -> None:
    query = urlsplit(callback_url("https://shop.example/", macros)).query
    assert query == "&".join(f"{name}={{{name}}}" for name in macros)
    assert set(read_callback("", macros)) == set(macros)


@given(
    st.lists(st.tuples(texts.filter(lambda name: name and name not in NOTHING), texts), max_size=5),
)
def test_shop_queries_survive_unchanged(own: list[tuple[str, str]]) -> None:
    address = callback_url(f"https://shop.example/?{urlencode(own)}")
    assert is_web_address(address)
    assert parse_qsl(urlsplit(address).query, keep_blank_values=True)[: len(own)] == own
    assert address.endswith(BARE)


@given(st.text())
def test_any_address_is_built_or_refused(address: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert is_web_address(callback_url(f"https://shop.example/{address}"))


@pytest.mark.parametrize(
    "query",
    ["", "amount=", "amount={amount}", "amount=%7Bamount%7D", "amount={}", "other=1", "&&;=&"],
)
def test_unreplaced_macro_gives_no_value(query: str) -> None:
    """The same holds for an absent or empty one."""
    assert read_callback(query) == NOTHING


def test_what_was_replaced_is_read() -> None:
    query = "amount=12.50&status=success&transactionNo=29&reference=A-1&more=1"
    assert read_callback(query) == {
        **NOTHING,
        "amount": "12.50",
        "status": "success",
        "transactionNo": "29",
        "reference": "A-1",
    }


@pytest.mark.parametrize(
    "own",
    [
        "reference=CART7",
        "r%65ference=CART7",
        "reference",
        "reference={amount}",
        "reference=%7Breference%7D",
        f"{BARE}&reference=CART7",
    ],
)
def test_own_value_for_macro_is_refused(own: str) -> None:
    """The shop's query already uses the name of the macro."""
    with pytest.raises(InvalidRequest, match="gives reference a value of its own") as caught:
        callback_url(f"https://shop.example/?{own}")
    assert caught.value.field == "callback_url"
    assert "?reference=CART7&amount=" in callback_url(
        "https://shop.example/?reference=CART7",
        ["amount"],
    )


def test_a_parsed_query_is_read_too() -> None:
    assert read_callback({"amount": "12.50", "status": "{status}"}) == {
        **NOTHING,
        "amount": "12.50",
    }


@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode("latin-1"))))
def test_reading_a_callback_never_raises(query: str) -> None:
    assert set(read_callback(query)) == set(NOTHING)
    assert set(read_callback(f"amount={query}")) == set(NOTHING)


@pytest.mark.parametrize(
    "query",
    ["amount=%ff%00", "amount=\ud800", "amount=\x00", "amount" * 1000, "a=1&" * 5000 + "amount=2"],
)
def test_reading_odd_callback_never_raises(query: str) -> None:
    assert set(read_callback(query)) == set(NOTHING)
