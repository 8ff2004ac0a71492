"""The driver connects the gateway conformance kit to the emulator of a gateway. A gateway plugin's author writes one driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NoReturn, Self

from tillgate.account import Account
from tillgate.wire.dialects import RefundOutcome

__all__ = ["GatewayDriver", "Held", "Operation"]

Operation = Literal["pay", "query", "refund"]

_NOBODY = "http://127.0.0.1:1"


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the emulator itself holds of a payment. `refunds` are the amounts of its refunds, pending ones too, and no failed ones."""

    transaction_no: str
    amount: Decimal
    currency: str
    refunds: tuple[Decimal, ...] = ()


class GatewayDriver(ABC):
    """The acts of the kit on an emulator of the gateway, and the facts that it reads from there. A driver is a subclass.

    Each scenario makes a driver of its own and enters it: start the emulator in `__enter__`, end it in `__exit__`. Payments are named by
    their references, since the answer with the transaction number may be lost.
    """

    plugin: str
    """The plugin's entry-point name."""

    plugin_object: object = None
    """The plugin itself, if it is not installed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027  # many emulators have nothing to end
        """Leave nothing running."""

    @abstractmethod
    def account(self, currency: str | None = None) -> Account | None:
        """Return an account of the emulator that takes a currency, or None if none does; without a currency any account."""

    @abstractmethod
    def held(self, reference: str) -> Held | None:
        """Return what the emulator holds of a payment, or None if there is no such payment. Read its own storage, not the plugin."""

    @abstractmethod
    def pay(self, reference: str) -> None:
        """Pay the open payment, as the shopper does on the payment page."""

    @abstractmethod
    def decline(self, reference: str) -> None:
        """Let the payment fail, as a shopper's card that is declined does."""

    @abstractmethod
    def expire(self, reference: str) -> None:
        """Let the time of the open payment run out."""

    @abstractmethod
    def lose_answer(self, operation: Operation) -> None:
        """Let the emulator do the next call of an operation and lose its answer."""

    @abstractmethod
    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        """Let the emulator do the next call of an operation and answer so many seconds later."""

    @abstractmethod
    def fail_refund(self) -> None:
        """Let the next refund fail: the emulator refuses it, or answers that it failed."""

    # Defaults that fit most gateways ------------------------------------------------------------------------------------------------------

    def unreachable(self) -> Account:
        """Return an account whose gateway no connection reaches, so that no request leaves."""
        account = self.account()
        assert account is not None, "the driver has no account"
        return account.model_copy(update={"base_url": _NOBODY, "sandbox": True})

    # Capabilities that not every gateway has ----------------------------------------------------------------------------------------------

    def hold_refund(self) -> None:
        """Let the next refund be pending: accepted, and not finished."""
        _lacks("keep refunds pending")

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        """Let the pending refund of a payment succeed or fail."""
        _lacks("finish refunds")

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        """Refund in the gateway's own pages, as the merchant's staff can."""
        _lacks("refund in the portal")

    def notification(self, reference: str, *, forged: bool = False) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of the gateway's notification about a payment, true or signed by somebody else."""
        _lacks("send notifications to an account's own address")


def _lacks(what: str) -> NoReturn:
    raise NotImplementedError(f"the driver does not {what}: implement it, or decline the scenario")
