"""Sales tax: one rate for goods and parcels, as a shop has it that sells in one state."""

from decimal import Decimal
from typing import Any, Final

SALES_TAX: Final = Decimal("0.06")


def with_tax(amount: Decimal) -> Decimal:
    """Return an amount with its tax, to the cent."""
    return amount + (amount * SALES_TAX).quantize(Decimal("0.01"))


def shown_separately(_request: Any) -> dict[str, bool]:
    """Tell Oscar's templates to show tax in a line of its own, as shoppers in the United States
    expect.
    """
    return {"show_tax_separately": True}
