"""The bodies of the webhooks: which one it is, told by what it holds, and what it says, read exactly.

A header names the event and is not signed; the body is. So a body is taken for nothing but what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from tillgate.django.models import NOTHING
from tillgate.wire import money
from tillgate.wire.money import WireNumber
from tillgate_saleor.documents import Event
from tillgate_saleor.models import LONGEST_ID

__all__ = [
    "Action",
    "BadBody",
    "Body",
    "Cancelation",
    "Charge",
    "GatewayInitialize",
    "HeldTransaction",
    "Initialize",
    "PaidTransaction",
    "Process",
    "Refund",
    "Requested",
    "Source",
    "StoredMethods",
    "read_body",
]

_ID: Final = Field(min_length=1, max_length=LONGEST_ID)


class BadBody(Exception):
    """The body is not what the event has; the message says why."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, hide_input_in_errors=True, arbitrary_types_allowed=True
    )


class Recipient(_Part):
    """The App that a webhook is for."""

    id: str = _ID


class Channel(_Part):
    """A channel of the Saleor."""

    slug: str = Field(min_length=1, max_length=255)
    currency_code: str | None = None


class Amount(_Part):
    """Money as the body has it, which nobody has polled yet."""

    amount: Any = None


class SaleorTransaction(_Part):
    """The transaction that it is about."""

    id: str = _ID


class PaidTransaction(SaleorTransaction):
    """The transaction that a storefront pays."""

    charged_amount: Amount | None = None
    """A Saleor that has installed an older App does not tell it."""

    @property
    def charged(self) -> Decimal | None:
        """The dollars that the Saleor has heard of; below zero where it has heard of a refund alone, and None where it does not tell."""
        return _signed(self.charged_amount)

    @property
    def is_charged(self) -> bool:
        """Whether the Saleor says that it has heard of money of the transaction."""
        return (self.charged or NOTHING) > 0


class HeldTransaction(PaidTransaction):
    """A transaction of a checkout or order, of whichever App."""

    charge_pending_amount: Amount | None = None
    authorized_amount: Amount | None = None
    authorize_pending_amount: Amount | None = None

    @property
    def paid(self) -> Decimal:
        """The dollars of it that Saleor counts in a balance."""
        return money.total([self.charged or NOTHING, _dollars(self.charge_pending_amount)])

    @property
    def held(self) -> Decimal:
        """The dollars that its App holds, or is about to, as Saleor takes them off what is left to be paid."""
        taken = max(_dollars(self.charged_amount), _dollars(self.authorized_amount))
        return money.total([taken, _dollars(self.charge_pending_amount), _dollars(self.authorize_pending_amount)])


def _dollars(given: Amount | None) -> Decimal:
    exact = money.read_amount(given.amount) if given else None
    return exact if exact is not None else NOTHING


def _signed(given: Amount | None) -> Decimal | None:
    """Return an amount that may be below zero, or None when it is none of whole cents."""
    number = given.amount if given else None
    if isinstance(number, bool) or not isinstance(number, Decimal | int):
        return None
    exact = money.read_amount(Decimal(number).copy_abs())
    return exact if exact is None or number >= 0 else exact.copy_negate()


class Source(_Part):
    """The checkout or the order that is paid."""

    typename: Literal["Checkout", "Order"] = Field(alias="__typename")
    id: str = _ID
    number: str | None = None
    checkout_id: str | None = Field(default=None, min_length=1, max_length=LONGEST_ID)
    """The checkout that became this order."""
    status: str | None = None
    """How an order stands; of a checkout, and of a Saleor that has installed an older App, it is not told."""
    charge_status: str | None = None
    """Of how much of an order Saleor knows that it is paid."""
    channel: Channel
    total_balance: Amount | None = None
    """What is paid of it, less what it costs; not told either by a Saleor that has installed an older App."""
    transactions: tuple[HeldTransaction, ...] = Field(default=(), validation_alias=AliasChoices("begun", "transactions"))

    @field_validator("transactions", mode="before")
    @classmethod
    def _none_of_them(cls, given: Any) -> Any:
        """Take null, which a checkout may have, for none."""
        return () if given is None else given

    def costs_without(self, ours: Collection[str]) -> Decimal | None:
        """Return the dollars that it costs without what is held by other transactions than ours, or None where that is not told."""
        balance = _signed(self.total_balance)
        if balance is None:
            return None
        paid = money.total(one.paid for one in self.transactions)
        return max(money.left_of(paid, [balance, *(one.held for one in self.transactions if one.id not in ours)]), NOTHING)


