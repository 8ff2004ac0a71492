"""Payments begin here: started for an order, or handed out again; and an order is closed, after which none can begin."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import Exists, FilteredRelation, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from tillgate import hooks, money
from tillgate.account import Account
from tillgate.django.conf import get_settings
from tillgate.django.methods import choices_for, label_of
from tillgate.django.models import MOST_DIGITS, Order, OutboxEvent, OutboxEventKind, Payment, database
from tillgate.django.operations.accounts import find_account, is_made_by, maker_if_known
from tillgate.django.operations.bounds import PURGE_CHECK, disputable, pay_until, stop_after, unpaid_check_at
from tillgate.django.operations.creations import CreationState, creation_state, note_creation, take_trial
from tillgate.django.operations.locking import (
    AFTER_A_CALL_SECONDS,
    OrderHeld,
    durable,
    in_the_shops_hands,
    locked_order,
    network,
    outside_transactions,
)
from tillgate.django.operations.payments import after_change, assign, reconcile
from tillgate.django.operations.reviews import open_review, reported_paid
from tillgate.django.operations.status import close_order_row, write_status_of
from tillgate.django.operations.timeline import record
from tillgate.errors import ConfigurationError, InvalidRequest, TillgateError
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    OrderStatus,
    PaymentStatus,
    account_reason,
    decide_creation,
    next_poll,
)
from tillgate.money import Money
from tillgate.wire.macros import callback_url
from tillgate.wire.messages import CreatedPayment, PaymentRequest
from tillgate.wire.methods import Terminal
from tillgate.wire.personal import kept_fields, without_personal_data
from tillgate.wire.references import new_reference

_log = logging.getLogger("tillgate")
_T = TypeVar("_T")

_LEAVE_TIME: Final = timedelta(minutes=2)
"""A payment page that closes sooner is not handed out again, since the shopper could not finish; for one that is open for minutes only a
quarter of its time is enough."""
_LOOKS_SECONDS: Final = 5.0
"""For the polls of an order's open payments, possibly many, before another begins: the shopper waits."""
_WAIT_FOR_DUPLICATE_SECONDS: Final = 3.0
_CREATION_SECONDS: Final = 10.0
"""A shopper waits, and a gateway that hangs holds a thread of the web server for so long."""
_YOUNG: Final = timedelta(seconds=10)
_LOST_AFTER: Final = timedelta(seconds=5)
"""A creation has ended, or was lost with its process, so long after the longest time that it may take."""


class NotPayable(Exception):
    """The order cannot be paid now; the message says why, to a shopper."""


class TryLater(TillgateError):
    """No payment was started now, and nothing was sent: the gateway does not answer, or the order had many payments just now."""


