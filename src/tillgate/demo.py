"""The demo: one payment goes round over real HTTP, between a shop of forty lines, the Tillgate
client and the sandbox.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import Final
from urllib.parse import urlsplit

import httpx

from tillgate import (
    Account,
    Money,
    PaymentRequest,
    RefundRequest,
    Refused,
    TransactionStatus,
    callback_url,
    hooks,
    new_reference,
)
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
    Sandbox,
)
from tillgate.wire.macros import read_callback
from tillgate.wire.notifications import NotificationSignature, read_notification

__all__ = ["run"]

Write = Callable[[str], object]

_PATIENCE_SECONDS: Final = 15.0


class Shop(ThreadingHTTPServer):
    """A shop that only listens: notifications under /ipn, the shopper's return under /back."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ShopHandler)
        self.arrivals: dict[str, Queue[tuple[str, str, bytes]]] = {
            path: Queue() for path in ("/back", "/ipn/payment", "/ipn/refund")
        }
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait_for(self, path: str) -> tuple[str, str, bytes]:
        """Return content type, query and body of the next request to a path."""
        try:
            return self.arrivals[path].get(timeout=_PATIENCE_SECONDS)
        except Empty:
            raise TimeoutError(
                f"nothing arrived at {path} within {_PATIENCE_SECONDS:.0f} s",
            ) from None


class _ShopHandler(BaseHTTPRequestHandler):
    server: Shop

    def do_POST(self) -> None:
        self._take(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_GET(self) -> None:
        self._take(b"")

    def _take(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        if arrivals := self.server.arrivals.get(parts.path):
            arrivals.put((self.headers.get("Content-Type", ""), parts.query, body))
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        # the acknowledgement of a notification (unspecified behaviour 9)
        self.wfile.write(b"success")

    def log_message(self, *arguments: object) -> None:
        """Log nothing: the timeline prints the requests."""


class Timeline:
    """Prints each message with its time, its sender and its receiver."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._began = time.monotonic()

    def add(self, who: str, what: str) -> None:
        """Print one line."""
        self._write(f"  {time.monotonic() - self._began:6.3f} s  {who:<20}  {what}")


def run(*, port: int, once: bool, write: Write, dialect: str = "reference") -> int:
    """Take a payment round and return the process's exit status; unless `once`, leave the sandbox
    up until Ctrl-C.
    """
    with Sandbox(Options(), port=port) as sandbox:
        write(f"Sandbox at {sandbox.base_url}, seed {sandbox.seed}. No real money moves.\n")
        try:
            _go_round(sandbox.base_url, dialect, Timeline(write))
        except (TimeoutError, AssertionError) as error:
            write(f"\nThe payment did not go round: {error}")
            return 1
        write("\nThe payment went round.")
        if once:
            return 0
        write(
            f"See every request and notification at {sandbox.base_url}/ and press Ctrl-C to stop.",
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            write("")
        return 0


def _go_round(gateway_url: str, dialect: str, timeline: Timeline) -> None:
    shop = Shop()
    account = Account(
        base_url=gateway_url,
        merchant_no=PUBLISHED_MERCHANT_NO,
        token=PUBLISHED_TEST_TOKEN,
        sandbox=True,
        dialect=dialect,
        store_no=PUBLISHED_STORE_NO,
    )
    request = _create(account, shop, timeline)
    found = hooks.query(account, request.reference)
    assert (found.status, found.amount) == (TransactionStatus.PAID, request.amount), (
        f"the query said {found}"
    )
    timeline.add(
        "shop -> gateway",
        f"query: {found.status} ({found.status_text!r}), {found.currency} {found.amount}. Only "
        "now it is true",
    )
    for units in (250, 1000):
        refund = _refund(request, units, f"{shop.url}/ipn/refund")
        refunded = hooks.refund(account, refund)
        timeline.add(
            "shop -> gateway", f"refund {refund.currency} {refund.amount}: {refunded.outcome}"
        )
        shop.wait_for("/ipn/refund")
        timeline.add("gateway -> shop", "refund notification")
    try:
        hooks.refund(account, _refund(request, 1))
    except Refused as refusal:
        timeline.add("shop -> gateway", f"refund more: {refusal}")
    else:
        raise AssertionError("the gateway refunded more than was paid")
    shop.shutdown()


def _create(account: Account, shop: Shop, timeline: Timeline) -> PaymentRequest:
    """Create a payment, pay it as the shopper does, and come back with its notification."""
    currency, method = (
        ("KRW", "kakaopay") if "KRW" in account.taken_currencies else ("USD", "alipay")
    )
    price = Money.of_minor_units(1250, currency)
    request = PaymentRequest(
        reference=new_reference("100017"),
        currency=currency,
        amount=price.amount,
        method=method,
        terminal="ONLINE",
        ipn_url=f"{shop.url}/ipn/payment",
        callback_url=callback_url(f"{shop.url}/back?order=100017"),
        description="Order 100017",
        goods_info=[{"goods_name": "Teapot", "quantity": "1"}],
    )
    timeline.add("shop -> gateway", f"pay {request.reference}: {price} with {request.method}")
    created = hooks.pay(account, request)
    timeline.add("gateway -> shop", f"created transaction {created.transaction_no}")
    timeline.add("gateway -> shop", f"send the shopper to {created.payment_url}")
    back = _press_pay(created.payment_url)
    timeline.add("shopper -> gateway", "presses Pay on the payment page")
    httpx.get(back, timeout=_PATIENCE_SECONDS)
    _, query, _ = shop.wait_for("/back")
    came_back = read_callback(query)
    timeline.add("shopper -> shop", f"comes back, trusted for nothing: {_plainly(came_back)}")
    notification = read_notification(*shop.wait_for("/ipn/payment"))
    assert notification.signature(PUBLISHED_TEST_TOKEN) is not NotificationSignature.FORGED, (
        "the notification is forged"
    )
    timeline.add(
        "gateway -> shop",
        f"notification, a hint to ask: {_plainly(notification.evidence())}",
    )
    return request


def _refund(request: PaymentRequest, units: int, ipn_url: str | None = None) -> RefundRequest:
    return RefundRequest(
        reference=request.reference,
        currency=request.currency,
        amount=Money.of_minor_units(units, request.currency).amount,
        ipn_url=ipn_url,
        refund_id=new_reference("R"),
    )


def _plainly(fields: Mapping[str, str | None]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _press_pay(payment_url: str) -> str:
    """Press Pay as the page's form does, and return where the gateway sends the shopper."""
    httpx.get(payment_url, timeout=_PATIENCE_SECONDS)
    answer = httpx.post(payment_url, data={"decision": "pay"}, timeout=_PATIENCE_SECONDS)
    assert answer.status_code == 303, f"the payment page answered HTTP {answer.status_code}"
    return answer.headers["Location"]
