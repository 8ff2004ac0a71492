"""Account: credentials at one gateway, and I11: its token is seen nowhere."""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.support import TOKEN, TOKEN_DIGEST, account, everything_shown
from tillgate import (
    EXAMPLES,
    REFERENCE,
    Account,
    ConfigurationError,
    Encoding,
    GatewayProfile,
)
from tillgate.gateways import Option
from tillgate.wire import profile

FORM = dataclasses.replace(REFERENCE, name="form", encoding=Encoding.FORM)
NOT_A_BASE = [
    *(
        "",
        "pay.example",
        "/pay",
        "//pay.example",
        "ftp://pay.example",
        "https://",
        "https://pay.example/?a=b",
        "https://pay.example/#a",
    ),
    *(
        "https://pay.example/{x}",
        "https://user:secret@pay.example",
        "https://pay example",
        "https://pay..example",
        " https://pay.example",
        None,
        7,
    ),
]


@pytest.mark.parametrize("value", NOT_A_BASE)
def test_base_url_is_absolute_without_query(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not an absolute http") as caught:
        account(base_url=value)
    assert caught.value.field == "base_url"
    assert "secret" not in everything_shown(caught.value)


def test_base_url_is_https_outside_sandbox() -> None:
    with pytest.raises(ConfigurationError, match="only a sandbox account may use http") as caught:
        account(base_url="http://pay.example")
    assert (caught.value.field, caught.value.value) == ("base_url", "http://pay.example")
    assert (
        account(base_url="http://127.0.0.1:8000", sandbox=True).base_url == "http://127.0.0.1:8000"
    )


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.1.2.3", "[::1]", "[::ffff:10.1.2.3]", "169.254.169.254"],
)
def test_private_base_url_can_be_refused(host: str) -> None:
    """It is refused where only public addresses are allowed."""
    with pytest.raises(ConfigurationError, match="is in a private network") as caught:
        account(base_url=f"https://{host}", public_addresses_only=True)
    assert caught.value.field == "base_url"
    assert account(base_url=f"https://{host}").base_url == f"https://{host}"


