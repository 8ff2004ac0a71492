"""The drivers of the conformance kit: on the fake PayU, and on getpaid's simulator."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Self

import pytest

from payu_emulator.fake import CLIENT_SECRET, POS, SECOND_KEY, FakePayU, signed
from payu_emulator.simulator import PREFIX, PYTHON, Simulator
from payu_emulator.simulator import SECOND_KEY as SIMULATORS_KEY
from payu_emulator.wire import Json, Wire
from tillgate import Account
from tillgate.hooks import RefundOutcome
from tillgate.testing.faulty_proxy import FaultyProxy
from tillgate.testing.gateway_driver import (
    GatewayDriver,
    Held,
    NotificationKind,
    SentNotification,
)

SECRETS: Final = ("the-second-key-of-the-past", SECOND_KEY)


def account_at(url: str, **fields: Any) -> Account:
    """Return an account of an emulator."""
    return Account(
        **{
            "base_url": url,
            "merchant_no": POS,
            "token": CLIENT_SECRET,
            "sandbox": True,
            "dialect": "payu",
            "webhook_secrets": SECRETS,
            **fields,
        },
    )


CURRENCIES: Final = ("PLN", "EUR", "CZK", "USD")
CALLS: Final = {
    "pay": "POST /api/v2_1/orders",
    "query": "GET /api/v2_1/orders/[^/]+",
    "refund": "POST /api/v2_1/orders/[^/]+/refunds",
}
REFUSAL: Final = {"status": {"statusCode": "ERROR_VALUE_INVALID", "statusDesc": "said the proxy"}}


class WireDriver(GatewayDriver):
    """The common parts of both emulators: accounts, and the faults before them."""

    plugin = "payu"
    method = "checkout"
    other_method = "card"
    second_keys: tuple[str, ...] = SECRETS
    wire: Wire
    proxy: FaultyProxy

    def start(self, wire: Wire) -> None:
        self.wire = wire.__enter__()
        self.proxy = FaultyProxy(self.wire.url, CALLS, ALTERED, REFUSAL).start()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.wire.__exit__(*error)

    def account(self, currency: str | None = None) -> Account | None:
        if currency not in (None, *CURRENCIES):
            return None
        return account_at(
            self.proxy.url,
            currencies=(currency or CURRENCIES[0],),
            methods=(self.method, self.other_method),
            webhook_secrets=self.second_keys,
        )

    def account_settings(self, currency: str | None = None) -> dict[str, Any]:
        """Return the account of a shop: the shops' scenarios sell in USD unless they say more."""
        return super().account_settings(currency or "USD")


def _set(**fields: object) -> Callable[[Any], None]:
    """Return a function that changes the order of an answer, or the answer itself."""

    def change(answer: Any) -> None:
        for part in (*answer.get("orders", ()), answer):
            part.update({name: value for name, value in fields.items() if name in part})

    return change


def _call_strangely(answer: Any) -> None:
    for order in answer.get("orders", ()):
        order["status"] = order["status"] if order["status"] == "COMPLETED" else "ON_HOLD"
    if "refund" in answer:
        answer["refund"]["status"] = "ON_HOLD"


ALTERED: Final[Mapping[str, Callable[[Any], None]]] = {
    "wrong_transaction_no": _set(orderId="ANOTHER0ORDER"),
    "strange_status": _call_strangely,
}


NO_LOOKUP: Final = (
    "PayU finds an order by its own number alone, which a notification brings after a lost answer"
)
NO_CHARGE_BACK: Final = "PayU's API says nothing of a charge-back"
NO_CHECK: Final = "the simulator gives every client an access token"
_NOT_BY_PAYU: Final[Mapping[str, str]] = {
    **dict.fromkeys(("unknown_outcome_of_pay", "crash_while_starting"), NO_LOOKUP),
    **dict.fromkeys(
        ("late_money", "late_money_for_a_released_order", "unrecognised_status"),
        "nobody can pay a cancelled order of PayU",
    ),
    "currency_mismatch": "PayU's answers name no settlement currency",
    "currency_without_decimals": "PayU takes no such currency",
    "changed_after_paid": NO_CHARGE_BACK,
    "refund_made_elsewhere": "PayU lists every refund",
    "no_secret_in_logs": "PayU signs no answer",
}


