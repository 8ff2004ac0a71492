"""The messages of the interface as frozen, keyword-only values that validate when they are built
(Endpoints 1 to 3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)

from tillgate import money
from tillgate.errors import InvalidRequest
from tillgate.money import Money
from tillgate.wire import references
from tillgate.wire.details import (
    DeclineReason,
    NextStep,
    PaidWith,
    ReportedDispute,
    ShippingAddress,
)
from tillgate.wire.methods import CODE, PaymentMethod, Terminal
from tillgate.wire.profile import RefundOutcome, TransactionStatus
from tillgate.wire.urls import is_web_address

__all__ = [
    "DEFAULT_TIMEOUT_MINUTES",
    "CreatedPayment",
    "Goods",
    "PaymentRequest",
    "RefundRequest",
    "Refunded",
    "ReportedDispute",
    "ReportedRefund",
    "Transaction",
]

DEFAULT_TIMEOUT_MINUTES: Final = 120
"""The payment page's time-out if the request sets none (Limits)."""

_HIDDEN: Final = Field(repr=False)
"""Of a field that is secret or personal, such as an address with a key: no log or error report may
print it (I11).
"""
_LONGEST_NUMBER = 255
_LONGEST_TIMEOUT_MINUTES = 60 * 24 * 30


def _code(name: str) -> BeforeValidator:
    def check(value: object) -> str:
        if isinstance(value, str) and CODE.fullmatch(value):
            return str(value)
        raise InvalidRequest(
            name,
            value,
            "is not a code such as alipay or ONLINE: 1 to 32 letters, digits, _ and -",
        )

    return BeforeValidator(check)


def _optional_number(name: str) -> BeforeValidator:
    def check(value: object) -> str | None:
        if value is None or (
            isinstance(value, str) and 0 < len(value) <= _LONGEST_NUMBER and value.isprintable()
        ):
            return value
        raise InvalidRequest(
            name,
            value,
            f"is not text of 1 to {_LONGEST_NUMBER} printable characters",
        )

    return BeforeValidator(check)


def _address(name: str, *, optional: bool = False) -> BeforeValidator:
    def check(value: object) -> str | None:
        if isinstance(value, str) and is_web_address(value):
            return value
        if optional and value is None:
            return None
        raise InvalidRequest(
            name,
            value,
            "is not an absolute http(s) address with a host and without user name, spaces or raw "
            "non-ASCII",
        )

    return BeforeValidator(check)


