"""The details of a payment for clerks and shoppers: the card or wallet, the fee, the reason of a
decline, the next step, and the gateway's page about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from tillgate.money import Money
from tillgate.wire.personal import without_personal_data
from tillgate.wire.profile import DisputeStatus

if TYPE_CHECKING:
    from tillgate.wire.messages import Transaction

__all__ = [
    "DeclineReason",
    "NextStep",
    "PaidWith",
    "PaymentDetails",
    "ReportedDispute",
    "ShippingAddress",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidWith:
    """The payment method that paid, and of a card its brand and last four digits."""

    method: str
    brand: str = ""
    last4: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingAddress:
    """The address to which an order is sent, for gateways that use it against fraud. `country` is
    its code of two letters; a text is empty where the shop does not know it.
    """

    name: str
    line1: str
    city: str
    country: str
    line2: str = ""
    region: str = ""
    postal_code: str = ""

    def __repr__(self) -> str:
        return "ShippingAddress(***)"  # personal data is in no error and no log


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclineReason:
    """Why a payment was declined: the gateway's code, and a text for staff. The shopper may read it
    only with `for_shopper`.
    """

    code: str
    text: str = ""
    for_shopper: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The next step of the shopper at the gateway: its page, and until when, each as far as the
    gateway says it. It is a voucher to be paid or, with `is_transfer`, a bank transfer to be made.
    """

    url: str | None = None
    until: datetime | None = None
    is_transfer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDispute:
    """A dispute (charge-back) of a payment: the shopper's bank has asked its money back. It has its
    amount, state, reason, deadline, and the gateway's page about it.
    """

    amount: Decimal
    status: DisputeStatus
    dispute_no: str
    respond_by: datetime | None = None
    reason: str = ""
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentDetails:
    """The details of the gateway's newest answer about a payment, as its row keeps them.

    `refund_pages` has the gateway's page about each refund, by its number.
    """

    paid_with: PaidWith | None = None
    fee: Money | None = None
    net: Money | None = None
    available_on: datetime | None = None
    decline_reason: DeclineReason | None = None
    next_step: NextStep | None = None
    dashboard_url: str | None = None
    numbers: tuple[str, ...] = ()
    disputes: tuple[ReportedDispute, ...] = ()
    refund_pages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Transaction) -> Self:
        """Return the details of an answer, without personal data in its texts."""
        declined = answer.decline_reason
        return cls(
            paid_with=answer.paid_with,
            fee=answer.fee,
            net=answer.net,
            available_on=answer.available_on,
            decline_reason=declined
            and DeclineReason(
                code=declined.code,
                text=without_personal_data(declined.text),
                for_shopper=declined.for_shopper,
            ),
            next_step=answer.next_step,
            dashboard_url=answer.dashboard_url,
            numbers=answer.numbers,
            disputes=answer.disputes,
            refund_pages={
                one.refund_no: one.dashboard_url
                for one in answer.refunds or ()
                if one.refund_no and one.dashboard_url
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the known details as JSON: amounts as text, times in ISO 8601."""
        values: dict[str, Any] = {
            "paid_with": self.paid_with and _fields(self.paid_with),
            "fee": self.fee and _fields(self.fee),
            "net": self.net and _fields(self.net),
            "available_on": _as_json(self.available_on),
            "decline_reason": self.decline_reason and _fields(self.decline_reason),
            "next_step": self.next_step and _fields(self.next_step),
            "dashboard_url": self.dashboard_url,
            "numbers": list(self.numbers),
            "disputes": [_fields(one) for one in self.disputes],
            "refund_pages": dict(self.refund_pages),
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return the details that `as_json` wrote."""
        readers: dict[str, Any] = {
            "paid_with": lambda found: PaidWith(**found),
            "fee": lambda found: Money(**found),
            "net": lambda found: Money(**found),
            "available_on": _moment,
            "decline_reason": lambda found: DeclineReason(**found),
            "next_step": lambda found: NextStep(
                url=found.get("url"),
                until=_moment(found.get("until")),
                is_transfer=found.get("is_transfer") is True,
            ),
            "numbers": tuple,
            "disputes": lambda found: tuple(map(_dispute, found)),
        }
        known = {name: value for name, value in stored.items() if name in cls.__dataclass_fields__}
        return cls(**{name: readers.get(name, _same)(value) for name, value in known.items()})


def _same(value: Any) -> Any:
    return value


def _moment(found: str | None) -> datetime | None:
    return datetime.fromisoformat(found) if found else None


def _dispute(found: Mapping[str, Any]) -> ReportedDispute:
    return ReportedDispute(
        amount=Decimal(found["amount"]),
        status=DisputeStatus(found["status"]),
        dispute_no=found["dispute_no"],
        respond_by=_moment(found.get("respond_by")),
        reason=found.get("reason", ""),
        url=found.get("url"),
    )


def _fields(value: Any) -> dict[str, Any]:
    return {name: _as_json(getattr(value, name)) for name in value.__dataclass_fields__}


def _as_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value
