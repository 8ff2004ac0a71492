"""verifySign (Authentication; unspecified 1)."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support import TOKEN, TOKEN_DIGEST, everything_shown, signature
from tillgate import InvalidRequest
from tillgate.wire import signing

FAMILY_VECTOR = {
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
FAMILY_SIGNATURE = "b6bfd66531ae7c9499115c7480a2c8aa"

texts = st.text(st.characters(exclude_categories=["Cs"]))
parameter_sets = st.dictionaries(texts, texts, max_size=8).map(
    lambda some: {**some, "merchantNo": "200043"},
)


@pytest.mark.parametrize(
    "tampered",
    [{"amount": "1.01"}, {"extra": "1"}, {"vendor": ""}, {"amount": "1.0"}],
)
def test_a_changed_parameter_changes_the_signature(tampered: dict[str, str]) -> None:
    assert not signing.verify({**FAMILY_VECTOR, **tampered}, TOKEN, FAMILY_SIGNATURE)


@pytest.mark.parametrize(
    "claimed",
    [
        "",
        None,
        "0" * 32,
        FAMILY_SIGNATURE.upper(),
        FAMILY_SIGNATURE[:-1],
        f"{FAMILY_SIGNATURE}0",
        "\ud800",
    ],
)
def test_anything_but_signature_does_not_verify(claimed: str | None) -> None:
    assert not signing.verify(FAMILY_VECTOR, TOKEN, claimed)


def test_another_token_does_not_verify() -> None:
    assert not signing.verify(FAMILY_VECTOR, TOKEN[:-1], FAMILY_SIGNATURE)


def test_the_family_vector_gives_the_published_signature() -> None:
    assert signing.sign(FAMILY_VECTOR, TOKEN) == FAMILY_SIGNATURE
    assert signing.verify(FAMILY_VECTOR, TOKEN, FAMILY_SIGNATURE)
    assert signing.verify({**FAMILY_VECTOR, "verifySign": FAMILY_SIGNATURE}, TOKEN)


def test_parameter_order_does_not_matter() -> None:
    assert signing.sign(dict(reversed(FAMILY_VECTOR.items())), TOKEN) == FAMILY_SIGNATURE


def test_names_sort_as_strings_capitals_first() -> None:
    assert signing.sign({"b": "1", "a": "2", "B": "3", "a1": "4"}, TOKEN) == signature(
        {"a": "2", "B": "3", "b": "1", "a1": "4"},
    )


def test_verify_sign_is_not_signed_itself() -> None:
    assert signing.sign({**FAMILY_VECTOR, "verifySign": "anything"}, TOKEN) == FAMILY_SIGNATURE


def test_empty_parameter_is_not_signed() -> None:
    assert signing.sign({**FAMILY_VECTOR, "description": ""}, TOKEN) == FAMILY_SIGNATURE


def test_false_is_signed_as_false() -> None:
    assert (
        signing.sign({"flag": "false"}, TOKEN)
        == signature({"flag": "false"})
        != signing.sign({}, TOKEN)
    )


@pytest.mark.parametrize("keep_empty", [False, True])
def test_both_readings_of_empty_parameters_verify(keep_empty: bool) -> None:
    received = {"amount": "1.00", "note": "", "status": "success"}
    claimed = signature(received, keep_empty=keep_empty)
    assert signing.verify(received, TOKEN, claimed)
    assert signing.verify({**received, "verifySign": claimed}, TOKEN)


@given(parameter_sets, texts.filter(bool))
def test_signing_follows_the_six_steps(parameters: dict[str, str], token: str) -> None:
    assert signing.sign(parameters, token) == signature(parameters, token=token)


@given(parameter_sets, st.booleans())
def test_what_was_signed_under_either_reading_verifies(
    parameters: dict[str, str],
    keep_empty: bool,
) -> None:
    assert signing.verify(parameters, TOKEN, signature(parameters, keep_empty=keep_empty))


@given(parameter_sets, parameter_sets)
def test_a_signature_belongs_to_its_parameters_alone(
    signed: dict[str, str],
    other: dict[str, str],
) -> None:
    assume({n: v for n, v in signed.items() if v} != {n: v for n, v in other.items() if v})
    joined = [
        "&".join("=".join(pair) for pair in sorted(some.items()) if pair[1])
        for some in (signed, other)
    ]
    # a value that holds & and = can spell other parameters: the interface escapes nothing
    assume(joined[0] != joined[1])
    claimed = signature(signed)
    assert claimed != signing.sign(other, TOKEN)


@pytest.mark.parametrize("broken", [{"a\ud800": "b"}, {"a": "\udfff"}])
def test_unsignable_text_does_not_verify(broken: dict[str, str]) -> None:
    assert not signing.verify(broken, TOKEN, "0" * 32)


def test_signing_works_with_restricted_md5(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine allows MD5 only where it serves no security."""

    def md5(data: bytes, *, usedforsecurity: bool = True) -> Any:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return hashlib.md5(data, usedforsecurity=usedforsecurity)

    monkeypatch.setattr(signing, "md5", md5)
    signing._token_digest.cache_clear()
    assert signing.sign(FAMILY_VECTOR, TOKEN) == FAMILY_SIGNATURE
    assert signing.verify(FAMILY_VECTOR, TOKEN, FAMILY_SIGNATURE)


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare_digest(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    assert signing.verify(FAMILY_VECTOR, TOKEN, FAMILY_SIGNATURE)
    assert len(compared) == 3, (
        "all readings are compared, so that the time does not tell which one came near"
    )


NO_TEXT: list[tuple[Any, str, str]] = [
    ({"b": "2", "amount": 1.0}, "amount", "amount: 1.0 is not text: sign the texts of the request"),
    ({"amount": None}, "amount", "amount is not text: sign the texts of the request"),
    ({"flag": True}, "flag", "flag: True is not text: sign the texts of the request"),
    ({1: "a"}, "1", "1: 'a' is not text: sign the texts of the request"),
    (
        {"a": "\ud800", "b": "c"},
        "parameters",
        "parameters: 'a, b' hold text that is not valid Unicode",
    ),
]


@pytest.mark.parametrize(("parameters", "field", "message"), NO_TEXT)
def test_non_text_is_refused_by_name(parameters: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        signing.sign(parameters, TOKEN)
    assert (caught.value.field, str(caught.value)) == (field, message)


@pytest.mark.parametrize("parameters", [parameters for parameters, _, _ in NO_TEXT])
def test_i11_refused_non_text_hides_token(parameters: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        signing.sign(parameters, TOKEN)
    shown = everything_shown(caught.value)
    assert TOKEN not in shown
    assert TOKEN_DIGEST not in shown


def test_signature_steps_mask_token() -> None:
    steps = signing.steps({"b": "2", "a": "1", "c": "", "verifySign": "x"}, TOKEN)
    assert list(steps) == ["left_out", "sorted", "joined", "with_token", "signature"]
    assert (steps["left_out"], steps["sorted"], steps["joined"]) == (
        "c, verifySign",
        "a, b",
        "a=1&b=2",
    )
    assert steps["with_token"] == f"a=1&b=2&{'*' * 32}"
    assert signing.steps({"a": "1"}, TOKEN)["left_out"] == "none"
    assert steps["signature"] == signing.sign({"a": "1", "b": "2"}, TOKEN)
    shown = str(steps)
    assert TOKEN not in shown  # I11
    assert TOKEN_DIGEST not in shown
