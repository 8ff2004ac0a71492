"""An event's settings: the form, the accounts, and what of them is shown to whom."""

from __future__ import annotations

from configparser import RawConfigParser
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import INFO, WARNING, run_checks
from django.db import connection
from pretix.base.models import LogEntry
from pretix.helpers.config import EnvOrParserConfig

from tests.shopping import at, bought, event_of, newest_payment, order_of, staff
from tillgate import ConfigurationError, PaymentMethod
from tillgate.django.conf import get_settings
from tillgate.django.operating.findings import examine
from tillgate.shop import find_account
from tillgate.testing.world import World
from tillgate_pretix import accounts, configuration
from tillgate_pretix.checks import CHECKS

FORM = "/control/event/org/conf/settings/payment/tillgate"
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
LIVE = {"base_url": "https://pay.example", "merchant_no": "200043", "token": TOKEN}


def posted(browser: Any, **changes: str) -> Any:
    """Send the form as it stands, with changes."""
    fields = {
        "_enabled": "on",
        **LIVE,
        "method_alipay": "on",
        "_restrict_to_sales_channels": "web",
        **changes,
    }
    return browser.post(
        FORM,
        {f"payment_tillgate_{name}": value for name, value in fields.items() if value},
        follow=True,
    )


@pytest.fixture
def owner(world: World) -> Any:
    """The browser of somebody who may change the settings."""
    return staff(world, "event.settings.general:write", "event.settings.payment:write")


def present_account(world: World) -> Any:
    """Return the account that the event's orders are paid with now, outside of test mode."""
    return find_account(accounts.alias_of(SimpleNamespace(event=event_of(world), testmode=False)))


def test_form_saves_account_and_hides_token(world: World, owner: Any) -> None:
    page = posted(owner)
    assert "Your changes have been saved." in page.content.decode()
    account = present_account(world)
    assert (account.base_url, account.merchant_no, account.sandbox) == (
        "https://pay.example",
        "200043",
        False,
    )
    assert account.token.get_secret_value() == TOKEN
    shown = owner.get(FORM).content.decode()
    assert TOKEN not in shown
    assert "*****" in shown
    assert all(f"payment_tillgate_method_{method}" in shown for method in PaymentMethod)


def test_unchanged_form_keeps_token(world: World, owner: Any) -> None:
    posted(owner)
    posted(owner, token="*****", merchant_no="200044")
    account = present_account(world)
    assert (account.merchant_no, account.token.get_secret_value()) == ("200044", TOKEN)


def test_event_history_never_holds_token(world: World, owner: Any) -> None:
    posted(owner)
    entries = LogEntry.objects.filter(action_type="pretix.event.payment.provider")
    assert entries.count() == 1
    assert TOKEN not in "".join(entry.data for entry in entries)
    assert entries.get().parsed_data["new_values"]["payment_tillgate_merchant_no"] == "200043"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "http://pay.example"}, "is not https"),
        ({"token": ""}, "“Secret token” is missing"),
        ({"base_url": ""}, "“Address of the payment service” is missing"),
        (
            {"test_base_url": "http://pay.example", "test_merchant_no": "", "test_token": "x"},
            "“Merchant number” is missing",
        ),
    ],
)
def test_unusable_account_is_refused_at_field(
    world: World,
    owner: Any,
    changes: dict[str, str],
    message: str,
) -> None:
    event = event_of(world)
    before = accounts.settings_of(event).get("merchant_no")
    page = posted(owner, **changes).content.decode()
    assert "We could not save your changes" in page
    assert message in page
    # what was typed a moment ago stays in its field, as pretix has it
    assert TOKEN not in page.replace(f'value="{TOKEN}"', "")
    assert accounts.settings_of(event_of(world)).get("merchant_no") == before


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "10.1.2.3", "169.254.169.254", "[::ffff:10.1.2.3]"],
)
def test_private_network_address_is_refused(
    world: World,
    owner: Any,
    settings: Any,
    host: str,
) -> None:
    """The installation can allow it."""
    account = {
        "test_base_url": f"http://{host}:8000",
        "test_merchant_no": "200043",
        "test_token": TOKEN,
    }
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = False
    assert (
        "is in a private network: only with allow_http_to_private_networks"
        in posted(owner, **account).content.decode()
    )
    settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS = True
    assert "Your changes have been saved." in posted(owner, **account).content.decode()


def test_other_currency_event_cannot_enable_payments(world: World, owner: Any) -> None:
    event = event_of(world)
    event.currency = "EUR"
    event.save()
    assert "The account takes USD, and this event is in" in posted(owner).content.decode()


def test_form_is_hidden_without_settings_permission(world: World) -> None:
    assert staff(world, "event.orders:write").get(FORM).status_code in (403, 404)


# Who may be paid how ------------------------------------------------------------------------------


