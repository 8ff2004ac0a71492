"""A shop whose account is at another gateway, which a gateway plugin serves with a dialect of its
own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from django.core.checks import run_checks
from payments import PaymentStatus

from tests.test_provider import attempt_of, bill, way_of
from tillgate import (
    Account,
    CreatedPayment,
    GatewayProfile,
    Method,
    PaymentRequest,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    hooks,
)
from tillgate.hooks import Hint, hookimpl
from tillgate.shop import webhook_url
from tillgate.testing.world import World
from tillgate.wire import profile
from tillgate_django_payments import method_variants
from tillgate_django_payments.checks import CHECKS

TOY = GatewayProfile(
    name="toy",
    base_url="https://toy.example",
    currencies=("EUR",),
    methods=(Method(code="checkout"), Method(code="glass_beads", label="Glass beads")),
)


class Toy:
    """The gateway and its plugin: it keeps its requests, and everything is paid."""

    def __init__(self) -> None:
        self.asked: dict[str, PaymentRequest] = {}

    @hookimpl(tryfirst=True)
    def tillgate_pay(self, account: Account, request: PaymentRequest) -> CreatedPayment | None:
        assert account.dialect is TOY
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
        assert account.dialect is TOY
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
        if headers.get("X-Secret") not in [
            secret.get_secret_value() for secret in account.webhook_secrets
        ]:
            raise SignatureMismatch("the notification is not the toy's")
        return [Hint(reference=json.loads(body)["reference"])]


@pytest.fixture
def toy(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """The gateway of the settings' account, whose plugin is installed."""
    monkeypatch.setattr(
        profile,
        "_plugins_own",
        lambda: {"toy": EntryPoint("toy", f"{__name__}:TOY", "tillgate.profiles")},
    )
    account = {"DIALECT": "toy", "TOKEN": "a-key", "WEBHOOK_SECRETS": ["whsec-one"]}
    settings.TILLGATE = settings.TILLGATE | {"ACCOUNTS": {"default": account}}
    settings.PAYMENT_VARIANTS = {
        "online": settings.PAYMENT_VARIANTS["online"],
        **method_variants(["checkout", "glass_beads"]),
    }
    plugin = Toy()
    hooks.plugin_manager().register(plugin, name="toy")
    yield plugin
    hooks.plugin_manager().unregister(plugin)


def test_other_gateway_notification_confirms_row(
    world: World,
    toy: Toy,
) -> None:
    """The notification must carry the other gateway's signature."""
    payment = bill(variant="glass-beads", currency="EUR", billing_email="ada@shopper.example")
    assert world.onward(world.client.get(way_of(payment))) == "https://toy.example/1"
    attempt = attempt_of(payment)
    asked = toy.asked[attempt.reference]
    assert (asked.method, asked.currency, asked.email) == (
        "glass_beads",
        "EUR",
        "ada@shopper.example",
    )
    path = webhook_url("default").removeprefix("http://testserver")
    body = json.dumps({"reference": attempt.reference})
    for secret, status in (
        ("of another", PaymentStatus.WAITING),
        ("whsec-one", PaymentStatus.CONFIRMED),
    ):
        world.client.post(path, body, content_type="application/json", headers={"x-secret": secret})
        payment.refresh_from_db()
        assert payment.status == status


@pytest.mark.usefixtures("toy")
def test_other_gateway_methods_use_own_names(
    world: World,
) -> None:
    """They also pass the system checks."""
    page = world.client.get(way_of(bill(variant="online", currency="EUR"))).content.decode()
    assert "Glass beads" in page
    assert "Card or another way to pay" in page
    assert 'value="alipay"' not in page
    assert run_checks(tags=[CHECKS.label]) == []
