"""What PayU takes, as data: currencies, payment methods and least amounts. Each table names its
source.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from tillgate import Method
from tillgate.gateways import GatewayProfile, Option

_CURRENCIES: Final = (
    *("PLN", "CZK", "EUR", "RON", "HUF"),
    *("USD", "GBP", "CHF", "DKK", "NOK", "SEK"),
)
"""developers.payu.com/europe/docs, "Currencies Reference". A point of sale takes one of them. All
have two decimals, and PayU counts every currency in hundredths.
"""

_CARD_MINIMUMS: Final = tuple(
    (currency, Decimal(least))
    for least, currencies in {
        "0.01": ("CHF", "EUR", "GBP", "USD"),
        "0.05": ("PLN", "RON"),
        "0.30": ("CZK",),
        "5": ("HUF",),
        "0.50": ("DKK", "NOK", "SEK"),
    }.items()
    for currency in currencies
)
"""developers.payu.com/europe/docs, "Implementation Details", "Card-based Payment Methods"."""

DEFAULT_METHOD: Final = "checkout"
"""The payment method of an account that lists none: PayU's page offers all that the point of sale
has.
"""

_VALUES: Final = {"card": "c"}
"""PayU's values of the methods for which Tillgate has a name; every other code is PayU's own."""
_NAMES: Final = {value: name for name, value in _VALUES.items()}

_LABELS: Final = {"blik": "BLIK", "ap": "Google Pay", "jp": "Apple Pay"}
_CARDS: Final = frozenset({"card", "ap", "jp"})


def method(code: str, label: str = "", currencies: tuple[str, ...] = ()) -> Method:
    """Return a payment method with PayU's least amounts."""
    return Method(
        code=code,
        label=label or _LABELS.get(code, ""),
        currencies=currencies or (("PLN",) if code == "blik" else ()),
        minimums=_CARD_MINIMUMS if code in _CARDS else (),
    )


def value_of(code: str) -> str:
    """Return PayU's value of a payment method, such as "c" for card."""
    return _VALUES.get(code, code)


def code_of(value: str) -> str:
    """Return Tillgate's code of a payment method that PayU names."""
    return _NAMES.get(value, value)


PAYU: Final = GatewayProfile(
    name="payu",
    base_url="https://secure.payu.com",
    sandbox_url="https://secure.snd.payu.com",
    required=("merchant_no",),
    options=(
        Option(
            name="client_id",
            help="the client_id of OAuth, where it is another than the number of the point of sale",
        ),
    ),
    currencies=_CURRENCIES,
    methods=tuple(method(code) for code in (DEFAULT_METHOD, "card", *_LABELS)),
    kept_fields=frozenset(
        {
            *("order", "orderId", "extOrderId", "merchantPosId", "orderCreateDate", "status"),
            *("totalAmount", "currencyCode", "refund", "refundId", "extRefundId", "amount"),
            *("payMethod", "resultCode", "statusDateTime"),
        },
    ),
)
"""PayU's part in what Tillgate knows of a gateway. `merchant_no` is the point of sale, POS. What
PayU tells of the shopper, such as `buyer` and `customerIp`, is not kept.
"""