def test_each_payment_mode_has_own_account(world: World) -> None:
    """pretix has a test mode and a live mode."""
    order = order_of(world, world.order())
    event = order.event
    for name, value in LIVE.items():
        accounts.settings_of(event).set(name, value)
    assert accounts.alias_of(order).startswith(f"pretix-test-{event.pk}-")
    assert find_account(accounts.alias_of(order)).sandbox
    order.testmode = False
    assert accounts.alias_of(order).startswith(f"pretix-{event.pk}-")
    assert find_account(accounts.alias_of(order)).base_url == "https://pay.example"


@pytest.mark.parametrize(
    "alias",
    ["default", "pretix-", "pretix-x", "pretix-987654", "pretix-test-987654-0a1b2c3d", "other-1"],
)
def test_unknown_account_is_not_found(world: World, alias: str) -> None:
    assert accounts.find(alias) is None


def test_former_merchant_serves_earlier_payments(
    world: World,
    owner: Any,
) -> None:
    """The event has changed to another merchant since."""
    waiting = world.pay_page(key := world.order())
    order, payment = bought(world)
    former = find_account(payment.account)
    other = {"test_base_url": former.base_url, "test_merchant_no": "987654", "test_token": "f" * 32}
    page = posted(owner, **other)
    assert "Your changes have been saved." in page.content.decode()
    assert find_account(accounts.alias_of(order)).merchant_no == "987654"
    world.shopper_pays(waiting)
    world.gateway_notification(waiting)
    assert world.shop.is_paid(key), "the former merchant was not asked"
    with at(order):
        refund = order.refunds.create(
            payment=newest_payment(order),
            provider="tillgate_alipay",
            amount="5.00",
            state="created",
            source="admin",
        )
        refund.payment_provider.execute_refund(refund)
    assert (refund.state, world.refunded_amount(payment)) == ("done", Decimal("5.00"))
    shown = owner.get(FORM).content.decode()
    assert f"merchant number {former.merchant_no} at {former.base_url}" in shown
    assert former.token.get_secret_value() not in shown


def test_former_account_is_kept_once(world: World, owner: Any) -> None:
    """It has its newest token."""
    _, payment = bought(world)
    former = find_account(payment.account)
    there = {"test_base_url": former.base_url, "test_merchant_no": former.merchant_no}
    other = {**there, "test_merchant_no": "987654", "test_token": "f" * 32}
    for account in (other, {**there, "test_token": "a" * 32}, other):
        posted(owner, **account)
    assert accounts.former_merchants(event_of(world)) == [(former.merchant_no, former.base_url)]
    assert find_account(payment.account).token.get_secret_value() == "a" * 32


def test_account_without_payments_is_not_kept(world: World, owner: Any) -> None:
    posted(owner)
    posted(owner, merchant_no="200044")
    assert accounts.former_merchants(event_of(world)) == []


def test_emptied_test_account_serves_earlier_payments(
    world: World,
    owner: Any,
) -> None:
    """New payments in test mode get no account."""
    order, payment = bought(world)
    posted(owner)
    assert not accounts.is_complete(event_of(world), testmode=True)
    assert find_account(payment.account).sandbox
    assert accounts.find(accounts.alias_of(order)) is None


@pytest.mark.parametrize(
    ("missing", "is_offered"),
    [("", True), ("account", False), ("currency", False), ("method", False), ("enabled", False)],
)
def test_only_what_can_be_paid_is_offered(
    world: World,
    rf: Any,
    missing: str,
    is_offered: bool,
) -> None:
    order = order_of(world, world.order())
    event = order.event
    if missing == "account":
        event.settings.delete("payment_tillgate_test_token")
    if missing == "method":
        accounts.settings_of(event).set("method_alipay", False)
    if missing == "enabled":
        accounts.settings_of(event).set("_enabled", False)
    if missing == "currency":
        event.currency = "EUR"
    request = rf.get("/")
    request.session, request.event, request.organizer = world.client.session, event, event.organizer
    with at(order):
        provider = event.get_payment_providers()["tillgate_alipay"]
        assert (provider.is_enabled and provider.order_change_allowed(order)) is is_offered
        assert (provider.is_enabled and provider.is_allowed(request, order.total)) is is_offered
        assert (provider.test_mode_message is not None) is (missing != "account")


