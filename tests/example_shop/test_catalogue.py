"""The catalogue: loading it twice changes nothing, its pictures are drawn alike, its prices follow
the settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from example_shop import pictures

ROOT = Path(__file__).parents[2]
MANAGE = ROOT / "example_shop" / "manage.py"

LOOK = """
import json
from decimal import Decimal
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from oscar.core.loading import get_class, get_model
from example_shop import catalogue

MODELS = [("catalogue", "Product"), ("catalogue", "Category"), ("catalogue", "ProductImage"), ("catalogue", "ProductClass"),
          ("partner", "Partner"), ("partner", "StockRecord"), ("voucher", "Voucher"), ("offer", "ConditionalOffer"),
          ("offer", "Range"), ("offer", "Benefit"), ("offer", "Condition"), ("address", "Country")]

def rows():
    return {model: sorted(get_model(app, model).objects.values_list("pk", flat=True)) for app, model in MODELS}

# Oscar's migrations take longer than all the rest; `make demo ONCE=1` goes through them.
settings.MIGRATION_MODULES = {app.label: None for app in apps.get_app_configs()}
call_command("migrate", run_syncdb=True, verbosity=0)
catalogue.load()
first = rows()
stock = get_model("partner", "StockRecord").objects.get(partner_sku="FM-101")
stock.num_in_stock, stock.price = 3, Decimal("1.00")
stock.save()
catalogue.load()
stock.refresh_from_db()
info = get_class("partner.strategy", "Selector")().strategy()
prices = {}
for product in get_model("catalogue", "Product").objects.all():
    price = info.fetch_for_product(product).price
    prices[product.upc] = [str(price.excl_tax), str(price.tax)]
asked = product.title.replace(" ", "\\0") + "\\0"
found = product.get_absolute_url() in Client(headers={"host": "localhost"}).get(reverse("search:search"), {"q": asked}).content.decode()
print(json.dumps({"found": found,
                  "first": first, "second": rows(), "stock": stock.num_in_stock, "price": str(stock.price), "prices": prices}))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The catalogue of a shop in a process of its own: a process has room for one project's
    settings.
    """
    folder = tmp_path_factory.mktemp("shop")
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "example_shop.settings",
        "SHOP_VAR": str(folder),
    }
    command = [sys.executable, str(MANAGE), "shell", "-v", "0", "-c", LOOK]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_loading_twice_gives_same_rows(shop: Any) -> None:
    assert shop["first"] == shop["second"]
    assert all(shop["first"].values())


def test_reloading_corrects_price_but_not_stock(shop: Any) -> None:
    assert (shop["stock"], shop["price"]) == (3, "14.00")


def test_goods_are_taxed_gift_cards_not(shop: Any) -> None:
    """The tax is exact to the cent."""
    assert shop["prices"]["FM-103"] == ["11.50", "0.69"]
    assert shop["prices"]["FM-961"][0] == "13.61"
    assert float(shop["prices"]["FM-961"][1]) == 0


def test_nul_in_search_counts_as_space(shop: Any) -> None:
    assert shop["found"]


@pytest.mark.parametrize("name", ["gift_card", "cedar_pencils"])
def test_picture_is_always_drawn_the_same(name: str) -> None:
    assert pictures.draw(name) == pictures.draw(name)


def test_no_two_pictures_look_alike() -> None:
    drawn = [pictures.draw(name) for name in ("gift_card", "cedar_pencils", "postcards")]
    assert len(set(drawn)) == len(drawn)
    assert all(len(picture) < 100_000 for picture in drawn)
