"""The driver of Tillgate's own gateway: the built-in adapter on the sandbox, in each preset of the dialect."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar, Self

from tillgate import Account
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN, Options, Sandbox, UnknownTransaction
from tillgate.testing.gateway_driver import GatewayDriver, Held, Operation
from tillgate.wire.dialects import DIALECTS, RefundOutcome


class SandboxDriver(GatewayDriver):
    plugin = "gateway"
    dialect: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    fields: ClassVar[dict[str, Any]] = {}

    def __enter__(self) -> Self:
        options = Options(notification_on_paid=False, notification_on_refund=False, magic_amounts=False, **self.options)
        self.sandbox = Sandbox(options).start()
        self.control = self.sandbox.control
        return self

    def __exit__(self, *error: object) -> None:
        self.sandbox.stop()

    def account(self, currency: str | None = None) -> Account | None:
        if currency not in (None, *DIALECTS[self.dialect].currencies):
            return None
        return Account(
            base_url=self.sandbox.base_url,
            merchant_no=PUBLISHED_MERCHANT_NO,
            token=PUBLISHED_TEST_TOKEN,
            sandbox=True,
            dialect=self.dialect,
            **self.fields,
        )

    def held(self, reference: str) -> Held | None:
        try:
            found = self.control.service.find(reference)
        except UnknownTransaction:
            return None
        refunds = tuple(Decimal(one.amount) for one in found.refunds if one.status != "failed")
        return Held(transaction_no=found.transaction_no, amount=Decimal(found.amount), currency=found.currency, refunds=refunds)

    def pay(self, reference: str) -> None:
        self.control.pay(reference)

    def decline(self, reference: str) -> None:
        self.control.decline(reference)

    def expire(self, reference: str) -> None:
        self.control.expire(reference)

    def lose_answer(self, operation: Operation) -> None:
        self.control.fault("lost_response", occasion=operation)

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        self.control.set_options({"delay_seconds": seconds})
        self.control.fault("delay", occasion=operation)

    def fail_refund(self) -> None:
        self.control.fault("refused", occasion="refund")

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.control.refund(reference, str(amount))


class Reference(SandboxDriver):
    dialect = "reference"


class Examples(SandboxDriver):
    dialect = "examples"


class V3(SandboxDriver):
    dialect = "v3"
    options: ClassVar[dict[str, Any]] = {"currencies": DIALECTS["v3"].currencies, "refund_info": "status"}
    fields: ClassVar[dict[str, Any]] = {"store_no": "300014"}

    def hold_refund(self) -> None:
        self.control.set_options({"refund_outcome": "pending"})

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        self.control.finish_refund(reference, str(outcome))