def test_method_count_adds_no_account_reads(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page of all methods reads it as often as a page of one method."""
    order = order_of(world, world.order())
    page = f"/org/conf/order/{order.code}/{order.secret}/pay/change"
    looked_up: list[str] = []
    build = accounts.build

    def counted(*arguments: Any, **options: Any) -> Any:
        looked_up.append("once more")
        return build(*arguments, **options)

    monkeypatch.setattr(accounts, "build", counted)
    shown = world.client.get(page).content.decode()
    assert [method for method in PaymentMethod if f'value="tillgate_{method}"' in shown] == list(
        PaymentMethod,
    )
    of_all = len(looked_up)
    for method in PaymentMethod:
        accounts.settings_of(order.event).set(accounts.setting_of(method), method == "alipay")
    looked_up.clear()
    assert world.client.get(page).content.decode().count('value="tillgate_') == 1
    assert of_all == len(looked_up) > 0


def test_method_disabled_by_installation_stays_hidden(world: World) -> None:
    """No event offers it."""
    order = order_of(world, world.order())
    world.configure(PAYMENT_METHODS=["paypal"])
    with at(order):
        providers = order.event.get_payment_providers()
        assert [
            name
            for name, provider in providers.items()
            if name.startswith("tillgate_") and provider.is_enabled
        ] == ["tillgate_paypal"]


def test_wrong_installation_setting_disables_only_method(
    world: World,
    settings: Any,
) -> None:
    """All pages of the shop still work."""
    order = order_of(world, world.order())
    settings.TILLGATE = settings.TILLGATE | {"TIMEOUT": 30}
    assert world.client.get(f"/org/conf/order/{order.code}/{order.secret}/").status_code == 200
    with at(order):
        assert not order.event.get_payment_providers()["tillgate_alipay"].is_enabled


def test_every_method_has_provider(world: World) -> None:
    """The provider that holds the settings takes no payments itself."""
    event = event_of(world)
    with at(order_of(world, world.order())):
        providers = event.get_payment_providers()
    assert {name for name in providers if name.startswith("tillgate")} == {
        "tillgate",
        *(f"tillgate_{method}" for method in PaymentMethod),
    }
    holder = providers["tillgate"]
    assert (holder.is_meta, holder.is_enabled) == (True, False)
    assert providers["tillgate_creditcard"].public_name == "Credit or debit card"
    assert providers["tillgate_creditcard"].verbose_name == "Credit or debit card (Tillgate)"
    assert (
        newest_payment(order_of(world, world.order())).payment_provider.settings_form_fields == {}
    )


# The installation ---------------------------------------------------------------------------------


def written(text: str) -> EnvOrParserConfig:
    """Return pretix's configuration file with that text."""
    parser = RawConfigParser()
    parser.read_string(text)
    return EnvOrParserConfig(parser)


def test_pretix_address_and_admins_are_defaults() -> None:
    """They count when the configuration file says nothing."""
    found = configuration.from_file(
        written("[pretix]\nurl=https://tickets.example\n"),
        "https://tickets.example",
        ["ann@example.org"],
    )
    assert found == {"PUBLIC_URL": "https://tickets.example", "REVIEW_MAIL_TO": ["ann@example.org"]}


def test_file_section_and_environment_are_read(
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PRETIX_TILLGATE_TIMEOUT_MINUTES", "30")
    file = written(
        "[tillgate]\npayment_methods = alipay, paypal\norder_unpaid_after_minutes = "
        "15\nreview_mail_to=a@example.org,b@example.org\n"
        "monitor_networks = 10.0.0.0/8, 192.168.1.0/24\n",
    )
    settings.TILLGATE = configuration.from_file(file, "https://tickets.example", [])
    read = get_settings()
    assert (read.payment_methods, read.timeout_minutes, read.order_unpaid_after_minutes) == (
        (PaymentMethod.ALIPAY, PaymentMethod.PAYPAL),
        30,
        15,
    )
    assert read.review_mail_to == ("a@example.org", "b@example.org")
    assert [str(network) for network in read.monitor_networks] == ["10.0.0.0/8", "192.168.1.0/24"]


def test_unknown_setting_name_is_told(settings: Any) -> None:
    settings.TILLGATE = configuration.from_file(
        written("[tillgate]\npayment_method = alipay\n"),
        "https://tickets.example",
        [],
    )
    with pytest.raises(ConfigurationError, match="did you mean 'PAYMENT_METHODS'"):
        get_settings()


def test_http_is_reported_for_real_money(world: World, settings: Any) -> None:
    def told() -> list[str]:
        return [message.msg for message in run_checks(tags=[CHECKS.label], databases=["default"])]

    event = event_of(world)
    assert told() == []
    for name, value in LIVE.items():
        accounts.settings_of(event).set(name, value)
    [message] = told()
    assert "conf" in message
    settings.TILLGATE = settings.TILLGATE | {"PUBLIC_URL": "https://tickets.example"}
    assert told() == []


def test_checks_never_raise_pretix_errors(settings: Any) -> None:
    """Errors of Tillgate are warnings in pretix."""
    settings.TILLGATE = settings.TILLGATE | {"TIMEOUT": 30}
    found = {message.id: message.level for message in run_checks(tags=["tillgate"])}
    assert found["tillgate.E001"] == WARNING


def test_remedies_are_pretixs_own(
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})  # as in pretix
    settings.TILLGATE = settings.TILLGATE | {"REVIEW_MAIL_TO": []}
    settings.MANAGERS = []
    hints = {one.id: (one.hint, one.level) for one in run_checks(tags=["tillgate"])}
    assert "review_mail_to under [tillgate], or admins under [mail]" in str(hints["tillgate.W001"])
    if connection.vendor == "sqlite":
        assert hints["tillgate.W004"][1] == INFO
        assert "SQLite is for a trial" in str(hints["tillgate.W004"])
        found = {one.name: one for one in examine()}
        assert found["database settings"].passed
        assert "SQLite is for a trial" in found["database settings"].finding
