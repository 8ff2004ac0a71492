"""The driver connects both conformance kits to the emulator of a gateway. A gateway plugin's author
writes one driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NoReturn, Self

from pydantic import SecretStr

from tillgate.account import Account
from tillgate.testing.faulty_proxy import FaultyProxy
from tillgate.wire.dialects import RefundOutcome

Operation = Literal["pay", "query", "refund"]

NotificationKind = Literal["payment", "refund", "stale", "forged"]
"""The content of a notification. A stale one has an earlier status, and a forged one a stranger's
signature.
"""

Fault = Literal[
    "refused",  # the gateway says no, and does nothing
    "denied",  # the gateway says that it has no such payment
    "lost_request",  # nothing arrives
    "lost_response",  # the work is done, and its answer is lost
    "server_error",  # HTTP 500, with the work undone
    "system_error",  # the gateway's own code for its own trouble
    "unknown_code",  # a code that no documentation has
    "rate_limited",
    "redirect",  # HTTP 302 to a page that does not exist
    "broken_json",  # the JSON ends in the middle
    "cut_body",  # the connection closes within the body
    "html_body",  # HTTP 200 with a page in HTML
    "bad_signature",
    "wrong_amount",  # from here on the answer disagrees with the payment
    "missing_amount",
    "wrong_currency",
    "missing_currency",
    "wrong_settle_currency",
    "wrong_transaction_no",
    "other_reference",  # the answer is about another payment
    "strange_status",  # a word that no documentation has
]
"""The possible faults of the next calls of an operation."""

_NOBODY = "http://127.0.0.1:1"


@dataclass(frozen=True, kw_only=True)
class Held:
    """The emulator's own record of a payment. `refunds` are the amounts of its refunds, pending
    ones too, and no failed ones.
    """

    transaction_no: str
    amount: Decimal
    currency: str
    refunds: tuple[Decimal, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SentNotification:
    """A notification as the gateway sends it. An empty `url` stands for the account's own
    address.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    method: str = "POST"
    url: str = ""


