"""The base of a gateway plugin: the profile of a gateway with its options, and the values for
clerks and shoppers.

docs/how-to/write-a-gateway-plugin.md is the guide, and README.md the reference.
"""

from decimal import Decimal

from tillgate.money import Money
from tillgate.wire.details import DeclineReason, NextStep, PaidWith
from tillgate.wire.profile import GatewayProfile, Option

__all__ = ["DeclineReason", "GatewayProfile", "NextStep", "Option", "PaidWith", "amount_of"]


def amount_of(units: int, currency: str) -> Decimal:
    """Return the amount of so many of the smallest units: 12.50 for 1250 of USD, 1250 for JPY.

    Raises `InvalidRequest` for a currency that is none, and for units that are no whole number.
    """
    return Money.of_minor_units(units, currency).amount
