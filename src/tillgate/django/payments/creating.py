"""A new payment is written here, and created at the gateway."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.conf import get_settings
from tillgate.django.models import Order, Payment
from tillgate.django.orders.locking import (
    AFTER_A_CALL_SECONDS,
    locked_order,
    network,
)
from tillgate.django.orders.status import write_status_of
from tillgate.django.orders.timeline import record
from tillgate.django.orders.times import disputable
from tillgate.django.payments.admission import CreationState, NotPayable, note_creation
from tillgate.django.payments.reconciling import after_change, assign
from tillgate.django.reviews.opening import open_review
from tillgate.errors import TillgateError
from tillgate.lifecycle import (
    PaymentStatus,
    account_reason,
    decide_creation,
    next_poll,
)
from tillgate.money import Money
from tillgate.wire.macros import callback_url
from tillgate.wire.messages import CreatedPayment, PaymentRequest
from tillgate.wire.personal import kept_fields, without_personal_data
from tillgate.wire.references import new_reference

_log = logging.getLogger("tillgate")

_EXPIRY_GRACE: Final = timedelta(minutes=10)
"""The wait after the page closes, before an answer of the gateway can make the payment expired."""
CREATION_SECONDS: Final = 10.0
"""A shopper waits, and a gateway that hangs holds a thread of the web server for so long."""


class StartOutcome(StrEnum):
    """The result of an attempt to start a payment. `message` tells the problem to a shopper, and is
    empty without one.
    """

    REDIRECT = "redirect"
    """Send the shopper to the payment page."""
    PAID = "paid"
    """It turned out that the order is paid."""
    REFUSED = "refused"
    """The gateway refused, or no request could leave: nothing was charged, and the shopper may try
    another payment method.
    """
    UNKNOWN = "unknown"
    """It is unknown whether the gateway created it; it is watched, and the shopper may try
    again.
    """

    @property
    def message(self) -> str:
        """The problem, for a shopper in the active language; empty without one."""
        if self is StartOutcome.REFUSED:
            return _(
                "This way of paying cannot be used now. Nothing was charged. Please choose "
                "another, or try again later.",
            )
        if self is StartOutcome.UNKNOWN:
            return _(
                "The payment service did not answer. If you were charged, your order will be "
                "marked paid automatically. You can try again.",
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choices for a new payment: method and terminal of the shopper, account and data of the
    shop.
    """

    method: str
    terminal: str
    alias: str
    account: Account
    data: dict[str, Any]
    shopper_ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A payment and the next step for the shopper."""

    payment: Payment
    outcome: StartOutcome
    detail: str = ""


def _page_minutes(description: hooks.OrderDescription, account: Account, now: datetime) -> int:
    """Return for how long the payment page is open: not beyond the order's own time to pay."""
    wanted, (least, _most) = get_settings().timeout_minutes, account.dialect.timeout_minutes
    if description.payable_until:
        wanted = min(wanted, int(description.payable_until.timestamp() - now.timestamp()) // 60)
        if wanted < least:
            raise NotPayable(
                _("too little time is left to pay for it: the payment page needs %(minutes)s min")
                % {"minutes": least},
            )
    return account.dialect.timeout(wanted)


def new_payment(
    order: Order,
    description: hooks.OrderDescription,
    price: Money,
    choice: Choice,
) -> tuple[Payment, PaymentRequest]:
    """Return a payment that is not yet written, and the request that creates it at the gateway."""
    settings, now, account = get_settings(), timezone.now(), choice.account
    minutes = _page_minutes(description, account, now)
    closes_at = now + timedelta(minutes=minutes)
    expires_at = closes_at + _EXPIRY_GRACE
    payment = Payment(
        order=order,
        reference=new_reference(description.number),
        account=choice.alias,
        merchant_no=account.merchant_no,
        base_url=account.base_url,
        sandbox=account.sandbox,
        method=str(choice.method),
        terminal=str(choice.terminal),
        amount=price.amount,
        currency=price.currency,
        description=(description.description or f"Order {description.number}")[:255],
        data=choice.data,
        created_at=now,
        status_since=now,
        page_closes_at=closes_at,
        expires_at=expires_at,
        next_poll_at=next_poll(PaymentStatus.CREATED, now, expires_at, now),
    )
    request = PaymentRequest(
        reference=payment.reference,
        amount=price.amount,
        currency=price.currency,
        method=choice.method,
        terminal=choice.terminal,
        ipn_url=settings.address("tillgate:payment-notification", payment.notification_key),
        callback_url=callback_url(
            settings.address("tillgate:return", payment.return_key),
            account.dialect.macros,
        ),
        description=payment.description,
        timeout=minutes,
        email=description.email,
        language=get_language(),
        goods_info=description.lines,
        webhook_url=settings.address("tillgate:webhook", choice.alias),
        shopper_ip=_address_or_none(choice.shopper_ip),
        shipping=description.shipping,
    )
    return payment, request


def _address_or_none(given: str | None) -> str | None:
    """Return the shopper's address; None for a text that is none, as behind a socket of Unix."""
    try:
        return str(ip_address(given or ""))
    except ValueError:
        return None


def create(
    payment: Payment,
    account: Account,
    request: PaymentRequest,
    actor: str,
    state: CreationState,
) -> Started:
    """Create the payment at the gateway and write the outcome, unless an early notification has
    brought a later status.
    """
    began = time.monotonic()
    outcome = _call_gateway(payment, account, request)
    status, seconds = decide_creation(outcome), time.monotonic() - began
    if status is PaymentStatus.FAILED:
        detail = without_personal_data(str(outcome))
        _log.warning("a payment could not be created at %s: %s", account.base_url, detail)
    with locked_order(payment.order_id, patience_seconds=AFTER_A_CALL_SECONDS) as order:
        _write_outcome(order, payment, account, outcome, status, actor)
        _review_account(payment, outcome, actor)
    note_creation(payment, outcome, seconds, state)
    return as_started(payment, str(outcome))


def _call_gateway(
    payment: Payment,
    account: Account,
    request: PaymentRequest,
) -> CreatedPayment | TillgateError:
    try:
        with network():
            return hooks.pay(account, request, deadline_seconds=CREATION_SECONDS)
    except TillgateError as error:
        return error
    except Exception as error:
        # a plugin around the gateway may raise anything, after sending or before
        _log.exception("the creation of %s failed in a plugin", payment.reference)
        return TillgateError(f"{type(error).__name__} in a plugin")


def _write_outcome(
    order: Order,
    payment: Payment,
    account: Account,
    outcome: CreatedPayment | TillgateError,
    status: PaymentStatus,
    actor: str,
) -> None:
    now = timezone.now()
    if isinstance(outcome, CreatedPayment):
        known: dict[str, Any] = {
            "transaction_no": outcome.transaction_no,
            "payment_url": outcome.payment_url,
        }
        message = f"transaction {outcome.transaction_no}"
        evidence = kept_fields(outcome.raw, account.dialect.kept_fields)
        due = next_poll(status, payment.created_at, payment.expires_at, now)
    else:
        known, message = {}, without_personal_data(str(outcome))
        evidence = {"error": type(outcome).__name__}
        due = next_poll(status, now, payment.expires_at, now, disputable())
    new = {"status_since": now, "next_poll_at": due, **known}
    rows = Payment.objects.filter(pk=payment.pk, status_since=payment.status_since)
    about: dict[str, Any] = {"payment": payment, "evidence": evidence}
    if status is PaymentStatus.CREATED:
        record("payment.outcome-unknown", order, actor, message, **about)
    elif write_status_of(rows, PaymentStatus.CREATED, status, **new):
        assign(payment, {"status": status.value, **new})
        record(f"payment.{status}", order, actor, message, **about)
        after_change(order, payment)
    else:
        # A notification was quicker than the answer, which still has the payment page.
        payment.refresh_from_db()
        payment.payment_url = known.get("payment_url", "")
        payment.transaction_no = payment.transaction_no or known.get("transaction_no") or None
        payment.save(update_fields=["payment_url", "transaction_no"])
        record("payment.answered-late", order, actor, message, **about)


def _review_account(
    payment: Payment,
    outcome: CreatedPayment | TillgateError,
    actor: str,
) -> None:
    """Open a review if the gateway rejected the account itself."""
    if not isinstance(outcome, TillgateError):
        return
    if reason := account_reason(outcome.__cause__ or outcome):
        # A case of the account and not of this payment (unspecified behaviour 7): an answer in
        # order about it does not end the case.
        facts, about = {"error": outcome}, {"reference": payment.reference}
        open_review(reason, facts, actor, account=payment.account, evidence=about)


def as_started(payment: Payment, detail: str) -> Started:
    """Return a payment with the next step for the shopper; `detail` says why it has no payment
    page.
    """
    if payment.status == PaymentStatus.PAID:
        return Started(payment=payment, outcome=StartOutcome.PAID)
    if payment.payment_url and payment.is_open:
        return Started(payment=payment, outcome=StartOutcome.REDIRECT)
    return Started(
        payment=payment,
        outcome=StartOutcome.UNKNOWN if payment.is_open else StartOutcome.REFUSED,
        detail=detail,
    )
