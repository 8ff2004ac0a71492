"""The emulator's memory: transactions, their refunds, and a journal of events with their times."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Literal

from .contract import Operation, Version

Status = Literal["pending", "processing", "paid", "failed", "expired", "reversed"]
RefundStatus = Literal["succeeded", "pending", "failed"]
Direction = Literal["in", "out", "event", "fault"]


@dataclass(frozen=True, slots=True)
class Goods:
    """One line of goodsInfo."""

    name: str
    quantity: str


@dataclass(slots=True)
class Refund:
    """One refund. `reference` is the merchant's name of it, which version 3 knows; the number is
    the sandbox's own.
    """

    refund_no: str
    amount: str
    units: int
    ipn_url: str
    at: float
    reference: str = ""
    status: RefundStatus = "succeeded"


@dataclass(slots=True, kw_only=True)
class Order:
    """The content of a valid creation; `amount` is the text that was sent, `units` its value in the
    smallest unit of the currency.
    """

    reference: str
    amount: str
    units: int
    currency: str
    settle_currency: str
    vendor: str
    terminal: str
    ipn_url: str
    callback_url: str
    description: str
    timeout_minutes: int
    goods: tuple[Goods, ...]
    version: Version = "v1"
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Transaction(Order):
    """One payment from its creation on."""

    transaction_no: str
    token: str = field(repr=False)
    merchant_no: str
    created_at: float
    status: Status = "pending"
    decided_at: float | None = None
    refunds: list[Refund] = field(default_factory=list)
    magic_used: int = 0
    voucher_until: float | None = None
    """The end of a voucher that the shopper still has to pay."""

    @property
    def has_open_voucher(self) -> bool:
        """Whether the shopper still has to pay a voucher."""
        return self.status == "processing" and self.voucher_until is not None

    @property
    def expires_at(self) -> float:
        """The time at which the payment page times out."""
        return self.created_at + self.timeout_minutes * 60

    @property
    def refunded_units(self) -> int:
        """The amount refunded so far."""
        return sum(refund.units for refund in self.refunds if refund.status == "succeeded")

    @property
    def refundable_units(self) -> int:
        """The amount that can still be refunded: nothing unless the transaction is paid. A pending
        refund has taken its part.
        """
        taken = sum(refund.units for refund in self.refunds if refund.status != "failed")
        return self.units - taken if self.status == "paid" else 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. Bodies are kept unchanged, and masked only for display."""

    number: int
    at: float
    direction: Direction
    title: str
    transaction_no: str = ""
    reference: str = ""
    operation: Operation | None = None
    http_status: int | None = None
    detail: bytes = b""


class Journal:
    """The newest entries, oldest first; bounded, so that a long benchmark does not fill the
    memory.
    """

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self.count = 0

    def add(
        self,
        at: float,
        direction: Direction,
        title: str,
        transaction: Transaction | None = None,
        *,
        reference: str = "",
        **more: Any,
    ) -> None:
        """Write one entry; `more` are further fields of it."""
        self.count += 1
        number, reference = (
            (transaction.transaction_no, transaction.reference) if transaction else ("", reference)
        )
        self._entries.append(Entry(self.count, at, direction, title, number, reference, **more))

    def of(self, transaction: Transaction) -> list[Entry]:
        """Return the entries of one transaction, including calls that named its reference before it
        existed.
        """
        return [
            entry
            for entry in self._entries
            if entry.transaction_no == transaction.transaction_no
            or (not entry.transaction_no and entry.reference == transaction.reference)
        ]

    def strays(self, known: Container[str]) -> list[Entry]:
        """Return the entries that belong to no transaction; `known` holds the references of the
        existing ones.
        """
        return [
            entry
            for entry in self._entries
            if not entry.transaction_no and entry.reference not in known
        ]

    def all(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries)
