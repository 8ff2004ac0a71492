"""Payments begin here: started for an order, or handed out again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

from django.db import IntegrityError
from django.db.models import FilteredRelation, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from tillgate import hooks, money
from tillgate.account import Account
from tillgate.django.accounts import find_account
from tillgate.django.conf import get_settings
from tillgate.django.methods import choices_for, label_of
from tillgate.django.models import MOST_DIGITS, Order, Payment
from tillgate.django.orders.locking import (
    OrderHeld,
    durable,
    locked_order,
    outside_transactions,
    shop_savepoint,
)
from tillgate.django.orders.registering import new_order
from tillgate.django.orders.timeline import record
from tillgate.django.orders.times import pay_until, stop_after
from tillgate.django.orders.unwanted import want_closed
from tillgate.django.payments.admission import (
    CreationState,
    NotPayable,
    TryLater,
    creation_state,
    take_trial,
)
from tillgate.django.payments.creating import Choice, Started, StartOutcome, create, new_payment
from tillgate.django.payments.handing_out import (
    duplicate_of,
    hand_out,
    is_being_created,
    siblings_of,
)
from tillgate.django.payments.reconciling import reconcile
from tillgate.errors import ConfigurationError, InvalidRequest
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    PaymentStatus,
)
from tillgate.money import Money
from tillgate.wire.messages import PaymentRequest
from tillgate.wire.methods import Terminal

_log = logging.getLogger("tillgate")
_T = TypeVar("_T")
_MOST_PER_MINUTE: Final = 5
_MOST_PER_ORDER: Final = 50
"""The most payments of an order that start within a minute, and in its time to pay."""
_POLLS_SECONDS: Final = 5.0
"""The shopper waits while an order's open payments, possibly many, are polled."""


def start_payment(
    plugin: str,
    order_key: str,
    *,
    method: str,
    terminal: str = Terminal.ONLINE,
    account: str = "default",
    data: dict[str, Any] | None = None,
    despite: Collection[str] = (),
    shopper_ip: str | None = None,
    actor: str = "start",
) -> Started:
    """Start a payment of an order, or hand out the open one for the same payment method and amount.

    `terminal` is where the shopper is, in a browser or on a telephone, `account` the name of one of
    the settings or of a plugin, and `data` is stored for the hooks. `shopper_ip` is the shopper's
    address on the network, for gateways that ask; it is not stored. `tillgate_describe_order` says
    the amount, and whether the order may be paid. A payment with money on its way forbids another,
    unless the shopper has read so: `despite` has the references of such payments. An order that
    holds money, or has a payment under review, is not refused here: the pages of `pay_url` and
    `start_url` ask the shopper first.

    Raises `NotPayable`, `TryLater`, `InvalidRequest` or `ConfigurationError` before any request is
    sent.
    """
    outside_transactions("start")
    offered = get_settings().payment_methods
    if offered is not None and method not in offered:
        raise InvalidRequest("method", method, f"is not offered by this shop: {', '.join(offered)}")
    order_id, siblings = _look_up(plugin, order_key)
    choice = Choice(
        method=method,
        terminal=terminal,
        alias=account,
        account=find_account(account),
        data=data or {},
        shopper_ip=shopper_ip,
    )
    state = creation_state(account, method)
    resting = account if state is CreationState.RESTS else None
    if paid := _poll_siblings(siblings, resting, despite, actor):
        return Started(payment=paid, outcome=StartOutcome.PAID)
    begin = partial(_begin, choice=choice, state=state, actor=actor)
    payment, request = _under_lock(plugin, order_key, order_id, begin)
    if request is None:
        return hand_out(payment)
    try:
        return create(payment, choice.account, request, actor, state)
    except OrderHeld as error:  # the worker asks about it
        return Started(payment=payment, outcome=StartOutcome.UNKNOWN, detail=str(error))


def _poll_siblings(
    siblings: Iterable[Payment],
    resting: str | None,
    despite: Collection[str],
    actor: str,
) -> Payment | None:
    """Reconcile an order's open payments, and return the one that is paid by now: its notification
    may be lost. Raise `NotPayable` where the money of one is on its way.

    `resting` is the account that gets no answer from its gateway.
    """
    is_over = stop_after(_POLLS_SECONDS)
    for sibling in siblings:
        if is_over():
            break  # the worker asks about the others
        # A payment in creation has shown its page to no shopper.
        if is_being_created(sibling) or sibling.account == resting:
            continue
        # creations may work while queries rest: who has paid would pay a second time
        payment = reconcile(sibling, actor, even_if_resting=True)
        if payment.status == PaymentStatus.PAID:
            return payment
        if payment.is_open and payment.is_processing and payment.reference not in despite:
            raise NotPayable(
                _("a payment with %(method)s is on its way already")
                % {"method": label_of(payment.method)},
            )
    return None


