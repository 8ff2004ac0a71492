"""The driver of Tillgate's own gateway: the built-in adapter on the sandbox."""
# ruff: noqa: D102  # the base class describes each method

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final, Self

from tillgate.account import Account
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Control,
    Options,
    Sandbox,
    UnknownTransaction,
)
from tillgate.testing.gateway_driver import (
    Fault,
    GatewayDriver,
    Held,
    NotificationKind,
    Operation,
    SentNotification,
)
from tillgate.wire.dialects import RefundOutcome

_FORM: Final = "application/x-www-form-urlencoded"
_FAULTS: Final = {"cut_body": "cut", "strange_status": "unknown_status"}
"""The sandbox's own names of faults."""
_SIGNATURE: Final = re.compile(rb"verifySign\W{1,6}([0-9a-f]{32})")


class SandboxDriver(GatewayDriver):
    """Connects the kits to a sandbox: to a running one, or to one of its own while it is
    entered.
    """

    plugin = "gateway"
    other_method = "paypal"
    listing: Mapping[str, Any] = {"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO}

    accounts: ClassVar[Sequence[Mapping[str, Any]]] = (
        {},
        {"dialect": "v3", "store_no": PUBLISHED_STORE_NO},
    )
    """The fields of the accounts beside the credentials; the first that takes a currency is used
    for it.
    """

    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the sandbox of its own."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        quiet: dict[str, Any] = {
            "notification_on_paid": False,
            "notification_on_refund": False,
            "magic_amounts": False,
        }
        self._starts = sandbox is None
        self.sandbox = sandbox or Sandbox(Options(**quiet, **self.options))

    def __enter__(self) -> Self:
        if self._starts:
            self.sandbox.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._starts:
            self.sandbox.stop()

    @property
    def control(self) -> Control:
        """The acts on the sandbox."""
        return self.sandbox.control

    def account(self, currency: str | None = None) -> Account | None:
        credentials: dict[str, Any] = {
            "base_url": self.sandbox.base_url,
            "merchant_no": PUBLISHED_MERCHANT_NO,
            "token": PUBLISHED_TEST_TOKEN,
        }
        accounts = [Account(**credentials, sandbox=True, **fields) for fields in self.accounts]
        return next((one for one in accounts if currency in (None, *one.taken_currencies)), None)

    def is_payment_page(self, url: str) -> bool:
        return url.startswith(self.sandbox.base_url)

    def held(self, reference: str) -> Held | None:
        try:
            found = self.control.service.find(reference)
        except UnknownTransaction:
            return None
        refunds = tuple(Decimal(one.amount) for one in found.refunds if one.status != "failed")
        return Held(
            transaction_no=found.transaction_no,
            amount=Decimal(found.amount),
            currency=found.currency,
            refunds=refunds,
        )

    def refunded(self, reference: str) -> Decimal:
        refunds = self.control.service.find(reference).refunds
        return sum(
            (Decimal(one.amount) for one in refunds if one.status == "succeeded"),
            Decimal(0),
        )

    def pay(self, reference: str) -> str | None:
        return self.control.pay(reference)

    def pay_late(self, reference: str) -> None:
        self.control.pay(reference)

    def decline(self, reference: str) -> None:
        self.control.decline(reference)

    def leave(self, reference: str) -> None:
        self.control.leave(reference)

    def expire(self, reference: str) -> None:
        self.control.expire(reference)

    def reverse(self, reference: str) -> None:
        self.control.reverse(reference)

    def lose_answer(self, operation: Operation) -> None:
        self.fault("lost_response", operation)

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        self.control.set_options({"delay_seconds": seconds})
        self.control.fault("delay", occasion=operation)

    def fail_refund(self) -> None:
        self.fault("refused", "refund")

    def hold_refund(self) -> None:
        self.control.set_options({"refund_outcome": "pending", "refund_info": "status"})

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        self.control.finish_refund(reference, str(outcome))

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.control.refund(reference, str(amount))

    def refund_unlisted(self, reference: str, amount: Decimal) -> None:
        self.control.set_options({"word_partly_refunded": "refunded"})
        self.refund_in_portal(reference, amount)

    def notify(
        self,
        reference: str,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> Sequence[SentNotification]:
        with self.control.lock:  # before the emulator's own sender sees it
            self.control.service.notify(self.control.service.find(reference), kind, status=status)
            due, _ = self.control.due_notifications()
        return [
            SentNotification(
                url=one.url,
                method=one.method,
                body=one.body,
                content_type=one.content_type or _FORM,
            )
            for one in due
        ]

    def fault(self, fault: Fault, operation: Operation, *, times: int = 1) -> None:
        if fault == "strange_status" and operation != "query":
            self.lacks("use strange words but in queries")
        self.control.fault(_FAULTS.get(fault, fault), occasion=operation, times=times)

    def clear_faults(self) -> None:
        self.control.clear_faults()

    def use_strange_words(self) -> None:
        self.control.set_options({"word_pending": "quantum", "word_expired": "quantum"})

    def advance(self, seconds: float) -> None:
        self.control.advance(seconds)

    def references(self) -> Sequence[str]:
        return [one.reference for one in self.control.service.transactions()]

    def received(self, operation: Operation) -> int:
        return sum(
            entry.operation == operation and entry.direction == "in"
            for entry in self.control.service.journal.all()
        )

    def signatures(self) -> set[str]:
        journal = self.control.service.journal.all()
        return {
            found.decode() for entry in journal for found in _SIGNATURE.findall(entry.detail or b"")
        }
