"""A small PayU in this process, from its public documentation: orders, refunds, transactions and
signed notifications.

It follows https://developers.payu.com/europe/api/ (version 2.1.0 of the OpenAPI document) and the
pages "Payment Lifecycle" and "Refunds" of https://developers.payu.com/europe/docs/, and refuses
anything that they do not name. The shop's side is HTTP behind a `Wire`; the methods are the
shopper, the bank and PayU's panel. An order is named by the merchant's reference, its `extOrderId`.
Notifications are not sent: `notification` builds them.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from payu_emulator.wire import Json, Reply

POS: Final = "300746"
CLIENT_SECRET: Final = "the-client-secret-of-the-fake"  # of a fake
SECOND_KEY: Final = "the-second-key-of-the-fake"
TOKEN_SECONDS: Final = 43199
REQUIRED: Final = frozenset(
    ("customerIp", "merchantPosId", "description", "currencyCode", "totalAmount", "products"),
)
KNOWN: Final = REQUIRED | {
    *("extOrderId", "notifyUrl", "continueUrl", "validityTime", "buyer", "payMethods"),
}
CARD: Final = {
    "payMethod": {"value": "c"},
    "paymentFlow": "CARD",
    "card": {
        "cardData": {
            "cardNumberMasked": "543402******4014",
            "cardScheme": "MC",
            "cardProfile": "CONSUMER",
            "cardResponseCode": "000",
            "cardResponseCodeDesc": "000 - OK",
        },
    },
}
DECLINED: Final = {
    "payMethod": {"value": "c"},
    "paymentFlow": "CARD",
    "card": {
        "cardData": {
            "cardNumberMasked": "411111******1111",
            "cardScheme": "VS",
            "cardResponseCode": "051",
            "cardResponseCodeDesc": "051 - Insufficient funds",
        },
    },
    "resultCode": "AUT_ERROR_NO_AUTHORIZATION",
}
TRANSFER: Final = {
    "payMethod": {"value": "bt"},
    "validUntil": "2026-12-20T12:08:07.009+01:00",
    "wireTransfer": {"title": "Payment", "bankAccountNumber": "2545661682"},
}


class No(Exception):
    """The fake refuses, with an HTTP status, a code and a text."""


class FakePayU:
    """The whole gateway. `page` is the address below which the payment pages are."""

    def __init__(self) -> None:
        self.orders: dict[str, Json] = {}
        self.refunds: dict[str, list[Json]] = {}
        self.transactions: dict[str, list[Json]] = {}
        self.tokens: set[str] = set()
        self.token_seconds = TOKEN_SECONDS
        self.page = "http://127.0.0.1"
        self.refund_status = "PENDING"
        self.next_refund = ""
        self.refuses_refund = False
        self._seconds = 0.0

    # The API --------------------------------------------------------------------------------------

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer a request of the merchant."""
        status, extra = 200, {}
        try:
            if path == "/pl/standard/user/oauth/authorize" and method == "POST":
                answer: Any = self._authorize(headers, body)
            else:
                if headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
                    raise No(401, "UNAUTHORIZED", "Incorrect authentication.")
                status, answer = self._answer(method, path, body)
                extra = {"Location": answer["redirectUri"]} if status == 302 else {}
        except No as no:
            status, code, text = no.args
            answer = {"status": {"statusCode": code, "severity": "ERROR", "statusDesc": text}}
            if code.startswith("invalid_"):
                answer = {"error": code, "error_description": text}
        names = {"Content-Type": "application/json;charset=UTF-8", **extra}
        return status, names, json.dumps(answer).encode()

    def _authorize(self, headers: Mapping[str, str], body: bytes) -> Json:
        if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            raise No(401, "invalid_client", "Without the form's content type it is no request")
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        wanted = ("client_credentials", POS, CLIENT_SECRET)
        if tuple(map(form.get, ("grant_type", "client_id", "client_secret"))) != wanted:
            raise No(401, "invalid_client", "Bad client credentials")
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return {
            "access_token": token,
            "token_type": "bearer",
            "expires_in": self.token_seconds,
            "grant_type": "client_credentials",
        }

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if (method, path) == ("POST", "/api/v2_1/orders"):
            return 302, self._create(json.loads(body))
        if (method, path) == ("GET", "/api/v2_1/paymethods"):
            return 200, {
                "payByLinks": [
                    {"value": "blik", "name": "BLIK", "status": "ENABLED"},
                    {"value": "c", "name": "Card", "status": "ENABLED"},
                    {"value": "m", "name": "mTransfer", "status": "TEMPORARY_DISABLED"},
                ],
                "status": {"statusCode": "SUCCESS"},
            }
        found = re.fullmatch(
            r"/api/v2_1/orders/([^/]+)(?:/(refunds|transactions))?(?:/(.+))?", path
        )
        order = self.orders.get(found[1]) if found else None
        if found is None or order is None:
            raise No(404, "DATA_NOT_FOUND", "Could not find data for given criteria.")
        number, part, refund_no = found.groups()
        self._let_expire()
        match method, part, refund_no:
            case "GET", None, None:
                return 200, self._described(order)
            case "DELETE", None, None:
                return 200, self._cancel(order)
            case "GET", "transactions", None:
                return 200, {"transactions": self.transactions[number]}
            case "POST", "refunds", None:
                return 200, self._refund(order, json.loads(body)["refund"])
            case "GET", "refunds", None:
                return 200, self.refunds[number]
            case "GET", "refunds", _:
                for refund in self.refunds[number]:
                    if refund["refundId"] == refund_no:
                        return 200, refund
        raise No(404, "DATA_NOT_FOUND", "Could not find data for given criteria.")

    def _create(self, given: Json) -> Json:
        missing, unknown = REQUIRED - set(given), set(given) - KNOWN
        if missing or unknown:
            raise No(400, "ERROR_SYNTAX", f"missing: {missing}, unknown: {unknown}")
        if given["merchantPosId"] != POS:
            raise No(403, "ERROR_VALUE_INVALID", "Another point of sale")
        total = 0
        for product in given["products"]:
            if set(product) != {"name", "unitPrice", "quantity"} or len(product["name"]) > 255:
                raise No(400, "ERROR_SYNTAX", f"a product has {set(product)}")
            total += _whole(product["unitPrice"]) * _whole(product["quantity"])
        if not given["products"] or total != _whole(given["totalAmount"]):
            raise No(400, "ERROR_VALUE_INVALID", "The products do not make the total")
        if any(one["extOrderId"] == given.get("extOrderId") for one in self.orders.values()):
            raise No(400, "ERROR_ORDER_NOT_UNIQUE", "extOrderId is not unique")
        number = f"WZHF5FFDRJ{len(self.orders):06}GUEST000P01"
        page = f"{self.page}/pay/?orderId={number}"
        self.orders[number] = {
            **given,
            "orderId": number,
            "orderCreateDate": "2026-11-29T12:00:00.000+01:00",
            "status": "NEW",
            "closes": self._now() + _whole(given.get("validityTime", "86400")),
            "paymentId": str(5_000_000_000 + len(self.orders)),
        }
        self.refunds[number], self.transactions[number] = [], []
        answer = {"status": {"statusCode": "SUCCESS"}, "redirectUri": page, "orderId": number}
        return answer | {"extOrderId": given["extOrderId"]}

    def _described(self, order: Json) -> Json:
        hidden = ("closes", "paymentId", "payMethods")
        shown = {name: value for name, value in order.items() if name not in hidden}
        answer: Json = {"orders": [shown], "status": {"statusCode": "SUCCESS"}}
        if order["status"] != "NEW":
            answer["properties"] = [{"name": "PAYMENT_ID", "value": order["paymentId"]}]
        return answer

    def _cancel(self, order: Json) -> Json:
        if order["status"] == "COMPLETED":
            raise No(400, "ERROR_VALUE_INVALID", "The order is completed")
        order["status"] = "CANCELED"
        return {"orderId": order["orderId"], "status": {"statusCode": "SUCCESS"}}

    def _refund(self, order: Json, given: Json) -> Json:
        made = self.refunds[order["orderId"]]
        for refund in made:
            if given.get("extRefundId") == refund["extRefundId"]:
                if refund["amount"] != given["amount"]:
                    raise No(400, "ERROR_VALUE_INVALID", "extRefundId has other data")
                return self._answered(order, refund)
        counted = sum(int(one["amount"]) for one in made if one["status"] != "CANCELED")
        if order["status"] != "COMPLETED" or self.refuses_refund:
            self.refuses_refund = False
            raise No(400, "ERROR_VALUE_INVALID", "The order cannot be refunded")
        if counted + _whole(given["amount"]) > int(order["totalAmount"]):
            raise No(400, "ERROR_VALUE_INVALID", "More than the order is worth")
        if given.get("currencyCode", order["currencyCode"]) != order["currencyCode"]:
            raise No(400, "ERROR_VALUE_INVALID", "Another currency")
        refund = {
            "refundId": str(5_000_000_000 + sum(map(len, self.refunds.values()))),
            "extRefundId": given.get("extRefundId"),
            "amount": given["amount"],
            "currencyCode": order["currencyCode"],
            "description": given["description"],
            "creationDateTime": "2026-11-29T12:00:00.000+01:00",
            "statusDateTime": "2026-11-29T12:00:00.000+01:00",
            "status": self.next_refund or self.refund_status,
        }
        made.append(refund)
        answer = self._answered(order, refund)
        if refund["status"] == "PENDING" and not self.next_refund:
            refund["status"] = "FINALIZED"  # PayU answers first, and does it then
        self.next_refund = ""
        return answer

    def _answered(self, order: Json, refund: Json) -> Json:
        status = {"statusCode": "SUCCESS", "statusDesc": "Refund queued for processing"}
        return {"orderId": order["orderId"], "refund": dict(refund), "status": status}

    # The people -----------------------------------------------------------------------------------

    def order_of(self, reference: str) -> Json:
        """Return the order of a reference, or raise KeyError."""
        self._let_expire()
        for order in self.orders.values():
            if order["extOrderId"] == reference:
                return order
        raise KeyError(reference)

    def pay(self, reference: str, attempt: Json = CARD) -> str:
        """Let the shopper pay; return the address that the shopper is sent to."""
        order = self._open(reference)
        order["status"] = "COMPLETED"
        self.transactions[order["orderId"]].append(attempt)
        return str(order.get("continueUrl", ""))

    def choose(self, reference: str, attempt: Json = TRANSFER) -> None:
        """Let the shopper choose a method with money that comes later."""
        order = self._open(reference)
        order["status"] = "PENDING"
        self.transactions[order["orderId"]].append(attempt)

    def decline(self, reference: str) -> None:
        """Let the bank decline the shopper, and PayU end the order."""
        order = self._open(reference)
        order["status"] = "CANCELED"
        self.transactions[order["orderId"]].append(DECLINED)

    def expire(self, reference: str) -> None:
        """Let the time of an order run out."""
        self._open(reference)["closes"] = 0

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self._seconds += seconds

    def finish_refunds(self, reference: str, status: str) -> None:
        """Finish the pending refunds of an order."""
        for refund in self.refunds[self.order_of(reference)["orderId"]]:
            if refund["status"] == "PENDING":
                refund["status"] = status
                if status == "CANCELED":
                    refund["statusError"] = {"code": "NO_FUNDS", "description": "No funds"}

    def refund_in_panel(self, reference: str, units: int) -> None:
        """Refund in PayU's panel, where staff give no id."""
        given = {"amount": str(units), "description": "in the panel"}
        self._refund(self.order_of(reference), given | {"extRefundId": secrets.token_hex(4)})

    def notification(
        self,
        reference: str,
        *,
        kind: str = "order",
        status: str = "",
        key: str = SECOND_KEY,
        algorithm: str = "MD5",
    ) -> tuple[dict[str, str], bytes]:
        """Return the headers and the body of a notification about an order or its last refund."""
        order = self.order_of(reference)
        names = {name: order[name] for name in ("orderId", "extOrderId")}
        if kind == "refund":
            told: Json = {**names, "refund": dict(self.refunds[order["orderId"]][-1])}
        else:
            shown = self._described(order)["orders"][0]
            told = {"order": shown | ({"status": status} if status else {}), "properties": []}
        body = json.dumps(told).encode()
        return signed(body, key, algorithm), body

    def _open(self, reference: str) -> Json:
        order = self.order_of(reference)
        if order["status"] not in ("NEW", "PENDING"):
            raise RuntimeError(f"the order is {order['status']}")
        return order

    def _now(self) -> float:
        return time.time() + self._seconds

    def _let_expire(self) -> None:
        for order in self.orders.values():
            if order["status"] in ("NEW", "PENDING") and self._now() >= order["closes"]:
                order["status"] = "CANCELED"


def signed(body: bytes, key: str, algorithm: str = "MD5") -> dict[str, str]:
    """Return the headers of a notification, as PayU writes them."""
    made = hashlib.new(algorithm.replace("-", "").lower(), body + key.encode()).hexdigest()
    text = f"sender=checkout;signature={made};algorithm={algorithm};content=DOCUMENT"
    return {"Content-Type": "application/json;charset=UTF-8", "OpenPayu-Signature": text}


def _whole(text: object) -> int:
    if not isinstance(text, str) or not text.isdecimal():
        raise No(400, "ERROR_SYNTAX", f"{text!r} is no whole number in text")
    return int(text)
