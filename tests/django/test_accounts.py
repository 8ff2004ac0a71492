"""The account of a payment, and the messages when it is gone or another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.django.conftest import World
from tillgate import Account, ConfigurationError, hooks
from tillgate.django import accounts
from tillgate.django.accounts import account_of, dialect_of, find_account
from tillgate.django.refunds import queueing
from tillgate.sandbox import PUBLISHED_MERCHANT_NO
from tillgate.wire.dialects import REFERENCE, Dialect

OWN = Account(
    base_url="https://pay.example",
    merchant_no="1",
    token="t",
    dialect=Dialect(name="own"),
)


class Keeper:
    """A plugin that keeps an account of its own."""

    @hooks.hookimpl
    def tillgate_account(self, alias: str) -> Account | None:
        return OWN if alias == "own" else None


def test_account_comes_from_settings_or_plugin(world: World) -> None:
    hooks.plugin_manager().register(Keeper(), name="keeper")
    try:
        assert find_account("default").merchant_no == PUBLISHED_MERCHANT_NO
        assert find_account("own") is OWN
        with pytest.raises(ConfigurationError) as caught:
            find_account("elsewhere")
    finally:
        hooks.plugin_manager().unregister(name="keeper")
    assert (
        str(caught.value)
        == "account: 'elsewhere' is not in TILLGATE['ACCOUNTS'], and no plugin keeps it"
    )


@pytest.mark.parametrize(
    ("field", "setting", "other"),
    [("merchant_no", "MERCHANT_NO", "999"), ("base_url", "BASE_URL", "http://127.0.0.1:9")],
)
def test_i1_payment_belongs_only_to_its_account(
    world: World,
    configure: Callable[..., None],
    field: str,
    setting: str,
    other: str,
) -> None:
    payment = world.start(world.order())
    assert account_of(payment) == find_account("default")
    configure({setting: other})
    with pytest.raises(ConfigurationError) as caught:
        account_of(payment)
    remedy = (
        "when payments that are still watched were made: configure the old account again "
        "under 'default'"
    )
    assert str(caught.value) == f"{field}: {other!r} was {getattr(payment, field)!r} {remedy}"


def test_i1_sandbox_payment_never_uses_live_account(world: World) -> None:
    payment = world.start(world.order())
    payment.sandbox = False
    with pytest.raises(ConfigurationError, match=r"^sandbox: True was False"):
        account_of(payment)


def test_missing_account_falls_back_to_reference(
    world: World,
) -> None:
    """A gateway uses its account's dialect, or the reference dialect if that is gone."""
    payment = world.start(world.order())
    hooks.plugin_manager().register(Keeper(), name="keeper")
    try:
        payment.account = "own"
        assert dialect_of(payment) is OWN.dialect
    finally:
        hooks.plugin_manager().unregister(name="keeper")
    assert dialect_of(payment) is REFERENCE


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The aliases of the accounts that were looked up."""
    aliases = list[str]()

    def counting(alias: str) -> Account:
        aliases.append(alias)
        return find_account(alias)

    monkeypatch.setattr(accounts, "find_account", counting)
    return aliases


def test_repeated_paid_notification_reads_account_once(
    world: World,
    looked_up: list[str],
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    looked_up.clear()
    assert world.notification(payment).content == b"success"
    assert world.fresh(payment).status == "paid"
    assert looked_up == ["default"]


def test_refund_notification_reads_account_once(
    world: World,
    looked_up: list[str],
) -> None:
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(world.paid_payment().pk, "1.00")
    looked_up.clear()
    answer = world.client.post(f"/payments/refund-notification/{refund.notification_key}/")
    assert (answer.status_code, looked_up) == (200, ["default"])