class Action(_Part):
    """What is to be done: an amount as the body has it, which nobody has polled yet, and its currency."""

    action_type: Literal["CHARGE", "AUTHORIZATION", "REFUND", "CANCEL"]
    amount: Any = None
    currency: str | None = None


class Body(_Part):
    """What every body has. `forbidden` are fields that another event has in place of this one's."""

    forbidden: ClassVar[frozenset[str]] = frozenset()
    actions: ClassVar[frozenset[str]] = frozenset()

    typename: str | None = Field(default=None, alias="__typename")
    recipient: Recipient


class GatewayInitialize(Body):
    """A storefront asks how can be paid. `amount` is what is to be paid now, if Saleor says."""

    forbidden = frozenset({"action", "transaction", "idempotencyKey", "user"})

    source_object: Source
    amount: Any = None
    data: Any = None


class Initialize(Body):
    """A transaction begins."""

    actions = frozenset({"CHARGE", "AUTHORIZATION"})

    idempotency_key: str = Field(max_length=512)
    action: Action
    transaction: PaidTransaction
    source_object: Source
    data: Any = None


class Process(Body):
    """A storefront asks how a transaction stands."""

    forbidden = frozenset({"idempotencyKey"})
    actions = frozenset({"CHARGE", "AUTHORIZATION"})

    action: Action
    transaction: PaidTransaction
    source_object: Source
    data: Any = None


class Requested(Body):
    """The staff, or Saleor by itself, wants something done to a transaction."""

    forbidden = frozenset({"idempotencyKey", "sourceObject"})

    action: Action
    transaction: SaleorTransaction


class Charge(Requested):
    """Authorized money is to be charged."""

    actions = frozenset({"CHARGE"})


class Refund(Requested):
    """Money is to be refunded."""

    actions = frozenset({"REFUND"})


class Cancelation(Requested):
    """A transaction is to be canceled."""

    actions = frozenset({"CANCEL"})


class StoredMethods(Body):
    """A storefront asks which methods of a customer are stored."""

    forbidden = frozenset({"action", "transaction", "sourceObject"})

    channel: Channel


_KINDS: Final[dict[Event, type[Body]]] = {
    Event.GATEWAY_INITIALIZE: GatewayInitialize,
    Event.INITIALIZE: Initialize,
    Event.PROCESS: Process,
    Event.CHARGE: Charge,
    Event.REFUND: Refund,
    Event.CANCEL: Cancelation,
    Event.STORED_METHODS: StoredMethods,
}


def read_body(event: Event, raw: bytes) -> Body:
    """Return what the body of an event says; raise `BadBody` when it is another event's, or nobody's. Numbers keep their text."""
    try:
        given = json.loads(raw, parse_float=WireNumber, parse_constant=_refuse)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise BadBody("is no JSON object")
    kind = _KINDS[event]
    if given.get("__typename", event.typename) != event.typename or kind.forbidden & given.keys():
        raise BadBody(f"is not one of {event.typename}")
    try:
        body = kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        fault = BadBody(f"is not one of {event.typename}: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    else:
        action = getattr(body, "action", None)
        if action is not None and action.action_type not in kind.actions:
            raise BadBody(f"is not one of {event.typename}: the action is {action.action_type}")
        return body
    raise fault


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