def _begin(
    order: Order,
    *,
    choice: Choice,
    state: CreationState,
    actor: str,
    is_new: bool,
) -> tuple[Payment, PaymentRequest | None]:
    """Write a new payment under the order's lock, and return it with its request; or return the
    payment that makes it needless.

    The order of the checks decides which message a shopper reads: an order that cannot be paid
    comes before a duplicate, a duplicate before the limits on new payments.
    """
    description = _describe(order)
    price = Money(_payable_amount(order, description), description.currency)
    _check_method(choice.account, choice.method, price)
    siblings = [] if is_new else siblings_of(order)
    if duplicate := duplicate_of(siblings, choice, price):
        return duplicate, None
    _check_pace(order, siblings)
    if state is CreationState.RESTS or (
        state is CreationState.TRIAL and not take_trial(choice.alias)
    ):
        raise TryLater(f"account {choice.alias!r}: the gateway does not answer")
    if order.tried_since is None:
        order.tried_since = timezone.now()
        order.save(update_fields=["tried_since"])
    payment, request = new_payment(order, description, price, choice)
    payment.save(force_insert=True)
    if any(sibling.is_open for sibling in siblings):
        want_closed(order, but=payment)
    message = f"{payment.money} with {choice.method}"
    record("payment.created", order, actor, message, payment=payment)
    return payment, request


def _look_up(plugin: str, order_key: str) -> tuple[int | None, list[Payment]]:
    """Return the id of the order's row, if there is one, and its open payments.

    An order that has no open payments takes one statement.
    """
    is_open = FilteredRelation("payments", condition=Q(payments__status__in=OPEN_PAYMENT_STATUSES))
    rows = Order.objects.filter(plugin=plugin, key=order_key).annotate(open=is_open)
    found = list(rows.values_list("pk", "open__pk"))
    ids = [payment_id for _, payment_id in found if payment_id]
    siblings = (
        Payment.objects.select_related("order").filter(pk__in=ids).order_by("-pk") if ids else []
    )
    return found[0][0] if found else None, list(siblings)


def _under_lock(plugin: str, order_key: str, order_id: int | None, begin: Callable[..., _T]) -> _T:
    """Begin something under the order's lock, which its new row is too until it is committed."""
    if order_id is None:
        try:
            with durable():
                return begin(new_order(plugin, order_key, tried_since=timezone.now()), is_new=True)
        except IntegrityError:
            # Another process wrote the row in the same moment. That transaction is over: on InnoDB
            # both would wait for the other's lock.
            order_id = Order.objects.values_list("pk", flat=True).get(plugin=plugin, key=order_key)
    try:
        with locked_order(order_id) as order:
            return begin(order, is_new=False)
    except OrderHeld as error:
        raise TryLater(str(error)) from error


def _describe(order: Order) -> hooks.OrderDescription:
    with shop_savepoint():
        described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if not isinstance(described, hooks.OrderDescription):
        detail = (
            f"describes no order {order.key!r}: the shop does not know it, or "
            "tillgate_describe_order is not implemented"
        )
        raise ConfigurationError("plugin", order.plugin, detail)
    return described


def why_not(order: Order | None, description: hooks.OrderDescription) -> str | None:
    """Return why no payment of an order can start now, as a clause that a shopper understands; None
    if one can.
    """
    if description.not_payable_detail is not None:
        return description.not_payable_detail
    if order and order.closed_at:
        return _("the order is closed")
    ends = [
        end.timestamp() for end in (description.payable_until, order and pay_until(order)) if end
    ]
    is_over = any(end <= timezone.now().timestamp() for end in ends)
    return _("the time to pay for it is over") if is_over else None


def _check_pace(order: Order, siblings: list[Payment]) -> None:
    """Raise unless another payment of an order may start now. Counted under its lock: of many
    simultaneous presses, each counts the others.
    """
    now = timezone.now()
    in_its_time = sum(payment.created_at >= (order.tried_since or now) for payment in siblings)
    in_last_minute = sum(payment.created_at > now - timedelta(minutes=1) for payment in siblings)
    if in_its_time >= _MOST_PER_ORDER:
        raise NotPayable(_("the time to pay for it is over"))
    if in_last_minute >= _MOST_PER_MINUTE:
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
        raise NotPayable(
            detail % {"ours": ", ".join(account.taken_currencies), "currency": price.currency},
        )
    choices = {choice.code: choice for choice in choices_for(account, price)}
    if method not in choices:
        raise InvalidRequest(
            "method",
            method,
            f"is not offered by the account: {', '.join(choices)}",
        )
    if choices[method].problem:
        raise NotPayable(
            _("this amount cannot be paid with this payment method; please choose another"),
        )
