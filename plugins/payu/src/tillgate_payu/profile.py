"""PayU as data: its currencies, payment methods and the settings of an account."""

from __future__ import annotations

from typing import Final

from tillgate import Method
from tillgate.gateways import GatewayProfile, Option

DEFAULT_METHOD: Final = "checkout"
"""The payment method of an account without a list: PayU's page offers those of the point of
sale.
"""
CARD: Final = ("card", "c")
"""Tillgate's code of a method and PayU's value; of all other methods both are PayU's."""

PAYU: Final = GatewayProfile(
    name="payu",
    label="PayU",
    base_url="https://secure.payu.com",
    sandbox_url="https://secure.snd.payu.com",
    required=("merchant_no",),  # the point of sale
    options=(
        Option(
            name="client_id",
            help="the client_id of OAuth, where it is another than the number of the point of sale",
        ),
    ),
    # developers.payu.com/europe/docs, "Currencies Reference"; all have two decimals
    currencies=(
        *("PLN", "CZK", "EUR", "RON", "HUF"),
        *("USD", "GBP", "CHF", "DKK", "NOK", "SEK"),
    ),
    methods=(
        Method(code=DEFAULT_METHOD),
        Method(code=CARD[0]),
        Method(code="blik", label="BLIK", currencies=("PLN",)),
        Method(code="ap", label="Google Pay"),
        Method(code="jp", label="Apple Pay"),
    ),
    # without the shopper's data, such as `buyer` and `customerIp`
    kept_fields=frozenset(
        {
            *("order", "orderId", "extOrderId", "merchantPosId", "orderCreateDate", "status"),
            *("totalAmount", "currencyCode", "refund", "refundId", "extRefundId", "amount"),
        },
    ),
)
"""The profile of PayU GPO Europe."""
