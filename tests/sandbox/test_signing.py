"""Authentication of the interface, checked against a signature that the family has published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.sandbox.signing import matches, signature, wrong

VECTOR = {
    "amount": "1.00",
    "storeNo": "300014",
    "currency": "USD",
    "merchantNo": "200043",
    "callbackUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "ipnUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "terminal": "ONLINE",
    "reference": "seq_1525922323",
    "vendor": "alipay",
    "goodsInfo": '[{"goods_name":"Yuansfer","quantity":"1"}]',
    "timeout": "120",
}
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1).filter(
    lambda name: name != "verifySign",
)
TEXTS = st.text(st.characters(codec="utf-8"))
PARAMETERS = st.dictionaries(NAMES, TEXTS, min_size=1)


def test_the_published_vector_has_the_published_signature() -> None:
    assert signature(VECTOR, PUBLISHED_TEST_TOKEN) == "b6bfd66531ae7c9499115c7480a2c8aa"


@pytest.mark.parametrize(
    ("reading", "skip_is_right", "keep_is_right"),
    [("skip", True, False), ("keep", False, True), ("either", True, True)],
)
def test_switch_decides_about_empty_parameters(
    reading: str,
    skip_is_right: bool,
    keep_is_right: bool,
) -> None:
    given = {**VECTOR, "description": ""}
    skipped = {**given, "verifySign": signature(given, PUBLISHED_TEST_TOKEN)}
    kept = {**given, "verifySign": signature(given, PUBLISHED_TEST_TOKEN, keep_empty=True)}

    assert matches(skipped, PUBLISHED_TEST_TOKEN, empty_parameters=reading) is skip_is_right
    assert matches(kept, PUBLISHED_TEST_TOKEN, empty_parameters=reading) is keep_is_right


def test_false_is_a_value_and_not_empty() -> None:
    assert signature({"a": "false"}, "t") != signature({}, "t")


@pytest.mark.parametrize("claimed", ["", "b6bf", "B6BFD66531AE7C9499115C7480A2C8AA", "é" * 32])
def test_anything_but_the_exact_signature_is_wrong(claimed: str) -> None:
    assert not matches({**VECTOR, "verifySign": claimed}, PUBLISHED_TEST_TOKEN)


@given(PARAMETERS, TEXTS)
def test_what_was_signed_verifies_in_any_order(parameters: dict[str, str], token: str) -> None:
    turned = dict(reversed(parameters.items()))
    assert matches({**turned, "verifySign": signature(parameters, token)}, token)


@given(PARAMETERS, st.data())
def test_a_changed_value_is_noticed(parameters: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(parameters)))
    changed = {
        **parameters,
        name: parameters[name] + "1",
        "verifySign": signature(parameters, "token"),
    }
    assert not matches(changed, "token")


@given(PARAMETERS, TEXTS)
def test_deliberately_wrong_signature_never_matches(
    parameters: dict[str, str],
    token: str,
) -> None:
    assert not matches({**parameters, "verifySign": wrong(parameters, token)}, token)
