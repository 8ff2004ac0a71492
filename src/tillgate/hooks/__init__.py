"""The hooks: a plugin wraps the gateway with them, serves a shop or observes.

`pay`, `query` and `refund` call the gateway through the hooks. The rest of Tillgate calls only
these, so that a plugin may wrap the calls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tillgate.account import Account
from tillgate.dispatch import dispatching
from tillgate.errors import ConfigurationError, OutcomeUnknown, TillgateError
from tillgate.hooks.boundary import difference_from, fault_in, without_faulty_details
from tillgate.hooks.hookspecs import hookimpl
from tillgate.hooks.manager import build_plugin_manager, plugin_manager

# for the app alone: these are no public names
from tillgate.hooks.manager import (
    call_owner as call_owner,
)
from tillgate.hooks.manager import emit as emit
from tillgate.hooks.manager import implements as implements
from tillgate.hooks.manager import is_loaded as is_loaded
from tillgate.hooks.manager import is_registered as is_registered
from tillgate.hooks.manager import register_shop as register_shop
from tillgate.hooks.manager import remedy_without as remedy_without
from tillgate.hooks.values import (
    Customer,
    Event,
    ExampleMail,
    Finding,
    Hint,
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RemoteEvent,
    Review,
)
from tillgate.lifecycle import PaymentStatus, RefundStatus
from tillgate.wire.details import ShippingAddress
from tillgate.wire.dialects import DisputeStatus, RefundOutcome
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    ReportedDispute,
    ReportedRefund,
    Transaction,
)
from tillgate.wire.methods import Method, read_methods
from tillgate.wire.texts import described

__all__ = [
    "Customer",
    "DisputeStatus",
    "Event",
    "ExampleMail",
    "Finding",
    "Hint",
    "Order",
    "OrderDescription",
    "PaidOutcome",
    "Payment",
    "PaymentStatus",
    "Refund",
    "RefundOutcome",
    "RefundStatus",
    "RemoteEvent",
    "ReportedDispute",
    "ReportedRefund",
    "Review",
    "ShippingAddress",
    "build_plugin_manager",
    "hookimpl",
    "pay",
    "plugin_manager",
    "query",
    "refund",
]


_T = TypeVar("_T", CreatedPayment, Refunded)
_Answer = TypeVar("_Answer", CreatedPayment, Refunded, Transaction)
_log = logging.getLogger("tillgate")


def pay(
    account: Account,
    request: PaymentRequest,
    *,
    deadline_seconds: float | None = None,
) -> CreatedPayment:
    """Create a payment through the hooks, with the arguments and the errors of `Gateway.pay`."""
    return _moving_money(CreatedPayment, "pay", account, request, deadline_seconds=deadline_seconds)


def query(
    account: Account,
    reference: str,
    *,
    transaction_no: str | None = None,
    deadline_seconds: float | None = None,
    attempts: int | None = None,
) -> Transaction:
    """Query a transaction through the hooks, with the arguments and the errors of `Gateway.query`.

    `transaction_no` is the gateway's number of the payment, where it is known.
    """
    expect_gateway(account)
    answer = _ask(
        account,
        "tillgate_query",
        reference=reference,
        transaction_no=transaction_no,
        deadline_seconds=deadline_seconds,
        attempts=attempts,
    )
    if not isinstance(answer, Transaction):
        raise ConfigurationError(
            "tillgate_query",
            type(answer).__name__,
            _DROPPED.format("a Transaction"),
        )
    return _checked(account, "tillgate_query", answer)


def query_refund(
    account: Account,
    request: RefundRequest,
    refund_no: str | None = None,
) -> Refunded | None:
    """Query a refund that was sent through the hooks; None where the gateway has no such query.
    Raises as `query` does.
    """
    answer = _ask(
        account,
        "tillgate_query_refund",
        request=request,
        refund_no=refund_no,
    )
    if answer is None:
        return None
    if not isinstance(answer, Refunded):
        raise ConfigurationError(
            "tillgate_query_refund",
            type(answer).__name__,
            _DROPPED.format("a Refunded or None"),
        )
    return _checked(account, "tillgate_query_refund", answer, request)


def close(
    account: Account,
    reference: str,
    *,
    transaction_no: str | None = None,
    deadline_seconds: float | None = None,
) -> bool | None:
    """Close an open payment at the gateway, and return whether its page can no longer be paid; None
    where the gateway has no such call. Raises as `query` does.
    """
    expect_gateway(account)
    answer = _ask(
        account,
        "tillgate_close",
        reference=reference,
        transaction_no=transaction_no,
        deadline_seconds=deadline_seconds,
    )
    if answer is None or isinstance(answer, bool):
        return answer
    name = _answered_by(account, "tillgate_close")
    raise ConfigurationError(name, type(answer).__name__, "must be True, False or None")


def payment_methods(account: Account) -> tuple[Method, ...]:
    """Return the payment methods of an account, with their currencies and limits."""
    expect_gateway(account)
    answer = _ask(account, "tillgate_payment_methods")
    if answer is None:
        return account.taken_methods
    name = _answered_by(account, "tillgate_payment_methods")
    if not isinstance(answer, Sequence) or not all(isinstance(one, Method) for one in answer):
        raise ConfigurationError(name, type(answer).__name__, "must be a list of Method")
    return read_methods(answer, name)


def read_notification(
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[Hint, ...] | None:
    """Return the payments that a notification at the account's own address is about; None where no
    plugin reads it. Raises `SignatureMismatch`.
    """
    answer = _ask(
        account,
        "tillgate_read_notification",
        headers=headers,
        body=body,
    )
    if answer is None:
        return None
    if not isinstance(answer, Sequence) or not all(isinstance(one, Hint) for one in answer):
        name = _answered_by(account, "tillgate_read_notification")
        raise ConfigurationError(name, type(answer).__name__, "must be a list of Hint")
    return tuple(answer)


def examine_account(
    account: Account,
    *,
    online: bool,
    deadline_seconds: float | None = None,
    webhook_url: str | None = None,
) -> tuple[Finding, ...] | None:
    """Return a plugin's findings about the settings of an account, with `online` at the gateway
    too; None where no plugin examines it.
    """
    answer = _ask(
        account,
        "tillgate_examine_account",
        online=online,
        deadline_seconds=deadline_seconds,
        webhook_url=webhook_url,
    )
    if answer is None:
        return None
    if not isinstance(answer, Sequence) or not all(isinstance(one, Finding) for one in answer):
        name = _answered_by(account, "tillgate_examine_account")
        raise ConfigurationError(name, type(answer).__name__, "must be a list of Finding")
    return tuple(answer)


def expect_gateway(account: Account) -> None:
    """Raise `ConfigurationError` where the plugin that serves the account is not installed: nothing
    has been sent.
    """
    if plugin_manager().get_plugin(account.dialect.plugin) is None:
        remedy = (
            f"is served by the plugin {account.dialect.plugin!r}, which is not installed: "
            "install it (see `tillgate plugins`)"
        )
        raise ConfigurationError("dialect", account.dialect.name, remedy)


def _checked(
    account: Account,
    hook: str,
    answer: _Answer,
    request: RefundRequest | None = None,
) -> _Answer:
    answer = _without_faulty_details(account, hook, answer)
    fault = fault_in(account, answer)
    if request is not None and isinstance(answer, Refunded):
        fault = fault or difference_from(request, answer)
    if fault:
        raise ConfigurationError(f"{_answered_by(account, hook)}: {fault[0]}", fault[1], fault[2])
    return answer


def _without_faulty_details(account: Account, hook: str, answer: _Answer) -> _Answer:
    """Return an answer with the details that can be used, and log the others: no detail stands in
    the way of the money's answer.
    """
    answer, faults = without_faulty_details(account, answer)
    for field, value, remedy in faults:
        name = _answered_by(account, hook)
        _log.warning("%s returned %s %s, which is left out: it %s", name, field, value, remedy)
    return answer


def refund(account: Account, request: RefundRequest) -> Refunded:
    """Refund through the hooks; raises as `Gateway.refund` does."""
    return _moving_money(Refunded, "refund", account, request)


_DROPPED = (
    "must be answered with {}: the plugin returns something else, or another forgets to return "
    "what it wraps"
)


def _moving_money(
    kind: type[_T],
    operation: str,
    account: Account,
    request: PaymentRequest | RefundRequest,
    **more: object,
) -> _T:
    """Call the hook. A faulty plugin must never make a caller believe that nothing was sent
    (I6).
    """
    expect_gateway(account)
    hook = f"tillgate_{operation}"
    with dispatching() as record:
        try:
            answer = _ask(account, hook, request=request, **more)
        except Exception as error:  # a plugin may raise anything, before sending or after
            if isinstance(error, TillgateError) and (error is record.error or not record.moved):
                raise
            raise OutcomeUnknown(
                operation,
                request.reference,
                f"a plugin raised {described(error)}",
            ) from error
    if not isinstance(answer, kind):
        detail = (
            f"{hook} returned {type(answer).__name__}; it {_DROPPED.format(f'a {kind.__name__}')}"
        )
        raise OutcomeUnknown(operation, request.reference, detail)
    answer = _without_faulty_details(account, hook, answer)
    if fault := fault_in(account, answer) or difference_from(request, answer):
        raise OutcomeUnknown(
            operation,
            request.reference,
            f"{_answered_by(account, hook)} returned {fault[0]} {fault[1]}: it {fault[2]}",
        )
    return answer


def _ask(account: Account, hook: str, **arguments: Any) -> Any:
    """Call a hook of the gateway's side on the one plugin of the account's profile, within the
    wrappers of all plugins; None if it implements no such hook.
    """
    manager = plugin_manager()
    owner = manager.get_plugin(account.dialect.plugin)
    others = [
        one.plugin
        for one in getattr(manager.hook, hook).get_hookimpls()
        if one.plugin is not owner and not (one.wrapper or one.hookwrapper)
    ]
    return manager.subset_hook_caller(hook, others)(account=account, **arguments)


def _answered_by(account: Account, hook: str) -> str:
    """Return a hook with the plugins that may have answered: wrappers, and the profile's."""
    owner = account.dialect.plugin
    wrappers = [
        one.plugin_name
        for one in getattr(plugin_manager().hook, hook).get_hookimpls()
        if (one.wrapper or one.hookwrapper) and one.plugin_name != owner
    ]
    return f"{hook} of {', '.join([*wrappers, owner])}"
