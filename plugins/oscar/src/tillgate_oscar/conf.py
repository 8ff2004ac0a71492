"""The settings: one dictionary `TILLGATE_OSCAR` in the project's settings. An unknown key is an
error; every key is optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tillgate import shop

PLUGIN: Final = "oscar"
"""The plugin's name, which Tillgate's orders carry."""

MAILS: Final[Mapping[str, bool]] = {
    "order-paid": True,
    "order-waits": True,
    "payment-waits": True,
    "voucher-reminder": True,
    "payment-failed": True,
    "paid-twice": True,
    "refunded": True,
    "refund-returned": True,
    "dispute-lost": False,
}
"""Every kind of mail to the shopper, and whether it is sent unless the shop says otherwise. A lost
dispute is between the shopper's bank and the shop: the bank tells the shopper.
"""

_Code = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$", strict=True)]
_Name = Annotated[str, Field(min_length=1, max_length=100, strict=True)]
_Bool = Annotated[bool, Field(strict=True)]


def _kind(name: str) -> str:
    if name not in MAILS:
        raise ValueError(f"no kind of mail: {name!r}; the kinds are {', '.join(MAILS)}")
    return name


_Kind = Annotated[str, AfterValidator(_kind)]


class Settings(BaseModel):
    """All settings with their defaults. In the project's settings the names are in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pending_status: _Name = "Pending payment"
    """The status of an order that waits to be paid: the only one in which it can be."""
    paid_status: _Name = "Paid"
    """The status of an order that was paid."""
    cancelled_status: _Name = "Cancelled"
    """The status of an order that was cancelled because it was not paid."""
    refunded_status: _Name | None = None
    """The status of an order that was refunded entirely, where the pipeline leads to it. If not
    set, the order keeps its status.
    """
    partly_refunded_status: _Name | None = None
    """The status of an order that was refunded in part, likewise."""
    source_type: _Name = "Online payment"
    """The name of Oscar's payment source; the order's pages show it too."""
    paid_event: _Name = "Paid"
    """The type of Oscar's payment event for money that has arrived."""
    refund_event: _Name = "Refund"
    """The type of Oscar's payment event for money refunded; the dashboard offers it."""
    remind_after_minutes: Annotated[int, Field(ge=0, le=60 * 24 * 30)] | None = None
    """How long the mail about an unpaid order waits after its payment failed or expired. If not
    set: a third of the time that is left to pay.
    """
    mails: Mapping[_Kind, _Bool] = {}
    """The kinds of mail that the shop wants or does not want, where it is not as in `MAILS`."""
    pay_link_days: Annotated[int, Field(ge=1, le=90)] = 7
    """How long a payment link of an unpaid order is valid that staff make in the dashboard, unless
    they choose otherwise. Its goods are kept no longer for it.
    """
    other_methods: Mapping[_Code, Any] = {}
    """The shop's own ways to pay by code, with their names: they stand in one list with Tillgate's
    payment methods.
    """
    other_ways_to_pay: bool | None = None
    """Whether the shop takes other payments too. If not set: true for a shop that wrote its own
    checkout step for other payments.
    """

    def wants(self, mail: str) -> bool:
        """Return whether the shop wants a kind of mail to be sent."""
        return self.mails.get(mail, MAILS[mail])


get_settings: Final = shop.SettingsLoader("TILLGATE_OSCAR", Settings)
