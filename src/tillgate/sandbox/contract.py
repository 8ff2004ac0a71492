"""The interface as data, for the reader of requests, the OpenAPI document and the pages: paths, allowed values and codes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

Operation = Literal["pay", "query", "refund"]

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
    }
)
TERMINALS = ("ONLINE", "WAP", "ANDROID", "IOS")
CURRENCIES = ("USD",)

REQUIRED: MappingProxyType[Operation, tuple[str, ...]] = MappingProxyType(
    {
        "pay": (*("merchantNo", "verifySign", "currency", "amount", "vendor"), *("reference", "terminal", "ipnUrl", "callbackUrl")),
        "query": ("merchantNo", "verifySign", "reference"),
        "refund": ("merchantNo", "verifySign", "reference", "amount"),
    }
)
OPTIONAL: MappingProxyType[Operation, tuple[str, ...]] = MappingProxyType(
    {"pay": ("description", "timeout", "goodsInfo"), "query": (), "refund": ("ipnUrl",)}
)

# "The request examples for tran-query and refund use the path prefix /app-data-search/v1/" (Endpoints; unspecified behaviour 2).
_PAY: dict[str, Operation] = {"/online/v1/secure-pay": "pay"}
_ONLINE: dict[str, Operation] = {"/online/v1/tran-query": "query", "/online/v1/refund": "refund"}
_EXAMPLES: dict[str, Operation] = {"/app-data-search/v1/tran-query": "query", "/app-data-search/v1/refund": "refund"}
PATHS: MappingProxyType[str, dict[str, Operation]] = MappingProxyType(
    {"online": _PAY | _ONLINE, "examples": _PAY | _EXAMPLES, "both": _PAY | _ONLINE | _EXAMPLES}
)

# The interface names only success and the unknown order; the other codes are those of the gateway's family (unspecified behaviour 12).
SUCCESS = "000100"
SYSTEM_ERROR = "000000"
MISSING = "000020"
NOT_FOUND = "000022"
BAD_VALUE = "000023"
DENIED = "000030"
BAD_STATE = "000040"
UNKNOWN_CODE = "000999"

DEFAULT_TIMEOUT_MINUTES = 120
PUBLISHED_MERCHANT_NO = "200043"
PUBLISHED_TEST_TOKEN = "5cbfb079f15b150122261c8537086d77a"  # noqa: S105  printed in the family's public documentation
