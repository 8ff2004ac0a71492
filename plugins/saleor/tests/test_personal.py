"""The service's data about a shopper: the page lists each field, and retention spares the rows that
Saleor's transactions need.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.apps import apps

from tests.double import SaleorDouble
from tests.storefront import RETURN_URL
from tillgate import shop
from tillgate.django.models import Notification, Payment
from tillgate.testing.world import World
from tillgate_saleor.conf import PLUGIN
from tillgate_saleor.models import Purchase, Transaction

DOCS = Path(__file__).parents[3] / "docs" / "saleor.md"


def paid(saleor: SaleorDouble, world: World) -> Payment:
    transaction, said = saleor.initialize(
        saleor.checkout(Decimal("19.90")),
        "key",
        {"method": "alipay", "returnUrl": RETURN_URL},
    )
    world.sandbox.control.pay(said["pspReference"])
    assert saleor.process(transaction)["result"] == "CHARGE_SUCCESS"
    payment = Payment.objects.get()
    world.notification(payment, "status=success&payerName=Ann")
    return payment


def test_page_lists_every_stored_field() -> None:
    """It lists each field of the service's rows."""
    listed = {}
    for line in (
        DOCS.read_text("utf-8").partition("## Stored data")[2].partition("\n## ")[0].splitlines()
    ):
        if found := re.match(r"\| `(\w+)` \| ([^|]+) \|", line):
            listed[found[1]] = re.findall(r"`(\w+)`", found[2])
    models = apps.get_app_config("tillgate_saleor").get_models()
    assert listed == {
        model.__name__: [field.name for field in model._meta.concrete_fields] for model in models
    }


def test_needed_payments_are_kept_without_details(
    saleor: SaleorDouble,
    world: World,
) -> None:
    """Payments that Saleor's transactions need are kept, and their details purged."""
    payment = paid(saleor, world)
    world.run_worker()
    world.configure(PAYMENTS_KEPT_DAYS=600)
    world.time.advance(days=700)
    for _ in range(2):
        assert world.run_worker().faults == []
    assert world.fresh(payment).status == "paid"
    assert Transaction.objects.get().payment_id == payment.pk
    assert not Notification.objects.exists()


def test_order_key_exports_and_erases_order(
    saleor: SaleorDouble,
    world: World,
) -> None:
    payment = paid(saleor, world)
    world.run_worker()
    key = Purchase.objects.get().key
    exported: Any = shop.export_order(PLUGIN, key)
    assert [one["reference"] for one in exported["payments"]] == [payment.reference]
    assert "Ann" not in str(exported)
    assert shop.erase_order(PLUGIN, key)
    assert not Notification.objects.exists()
