"""The values that cross the hooks between Tillgate and a shop: frozen values, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tillgate.errors import InvalidRequest
from tillgate.lifecycle import PaymentStatus, RefundStatus
from tillgate.wire.details import ShippingAddress
from tillgate.wire.messages import Goods

__all__ = [
    "Customer",
    "Event",
    "Finding",
    "Hint",
    "Order",
    "OrderDescription",
    "PaidOutcome",
    "Payment",
    "Refund",
    "RemoteEvent",
    "Review",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """The shopper of an order, for staff: a name and an e-mail address, each empty where the shop
    does not know it.
    """

    name: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDescription:
    """The payment details of an order: its text for the shopper, its price with its currency, and
    whether it may be paid now.

    `not_payable_detail` is None for an order that may be paid, else a clause that a shopper
    understands, such as "it was cancelled". An `amount` of zero means that there is nothing to pay:
    no payment starts, and Tillgate does not release the order. `email` is the shopper's address,
    which some gateways ask for, and `shipping` is where the order goes; Tillgate stores neither.
    `payable_until` is the end of the
    shop's time to pay, such as a reservation's: the payment page closes before it, and no payment
    starts after it.

    `change_url` is the shop's page on which the shopper may change or cancel the unpaid order: a
    path or an http(s) address. It works without a session, expires, and changes nothing before a
    form is posted. Tillgate links to it for holders of the shop's pay link and in the browser that
    started the payment from there. An open payment of a cancelled order is still watched. For an
    order that cannot be paid any more, it is the page to order its items again.

    `choose_url` is the shop's own page on which the shopper chooses another payment method, in the
    same form. The return page links to it where Tillgate's own page cannot start a payment of the
    order: for another account than `default`, or with data of the plugin's own.

    `is_cancelled`: the shop has cancelled the order. The ledger check names a cancelled order with
    money that the gateway still holds, and the page of an order after its time to pay says so.
    """

    number: str
    amount: Decimal
    currency: str
    lines: tuple[Goods, ...] = ()
    description: str | None = None
    not_payable_detail: str | None = None
    email: str | None = None
    change_url: str | None = None
    choose_url: str | None = None
    payable_until: datetime | None = None
    is_cancelled: bool = False
    customer: Customer | None = None
    staff_url: str | None = None
    shipping: ShippingAddress | None = None

    def __post_init__(self) -> None:
        """Refuse a truth value in place of a clause: False would mean that the order may not be
        paid, "because False".
        """
        if self.payable_until is not None and self.payable_until.tzinfo is None:
            raise InvalidRequest("payable_until", self.payable_until, "has no time zone")
        if not isinstance(self.customer, Customer | None):
            # a customer is never in an error
            raise InvalidRequest("customer", type(self.customer).__name__, "is not a Customer")
        if not isinstance(self.shipping, ShippingAddress | None):
            raise InvalidRequest(
                "shipping",
                type(self.shipping).__name__,
                "is not a ShippingAddress",
            )
        if isinstance(self.not_payable_detail, bool):
            raise InvalidRequest(
                "not_payable_detail",
                self.not_payable_detail,
                "must be None, or a clause that a shopper understands",
            )

    @property
    def payable(self) -> bool:
        """Whether the order may be paid now."""
        return self.not_payable_detail is None

    @property
    def is_free(self) -> bool:
        """Whether there is nothing to pay."""
        return self.amount <= 0


class PaidOutcome(StrEnum):
    """The shop's result for a paid payment. The last two open a review."""

    APPLIED = "applied"
    NOT_PAYABLE = "not-payable"
    """The order has been closed or paid otherwise."""
    UNDERPAID = "underpaid"
    """The order now costs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of a shop that needs money: the name of the plugin that owns it and the shop's own
    key.
    """

    plugin: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """One attempt to pay one order with one payment method. `amount` is in `currency`; `data` is
    the plugin's own.
    """

    id: str
    order: Order
    reference: str
    method: str
    amount: Decimal
    currency: str
    status: PaymentStatus
    transaction_no: str | None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """One request to refund part or all of a payment. `id` is the same however often it is
    reported.

    `payment_paid_the_order` is false for a refund of money that never paid the order, such as a
    second payment's: a shop that booked only the money that paid the order leaves these out.
    """

    id: str
    payment: Payment
    amount: Decimal
    status: RefundStatus
    payment_paid_the_order: bool = True
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A case that staff must decide: its reason, a sentence without secrets that describes it, and
    its order and payment if it has any.

    `account` is the alias of an account that the review is about, instead of an order.
    """

    id: str
    reason: str
    message: str
    order: Order | None = None
    payment: Payment | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEvent:
    """An event for the shop that crosses the network. `event_id` is the same at every try; `name`
    and `data` are the plugin's own.
    """

    event_id: str
    name: str
    order: Order
    payment: Payment | None = None
    refund: Refund | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleMail:
    """A mail that a plugin sends to shoppers, about an invented order. `name` is the plugin's own
    for it, of letters, digits, "-" and "_". `html` is empty for a mail of plain text.
    """

    name: str
    subject: str
    text: str
    html: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """The payment that a gateway's notification is about, by its reference or by the gateway's
    number. It proves nothing.
    """

    reference: str | None = None
    transaction_no: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about an account: its subject, whether it is right, and a sentence that names the
    setting and the remedy.
    """

    name: str
    passed: bool
    finding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event for observers: a dotted name such as `payment.paid`, its time and its subject. Never
    a secret.
    """

    name: str
    at: datetime
    reference: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
