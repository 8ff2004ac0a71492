"""The shop's own app: how it ships and what it taxes, as a shop would set it in forks of these two
apps.
"""

from decimal import Decimal
from typing import Any

from django.apps import AppConfig

TAXED = "Taxed"
"""The product class that sales tax is on."""


class ShopConfig(AppConfig):
    name = "tests.shop"
    label = "test_shop"

    def ready(self) -> None:
        from oscar.apps.partner import strategy
        from oscar.apps.shipping.methods import FixedPrice, Free
        from oscar.apps.shipping.repository import Repository

        class Strategy(
            strategy.UseFirstStockRecord,  # type: ignore[misc]
            strategy.FixedRateTax,  # type: ignore[misc]
            strategy.StockRequired,  # type: ignore[misc]
            strategy.Structured,  # type: ignore[misc]
        ):
            def get_rate(self, product: Any, stockrecord: Any) -> Decimal:
                return (
                    Decimal("0.0725") if product.get_product_class().name == TAXED else Decimal(0)
                )

        class Courier(FixedPrice):  # type: ignore[misc]
            code, name = "courier", "Courier"
            charge_excl_tax, charge_incl_tax = Decimal("4.66"), Decimal("4.99")

        strategy.Selector.strategy = lambda self, request=None, user=None, **_: Strategy(request)
        Repository.methods = (Free(), Courier())
