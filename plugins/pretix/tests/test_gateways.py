"""An event whose account is at another gateway, which a gateway plugin serves with a dialect of its
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pretix.base.models import LogEntry

from tests.shopping import at, event_of, newest_payment, order_of, staff
from tests.test_settings import LIVE, TOKEN, posted
from tillgate import (
    Account,
    ConfigurationError,
    CreatedPayment,
    GatewayProfile,
    Method,
    PaymentRequest,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    hooks,
)
from tillgate.django.models import Payment
from tillgate.hooks import Hint, hookimpl
from tillgate.shop import find_account, webhook_url
from tillgate.testing.world import World
from tillgate.wire import profile
from tillgate_pretix import accounts, connection, holder, orders, provider

FORM = "/control/event/org/conf/settings/payment/tillgate"
TOY = GatewayProfile(
    name="toy",
    base_url="https://toy.example",
    currencies=("USD", "EUR"),
    methods=(
        Method(code="checkout"),
        Method(code="beads", label="Glass beads"),
        Method(code="shells", label="Cowrie shells"),
    ),
)
FIELDS = {"dialect": "toy", "token": TOKEN, "base_url": "", "merchant_no": ""}


class Toy:
    """The gateway and its plugin: it keeps what it was asked for, and everything is paid."""

    def __init__(self) -> None:
        self.asked: dict[str, PaymentRequest] = {}

    @hookimpl(tryfirst=True)
    def tillgate_pay(self, account: Account, request: PaymentRequest) -> CreatedPayment | None:
        if account.dialect is not TOY:
            return None
        self.asked[request.reference] = request
        about: dict[str, Any] = {
            "reference": request.reference,
            "amount": request.amount,
            "currency": request.currency,
        }
        return CreatedPayment(
            transaction_no="toy-1",
            payment_url="https://toy.example/1",
            settle_currency=None,
            raw={},
            **about,
        )

    @hookimpl(tryfirst=True)
    def tillgate_query(self, account: Account, reference: str) -> Transaction | None:
        if account.dialect is not TOY:
            return None
        asked = self.asked[reference]
        about: dict[str, Any] = {
            "reference": reference,
            "amount": asked.amount,
            "currency": asked.currency,
            "settle_currency": None,
        }
        return Transaction(
            status=TransactionStatus.PAID,
            status_text="paid",
            transaction_no="toy-1",
            raw={},
            **about,
        )

    @hookimpl(tryfirst=True)
    def tillgate_read_notification(
        self,
        account: Account,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Sequence[Hint] | None:
        if account.dialect is not TOY:
            return None
        if headers.get("X-Secret") not in [
            secret.get_secret_value() for secret in account.webhook_secrets
        ]:
            raise SignatureMismatch("the notification is not the toy's")
        return [Hint(reference=json.loads(body)["reference"])]


@pytest.fixture
def toy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """The gateway, whose plugin is installed, and whose payment methods pretix.cfg lists."""
    monkeypatch.setattr(
        profile,
        "_plugins_own",
        lambda: {"toy": EntryPoint("toy", f"{__name__}:TOY", "tillgate.profiles")},
    )
    added = ("checkout", "beads")
    methods = (*orders.METHODS, *added)
    for module in (orders, provider, holder, connection):
        monkeypatch.setattr(module, "METHODS", methods)
    monkeypatch.setattr(
        provider,
        "PROVIDERS",
        [*provider.PROVIDERS, *map(provider._provider_of, added)],
    )
    world.configure(PAYMENT_METHODS=["checkout", "beads", "alipay"])
    plugin = Toy()
    hooks.plugin_manager().register(plugin, name="toy")
    yield plugin
    hooks.plugin_manager().unregister(plugin)


@pytest.fixture
def owner(world: World) -> Any:
    """The browser of somebody who may change the settings."""
    return staff(world, "event.settings.general:write", "event.settings.payment:write")


def alias_of(world: World, *, testmode: bool = False) -> str:
    return accounts.alias_of_event(event_of(world), testmode=testmode)


def use(world: World, **settings: object) -> None:
    """Give the event an account of the toy, for test mode, which offers one payment method."""
    kept = accounts.settings_of(event_of(world))
    for name, value in {
        "test_dialect": "toy",
        "test_token": TOKEN,
        "method_beads": True,
        **settings,
    }.items():
        kept.set(name, value)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("given", ["whsec-one\r\nwhsec-two", "whsec-one, whsec-two"])
def test_i11_gateway_account_hides_its_secrets(
    world: World,
    owner: Any,
    given: str,
) -> None:
    """It needs only the fields that its dialect asks for."""
    saved = posted(owner, **FIELDS, webhook_secrets=given).content.decode()
    assert "Your changes have been saved." in saved
    account = find_account(alias_of(world))
    assert (account.base_url, account.merchant_no, account.dialect.name) == (
        "https://toy.example",
        "",
        "toy",
    )
    assert [secret.get_secret_value() for secret in account.webhook_secrets] == [
        "whsec-one",
        "whsec-two",
    ]
    shown = owner.get(FORM).content.decode()
    history = "".join(LogEntry.objects.values_list("data", flat=True))
    assert "whsec" not in shown + history
    assert TOKEN not in shown + history
    posted(owner, **FIELDS | {"token": "*****"}, webhook_secrets="*****")
    assert find_account(alias_of(world)) == account, (
        "a form that is sent as it is shown changes nothing"
    )
    posted(owner, **FIELDS, webhook_secrets="whsec-two")
    assert [
        secret.get_secret_value() for secret in find_account(alias_of(world)).webhook_secrets
    ] == ["whsec-two"]


@pytest.mark.usefixtures("toy")
def test_saved_account_shows_notification_address(
    world: World,
    owner: Any,
) -> None:
    assert "/webhook/" not in owner.get(FORM).content.decode()
    posted(owner, **FIELDS)
    shown = owner.get(FORM).content.decode()
    assert webhook_url(alias_of(world)) in shown
    assert webhook_url(alias_of(world, testmode=True)) not in shown, "there is no such account"
    posted(owner, **LIVE)
    assert "/webhook/" not in owner.get(FORM).content.decode(), "the interface itself needs none"


@pytest.mark.usefixtures("toy")
def test_fields_of_other_dialect_are_ignored(world: World, owner: Any) -> None:
    """They are not shown either."""
    shown = owner.get(FORM).content.decode()
    for field, is_shown in {
        "base_url": False,
        "merchant_no": False,
        "webhook_secrets": True,
        "store_no": False,
    }.items():
        [tag] = re.findall(rf'<[^<>]*name="payment_tillgate_{field}"[^<>]*>', shown)
        [dialects_with] = re.findall(r'data-display-dependency-regex="/(.*?)/"', tag)
        assert 'data-display-dependency="#id_payment_tillgate_dialect"' in tag
        assert bool(re.search(dialects_with, "toy")) is is_shown
        presets = ["v3"] if field == "store_no" else ["", "examples", "v3"]
        assert all(bool(re.search(dialects_with, preset)) is not is_shown for preset in presets)
    posted(owner, **FIELDS)
    alias = alias_of(world)
    posted(
        owner,
        **FIELDS | {"base_url": "https://pay.example", "merchant_no": "200043"},
        test_dialect="toy",
        test_base_url="http://x.example",
    )
    assert alias_of(world) == alias
    assert find_account(alias).base_url == "https://toy.example"
    assert not accounts.is_complete(event_of(world), testmode=True)


def test_gateway_methods_appear_under_own_names(
    world: World,
    toy: Toy,
    owner: Any,
) -> None:
    """The event decides which of them it offers."""
    form = owner.get(FORM).content.decode()
    assert "Glass beads" in form
    assert "Card or another way to pay" in form
    order = order_of(world, world.order())
    use(world)
    assert [method.code for method in find_account(alias_of(world, testmode=True)).methods] == [
        "beads",
    ]
    order = order_of(world, str(order.pk))
    with at(order):
        providers = order.event.get_payment_providers()
        offered = [
            name
            for name, one in providers.items()
            if name.startswith("tillgate_") and one.order_change_allowed(order)
        ]
    assert offered == ["tillgate_beads"]
    assert (
        providers["tillgate_beads"].public_name,
        providers["tillgate_checkout"].public_name,
    ) == (
        "Glass beads",
        "Card or another way to pay",
    )


def test_signed_gateway_notification_pays_order(
    world: World,
    toy: Toy,
) -> None:
    event_of(world)
    use(world, test_webhook_secrets="whsec-one")
    # pretix's driver
    order = world.shop.place("tillgate_beads", Decimal("12.50"))  # type: ignore[attr-defined]
    theirs = newest_payment(order)
    started = world.client.get(f"/org/conf/tillgate/start/{order.code}/{order.secret}/{theirs.pk}/")
    assert started["Location"] == "https://toy.example/1"
    payment = Payment.objects.get()
    assert (toy.asked[payment.reference].method, toy.asked[payment.reference].email) == (
        "beads",
        "shopper@example.org",
    )
    path = webhook_url(payment.account).removeprefix("http://testserver")
    body = json.dumps({"reference": payment.reference})
    for secret, status, is_paid in (("of another", 400, False), ("whsec-one", 200, True)):
        answer = world.client.post(
            path,
            body,
            content_type="application/json",
            headers={"x-secret": secret},
        )
        assert (answer.status_code, world.shop.is_paid(str(order.pk))) == (status, is_paid)


@pytest.mark.usefixtures("toy")
def test_former_gateways_account_serves_earlier_payments(
    world: World,
    owner: Any,
    toy: Toy,
) -> None:
    posted(owner, **FIELDS, webhook_secrets="whsec-one", method_beads="on")
    alias = alias_of(world)
    with pytest.MonkeyPatch.context() as paid:
        paid.setattr("tillgate.shop.has_payments", lambda name: name == alias)
        posted(owner, **LIVE, dialect="")
    assert alias_of(world) != alias
    assert [secret.get_secret_value() for secret in find_account(alias).webhook_secrets] == [
        "whsec-one",
    ]
    shown = owner.get(FORM).content.decode()
    assert "<li>toy</li>" in shown
    assert "whsec-one" not in shown


def test_account_without_plugin_takes_no_payment(
    world: World,
    owner: Any,
) -> None:
    """It stays in the form."""
    order = order_of(world, world.order())
    use(world, test_dialect="gone")
    assert '<option value="gone" selected>' in owner.get(FORM).content.decode()
    order = order_of(world, str(order.pk))
    with at(order):
        assert not order.event.get_payment_providers()["tillgate_alipay"].order_change_allowed(
            order,
        )
    with pytest.raises(ConfigurationError, match="test_dialect: 'gone' is not a GatewayProfile"):
        find_account(alias_of(world, testmode=True))