def _text(name: str) -> BeforeValidator:
    def check(value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise InvalidRequest(name, value, "is not text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                name,
                value,
                "holds half a surrogate pair, which is not valid Unicode",
            ) from None
        return value

    return BeforeValidator(check)


def _amount(value: object, info: ValidationInfo) -> Decimal:
    # The currency is checked before it; without one, its own error is the first.
    return money.amount(value, info.data["currency"]) if "currency" in info.data else Decimal(0)


def _timeout(value: object) -> int:
    number = (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9
        else value
    )
    if (
        isinstance(number, int)
        and not isinstance(number, bool)
        and 1 <= number <= _LONGEST_TIMEOUT_MINUTES
    ):
        return number
    raise InvalidRequest(
        "timeout",
        value,
        f"is not a whole number of minutes from 1 to {_LONGEST_TIMEOUT_MINUTES}",
    )


def _clean_name(name: str) -> str:
    # "Special characters are not supported" (goodsInfo). Row 15 of the table of unspecified
    # behaviour lists the characters that stay.
    return " ".join(
        "".join(c if c.isalpha() or c.isdecimal() or c in "-.," else " " for c in name).split(),
    )


def _goods_name(value: object) -> str:
    if value is None or (isinstance(value, str) and not value.strip()):
        return "item"
    if isinstance(value, str) and (clean := _clean_name(value)).strip("-., "):
        return clean
    raise InvalidRequest(
        "goods_name",
        value,
        'has no letter or digit left without special characters: give a name, or "" for "item"',
    )


def _unit_price(value: object) -> Decimal | None:
    exact = None if isinstance(value, float) else money.read_amount(value, None)
    if value is None or exact is not None:
        return exact
    raise InvalidRequest("unit_price", value, 'is not an exact amount, such as "2.50", or None')


def _shopper_ip(value: object) -> str | None:
    if value is None:
        return None
    try:
        return str(ip_address(str(value)))
    except ValueError:
        raise InvalidRequest(
            "shopper_ip",
            "***",
            "is not an address of the network, such as 203.0.113.7",
        ) from None


def _quantity(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if (
        isinstance(text, str)
        and text.isascii()
        and text.isdecimal()
        and len(text) <= 9
        and int(text) > 0
    ):
        return str(int(text))
    raise InvalidRequest("quantity", value, "is not a whole number above zero")


class _Message(BaseModel):
    """Keyword-only, frozen, no unknown fields; every fault is an `InvalidRequest`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, **fields: Any) -> None:
        try:
            # as BaseModel does, which would copy the fields
            self.__pydantic_validator__.validate_python(fields, self_instance=self)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            name = ".".join(map(str, first["loc"]))
            known = {
                "missing": "is missing",
                "extra_forbidden": f"is no field of {type(self).__name__}",
            }
            remedy = known.get(
                first["type"],
                f"cannot be used in {type(self).__name__}: {first['msg']}",
            )
            # The value of an unknown field may be a token in the wrong place.
            fault = InvalidRequest(
                name,
                "***" if first["type"] == "extra_forbidden" else fields.get(name),
                remedy,
            )
        else:
            return
        raise fault

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, validated like any other message: pydantic's own
        method would accept any value.
        """
        return type(self)(
            **{name: getattr(self, name) for name in type(self).model_fields} | dict(update or {}),
        )


class Goods(_Message):
    """One line of goodsInfo: a product's name and its quantity. Special characters in the name
    become spaces.
    """

    goods_name: Annotated[str, BeforeValidator(_goods_name)]
    quantity: Annotated[str, BeforeValidator(_quantity)] = "1"
    unit_price: Annotated[Decimal | None, BeforeValidator(_unit_price)] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            goods_name: str | None,
            quantity: str | int = "1",
            unit_price: Decimal | str | int | None = None,
        ) -> None: ...

    @classmethod
    def named(
        cls,
        name: str,
        quantity: int = 1,
        unit_price: Decimal | str | int | None = None,
    ) -> Self:
        """Build a line from a shop's own product name. It accepts every name: one of only special
        characters becomes `item`.
        """
        return cls(
            goods_name=_clean_name(name).strip("-., "),
            quantity=quantity,
            unit_price=unit_price,
        )


def _add_up(goods: tuple[Goods, ...], info: ValidationInfo) -> tuple[Goods, ...]:
    """Return the lines with their unit prices where these make the amount, else without them: a
    gateway would refuse the payment.
    """
    if all(line.unit_price is None for line in goods) or "amount" not in info.data:
        return goods
    decimals, total = money.decimals_of(info.data["currency"]), Decimal(0)
    for line in goods:
        price = line.unit_price
        if price is None or money.read_amount(price, info.data["currency"]) is None:
            total = Decimal(-1)
            break
        total += price * int(line.quantity)
    if total == info.data["amount"]:
        step = Decimal(1).scaleb(-decimals)
        return tuple(
            line.model_copy(update={"unit_price": (line.unit_price or Decimal(0)).quantize(step)})
            for line in goods
        )
    return tuple(line.model_copy(update={"unit_price": None}) for line in goods)


class PaymentRequest(_Message):
    """Create payment (secure-pay): a request to pay an order with one payment method under a fresh
    reference.

    `amount` has the decimals of its currency, `timeout` is in minutes. `ipn_url` and `callback_url`
    must be https unless the account is a sandbox. The account decides which currencies, methods and
    terminals it takes. `email` is the shopper's, and `language` their language as Django writes it
    (`zh-hans`); `shopper_ip` is the shopper's address on the network. They are for gateways that
    ask for them, as is the address in `shipping`. `webhook_url` is the account's own address for
    notifications. The lines of `goods_info` have unit prices where these add up to the amount, and
    else none has.
    """

    reference: Annotated[str, BeforeValidator(references.reference)]
    currency: Annotated[str, BeforeValidator(money.currency_code)]
    amount: Annotated[Decimal, BeforeValidator(_amount)]
    method: Annotated[str, _code("method")]
    terminal: Annotated[str, _code("terminal")]
    ipn_url: Annotated[str, _address("ipn_url"), _HIDDEN]
    callback_url: Annotated[str, _address("callback_url"), _HIDDEN]
    description: Annotated[str | None, _text("description")] = None
    timeout: Annotated[int, BeforeValidator(_timeout)] = DEFAULT_TIMEOUT_MINUTES
    goods_info: Annotated[tuple[Goods, ...], AfterValidator(_add_up)] = ()
    email: Annotated[str | None, _text("email"), _HIDDEN] = None
    language: Annotated[str | None, _text("language")] = None
    webhook_url: Annotated[str | None, _address("webhook_url", optional=True)] = None
    shopper_ip: Annotated[str | None, BeforeValidator(_shopper_ip), _HIDDEN] = None
    shipping: Annotated[ShippingAddress | None, _HIDDEN] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            reference: str,
            amount: Decimal | str | int,
            currency: str,
            method: PaymentMethod | str,
            terminal: Terminal | str,
            ipn_url: str,
            callback_url: str,
            description: str | None = None,
            timeout: int | str = DEFAULT_TIMEOUT_MINUTES,
            goods_info: Sequence[Goods | Mapping[str, str]] = (),
            email: str | None = None,
            language: str | None = None,
            webhook_url: str | None = None,
            shopper_ip: str | None = None,
            shipping: ShippingAddress | None = None,
        ) -> None: ...

    @property
    def minor_units(self) -> int:
        """The amount in the smallest unit of its currency: 1250 for USD 12.50."""
        return Money(self.amount, self.currency).minor_units

    def parameters(self) -> dict[str, str]:
        """Return the request's parameters as the signed and sent texts. Empty parameters are left
        out (unspecified behaviour 1).
        """
        sent = {
            "currency": self.currency,
            "amount": money.amount_text(self.amount, self.currency),
            "vendor": self.method,
            "reference": self.reference,
            "terminal": self.terminal,
            "ipnUrl": self.ipn_url,
            "callbackUrl": self.callback_url,
            "timeout": str(self.timeout),
        }
        if self.description:
            sent["description"] = self.description
        if self.goods_info:
            goods = [
                {"goods_name": line.goods_name, "quantity": line.quantity}
                for line in self.goods_info
            ]
            sent["goodsInfo"] = json.dumps(goods, ensure_ascii=False, separators=(",", ":"))
        return sent