class FakeDriver(WireDriver):
    """Every capability that PayU has, on the fake. Refunds are made immediately, as the shops'
    scenarios expect.
    """

    declined_by_shops = _NOT_BY_PAYU
    refund_status = "FINALIZED"

    def __enter__(self) -> Self:
        self.payu = FakePayU()
        self.payu.refund_status = self.refund_status
        self.start(Wire(self.payu.handle))
        self.payu.page = self.wire.url
        return self

    def held(self, reference: str) -> Held | None:
        try:
            order = self.payu.order_of(reference)
        except KeyError:
            return None
        return Held(
            transaction_no=order["orderId"],
            amount=_amount(order["totalAmount"]),
            currency=order["currencyCode"],
            refunds=self._refunds(order, ("PENDING", "FINALIZED")),
        )

    def refunded(self, reference: str) -> Decimal:
        return sum(self._refunds(self.payu.order_of(reference), ("FINALIZED",)), Decimal(0))

    def _refunds(self, order: Json, statuses: tuple[str, ...]) -> tuple[Decimal, ...]:
        made = self.payu.refunds[order["orderId"]]
        return tuple(_amount(one["amount"]) for one in made if one["status"] in statuses)

    def pay(self, reference: str) -> str:
        return self.payu.pay(reference)

    def pay_slowly(self, reference: str) -> None:
        self.payu.choose(reference)

    def decline(self, reference: str) -> None:
        self.payu.decline(reference)

    def expire(self, reference: str) -> None:
        self.payu.expire(reference)

    def advance(self, seconds: float) -> None:
        self.payu.advance(seconds)

    def fail_refund(self) -> None:
        self.payu.refuses_refund = True

    def hold_refund(self) -> None:
        self.payu.next_refund = "PENDING"

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        is_done = outcome is RefundOutcome.SUCCEEDED
        self.payu.finish_refunds(reference, "FINALIZED" if is_done else "CANCELED")

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.payu.refund_in_panel(reference, int(amount * 100))

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        key = "the-key-of-somebody-else" if forged else SECOND_KEY
        return self.payu.notification(reference, key=key)

    def notify(
        self,
        reference: str,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> Sequence[SentNotification]:
        if kind == "forged":
            return super().notify(reference, kind, status=status)
        told = "refund" if kind == "refund" else "order"
        headers, body = self.payu.notification(reference, kind=told, status=status)
        return [SentNotification(headers=headers, body=body)]

    def references(self) -> Sequence[str]:
        return [order["extOrderId"] for order in self.payu.orders.values()]


def _amount(units: str) -> Decimal:
    return Decimal(units).scaleb(-2)


class PendingFakeDriver(FakeDriver):
    """The fake with refunds that are pending first and made after the answer, as PayU's are."""

    refund_status = "PENDING"


NO_LIST: Final = "the simulator has neither a list of refunds nor one refund"
NO_LIMIT: Final = (
    "the simulator refunds any amount in any currency, of unpaid orders too, and at once"
)


@functools.cache
def running_simulator() -> Simulator:
    """Start the simulator once for all tests of this process: that takes seconds."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "needs .nox/simulator_payu: nox -s simulator_payu",
        )
    simulator = Simulator()
    simulator.start()
    atexit.register(simulator.stop)
    return simulator


class SimulatorDriver(WireDriver):
    """The capabilities of getpaid's simulator. All scenarios share it, each with its own wire."""

    declined_by_shops: Mapping[str, str] = {
        **_NOT_BY_PAYU,
        "wrong_credentials": NO_CHECK,
    }
    second_keys = (SIMULATORS_KEY,)

    def __enter__(self) -> Self:
        self.simulator = running_simulator()
        self.before = {order["id"] for order in self.simulator.storage()}
        self.seconds, self.since = 0.0, dict[str, float]()
        self.start(Wire(self.simulator.handle, PREFIX))
        return self

    def held(self, reference: str) -> Held | None:
        try:
            order = self.simulator.order_of(reference)
        except KeyError:
            return None
        return Held(
            transaction_no=order["id"],
            amount=_amount(order["totalAmount"]),
            currency=order["currencyCode"],
            refunds=tuple(_amount(one["amount"]) for one in order["refunds"]),
        )

    def is_payment_page(self, url: str) -> bool:
        return url.startswith(f"{self.wire.origin}/sim/payu/authorize/")

    def pay(self, reference: str) -> str:
        return self.simulator.act(reference, "approve")

    def decline(self, reference: str) -> None:
        self.simulator.act(reference, "reject")

    def expire(self, reference: str) -> None:
        """Cancel the order, as PayU does when its time is over: the simulator has no clock."""
        self.simulator.act(reference, "reject")

    def advance(self, seconds: float) -> None:
        """Cancel the open orders after their time, as PayU does."""
        for reference in self.references():
            self.since.setdefault(reference, self.seconds)
        self.seconds += seconds
        for reference, since in self.since.items():
            order = self.simulator.order_of(reference)
            is_over = self.seconds >= since + int(order["validityTime"])
            if is_over and order["status"] == "PENDING":
                self.expire(reference)

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        sent = self.simulator.notify(reference)
        kept = ("content-type", "openpayu-signature")
        headers = {name: text for name, text in sent.headers.items() if name.lower() in kept}
        return (signed(sent.body, "another key", "SHA-256") if forged else headers), sent.body

    def references(self) -> Sequence[str]:
        return [
            order["extOrderId"]
            for order in self.simulator.storage()
            if order["id"] not in self.before
        ]
