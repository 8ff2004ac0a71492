"""The bodies of the webhooks: this module identifies each event by its content and reads it
exactly.

A header names the event, but only the body is signed. So only the body's content decides about its
event.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from tillgate.shop import money
from tillgate_saleor.documents import Event
from tillgate_saleor.models import LONGEST_ID

_NOTHING: Final = Decimal("0.00")
_ID: Final = Field(min_length=1, max_length=LONGEST_ID)


class BadBody(Exception):
    """The body does not match the event; the message says why."""


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )


class Recipient(_Part):
    """The App that a webhook is for."""

    id: str = _ID


class Channel(_Part):
    """A channel of the Saleor."""

    slug: str = Field(min_length=1, max_length=255)
    currency_code: str | None = None


class Amount(_Part):
    """Money from the body, not validated yet."""

    amount: Any = None


class SaleorTransaction(_Part):
    """The transaction of the event."""

    id: str = _ID


class PaidTransaction(SaleorTransaction):
    """The transaction that a storefront pays."""

    charged_amount: Amount | None = None
    """A Saleor with an older installation of the App does not send it."""

    @property
    def charged(self) -> Decimal | None:
        """The amount that the Saleor knows of; below zero if it knows of a refund alone, and None
        if it does not send the value.
        """
        return _signed(self.charged_amount)

    @property
    def is_charged(self) -> bool:
        """Whether the Saleor says that it knows of money of the transaction."""
        return (self.charged or _NOTHING) > 0


class HeldTransaction(PaidTransaction):
    """A transaction of a checkout or order, of whichever App."""

    charge_pending_amount: Amount | None = None
    authorized_amount: Amount | None = None
    authorize_pending_amount: Amount | None = None

    @property
    def paid(self) -> Decimal:
        """Its amount that Saleor counts in a balance."""
        return money.total([self.charged or _NOTHING, _amount(self.charge_pending_amount)])

    @property
    def held(self) -> Decimal:
        """The amount that its App holds, or is about to hold; Saleor subtracts them from the unpaid
        amount.
        """
        taken = max(_amount(self.charged_amount), _amount(self.authorized_amount))
        return money.total(
            [taken, _amount(self.charge_pending_amount), _amount(self.authorize_pending_amount)],
        )


def _amount(given: Amount | None) -> Decimal:
    exact = money.read_amount(given.amount, None) if given else None
    return exact if exact is not None else _NOTHING


def _signed(given: Amount | None) -> Decimal | None:
    """Return an amount that may be below zero, or None if it is not exact."""
    number = given.amount if given else None
    if isinstance(number, bool) or not isinstance(number, Decimal | int):
        return None
    exact = money.read_amount(Decimal(number).copy_abs(), None)
    return exact if exact is None or number >= 0 else exact.copy_negate()


class Source(_Part):
    """The checkout or the order that is paid."""

    typename: Literal["Checkout", "Order"] = Field(alias="__typename")
    id: str = _ID
    number: str | None = None
    checkout_id: str | None = Field(default=None, min_length=1, max_length=LONGEST_ID)
    """The checkout that became this order."""
    status: str | None = None
    """The status of an order; missing for a checkout, and from a Saleor with an older installation
    of the App.
    """
    charge_status: str | None = None
    """The paid share of an order, as Saleor knows it."""
    channel: Channel
    total_balance: Amount | None = None
    """Its paid amount minus its total; also missing from a Saleor with an older installation of the
    App.
    """
    transactions: tuple[HeldTransaction, ...] = Field(
        default=(),
        validation_alias=AliasChoices("begun", "transactions"),
    )

    @field_validator("transactions", mode="before")
    @classmethod
    def _none_of_them(cls, given: Any) -> Any:
        """Treat null, which a checkout may have, as an empty list."""
        return () if given is None else given

    def costs_without(self, ours: Collection[str]) -> Decimal | None:
        """Return its total without the money of transactions other than ours, or None if the body
        lacks it.
        """
        balance = _signed(self.total_balance)
        if balance is None:
            return None
        paid = money.total(one.paid for one in self.transactions)
        return max(
            money.left_of(
                paid,
                [balance, *(one.held for one in self.transactions if one.id not in ours)],
            ),
            _NOTHING,
        )


class Action(_Part):
    """The requested action: an amount from the body, not validated yet, and its currency."""

    action_type: Literal["CHARGE", "AUTHORIZATION", "REFUND", "CANCEL"]
    amount: Any = None
    currency: str | None = None


class Body(_Part):
    """The fields of every body. `forbidden` are fields that belong to another event."""

    forbidden: ClassVar[frozenset[str]] = frozenset()
    actions: ClassVar[frozenset[str]] = frozenset()

    typename: str | None = Field(default=None, alias="__typename")
    version: str | None = Field(default=None, max_length=32)
    """The Saleor's version."""
    recipient: Recipient


class GatewayInitialize(Body):
    """A storefront queries the payment methods. `amount` is the amount to pay now, if Saleor sends
    it.
    """

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
    """A storefront queries the state of a transaction."""

    forbidden = frozenset({"idempotencyKey"})
    actions = frozenset({"CHARGE", "AUTHORIZATION"})

    action: Action
    transaction: PaidTransaction
    source_object: Source
    data: Any = None


class Requested(Body):
    """Staff, or Saleor on its own, request an action on a transaction."""

    forbidden = frozenset({"idempotencyKey", "sourceObject"})

    action: Action
    transaction: SaleorTransaction


class Charge(Requested):
    """Charge authorized money."""

    actions = frozenset({"CHARGE"})


class Refund(Requested):
    """Refund money."""

    actions = frozenset({"REFUND"})


class Cancelation(Requested):
    """Cancel a transaction."""

    actions = frozenset({"CANCEL"})


class StoredMethods(Body):
    """A storefront queries the stored methods of a customer."""

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
    """Return the parsed body of an event; raise `BadBody` if it belongs to another event or none.
    Numbers keep their text.
    """
    try:
        given = json.loads(raw, parse_float=money.WireNumber, parse_constant=_refuse)
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
        fault = BadBody(
            f"is not one of {event.typename}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
        )
    else:
        action = getattr(body, "action", None)
        if action is not None and action.action_type not in kind.actions:
            raise BadBody(f"is not one of {event.typename}: the action is {action.action_type}")
        return body
    raise fault


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
