"""Prices: the price of the first stock record and sales tax on top."""

from decimal import Decimal
from typing import Any

from oscar.apps.partner import strategy

from example_shop.tax import SALES_TAX


class Selector:
    """Every shopper sees the same prices."""

    def strategy(
        self,
        request: Any = None,
        user: Any = None,
        **_: Any,
    ) -> "TaxedGoods":  # Oscar's signature
        """Return how a shopper's prices are found."""
        return TaxedGoods(request)


class TaxedGoods(
    strategy.UseFirstStockRecord,  # type: ignore[misc]  # Oscar ships no types
    strategy.StockRequired,  # type: ignore[misc]
    strategy.FixedRateTax,  # type: ignore[misc]
    strategy.Structured,  # type: ignore[misc]
):
    """Goods are taxed; a gift card is money, and is not."""

    exponent = Decimal("0.01")  # to the cent, so the shown amounts add up to the paid one

    def get_rate(self, product: Any, _stockrecord: Any) -> Decimal:
        """Return the tax rate of a product."""
        return SALES_TAX if product.get_product_class().requires_shipping else Decimal(0)