class StartOutcome(StrEnum):
    """The result of an attempt to start a payment. `message` tells the problem to a shopper, and is empty without one."""

    REDIRECT = "redirect"
    """Send the shopper to the payment page."""
    PAID = "paid"
    """It turned out that the order is paid."""
    REFUSED = "refused"
    """The gateway refused, or no request could leave: nothing was charged, and the shopper may try another payment method."""
    UNKNOWN = "unknown"
    """It is unknown whether the gateway created it; it is watched, and the shopper may try again."""

    @property
    def message(self) -> str:
        """The problem, for a shopper in the active language; empty without one."""
        if self is StartOutcome.REFUSED:
            return _("This way of paying cannot be used now. Nothing was charged. Please choose another, or try again later.")
        if self is StartOutcome.UNKNOWN:
            return _(
                "The payment service did not answer. If you were charged, your order will be marked paid automatically. You can try again."
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A payment and the next step for the shopper."""

    payment: Payment
    outcome: StartOutcome
    detail: str = ""


def start_payment(
    plugin: str,
    order_key: str,
    *,
    method: str,
    terminal: str = Terminal.ONLINE,
    account: str = "default",
    data: dict[str, Any] | None = None,
    despite: Collection[str] = (),
    actor: str = "start",
) -> Started:
    """Start a payment of an order, or hand out the open one for the same payment method and amount.

    `terminal` is where the shopper is, in a browser or on a telephone, `account` the name of one of the settings or of a plugin, and `data`
    is stored for the hooks. `tillgate_describe_order` says the amount, and whether the order may be paid. A payment whose money is on its
    way forbids another, unless the shopper has read so: `despite` has the references of such payments. An order that holds money, or has a
    payment under review, is not refused here: the pages of `pay_url` and `start_url` ask the shopper first.

    Raises `NotPayable`, `TryLater`, `InvalidRequest` or `ConfigurationError` before any request is sent.
    """
    outside_transactions("start")
    offered = get_settings().payment_methods
    if offered is not None and method not in offered:
        raise InvalidRequest("method", method, f"is not offered by this shop: {', '.join(offered)}")
    order_id, siblings = _look_up(plugin, order_key)
    chosen, state = find_account(account), creation_state(account, method)
    has_looked_long = stop_after(_LOOKS_SECONDS)
    for sibling in siblings:
        if has_looked_long():
            break  # the worker asks about the others
        if is_being_created(sibling) or (state is CreationState.RESTS and sibling.account == account):
            continue  # no shopper has its address yet, or its gateway does not answer
        # One of them may be paid by now, and its notification lost.
        seen = reconcile(sibling, actor)
        if seen.status == PaymentStatus.PAID:
            return Started(payment=seen, outcome=StartOutcome.PAID)
        if seen.is_open and seen.is_processing and seen.reference not in despite:
            raise NotPayable(_("a payment with %(method)s is on its way already") % {"method": label_of(seen.method)})

    def begin(order: Order, *, is_new: bool) -> tuple[Payment, PaymentRequest | None]:
        description = _describe(order)
        amount = _payable_amount(order, description)
        _check_method(chosen, method, Money(amount, description.currency))
        siblings = [] if is_new else _siblings(order)
        if duplicate := _duplicate(siblings, method, Money(amount, description.currency), account, chosen):
            return duplicate, None
        _check_pace(order, siblings)
        if state is CreationState.RESTS or (state is CreationState.TRIAL and not take_trial(account)):
            raise TryLater(f"account {account!r}: the gateway does not answer")
        if order.tried_since is None:
            order.tried_since = timezone.now()
            order.save(update_fields=["tried_since"])
        payment, request = _new_payment(order, description, amount, method, terminal, account, chosen, data or {})
        payment.save(force_insert=True)
        record("payment.created", order, actor, f"{payment.money} with {method}", payment=payment)
        return payment, request

    payment, request = _under_lock(plugin, order_key, order_id, begin)
    if request is None:
        return _hand_out(payment)
    try:
        return _create(payment, chosen, request, actor, state)
    except OrderHeld as error:  # the worker asks about it
        return Started(payment=payment, outcome=StartOutcome.UNKNOWN, detail=str(error))


def _look_up(plugin: str, order_key: str) -> tuple[int | None, list[Payment]]:
    """Return the id of the order's row, if there is one, and its open payments.

    An order that has no open payments takes one statement.
    """
    is_open = FilteredRelation("payments", condition=Q(payments__status__in=OPEN_PAYMENT_STATUSES))
    rows = Order.objects.filter(plugin=plugin, key=order_key).annotate(open=is_open)
    found = list(rows.values_list("pk", "open__pk"))
    ids = [payment_id for _, payment_id in found if payment_id]
    siblings = Payment.objects.select_related("order").filter(pk__in=ids).order_by("-pk") if ids else []
    return found[0][0] if found else None, list(siblings)


def _under_lock(plugin: str, order_key: str, order_id: int | None, begin: Callable[..., _T]) -> _T:
    """Begin something under the order's lock, which its new row is too until it is committed."""
    if order_id is None:
        try:
            with durable():
                return begin(_new_order(plugin, order_key, tried_since=timezone.now()), is_new=True)
        except IntegrityError:
            # Another process wrote the row in the same moment. That transaction is over: on InnoDB both would wait for the other's lock.
            order_id = Order.objects.values_list("pk", flat=True).get(plugin=plugin, key=order_key)
    try:
        with locked_order(order_id) as order:
            return begin(order, is_new=False)
    except OrderHeld as error:
        raise TryLater(str(error)) from error


def _new_order(plugin: str, order_key: str, **fields: Any) -> Order:
    now = timezone.now()
    order = Order(plugin=plugin, key=order_key, created_at=now, purge_check_at=now + PURGE_CHECK, **fields)
    order.save(force_insert=True)
    return order


def _describe(order: Order) -> hooks.OrderDescription:
    with in_the_shops_hands():
        described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if not isinstance(described, hooks.OrderDescription):
        detail = f"describes no order {order.key!r}: the shop does not know it, or tillgate_describe_order is not implemented"
        raise ConfigurationError("plugin", order.plugin, detail)
    return described


def why_not(order: Order | None, description: hooks.OrderDescription) -> str | None:
    """Return why no payment of an order can start now, as a clause that a shopper understands; None if one can."""
    if description.not_payable_detail is not None:
        return description.not_payable_detail
    if order and order.closed_at:
        return _("the order is closed")
    ends = [end.timestamp() for end in (description.payable_until, order and pay_until(order)) if end]
    is_over = any(end <= timezone.now().timestamp() for end in ends)
    return _("the time to pay for it is over") if is_over else None


def _check_pace(order: Order, siblings: list[Payment]) -> None:
    """Raise unless another payment of an order may start now. Counted under its lock: of many presses at once, each counts the others."""
    settings, now = get_settings(), timezone.now()
    in_its_time = sum(payment.created_at >= (order.tried_since or now) for payment in siblings)
    in_last_minute = sum(payment.created_at > now - timedelta(minutes=1) for payment in siblings)
    if in_its_time >= settings.creations_per_order:
        raise NotPayable(_("the time to pay for it is over"))
    if in_last_minute >= settings.creations_per_minute:
        raise TryLater(f"order {order}: {in_last_minute} payments have started within a minute")


def _payable_amount(order: Order, description: hooks.OrderDescription) -> Decimal:
    if order.paid_by_id:
        raise NotPayable(_("the order is paid"))
    if detail := why_not(order, description):
        raise NotPayable(detail)
    if description.is_free:
        raise NotPayable(_("there is nothing to pay"))
    amount = money.amount(description.amount, description.currency)
    if amount >= 10 ** (MOST_DIGITS - money.MOST_DECIMALS):
        raise InvalidRequest("amount", description.amount, "is more than can be recorded exactly")
    return amount


def _check_method(account: Account, method: str, price: Money) -> None:
    """Raise `NotPayable` unless the account takes a price with a payment method."""
    if price.currency not in account.taken_currencies:
        detail = _("only %(ours)s can be paid, and the order is in %(currency)s")
        raise NotPayable(detail % {"ours": ", ".join(account.taken_currencies), "currency": price.currency})
    choices = {choice.code: choice for choice in choices_for(account, price)}
    if method not in choices:
        raise InvalidRequest("method", method, f"is not offered by the account: {', '.join(choices)}")
    if choices[method].problem:
        raise NotPayable(_("this amount cannot be paid with this payment method; please choose another"))


def _siblings(order: Order) -> list[Payment]:
    """Return the payments of an order, the newest first."""
    is_untold = Exists(_untold().filter(payment=OuterRef("pk")))
    found: list[Payment] = list(order.payments.annotate(is_untold=is_untold).order_by("-id"))
    for payment in found:
        payment.order = order
    return found


def _duplicate(siblings: list[Payment], method: str, amount: Money, alias: str, account: Account) -> Payment | None:
    """Return the payment that makes another one needless.

    That is a paid one with an undelivered event (I4), or else the open one from the first click of a double click.
    """
    standing = [sibling for sibling in siblings if sibling.is_open or sibling.status == PaymentStatus.PAID]
    # However many were begun since: each of their payment pages would take the money once more.
    for payment in sorted(standing, key=lambda sibling: not vars(sibling)["is_untold"]):
        if payment.status == PaymentStatus.PAID:
            if vars(payment)["is_untold"] and payment.refunded_amount < payment.amount:
                return payment
            continue
        if (payment.method, payment.money, payment.account) != (method, amount, alias) or not is_made_by(payment, account):
            continue
        if is_being_created(payment) or (is_page_live(payment) and not reported_paid([payment.pk])):
            return payment
    return None


def _untold() -> QuerySet[OutboxEvent]:
    """Return the undelivered events about paid payments."""
    return OutboxEvent.objects.filter(kind=OutboxEventKind.PAYMENT_PAID, done_at__isnull=True)


def may_go_on(payment: Payment) -> bool:
    """Return whether the shopper may go to the payment page of a payment again.

    The page is live, the payment is not reported paid, the order is neither closed nor paid by another (I4), and the account can still
    query the payment.
    """
    if not is_page_live(payment) or payment.order.closed_at or is_order_paid(payment.order) or reported_paid([payment.pk]):
        return False
    return maker_if_known(payment) is not None


def is_order_paid(order: Order) -> bool:
    """Return whether a payment has paid an order, though the event may be undelivered yet; a refunded one pays nothing."""
    if order.paid_by_id is not None:
        return True
    untold = _untold().filter(order=order).select_related("payment")
    return any(one.payment is not None and one.payment.refunded_amount < one.payment.amount for one in untold)


def is_page_live(payment: Payment) -> bool:
    """Tell whether a shopper can still finish on the payment page of a payment."""
    now, is_open_for = timezone.now(), payment.page_closes_at - payment.created_at
    is_in_time = now < payment.page_closes_at - min(_LEAVE_TIME, is_open_for / 4)
    return payment.is_open and not payment.is_processing and bool(payment.payment_url) and is_in_time


def is_being_created(payment: Payment) -> bool:
    """Tell whether another press may be creating a payment at this moment: it is young and has no address.

    A creation without an end, whose gateway hangs, is young for as long as a creation can last.
    """
    if not payment.is_open or payment.payment_url:
        return False
    age = timezone.now() - payment.created_at
    if age < _YOUNG:
        return True
    account = maker_if_known(payment)
    if account is None or age >= timedelta(seconds=min(account.deadline_seconds, _CREATION_SECONDS)) + _LOST_AFTER:
        return False
    return not payment.timeline.filter(event="payment.outcome-unknown").exists()


def wait_for_creation(payment: Payment, seconds: float = 10.0) -> None:
    """Wait until the other press has created a payment, or could not, and no longer than `seconds`; the payment is then as it stands."""
    until = time.monotonic() + seconds
    while not payment.payment_url and payment.is_open and time.monotonic() < until:
        time.sleep(0.1)
        payment.refresh_from_db(fields=["payment_url", "status"])


def _hand_out(duplicate: Payment) -> Started:
    age = (timezone.now() - duplicate.created_at).total_seconds()
    wait_for_creation(duplicate, max(0.0, _WAIT_FOR_DUPLICATE_SECONDS - age))  # what hangs is not waited for
    return _as_started(duplicate, "the payment could not be started")


def _page_minutes(description: hooks.OrderDescription, account: Account, now: datetime) -> int:
    """Return for how long the payment page is open: not beyond the order's own time to pay."""
    wanted, (least, _most) = get_settings().timeout_minutes, account.dialect.timeout_minutes
    if description.payable_until:
        wanted = min(wanted, int(description.payable_until.timestamp() - now.timestamp()) // 60)
        if wanted < least:
            raise NotPayable(_("too little time is left to pay for it: the payment page needs %(minutes)s min") % {"minutes": least})
    return account.dialect.timeout(wanted)


def _new_payment(
    order: Order,
    description: hooks.OrderDescription,
    amount: Decimal,
    method: str,
    terminal: str,
    alias: str,
    account: Account,
    data: dict[str, Any],
) -> tuple[Payment, PaymentRequest]:
    settings, now = get_settings(), timezone.now()
    minutes = _page_minutes(description, account, now)
    closes_at = now + timedelta(minutes=minutes)
    expires_at = closes_at + timedelta(minutes=settings.expiry_grace_minutes)
    payment = Payment(
        order=order,
        reference=new_reference(description.number),
        account=alias,
        merchant_no=account.merchant_no,
        base_url=account.base_url,
        sandbox=account.sandbox,
        method=str(method),
        terminal=str(terminal),
        amount=amount,
        currency=description.currency,
        description=(description.description or f"Order {description.number}")[:255],
        data=data,
        created_at=now,
        status_since=now,
        page_closes_at=closes_at,
        expires_at=expires_at,
        next_poll_at=next_poll(PaymentStatus.CREATED, now, expires_at, now),
    )
    request = PaymentRequest(
        reference=payment.reference,
        amount=amount,
        currency=description.currency,
        method=method,
        terminal=terminal,
        ipn_url=settings.address("tillgate:payment-notification", payment.notification_key),
        callback_url=callback_url(settings.address("tillgate:return", payment.return_key), account.dialect.macros),
        description=payment.description,
        timeout=minutes,
        email=description.email,
        language=get_language(),
        goods_info=description.lines,
    )
    return payment, request


def _create(payment: Payment, account: Account, request: PaymentRequest, actor: str, state: CreationState) -> Started:
    """Create the payment at the gateway and write the outcome, unless an early notification has brought a later status."""
    outcome: CreatedPayment | TillgateError
    began = time.monotonic()
    try:
        with network():
            outcome = hooks.pay(account, request, deadline_seconds=_CREATION_SECONDS)
    except TillgateError as error:
        outcome = error
    except Exception as error:  # a plugin around the gateway may raise anything, after sending or before
        _log.exception("the creation of %s failed in a plugin", payment.reference)
        outcome = TillgateError(f"{type(error).__name__} in a plugin")
    status, seconds = decide_creation(outcome), time.monotonic() - began
    if status is PaymentStatus.FAILED:
        detail = without_personal_data(str(outcome))
        _log.warning("a payment could not be created at %s: %s", account.base_url, detail)
    with locked_order(payment.order_id, patience_seconds=AFTER_A_CALL_SECONDS) as order:
        rows = Payment.objects.filter(pk=payment.pk)
        now = timezone.now()
        if isinstance(outcome, CreatedPayment):
            known: dict[str, Any] = {"transaction_no": outcome.transaction_no, "payment_url": outcome.payment_url}
            message, evidence = f"transaction {outcome.transaction_no}", kept_fields(outcome.raw, account.dialect.kept_fields)
            due = next_poll(status, payment.created_at, payment.expires_at, now)
        else:
            known, message, evidence = {}, without_personal_data(str(outcome)), {"error": type(outcome).__name__}
            due = next_poll(status, now, payment.expires_at, now, disputable())
        if status == PaymentStatus.CREATED:
            record("payment.outcome-unknown", order, actor, message, payment=payment, evidence=evidence)
        elif write_status_of(
            rows.filter(status_since=payment.status_since), PaymentStatus.CREATED, status, status_since=now, next_poll_at=due, **known
        ):
            assign(payment, {"status": status.value, "status_since": now, "next_poll_at": due, **known})
            record(f"payment.{status}", order, actor, message, payment=payment, evidence=evidence)
            after_change(order, payment)
        else:  # a notification was quicker than the answer, which still tells where the shopper pays
            payment.refresh_from_db()
            payment.payment_url = known.get("payment_url", "")
            payment.transaction_no = payment.transaction_no or known.get("transaction_no") or None
            payment.save(update_fields=["payment_url", "transaction_no"])
            record("payment.answered-late", order, actor, message, payment=payment, evidence=evidence)
        if isinstance(outcome, TillgateError) and (reason := account_reason(outcome.__cause__ or outcome)):
            # A case of the account and not of this payment (unspecified behaviour 7): an answer in order about it does not end the case.
            facts, about = {"error": outcome}, {"reference": payment.reference}
            open_review(reason, facts, actor, account=payment.account, evidence=about)
    note_creation(payment, outcome, seconds, state)
    return _as_started(payment, str(outcome))


def _as_started(payment: Payment, detail: str) -> Started:
    """Return a payment with the next step for the shopper; `detail` says why it has no payment page."""
    if payment.status == PaymentStatus.PAID:
        return Started(payment=payment, outcome=StartOutcome.PAID)
    if payment.payment_url and payment.is_open:
        return Started(payment=payment, outcome=StartOutcome.REDIRECT)
    return Started(payment=payment, outcome=StartOutcome.UNKNOWN if payment.is_open else StartOutcome.REFUSED, detail=detail)


def open_order(plugin: str, order_key: str, actor: str = "shop") -> None:
    """Register an order that waits for its first payment. Touches the database only: call it where the shop writes the order.

    If no payment ever starts, the shop receives `order_unpaid` as for any other order. Call it again after that if the shop waits for the
    order once more.
    """
    check_at = unpaid_check_at()
    with contextlib.suppress(IntegrityError), transaction.atomic(using=database()):
        order = _new_order(plugin, order_key, unpaid_check_at=check_at)
        record("order.opened", order, actor, "the shop placed the order")
        return
    told = Order.objects.filter(plugin=plugin, key=order_key, unpaid_check_at=None, paid_by=None, closed_at=None)
    told.exclude(payments__status__in=OPEN_PAYMENT_STATUSES).update(unpaid_check_at=check_at)


def registered(plugin: str, order_key: str) -> Order:
    """Return an order's row, and write it if there is none: an address names the order by it. Nothing else follows from the row."""
    orders = Order.objects.filter(plugin=plugin, key=order_key)
    if (order := orders.first()) is not None:
        return order
    with contextlib.suppress(IntegrityError), transaction.atomic(using=database()):
        _new_order(plugin, order_key)
    with transaction.atomic(using=database()):
        return orders.select_for_update().get()  # a locking read: another process may have written it since this transaction began


def close_order(plugin: str, order_key: str, actor: str = "shop") -> None:
    """Register that the shop closed an order: no payment can start any more, and open ones stay watched. Touches the database only.

    Does nothing for an order that was never opened, is closed, or that a payment has paid.
    """
    with transaction.atomic(using=database()):
        order = Order.objects.select_for_update().filter(plugin=plugin, key=order_key).first()
        if order is not None and order.status is OrderStatus.OPEN:
            close_order_row(order)
            record("order.closed", order, actor, "the shop closed the order")