class GatewayDriver(ABC):
    """The acts of the kits on an emulator of the gateway, and the facts that they read from there.
    A driver is a subclass.

    Each scenario makes a driver of its own and enters it: start the emulator in `__enter__`, end it
    in `__exit__`. Payments are named by their references, since the answer with the transaction
    number may be lost.
    """

    plugin: str
    """The plugin's entry-point name."""

    plugin_object: object = None
    """The plugin itself, if it is not installed."""

    method: str = "alipay"
    """The code of the payment method that the shopper of a shop chooses."""

    declined_by_shops: Mapping[str, str] = {}
    """Scenarios of shops that cannot hold on this gateway, by name, each with the reason."""

    listing: Mapping[str, Any] = {}
    """Further settings of an account in TILLGATE that make the gateway list the refunds of a
    payment.
    """

    proxy: FaultyProxy | None = None
    """A proxy before the emulator, started in `__enter__`, which plays all faults."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the proxy; a driver stops its emulator too."""
        if self.proxy is not None:
            self.proxy.stop()

    @abstractmethod
    def account(self, currency: str | None = None) -> Account | None:
        """Return an account of the emulator that takes a currency, or None if none does; without a
        currency any account.
        """

    @abstractmethod
    def held(self, reference: str) -> Held | None:
        """Return the emulator's record of a payment, or None if there is no such payment. Read its
        own storage, not the plugin.
        """

    @abstractmethod
    def pay(self, reference: str) -> str | None:
        """Pay the open payment, as the shopper does on the payment page; return the address that
        the shopper is sent to, if it is known.
        """

    # Defaults that fit most gateways --------------------------------------------------------------

    def unreachable(self) -> Account:
        """Return an account at a gateway that no connection reaches: no request leaves."""
        account = self.account()
        assert account is not None, "the driver has no account"
        return account.model_copy(update={"base_url": _NOBODY, "sandbox": True})

    def secrets(self) -> set[str]:
        """Return every secret that no text may hold: by default those of the account, and the
        credentials that have passed the proxy, such as access tokens. Add other derived secrets.
        """
        account = self.account()
        assert account is not None, "the driver has no account"
        found = [account.token, *account.webhook_secrets, *account.options.values()]
        texts = {one.get_secret_value() for one in found if isinstance(one, SecretStr)}
        return texts | (self.proxy.secrets() if self.proxy else set())

    def forgeries(
        self,
        reference: str,
        other: str,
    ) -> Sequence[tuple[Mapping[str, str], bytes]]:
        """Return notifications that a stranger could send, as headers and body, from those about
        two payments: by default, for a gateway that signs in a header, one with a stranger's
        signature, two without a signature, and one with the signature of the other.
        """
        headers, body = self.notification(reference)
        return [
            self.notification(reference, forged=True),
            ({}, body),
            (dict.fromkeys(headers, ""), body),
            (headers, self.notification(other)[1]),
        ]

    def account_settings(self, currency: str | None = None) -> dict[str, Any]:
        """Return the account that takes a currency as TILLGATE has it, with names in capitals."""
        account = self.account(currency)
        if account is None:
            self.lacks(f"have an account that takes {currency or 'any currency'}")
        return {
            name.upper(): _in_clear(getattr(account, name)) for name in account.model_fields_set
        }

    def is_payment_page(self, url: str) -> bool:
        """Return whether an address is the gateway's payment page: by default, whether it is below
        the account's, or the emulator's behind the proxy.
        """
        own = (str(self.account_settings()["BASE_URL"]), self.proxy.target if self.proxy else "")
        return url.startswith(tuple(filter(None, own)))

    def refunded(self, reference: str) -> Decimal:
        """Return how much the gateway has refunded of a payment: by default all that it holds,
        pending refunds too.
        """
        found = self.held(reference)
        return sum(found.refunds, Decimal(0)) if found else Decimal(0)

    def leave(self, reference: str) -> None:  # noqa: B027  # few gateways need it
        """Leave the payment page without paying, as a shopper does; the payment stays open."""

    def notify(
        self,
        reference: str,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> Sequence[SentNotification]:
        """Return the gateway's notifications about a payment; a stale one may name a status."""
        if kind not in ("payment", "forged"):
            self.lacks(f"send a notification of the kind {kind!r}")
        headers, body = self.notification(reference, forged=kind == "forged")
        return [SentNotification(headers=headers, body=body)]

    def lacks(self, what: str) -> NoReturn:
        """Skip a scenario: the driver lacks something that it needs. `what` is a text such as "keep
        refunds pending".
        """
        raise NotImplementedError(
            f"the driver does not {what}: implement it, or decline the scenario",
        )

    # Faults, which the proxy plays ----------------------------------------------------------------

    def fault(self, fault: Fault, operation: Operation, *, times: int = 1) -> None:
        """Let something be wrong with the next calls of an operation."""
        if self.proxy is None or fault not in self.proxy.faults:
            self.lacks(f"play the fault {fault!r} of {operation}")
        self.proxy.fault(fault, operation, times=times)

    def lose_answer(self, operation: Operation) -> None:
        """Let the emulator do the next call of an operation and lose its answer."""
        self.fault("lost_response", operation)

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        """Let the emulator do the next call of an operation and answer so many seconds later."""
        if self.proxy is None:
            self.lacks("answer slowly")
        self.proxy.fault("slow", operation, seconds=seconds)

    def clear_faults(self) -> None:
        """Let nothing be wrong any more."""
        if self.proxy is None:
            self.lacks("clear faults")
        self.proxy.clear()

    def use_strange_words(self) -> None:
        """Let the emulator describe the status of each payment that is not paid by a word that no
        documentation has; the proxy does so for all.
        """
        self.fault("strange_status", "query", times=10_000)

    def received(self, operation: Operation) -> int:
        """Return how many calls of an operation have arrived."""
        if self.proxy is None:
            self.lacks("count what has arrived")
        return self.proxy.received(operation)

    # Capabilities that not every gateway has ------------------------------------------------------

    def decline(self, reference: str) -> None:
        """Let the payment fail, as a shopper's card that is declined does."""
        self.lacks("decline payments")

    def expire(self, reference: str) -> None:
        """Let the time of the open payment run out."""
        self.lacks("let payments expire")

    def pay_slowly(self, reference: str) -> None:
        """Let the shopper finish while the money is on its way, as a bank transfer does."""
        self.lacks("keep money on its way")

    def fail_refund(self) -> None:
        """Let the next refund fail: the emulator refuses it, or answers that it failed, now or when
        its refund is queried.
        """
        self.fault("refused", "refund")

    def hold_refund(self) -> None:
        """Let the next refund be pending: accepted, and not finished."""
        self.lacks("keep refunds pending")

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        """Let the pending refund of a payment succeed or fail."""
        self.lacks("finish refunds")

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        """Refund in the gateway's own pages, as the merchant's staff can."""
        self.lacks("refund in the portal")

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        """Return the headers and the body of the gateway's notification about a payment, true or
        with a stranger's signature.
        """
        self.lacks("send notifications to an account's own address")

    # Capabilities that only the scenarios of shops need -------------------------------------------

    @property
    def other_method(self) -> str:
        """The code of a second payment method. A driver names it as an attribute."""
        self.lacks("name another payment method")

    def advance(self, seconds: float) -> None:
        """Move the emulator's clock, so that open payments expire; an emulator without a clock has
        nothing to do.
        """
        self.lacks("move the emulator's clock")

    def pay_late(self, reference: str) -> None:
        """Pay although the payment has expired."""
        self.lacks("pay late")

    def reverse(self, reference: str) -> None:
        """Take a paid payment back, as a charge-back does."""
        self.lacks("take payments back")

    def refund_unlisted(self, reference: str, amount: Decimal) -> None:
        """Refund in the gateway's own pages so that a query says that the payment was refunded, and
        lists no refund.
        """
        self.lacks("refund in the portal without listing the refund")

    def references(self) -> Sequence[str]:
        """Return the references of all payments, oldest first."""
        self.lacks("list all payments")

    def signatures(self) -> set[str]:
        """Return the signatures of all calls and notifications so far, which no log may hold."""
        self.lacks("list the signatures")


def _in_clear(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _in_clear(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_in_clear(one) for one in value)
    return value.get_secret_value() if isinstance(value, SecretStr) else value
