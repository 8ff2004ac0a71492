"""The examination of an account: key, permissions, secrets, API version and endpoints, without a
payment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stripe_emulator.driver import SECRETS, account_at
from stripe_emulator.fake import FakeStripe
from tillgate import Account, hooks
from tillgate.account_checks import examine
from tillgate.configuration import Configured
from tillgate_stripe.examination import EVENTS

ALL = (
    "checkout_session_write",
    "payment_intent_read",
    "refund_write",
    "dispute_read",
    "webhook_read",
)


@pytest.fixture
def fake() -> Iterator[FakeStripe]:
    with FakeStripe() as running:
        running.add_endpoint("https://shop.example/payments/webhook/default/", sorted(EVENTS))
        yield running


ADDRESS = "https://shop.example/payments/webhook/default/"


def faults(account: Account, *, online: bool, webhook_url: str | None = None) -> dict[str, str]:
    found = hooks.examine_account(account, online=online, webhook_url=webhook_url)
    assert found is not None
    return {finding.name: finding.finding for finding in found if not finding.passed}


@pytest.mark.parametrize(
    ("token", "sandbox", "secrets", "wrong"),
    [
        ("sk_test_fake", True, (), {}),
        ("rk_live_fake", False, SECRETS, {}),
        ("sk_test_fake", False, SECRETS, {"token": "test key"}),
        ("sk_live_fake", True, SECRETS, {"token": "live key"}),
        ("pk_live_fake", False, SECRETS, {"token": "publishable"}),
        ("something", False, SECRETS, {"token": "no key of Stripe"}),
        ("sk_live_fake", False, (), {"webhook_secrets": "no notification is believed"}),
        ("sk_live_fake", False, ("something",), {"webhook_secrets": "whsec_"}),
    ],
)
def test_settings_show_wrong_key_or_secret(
    token: str,
    sandbox: bool,
    secrets: tuple[str, ...],
    wrong: dict[str, str],
) -> None:
    """No call to Stripe is needed."""
    found = faults(
        Account(token=token, dialect="stripe", sandbox=sandbox, webhook_secrets=secrets),
        online=False,
    )
    assert set(found) >= set(wrong)
    assert all(words in found[name] for name, words in wrong.items())
    assert bool(found) == bool(wrong)
    assert not any(secret in text for text in found.values() for secret in (token, *secrets))


def test_doctor_proves_account_and_moves_nothing(fake: FakeStripe) -> None:
    account = account_at(fake.url)
    found = {finding.name: finding for finding in examine(Configured(account=account, sources={}))}
    assert all(finding.passed for finding in found.values())
    assert {"credentials", "api version", "permissions", "webhook endpoint"} <= set(found)
    assert "2026-10-28.endive" in found["api version"].finding
    assert fake.sessions == {}
    assert fake.refunds == {}


def test_documented_key_permissions_are_enough(fake: FakeStripe) -> None:
    fake.restrict("rk_test_enough", ALL)
    assert faults(account_at(fake.url, token="rk_test_enough"), online=True) == {}


@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ("payment_intent_read", "PaymentIntents: read"),
        ("refund_write", "Charges and Refunds: write"),
        ("dispute_read", "Disputes: read"),
    ],
)
def test_missing_key_permission_is_named(
    fake: FakeStripe,
    lacking: str,
    named: str,
) -> None:
    fake.restrict("rk_test_less", [one for one in ALL if one != lacking])
    assert named in faults(account_at(fake.url, token="rk_test_less"), online=True)["permissions"]


def test_key_without_endpoint_listing_is_enough(fake: FakeStripe) -> None:
    fake.restrict("rk_test_four", ALL[:-1])
    assert faults(account_at(fake.url, token="rk_test_four"), online=True) == {}


def test_unknown_key_differs_from_unreachable_stripe(fake: FakeStripe) -> None:
    assert (
        "does not know the key"
        in faults(account_at(fake.url, token="sk_test_stranger"), online=True)["credentials"]
    )
    assert "cannot be asked" in faults(account_at("http://127.0.0.1:1"), online=True)["credentials"]


def test_endpoint_lacking_events_names_them(fake: FakeStripe) -> None:
    fake.endpoints.clear()
    fake.add_endpoint(
        "https://shop.example/payments/webhook/default/",
        sorted(EVENTS - {"refund.failed"}),
    )
    assert "refund.failed" in faults(account_at(fake.url), online=True)["webhook endpoint"]


def test_endpoint_elsewhere_is_not_the_shops(fake: FakeStripe) -> None:
    live = account_at(fake.url)
    found = hooks.examine_account(
        live,
        online=True,
        webhook_url="https://shop.example/payments/webhook/other/",
    )
    assert found is not None
    assert "none is enabled for https://shop.example/payments/webhook/other/" in found[-1].finding
    assert faults(live, online=True, webhook_url=ADDRESS) == {}


@pytest.mark.parametrize("descriptor", ["4711", "TEA * CO", "A SHOP WITH A VERY LONG NAME", "Tée"])
def test_unusable_descriptor_is_named(descriptor: str) -> None:
    """Stripe would refuse every payment."""
    account = Account(
        token="sk_test_fake",
        dialect="stripe",
        sandbox=True,
        options={"statement_descriptor": descriptor},
    )
    found = faults(account, online=False)["options.statement_descriptor"]
    assert repr(descriptor) in found
    assert "22 Latin characters" in found


def test_mistyped_method_names_the_valid_ones() -> None:
    account = Account(
        token="sk_test_fake",
        dialect="stripe",
        sandbox=True,
        methods=["card", "idael"],
    )
    assert "idael is no payment method" in faults(account, online=False)["methods"]
