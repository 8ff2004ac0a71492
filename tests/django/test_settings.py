"""The settings: the page explains every key, and its example can be used."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.urls import include, path, set_script_prefix
from django.utils import translation
from django.utils.translation import gettext_lazy
from pydantic_core import PydanticUndefined

from tests.test_docs import blocks, read, rows, section
from tillgate import ConfigurationError
from tillgate.django import conf
from tillgate.django.checks import check_settings
from tillgate.django.conf import Settings, get_settings
from tillgate.django.methods import choices_for
from tillgate.django.models import Payment
from tillgate.django.tasks import BEAT_SCHEDULE
from tillgate.money import Money
from tillgate.wire.methods import PaymentMethod

PAGE = "docs/reference/settings.md"


def shown(name: str) -> str:
    """Return how the page writes a default."""
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if default == tuple(PaymentMethod):
        return "all"
    if default == "":
        return '`""`'
    return f"`{list(default)}`" if isinstance(default, tuple) else f"`{default}`"


def test_every_setting_is_explained_with_default() -> None:
    """The page explains no setting that does not exist."""
    table = section(read(PAGE), "Settings of the Django app").partition("## ")[0]
    explained = rows(table)
    assert {name: cells[0] for name, cells in explained.items()} == {
        name.upper(): shown(name) for name in Settings.model_fields
    }
    assert list(explained) == [name.upper() for name in Settings.model_fields]


@pytest.mark.parametrize(
    "name",
    [name for name in Settings.model_fields if re.search(r"_(minutes|seconds|per_second)$", name)],
)
def test_every_setting_of_time_names_its_unit(name: str) -> None:
    unit = rows(read(PAGE))[name.upper()][1]
    assert unit in name.replace("_", " ")


def test_documented_example_is_usable(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_PAYMENT_TOKEN", "the-secret-token")
    names: dict[str, Any] = {}
    exec(blocks(read(PAGE), "python")[0], names)
    settings.TILLGATE = names["TILLGATE"]
    assert get_settings().accounts["default"].base_url == "https://pay.example"
    assert get_settings().review_mail_to == ("owner@shop.example",)


def test_currency_guides_account_is_usable(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_PAYMENT_TOKEN", "the-secret-token")
    names: dict[str, Any] = {}
    exec(blocks(read("docs/how-to/take-other-currencies.md"), "python")[0], names)
    settings.TILLGATE = names["TILLGATE"]
    account = get_settings().accounts["default"]
    assert account.taken_currencies == ("PHP", "KRW", "USD")
    assert [
        choice.code for choice in choices_for(account, Money("49", "KRW")) if not choice.problem
    ] == ["gcash", "creditcard"]
    assert [found.id for found in check_settings()] == []


def test_unknown_key_is_an_error(settings: Any) -> None:
    settings.TILLGATE = {"PUBLIC_URL": "https://shop.example", "PUBLICURL": "https://shop.example"}
    with pytest.raises(ConfigurationError, match="'PUBLICURL' is not a setting"):
        get_settings()


def test_every_celery_task_is_explained() -> None:
    """The page explains no task that does not exist."""
    from tillgate.django import tasks

    known = [getattr(tasks, name).name for name in tasks.__all__ if name != "BEAT_SCHEDULE"]
    assert sorted(rows(read("docs/how-to/celery.md"))) == sorted(known)
    assert BEAT_SCHEDULE["tillgate-worker"]["task"] in known


ACCOUNT = {"BASE_URL": "https://pay.example", "MERCHANT_NO": "200043", "TOKEN": "canary-token"}
HERE = "TILLGATE['ACCOUNTS']['main']"


@pytest.mark.parametrize(
    ("account", "says"),
    [
        ({"TOKKEN": "canary"}, f"{HERE}: 'TOKKEN' is not a setting: did you mean 'TOKEN'?"),
        (
            {"merchant_no": "1"},
            f"{HERE}: 'merchant_no' is not a setting: did you mean 'MERCHANT_NO'?",
        ),
        (
            {"Z": 1},
            f"{HERE}: 'Z' is not a setting: the settings are BASE_URL, MERCHANT_NO, TOKEN, "
            "SANDBOX, DIALECT, ",
        ),
        ({7: 1}, f"{HERE}: 7 is not a setting: "),
        (
            {"TOKKEN": "canary", "BASE_URL": "http://pay.example"},
            f"{HERE}: 'TOKKEN' is not a setting",
        ),
        (
            {"BASE_URL": "http://pay.example"},
            f"{HERE}['BASE_URL']: 'http://pay.example' is not https, which only a sandbox may do "
            "without: ",
        ),
        (
            {"BASE_URL": "pay.example"},
            f"{HERE}['BASE_URL']: 'pay.example' is not an absolute http(s) address",
        ),
        ({"MERCHANT_NO": 200043}, f"{HERE}['MERCHANT_NO']: 200043 is not a merchant number"),
        ({"TOKEN": " canary-token"}, f"{HERE}['TOKEN']: '***' is not text"),
        ({"QUERY_ATTEMPTS": 99}, f"{HERE}['QUERY_ATTEMPTS']: 99 cannot be used in an account"),
        ({"TOKEN": None}, f"{HERE}['TOKEN']: '***' is not text"),
    ],
)
def test_account_error_uses_setting_names(
    settings: Any,
    account: Any,
    says: str,
) -> None:
    settings.TILLGATE = {
        "ACCOUNTS": {"main": {**ACCOUNT, **account}},
        "PUBLIC_URL": "https://shop.example",
    }
    with pytest.raises(ConfigurationError) as caught:
        get_settings()
    assert str(caught.value).startswith(says)
    assert "canary" not in str(caught.value)
    assert "SANDBOX" in says or "sandbox=True" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"ALERT_WEBHOOK_URL": "http://canary.example/x"}, "ALERT_WEBHOOK_URL"),
        ({"ALERT_WEBHOOK_URL": "http://127.0.0.1:9/canary"}, "ALERT_WEBHOOK_URL"),
        ({"ALERT_WEBHOOK_URL": "canary"}, "ALERT_WEBHOOK_URL"),
        ({"ALERT_WEBHOOK_SECRET": None}, "ALERT_WEBHOOK_SECRET"),
        ({"ALERT_WEBHOOK_SECRET": "canary"}, "ALERT_WEBHOOK_SECRET"),
        ({"ALERT_WEBHOOK_SECRET": 7}, "ALERT_WEBHOOK_SECRET"),
        ({"REVIEW_MAIL_FROM": "somebody"}, "REVIEW_MAIL_FROM"),
        ({"REVIEW_MAIL_FROM": "a@b.example\nBcc: c@d.example"}, "REVIEW_MAIL_FROM"),
    ],
)
def test_unsafe_alerts_and_senders_are_refused(
    settings: Any,
    changes: Any,
    names: str,
) -> None:
    """The error shows no secret."""
    alerts = {
        "ALERT_WEBHOOK_URL": "https://hooks.example/canary",
        "ALERT_WEBHOOK_SECRET": "canary of 16 characters",
    }
    settings.TILLGATE = {
        "ACCOUNTS": {"main": ACCOUNT},
        "PUBLIC_URL": "https://shop.example",
        **alerts,
        **changes,
    }
    with pytest.raises(ConfigurationError, match=names) as caught:
        get_settings()
    assert "canary" not in str(caught.value)
    settings.TILLGATE = {
        "ACCOUNTS": {"main": ACCOUNT},
        "PUBLIC_URL": "https://shop.example",
        **alerts,
    }
    assert "canary" not in repr(get_settings())


def test_aliases_differing_in_case_are_refused(settings: Any) -> None:
    settings.TILLGATE = {
        "ACCOUNTS": {"main": ACCOUNT, "EU": ACCOUNT, "eu": ACCOUNT},
        "PUBLIC_URL": "https://shop.example",
    }
    with pytest.raises(ConfigurationError, match="'EU' differs from 'eu' in capitals only"):
        get_settings()


@pytest.mark.parametrize("alias", [None, 7, b"main", gettext_lazy("main"), "", "a" * 129])
def test_non_text_alias_error_hides_account(settings: Any, alias: Any) -> None:
    settings.TILLGATE = {"ACCOUNTS": {alias: ACCOUNT}, "PUBLIC_URL": "https://shop.example"}
    with pytest.raises(
        ConfigurationError,
        match=r"^TILLGATE\['ACCOUNTS'\].* is not an alias: give text of 1 to 128 characters, such "
        r"as",
    ) as caught:
        get_settings()
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value.value)


def test_public_address_error_hides_password(settings: Any) -> None:
    settings.TILLGATE = {
        "ACCOUNTS": {"main": ACCOUNT},
        "PUBLIC_URL": "https://staff:canary@shop.example",
    }
    with pytest.raises(
        ConfigurationError,
        match=r"^TILLGATE\['PUBLIC_URL'\]: 'shop\.example' is not .* without user name",
    ) as caught:
        get_settings()
    assert "canary" not in repr(caught.value.value)


@pytest.mark.parametrize(
    ("name", "longest"),
    [("merchant_no", "1" * 64), ("base_url", f"https://pay.example/{'a' * 235}")],
)
def test_account_values_fit_payment_columns(
    settings: Any,
    name: str,
    longest: str,
) -> None:
    """A value that is longer than a payment can keep is refused."""

    def configure(text: str) -> None:
        account = {**ACCOUNT, name.upper(): text}
        settings.TILLGATE = {"ACCOUNTS": {"main": account}, "PUBLIC_URL": "https://shop.example"}

    configure(longest)
    assert get_settings().accounts["main"]
    configure(f"{longest}1")
    with pytest.raises(
        ConfigurationError,
        match=f"is too long: payments keep at most {len(longest)} characters",
    ) as caught:
        get_settings()
    assert caught.value.field == f"{HERE}['{name.upper()}']"


def test_account_limits_equal_column_lengths() -> None:
    columns = {field.name: field.max_length for field in Payment._meta.fields}
    assert {name: columns[name] for name in conf._LONGEST} == conf._LONGEST


@pytest.mark.parametrize(
    "methods",
    [[["alipay"]], [{"alipay": 1}], ["ali pay"], ["alipay", "alipay"], "alipay"],
)
def test_methods_are_a_list_of_their_names(settings: Any, methods: Any) -> None:
    settings.TILLGATE = {"PUBLIC_URL": "https://shop.example", "PAYMENT_METHODS": methods}
    with pytest.raises(
        ConfigurationError,
        match=r"^TILLGATE\['PAYMENT_METHODS'\].* must be a list of codes, without repeats",
    ):
        get_settings()


def test_an_account_that_misses_something_names_it(settings: Any) -> None:
    settings.TILLGATE = {
        "ACCOUNTS": {"main": {"BASE_URL": "https://pay.example", "TOKEN": "canary"}},
        "PUBLIC_URL": "https://shop.example",
    }
    with pytest.raises(ConfigurationError, match=re.escape(f"{HERE}['MERCHANT_NO'] is missing")):
        get_settings()


def test_http_needs_sandbox_and_says_so(settings: Any) -> None:
    """The error shows the line to add."""
    sandbox = {**ACCOUNT, "BASE_URL": "http://127.0.0.1:8181"}
    settings.TILLGATE = {"ACCOUNTS": {"main": sandbox}, "PUBLIC_URL": "https://shop.example"}
    with pytest.raises(ConfigurationError, match='add "SANDBOX": True'):
        get_settings()
    settings.TILLGATE = {
        "ACCOUNTS": {"main": {**sandbox, "SANDBOX": True}},
        "PUBLIC_URL": "https://shop.example",
    }
    assert get_settings().accounts["main"].sandbox


@pytest.mark.parametrize(
    "given",
    ["owner@shop.example", ["owner"], [("Ann", "ann@shop.example")], 7, None],
)
def test_mail_recipients_are_a_list(settings: Any, given: Any) -> None:
    settings.TILLGATE = {"PUBLIC_URL": "https://shop.example", "REVIEW_MAIL_TO": given}
    with pytest.raises(
        ConfigurationError,
        match=r"TILLGATE\['REVIEW_MAIL_TO'\].* must be a list of addresses",
    ):
        get_settings()


def test_missing_public_address_shows_an_example(settings: Any) -> None:
    settings.TILLGATE = {"ACCOUNTS": {"main": ACCOUNT}}
    with pytest.raises(
        ConfigurationError,
        match=r"^TILLGATE\['PUBLIC_URL'\] is missing: .* such as https://shop\.example, ",
    ):
        get_settings()


def test_misspelt_setting_suggests_the_nearest(settings: Any) -> None:
    settings.TILLGATE = {"PUBLIC_URL": "https://shop.example", "PAYMENT_METHOD": ["alipay"]}
    with pytest.raises(
        ConfigurationError,
        match="TILLGATE: 'PAYMENT_METHOD' is not a setting: did you mean 'PAYMENT_METHODS'",
    ):
        get_settings()


def test_settings_traceback_holds_no_token(settings: Any) -> None:
    settings.TILLGATE = {
        "ACCOUNTS": {"main": {**ACCOUNT, "MERCHANT_NO": 7}},
        "PUBLIC_URL": "https://shop.example",
    }
    with pytest.raises(ConfigurationError) as caught:
        get_settings()
    own = [
        frame.frame
        for frame in caught.traceback
        if "tillgate" in str(frame.path) and "tests" not in str(frame.path)
    ]
    assert own
    assert not [
        name
        for frame in own
        for name, value in frame.f_locals.items()
        if "canary-token" in repr(value)
    ]


@pytest.mark.parametrize("mount", ["/shop", "/shop/"])
def test_configured_mount_is_same_in_threads(
    settings: Any,
    mount: str,
) -> None:
    """With FORCE_SCRIPT_NAME set, an address is the same in every thread."""
    settings.TILLGATE = {**settings.TILLGATE, "PUBLIC_URL": "https://shop.example"}
    settings.FORCE_SCRIPT_NAME = mount
    with ThreadPoolExecutor(1) as threads:

        def address(prefix: str | None) -> str:
            if prefix:
                set_script_prefix(prefix)
            return get_settings().address("tillgate:refund-notification", "key")

        found = [threads.submit(address, prefix).result() for prefix in (None, "/shop/", "/")]
    assert set(found) == {"https://shop.example/shop/payments/refund-notification/key/"}


def test_address_uses_mount_of_the_request(settings: Any) -> None:
    """This holds where no mount is configured."""
    settings.TILLGATE = {**settings.TILLGATE, "PUBLIC_URL": "https://shop.example"}

    def address(prefix: str) -> str:
        set_script_prefix(prefix)
        return get_settings().address("tillgate:refund-notification", "key")

    with ThreadPoolExecutor(1) as threads:
        for prefix in ("/shop/", "/"):
            assert (
                threads.submit(address, prefix).result()
                == f"https://shop.example{prefix}payments/refund-notification/key/"
            )


@pytest.mark.parametrize(("languages", "given"), [(["en", "de"], "en"), (["de"], "en-us")])
def test_workers_address_works_under_language_prefixes(
    settings: Any,
    client: Any,
    languages: list[str],
    given: str,
) -> None:
    """The default `LANGUAGE_CODE` is en-us, and the pages of a shop that lists en are at /en/."""
    settings.LANGUAGE_CODE, settings.LANGUAGES = "en-us", [(code, code) for code in languages]
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", *settings.MIDDLEWARE]
    settings.ROOT_URLCONF = tuple(i18n_patterns(path("payments/", include("tillgate.django.urls"))))
    settings.TILLGATE = {**settings.TILLGATE, "PUBLIC_URL": "https://shop.example"}
    with translation.override("en-us"):
        address = get_settings().address("tillgate:asset", "pages.css")
    assert address == f"https://shop.example/{given}/payments/assets/pages.css"
    assert client.get(address.removeprefix("https://shop.example"), secure=True).status_code == 200
