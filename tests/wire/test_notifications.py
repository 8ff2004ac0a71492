"""Notifications: everything is read, nothing is trusted, and reading never raises (Events;
unspecified 8, I7).
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support import TOKEN, signature
from tillgate import Notification, NotificationSignature, read_notification
from tillgate.money import Money
from tillgate.wire import signing
from tillgate.wire.dialects import REFERENCE, V3, Dialect
from tillgate.wire.notifications import LARGEST_NOTIFICATION_BYTES, confirms_refund, may_be_signed

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
PAID = {"transactionNo": "29", "reference": "A-1", "amount": "12.50", "status": "success"}


def as_json(parameters: object) -> Notification:
    return read_notification(JSON, body=json.dumps(parameters).encode())


def as_form(parameters: dict[str, str]) -> Notification:
    return read_notification(FORM, body=urlencode(parameters).encode())


def as_query(parameters: dict[str, str]) -> Notification:
    return read_notification(query=urlencode(parameters))


WAYS = (as_json, as_form, as_query)


@pytest.mark.parametrize(
    ("content_type", "body", "fault"),
    [
        (FORM, b"x" * 5_000_000, f"longer than {LARGEST_NOTIFICATION_BYTES} bytes"),
        (JSON, b"[" * LARGEST_NOTIFICATION_BYTES, "RecursionError"),
        (JSON, b'{"a":' * 5000 + b"1" + b"}" * 5000, "RecursionError"),
        (FORM, b"a=%ff", "UnicodeDecodeError"),
        (FORM, b"\xff\xfe", "UnicodeDecodeError"),
        (JSON, b"\xff", "UnicodeDecodeError"),
        (JSON, b"not json", "JSONDecodeError"),
        (JSON, b"[1]", "ValueError"),
        (JSON, b"null", "ValueError"),
        (JSON, b'{"amount":NaN}', "ValueError"),
        (JSON, b'{"amount":1e99999999999999999999}', "ValueError"),
        (JSON, json.dumps({str(number): "" for number in range(201)}).encode(), "ValueError"),
        (FORM, b"&".join(b"%d=1" % number for number in range(201)), "ValueError"),
    ],
)
def test_unreadable_body_keeps_query_string(
    content_type: str,
    body: bytes,
    fault: str,
) -> None:
    """The fault is described in words."""
    notification = read_notification(content_type, "a=1", body)
    assert fault in (notification.fault or "")
    assert notification.parameters == {"a": "1"}
    assert notification.signature(TOKEN) is NotificationSignature.ABSENT


@pytest.mark.parametrize("query", ["a=%ff", "&".join(f"{number}=1" for number in range(201))])
def test_unreadable_query_string_keeps_body(query: str) -> None:
    notification = read_notification(FORM, query, b"a=1")
    assert notification.fault == "the query string was not understood"
    assert notification.parameters == {"a": "1"}


@pytest.mark.parametrize("body", [b"", b" \r\n"])
@pytest.mark.parametrize("content_type", ["", JSON, FORM])
def test_a_notification_of_nothing_is_a_notification(content_type: str, body: bytes) -> None:
    assert read_notification(content_type, "", body) == Notification(parameters={})


@pytest.mark.parametrize("way", WAYS)
def test_all_notification_formats_read_alike(way: Any) -> None:
    """A form, JSON and a query string give the same parameters."""
    notification = way(PAID)
    assert notification.parameters == notification.evidence() == PAID
    assert notification.fault is None
    assert notification.repeated == frozenset()


@pytest.mark.parametrize("content_type", ["", "text/plain", FORM, "application/vnd.api+json"])
def test_json_is_known_by_its_looks_too(content_type: str) -> None:
    assert read_notification(content_type, body=b' {"a": "1"}').parameters == {"a": "1"}


def test_numbers_keep_their_original_text() -> None:
    """Nested values keep their text too."""
    body = b'{"amount":1.10,"big":99999999999999.99,"flag":false,"none":null,"list":[1.10,{"b":1.0}],"object":{"z":1,"a":["\xc3\xa9"]}}'
    assert read_notification(JSON, body=body).parameters == {
        "amount": "1.10",
        "big": "99999999999999.99",
        "flag": "false",
        "none": "",
        "list": '["1.10",{"b":"1.0"}]',
        "object": '{"z":"1","a":["\u00e9"]}',
    }


@pytest.mark.parametrize(
    "notification",
    [
        read_notification(FORM, body=b"a=1&a=2&b=3"),
        read_notification(JSON, body=b'{"a":"1","a":"2","b":"3"}'),
        read_notification(FORM, "a=2", b"a=1&b=3"),
        read_notification(query="a=1&b=3&a=2"),
    ],
)
def test_first_of_repeated_names_counts(
    notification: Notification,
) -> None:
    """The notification tells which name was repeated."""
    assert notification.parameters == {"a": "1", "b": "3"}
    assert notification.repeated == {"a"}


def test_equal_repeats_are_no_contradiction() -> None:
    assert read_notification(FORM, "a=1", b"a=1").repeated == frozenset()


@pytest.mark.parametrize(
    "notification",
    [
        read_notification(JSON, body=b'{"a\\u0000":"\\ud800b\\u0000"}'),
        read_notification(FORM, body=b"a%00=%00b%00"),
        read_notification(query="a\0=\ud800b%00"),
    ],
)
def test_what_no_database_stores_is_replaced(notification: Notification) -> None:
    assert notification.parameters == {"a\ufffd": "\ufffdb\ufffd"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keep_empty", [False, True])
def test_signature_matches_under_both_readings(
    way: Any,
    keep_empty: bool,
) -> None:
    """The readings differ in whether empty values are signed."""
    parameters = {**PAID, "note": ""}
    notification = way({**parameters, "verifySign": signature(parameters, keep_empty=keep_empty)})
    assert notification.signature(TOKEN) is NotificationSignature.MATCHES


def test_numeric_amount_is_verified_as_sent() -> None:
    """The signature covers the text of the number on the wire."""
    claimed = signature({"amount": "1.10", "flag": "false"})
    assert (
        read_notification(
            JSON,
            body=f'{{"amount":1.10,"flag":false,"verifySign":"{claimed}"}}'.encode(),
        ).signature(TOKEN)
        is NotificationSignature.MATCHES
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "claimed",
    ["0" * 32, "x", signature(PAID, token="another"), signature({**PAID, "amount": "12.49"})],
)
def test_wrong_signature_marks_notification_forged(
    way: Any,
    claimed: str,
) -> None:
    assert way({**PAID, "verifySign": claimed}).signature(TOKEN) is NotificationSignature.FORGED


@pytest.mark.parametrize("claimed", [7, True, ["x"], {"a": 1}, "\ud800"])
def test_signature_of_wrong_type_is_forged(claimed: object) -> None:
    assert as_json({**PAID, "verifySign": claimed}).signature(TOKEN) is NotificationSignature.FORGED


@pytest.mark.parametrize("way", WAYS)
def test_a_notification_without_verify_sign_is_neither(way: Any) -> None:
    assert way(PAID).signature(TOKEN) is NotificationSignature.ABSENT
    assert way({**PAID, "verifySign": ""}).signature(TOKEN) is NotificationSignature.ABSENT


def test_a_repeated_name_never_matches() -> None:
    claimed = signature(PAID)
    body = urlencode({**PAID, "verifySign": claimed})
    assert (
        read_notification(FORM, body=body.encode()).signature(TOKEN)
        is NotificationSignature.MATCHES
    )
    assert (
        read_notification(FORM, body=f"{body}&amount=99".encode()).signature(TOKEN)
        is NotificationSignature.FORGED
    )


def test_i11_evidence_and_repr_hide_signature() -> None:
    claimed = signature(PAID)
    notification = as_json(
        {
            **PAID,
            "verifySign": claimed,
            "data": {"verifySign": claimed, "a": [{"verifySign": claimed}]},
        },
    )
    assert notification.evidence() == {**PAID, "data": '{"a":[{}]}'}
    assert claimed not in repr(notification) + str(notification.evidence())


@given(
    st.sampled_from(["", JSON, FORM, "\x00", "multipart/form-data"]),
    st.text(),
    st.binary(max_size=300),
)
@example("", "\ud800=%ud800", b'{"verifySign": "\\ud800"}')
@example("", "", "\u00a0".encode())
def test_reading_random_bytes_never_raises(content_type: str, query: str, body: bytes) -> None:
    notification = read_notification(content_type, query, body)
    for name, value in notification.parameters.items():
        assert "\0" not in f"{name}{value}"
        f"{name}{value}".encode()
    assert notification.signature(TOKEN) is not NotificationSignature.MATCHES
    assert len(repr(notification)) < 10_000


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_reading_any_json_never_raises(value: object) -> None:
    notification = as_json(value)
    assert notification.signature(TOKEN) is not NotificationSignature.MATCHES
    if isinstance(value, dict):
        assert notification.fault is None


@pytest.mark.parametrize(
    ("query", "body", "is_worth_it"),
    [
        ("", b"reference=A-1&verifySign=0", True),
        ("reference=A-1&verifySign=0", b"", True),
        ("", b'{"reference":"A-1","verifySign":"0"}', True),
        ("", b"reference=A-1", False),
        ("", b"", False),
        ("", b'{"verifySign":"0","a":"' + b"x" * LARGEST_NOTIFICATION_BYTES + b'"}', False),
        ("", b'{"verifySign":"0","a":[' + b"1," * 200 + b"1]}", False),
        ("", b'{"verifySign":"0","a":' + b"[" * 200 + b"]" * 200 + b"}", False),
        ("", b"verifySign=0" + b"&a=1" * 200, False),
    ],
)
def test_strangers_text_is_weighed_unparsed(query: str, body: bytes, is_worth_it: bool) -> None:
    assert may_be_signed(query, body) is is_worth_it


V1_REFUND = {"transactionNo": "301", "status": "success", "reference": "R-1"}
V3_REFUND = {**V1_REFUND, "refundReference": "F-1"}


def confirms(
    notification: Notification,
    dialect: Dialect = REFERENCE,
    refund_no: str | None = "88",
) -> bool:
    return confirms_refund(
        notification,
        dialect,
        reference="R-1",
        transaction_no="301",
        refund_id="F-1",
        refund_no=refund_no,
        refunded=Money("1.00", "USD"),
    )


def with_signature(parameters: dict[str, str]) -> dict[str, str]:
    return {**parameters, "verifySign": signature(parameters)}


@pytest.mark.parametrize("way", WAYS)
def test_documented_shape_confirms_a_refund(way: Any) -> None:
    assert confirms(way(with_signature(V1_REFUND)))
    assert confirms(way(with_signature(V3_REFUND)), V3)
    full = with_signature({**V3_REFUND, "refundTransactionNo": "88", "refundAmount": "1"})
    assert confirms(way(full), V3)


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        (REFERENCE, {"note": "x"}),
        (REFERENCE, {"note": ""}),
        (REFERENCE, {"amount": "1.00"}),
        (REFERENCE, {"refundReference": "F-1"}),
        (REFERENCE, {"transactionNo": "302"}),
        (REFERENCE, {"transactionNo": ""}),
        (REFERENCE, {"reference": "R-2"}),
        *(
            (REFERENCE, {"status": word})
            for word in ("failed", "pending", "rejected", "refunded", "", "{}")
        ),
        (V3, {"amount": "1.00"}),
        (V3, {"refundReference": "F-2"}),
        (V3, {"refundReference": ""}),
        (V3, {"refundTransactionNo": "89"}),
        (V3, {"refundTransactionNo": ""}),
        (V3, {"refundAmount": "0.99"}),
        (V3, {"refundAmount": "x"}),
        (V3, {"refundAmount": ""}),
    ],
)
def test_other_shape_confirms_no_refund(dialect: Dialect, changes: dict[str, str]) -> None:
    fields = (V3_REFUND if dialect is V3 else V1_REFUND) | changes
    assert not confirms(as_form(with_signature(fields)), dialect)


@pytest.mark.parametrize(
    "name",
    ["transactionNo", "status", "reference", "refundReference", "verifySign"],
)
def test_missing_field_confirms_no_refund(name: str) -> None:
    fields = with_signature(V3_REFUND)
    del fields[name]
    assert not confirms(as_form(fields), V3)


def test_unknown_number_agrees_with_nothing() -> None:
    assert not confirms(
        as_form(with_signature({**V3_REFUND, "refundTransactionNo": "88"})),
        V3,
        refund_no=None,
    )


@pytest.mark.parametrize("fault", [b"&status=failed", b"&status=%ff"])
def test_unclear_notification_confirms_no_refund(fault: bytes) -> None:
    body = urlencode(with_signature(V1_REFUND)).encode()
    assert not confirms(read_notification(FORM, body=body + fault))
    assert not confirms(read_notification(FORM, fault.decode(), body))


def test_proxy_parameter_forges_no_notification() -> None:
    """A parameter that a proxy added to the address does no harm."""
    body = {"reference": "R-1", "status": "success"}
    signed = urlencode({**body, "verifySign": signing.sign(body, TOKEN)}).encode()
    notification = read_notification("application/x-www-form-urlencoded", "utm_source=shop", signed)
    assert notification.signature(TOKEN) is NotificationSignature.MATCHES
    assert notification.parameters["utm_source"] == "shop"
    wrong = read_notification("application/x-www-form-urlencoded", "status=failed", signed)
    assert wrong.signature(TOKEN) is NotificationSignature.FORGED, (
        "two values of one name are ambiguous"
    )


def test_zero_may_be_signed_or_omitted() -> None:
    body = {"reference": "R-1", "fee": "0", "status": "success"}
    without = signing.sign({name: value for name, value in body.items() if value != "0"}, TOKEN)
    for signed in (without, signing.sign(body, TOKEN)):
        notification = read_notification(
            "application/json",
            "",
            json.dumps({**body, "verifySign": signed}).encode(),
        )
        assert notification.signature(TOKEN) is NotificationSignature.MATCHES
