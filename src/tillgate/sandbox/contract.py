"""The interface as data, for the reader of requests and the pages: paths, allowed values and
codes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, NamedTuple

Operation = Literal["pay", "query", "refund"]
Version = Literal["v1", "v3"]


class Endpoint(NamedTuple):
    """One operation in one version of the interface."""

    operation: Operation
    version: Version


PAYMENT_METHODS = MappingProxyType(
    {
        "alipay": "Alipay",
        "wechatpay": "WeChat Pay",
        "paypal": "PayPal",
        "venmo": "Venmo",
        "unionpay": "UnionPay",
        "creditcard": "Credit card",
        "truemoney": "TrueMoney",
        "alipay_hk": "AlipayHK",
        "tng": "Touch 'n Go",
        "gcash": "GCash",
        "dana": "DANA",
        "kakaopay": "KakaoPay",
        "bkash": "bKash",
        "easypaisa": "Easypaisa",
        "cashapppay": "Cash App Pay",
    },
)
VENDORS: MappingProxyType[Version, tuple[str, ...]] = MappingProxyType(
    {
        "v1": tuple(name for name in PAYMENT_METHODS if name != "cashapppay"),
        "v3": tuple(PAYMENT_METHODS),
    },
)
TERMINALS: MappingProxyType[Version, tuple[str, ...]] = MappingProxyType(
    {"v1": ("ONLINE", "WAP", "ANDROID", "IOS"), "v3": ("ONLINE", "WAP", "MWEB", "YIP")},
)
JSON_NUMBERS = ("merchantNo", "timeout")
"""The texts of the interface that its family's own documents show as numbers of JSON."""
OS_TYPES = ("IOS", "ANDROID")
MOBILE_TERMINALS = ("WAP", "MWEB")
"""The terminals of version 3 that need an osType."""
V1_CURRENCIES = ("USD",)
V3_CURRENCIES = ("USD", "CNY", "PHP", "IDR", "KRW", "HKD", "THB", "MYR", "GBP", "BDT", "PKR")
"""The currencies of version 3 (docs.pockyt.io, v1.1/reference/securepay-api)."""

_CREDENTIALS = ("merchantNo", "verifySign")
_STORE = (*_CREDENTIALS, "storeNo")
_ORDER = ("currency", "amount", "vendor", "reference", "terminal", "ipnUrl", "callbackUrl")
REQUIRED: MappingProxyType[Endpoint, tuple[str, ...]] = MappingProxyType(
    {
        Endpoint("pay", "v1"): (*_CREDENTIALS, *_ORDER),
        Endpoint("query", "v1"): (*_CREDENTIALS, "reference"),
        Endpoint("refund", "v1"): (*_CREDENTIALS, "reference", "amount"),
        Endpoint("pay", "v3"): (*_STORE, *_ORDER, "settleCurrency"),
        Endpoint("query", "v3"): _STORE,
        Endpoint("refund", "v3"): (*_STORE, "refundAmount", "currency", "settleCurrency"),
    },
)
EITHER = ("reference", "transactionNo")
"""A query or refund of version 3 names the transaction by one of them."""
OPTIONAL: MappingProxyType[Endpoint, tuple[str, ...]] = MappingProxyType(
    {
        Endpoint("pay", "v1"): ("description", "timeout", "goodsInfo"),
        Endpoint("query", "v1"): (),
        Endpoint("refund", "v1"): ("ipnUrl",),
        Endpoint("pay", "v3"): ("description", "timeout", "goodsInfo", "osType", "note"),
        Endpoint("query", "v3"): EITHER,
        Endpoint("refund", "v3"): (*EITHER, "refundReference", "ipnUrl"),
    },
)
AMOUNTS: MappingProxyType[Endpoint, str] = MappingProxyType(
    {
        Endpoint("pay", "v1"): "amount",
        Endpoint("refund", "v1"): "amount",
        Endpoint("pay", "v3"): "amount",
        Endpoint("refund", "v3"): "refundAmount",
    },
)
"""The name of the amount in each request that has one."""

# "The request examples for tran-query and refund use the path prefix /app-data-search/v1/"
# (Endpoints; unspecified behaviour 2).
_PAY = {"/online/v1/secure-pay": Endpoint("pay", "v1")}
_ONLINE = {
    "/online/v1/tran-query": Endpoint("query", "v1"),
    "/online/v1/refund": Endpoint("refund", "v1"),
}
_EXAMPLES = {
    "/app-data-search/v1/tran-query": Endpoint("query", "v1"),
    "/app-data-search/v1/refund": Endpoint("refund", "v1"),
}
_V3 = {
    "/online/v3/secure-pay": Endpoint("pay", "v3"),
    "/app-data-search/v3/tran-query": Endpoint("query", "v3"),
    "/app-data-search/v3/refund": Endpoint("refund", "v3"),
}
PATHS: MappingProxyType[str, dict[str, Endpoint]] = MappingProxyType(
    {
        "all": _PAY | _ONLINE | _EXAMPLES | _V3,
        "online": _PAY | _ONLINE,
        "examples": _PAY | _EXAMPLES,
        "v3": _V3,
    },
)

# The interface names only success and the unknown order; the other codes are those of the gateway's
# family (unspecified behaviour 12).
SUCCESS = "000100"
SYSTEM_ERROR = "000000"
MISSING = "000020"
NO_RECORD = "000021"
NOT_FOUND = "000022"
BAD_VALUE = "000023"
DENIED = "000030"
BAD_STATE = "000040"
UNKNOWN_CODE = "000999"

DEFAULT_TIMEOUT_MINUTES = 120
PUBLISHED_MERCHANT_NO = "200043"
PUBLISHED_STORE_NO = "300014"
PUBLISHED_TEST_TOKEN = "5cbfb079f15b150122261c8537086d77a"  # noqa: S105  printed in the family's public documentation