class RefundRequest(_Message):
    """Refund: refund part or all of a paid transaction. `amount` has the decimals of its currency.

    `transaction_no` is the gateway's number of the payment, and `refund_id` the merchant's own name
    of the refund, the same however often the gateway is asked about it; a gateway that knows
    neither needs neither.
    """

    reference: Annotated[str, BeforeValidator(references.any_reference)]
    currency: Annotated[str, BeforeValidator(money.currency_code)]
    amount: Annotated[Decimal, BeforeValidator(_amount)]
    ipn_url: Annotated[str | None, _address("ipn_url", optional=True), _HIDDEN] = None
    transaction_no: Annotated[str | None, _optional_number("transaction_no")] = None
    refund_id: Annotated[str | None, _optional_number("refund_id")] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            reference: str,
            amount: Decimal | str | int,
            currency: str,
            ipn_url: str | None = None,
            transaction_no: str | None = None,
            refund_id: str | None = None,
        ) -> None: ...

    @property
    def minor_units(self) -> int:
        """The amount in the smallest unit of its currency: 1250 for USD 12.50."""
        return Money(self.amount, self.currency).minor_units

    def parameters(self) -> dict[str, str]:
        """Return the request's parameters as the signed and sent texts."""
        sent = {
            "reference": self.reference,
            "amount": money.amount_text(self.amount, self.currency),
        }
        if self.ipn_url:
            sent["ipnUrl"] = self.ipn_url
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedPayment:
    """The gateway's answer to a creation, with the payment page for the shopper."""

    transaction_no: str
    payment_url: str = field(repr=False)
    reference: str
    amount: Decimal | None
    currency: str | None
    settle_currency: str | None
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRefund:
    """A refund that the gateway lists in its answer to a query: its own number of the refund and
    the merchant's, where it has them.
    """

    amount: Decimal
    refund_no: str | None = None
    refund_id: str | None = None
    outcome: RefundOutcome = RefundOutcome.SUCCEEDED
    dashboard_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction as the gateway reports it (Resources). A field that the gateway left out is
    None.

    `status` is the meaning of the word `status_text`. `raw` is the result as it came, with exact
    numbers. `refunds` are all refunds of the transaction, those that were made in the gateway's
    portal too; None where the gateway lists none. `disputes` are all of its disputes.
    `manual_review` is the gateway's reason why the payment there still waits for a review by hand,
    such as a rule against fraud; None without such a review.

    The rest is for people, and moves no payment: `paid_with` names the card or wallet that paid,
    `fee` and `net` are the gateway's part and the rest, in the payment's currency, `available_on`
    is when the rest can be paid out to the shop, and `decline_reason` says why it was declined.
    `next_step` is the shopper's next step, `dashboard_url` the gateway's own page about the
    payment, and `numbers` are further ids: staff find it by each.
    """

    reference: str
    status: TransactionStatus
    status_text: str
    transaction_no: str | None
    amount: Decimal | None
    currency: str | None
    settle_currency: str | None
    raw: Mapping[str, Any] = field(repr=False)
    refunds: tuple[ReportedRefund, ...] | None = None
    disputes: tuple[ReportedDispute, ...] = ()
    manual_review: str | None = None
    paid_with: PaidWith | None = None
    fee: Money | None = None
    net: Money | None = None
    available_on: datetime | None = None
    decline_reason: DeclineReason | None = None
    next_step: NextStep | None = None
    dashboard_url: str | None = None
    numbers: tuple[str, ...] = ()

    @property
    def has_unread_refunds(self) -> bool:
        """Whether the gateway lists refunds, and one of them could not be read."""
        return self.refunds is None and bool(self.raw.get("refundInfo"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunded:
    """The gateway's answer about a refund: "On success ret_code is 000100" (Refund; unspecified
    behaviour 14).

    `refund_no` is the gateway's number of the refund, where it has one, and `dashboard_url` its
    page about it. A pending refund was accepted and is not finished.
    """

    reference: str
    amount: Decimal
    ret_msg: str
    outcome: RefundOutcome = RefundOutcome.SUCCEEDED
    refund_no: str | None = None
    dashboard_url: str | None = None