@pytest.mark.parametrize(
    ("given_url", "kept"),
    [
        ("https://pay.example/", "https://pay.example"),
        ("https://pay.example/gate//", "https://pay.example/gate"),
    ],
)
def test_base_url_loses_its_trailing_slash(given_url: str, kept: str) -> None:
    assert account(base_url=given_url).base_url == kept


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        f" {TOKEN}",
        f"{TOKEN} ",
        f"{TOKEN}\n",
        "a\x00b",
        "a\ud800",
        None,
        7,
        b"token",
        SecretStr(""),
        [TOKEN],
    ],
)
def test_i11_bad_token_is_refused_and_hidden(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        account(token=value)
    assert (caught.value.field, caught.value.value) == ("token", "***")
    assert "merchant's secret token" in caught.value.remedy
    assert TOKEN not in everything_shown(caught.value)


@pytest.mark.parametrize("value", [" 200043", "200\n043", "200\x00043", None, 200043])
def test_a_merchant_number_is_text(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="give the text that the service issued") as caught:
        account(merchant_no=value)
    assert (caught.value.field, caught.value.value) == ("merchant_no", value)


@pytest.mark.parametrize(
    ("dialect", "missing"),
    [("reference", "merchant_no"), ("v3", "merchant_no"), ("v3", "store_no")],
)
def test_dialect_decides_required_settings(dialect: str, missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the dialect {dialect} needs it") as caught:
        account(dialect=dialect, **{"store_no": "1", missing: ""})
    assert caught.value.field == missing


def test_single_address_dialect_needs_only_token() -> None:
    """The base URL comes from the profile, and no merchant number is needed."""
    one = GatewayProfile(name="one", base_url="https://one.example", currencies=("EUR",))
    assert Account(token=TOKEN, dialect=one).base_url == "https://one.example"
    assert (
        Account(token=TOKEN, dialect=one, base_url="https://other.example").base_url
        == "https://other.example"
    )


def test_plugin_names_dialect_by_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = GatewayProfile(name="one", base_url="https://one.example", currencies=("EUR",))
    monkeypatch.setitem(vars(sys.modules[__name__]), "ONE", one)
    found = [EntryPoint(name="one", value=f"{__name__}:ONE", group="tillgate.profiles")]
    monkeypatch.setattr(
        profile,
        "entry_points",
        lambda group: [entry for entry in found if entry.group == group],
    )
    monkeypatch.setattr(profile, "_plugins_own", profile._plugins_own.__wrapped__)
    assert Account(token=TOKEN, dialect="one").dialect is GatewayProfile.named("one") is one
    assert GatewayProfile.names() == ["reference", "examples", "v3", "one"]
    with pytest.raises(ConfigurationError, match="v3, one"):
        Account(token=TOKEN, dialect="two")


@pytest.mark.parametrize(
    "given",
    ["whsec_old", ["whsec_old"], ("whsec_old", "whsec_new"), SecretStr("whsec_old")],
)
def test_i11_notification_secrets_appear_in_no_text(given: Any) -> None:
    """An account may have more than one."""
    made = account(webhook_secrets=given)
    assert made.webhook_secrets[0].get_secret_value() == "whsec_old"
    assert "whsec" not in repr(made)


@pytest.mark.parametrize(
    "given",
    [7, None, [""], ["whsec_good", " whsec_spaced"], {"whsec_good": 1}],
)
def test_i11_wrong_notification_secrets_stay_hidden(given: Any) -> None:
    """The account is refused without showing them."""
    with pytest.raises(ConfigurationError) as caught:
        account(webhook_secrets=given)
    assert caught.value.field == "webhook_secrets"
    assert "whsec" not in everything_shown(caught.value)


@pytest.mark.parametrize("value", ["nonsense", "", None, 7, {"name": "reference"}])
def test_other_dialect_values_are_refused(value: Any) -> None:
    """A dialect is an object or the name of a known one."""
    with pytest.raises(ConfigurationError, match="reference, examples"):
        account(dialect=value)


@pytest.mark.parametrize(
    ("value", "dialect"),
    [("reference", REFERENCE), ("examples", EXAMPLES), (FORM, FORM)],
)
def test_dialect_may_be_name_or_object(value: Any, dialect: object) -> None:
    assert account(dialect=value).dialect == account(dialect=value).credentials.dialect == dialect


@pytest.mark.parametrize(
    "field",
    ["connect_timeout_seconds", "read_timeout_seconds", "deadline_seconds"],
)
@pytest.mark.parametrize("value", [0, -1, 601, float("nan"), float("inf"), "soon", None])
def test_seconds_are_above_zero_and_bounded(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        account(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query_attempts", 0),
        ("query_attempts", 11),
        ("max_connections", 0),
        ("max_connections", 1001),
    ],
)
def test_counts_are_bounded(field: str, value: int) -> None:
    with pytest.raises(ConfigurationError) as caught:
        account(**{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize("name", ["tokn", "Token", TOKEN])
def test_i11_unknown_setting_error_hides_value(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        account(**{name: "S3CRET-VALUE"})
    assert caught.value.value == "***"
    assert "S3CRET-VALUE" not in everything_shown(caught.value)


@pytest.mark.parametrize("name", ["base_url", "merchant_no", "token"])
def test_missing_required_setting_is_named(name: str) -> None:
    fields: dict[str, Any] = {
        "base_url": "https://pay.example",
        "merchant_no": "200043",
        "token": TOKEN,
    }
    del fields[name]
    with pytest.raises(ConfigurationError, match="is missing") as caught:
        Account(**fields)
    assert caught.value.field == name


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://pay.example"},
        {"base_url": "http://pay.example"},
        {"merchant_no": ""},
        {"dialect": "nonsense"},
        {"deadline_seconds": -1},
        {"surprise": TOKEN_DIGEST},
        {"merchant_no": "", "deadline_seconds": -1},
    ],
)
def test_i11_traceback_frames_hold_no_token(wrong: dict[str, Any]) -> None:
    """This holds for the error of a refused account."""
    with pytest.raises(ConfigurationError) as caught:
        account(**wrong)
    shown = everything_shown(caught.value)
    assert TOKEN not in shown
    assert TOKEN_DIGEST not in shown


def test_i11_the_token_appears_in_no_rendering() -> None:
    some = account(token=SecretStr(TOKEN))
    shown = [
        repr(some),
        str(some),
        f"{some}",
        repr(some.credentials),
        some.model_dump_json(),
        repr(some.model_dump()),
        repr([some]),
        str(vars(some)),
    ]
    assert not [text for text in shown if TOKEN in text or TOKEN_DIGEST in text]
    assert some.token.get_secret_value() == some.credentials.token == TOKEN


def test_accounts_are_immutable_values() -> None:
    """They are frozen, comparable and hashable, and survive pickling."""
    some = account()
    assert some.credentials == account().credentials
    assert pickle.loads(pickle.dumps(some)) == some == account()
    assert len({some, account(), account(merchant_no="2")}) == 2
    assert some != account(token="another")
    with pytest.raises(Exception, match="frozen"):
        some.merchant_no = "2"


def test_account_copy_carries_own_credentials() -> None:
    some = account()
    assert some.credentials.merchant_no == "200043"
    copied = some.model_copy(update={"merchant_no": "2", "base_url": "https://other.example"})
    assert (copied.credentials.merchant_no, copied.credentials.base_url) == (
        "2",
        "https://other.example",
    )


def test_the_defaults_are_those_of_the_docstring() -> None:
    assert json.loads(
        account().model_dump_json(exclude={"dialect", "base_url", "merchant_no", "token"}),
    ) == {
        "sandbox": False,
        "currencies": [],
        "methods": [],
        "store_no": "",
        "settle_currency": "",
        "options": {},
        "webhook_secrets": [],
        "connect_timeout_seconds": 5.0,
        "read_timeout_seconds": 20.0,
        "deadline_seconds": 30.0,
        "query_attempts": 3,
        "max_connections": 64,
        "public_addresses_only": False,
    }
    assert account().dialect == REFERENCE


@given(
    st.dictionaries(
        st.sampled_from([*Account.model_fields, "other"]),
        st.none() | st.text() | st.integers() | st.floats() | st.binary(),
    ),
)
def test_i11_only_configuration_errors_are_raised(
    changes: dict[str, Any],
) -> None:
    """Wrong values of any kind raise no other error."""
    try:
        account(**changes)
    except ConfigurationError as error:
        # some of these accounts are good
        assert TOKEN not in everything_shown(error)  # noqa: PT017


def test_i11_account_copy_hides_new_token() -> None:
    """The copy is checked by the same rules."""
    original = Account(base_url="http://pay.example", merchant_no="1", token="first", sandbox=True)
    assert "s3cret" not in repr(original.model_copy(update={"token": "s3cret"}))
    with pytest.raises(ConfigurationError):
        original.model_copy(update={"sandbox": False})


@pytest.mark.parametrize("host", ["xn--a.example", "xn--.example"])
def test_invalid_host_is_refused_before_sending(host: str) -> None:
    with pytest.raises(ConfigurationError):
        Account(base_url=f"https://{host}", merchant_no="1", token="t")


OPTIONS = GatewayProfile(
    name="payments",
    base_url="https://live.example",
    sandbox_url="https://test.example",
    currencies=("EUR",),
    options=(
        Option(name="pos_id", kind=int, required=True, help="the point of sale"),
        Option(name="captures", kind=bool, default=True, help="whether it captures at once"),
        Option(name="second_key", secret=True, help="the key of notifications"),
    ),
)


def with_options(**options: Any) -> Account:
    return Account(token=TOKEN, dialect=OPTIONS, options=options)


def test_options_are_typed_with_defaults() -> None:
    made = with_options(pos_id="300746", second_key="a-second-key")
    assert (made.options["pos_id"], made.options["captures"]) == (300746, True)
    assert made.options["second_key"].get_secret_value() == "a-second-key"
    assert made == with_options(pos_id=300746, second_key="a-second-key")
    assert hash(made) != hash(with_options(pos_id=1))
    assert "a-second-key" not in repr(made) + made.model_dump_json(exclude={"dialect"})
    assert made.model_copy(update={"sandbox": True}).options == made.options


@pytest.mark.parametrize(
    ("options", "field", "value", "remedy"),
    [
        ({}, "options.pos_id", None, "the plugin 'payments' needs it: the point of sale"),
        ({"pos_id": "x"}, "options.pos_id", "x", "not a whole number: the point of sale"),
        ({"pos_id": True}, "options.pos_id", True, "not a whole number"),
        ({"pos_id": 1, "captures": "perhaps"}, "options.captures", "perhaps", "not True or False"),
        ({"pos_id": 1, "second_key": " x"}, "options.second_key", "***", "not text"),
        ({"pos_id": 1, "secondkey": "x"}, "options.secondkey", "***", "no option of the plugin"),
    ],
)
def test_unusable_option_names_plugin_and_field(
    options: Any,
    field: str,
    value: object,
    remedy: str,
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        with_options(**options)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert remedy in str(caught.value)


def test_built_in_accounts_have_no_options() -> None:
    with pytest.raises(ConfigurationError, match="no option of the plugin 'gateway'"):
        account(options={"pos_id": 1})


def test_sandbox_account_has_test_address() -> None:
    live = with_options(pos_id=1)
    assert live.base_url == "https://live.example"
    tested = Account(token=TOKEN, dialect=OPTIONS, options={"pos_id": 1}, sandbox=True)
    assert tested.base_url == "https://test.example"


def test_profile_without_currency_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one currency"):
        GatewayProfile(name="none")


def test_profile_is_neutral_by_default() -> None:
    neutral = GatewayProfile(name="neutral", currencies=("EUR",))
    assert (neutral.plugin, neutral.macros, neutral.methods, neutral.paid_words) == (
        "neutral",
        (),
        (),
        frozenset(),
    )
    assert not neutral.settle_currency_is_currency
    assert neutral.kept_fields == frozenset()
