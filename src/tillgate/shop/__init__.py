"""Everything that a shop plugin may use besides `tillgate` and `tillgate.hooks`: values and functions, and no models.

The names are resolved on first use, so a plugin's module can import this one without a Django project; the functions need one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tillgate.wire import money

if TYPE_CHECKING:
    from tillgate.shop.checks import CheckSet, Found
    from tillgate.shop.fields import ExactField, MoneyField, OneDatabase, now
    from tillgate.shop.orders import close_order, open_order, order_data, pay_path, pay_url, set_order_data, start_url
    from tillgate.shop.payments import MethodChoice, StartedPayment, StartOutcome, payment_methods, poll, start_payment
    from tillgate.shop.refunds import RefundNotPossible, refund, refund_order, settle_refund, withdraw_refund
    from tillgate.shop.remote import RemoteState, deliver_remote, enqueue_remote, remote_events, set_remote_data
    from tillgate.shop.reviews import (
        MONEY_REASONS,
        ActionNotPossible,
        ActionResult,
        OpenReview,
        ReviewAction,
        ReviewReason,
        close_reviews,
        count_open_reviews,
        find_review,
        open_review,
        open_reviews,
        resolve_review,
    )
    from tillgate.shop.settings import SettingsLoader
    from tillgate.shop.staff import (
        MAY_REFUND,
        MAY_RESOLVE,
        Line,
        RefundForm,
        admin_url,
        badge_of,
        form_id,
        method_label,
        refund_of_press,
        say_refund,
        timeline,
    )
    from tillgate.shop.states import (
        OrderState,
        PaymentState,
        RefundState,
        find_payment,
        find_refund,
        locked_order,
        order_state,
        order_states,
        redelivered_payment,
    )
    from tillgate.shop.web import (
        InsideTransaction,
        MethodForm,
        absolute_url,
        acknowledge,
        database,
        open_to_all,
        outside_transactions,
        read_request,
        receive_notification,
        return_path,
        terminal_of,
        without_atomic_requests,
    )

__all__ = [
    "MAY_REFUND",
    "MAY_RESOLVE",
    "MONEY_REASONS",
    "ActionNotPossible",
    "ActionResult",
    "CheckSet",
    "ExactField",
    "Found",
    "InsideTransaction",
    "Line",
    "MethodChoice",
    "MethodForm",
    "MoneyField",
    "OneDatabase",
    "OpenReview",
    "OrderState",
    "PaymentState",
    "RefundForm",
    "RefundNotPossible",
    "RefundState",
    "RemoteState",
    "ReviewAction",
    "ReviewReason",
    "SettingsLoader",
    "StartOutcome",
    "StartedPayment",
    "absolute_url",
    "acknowledge",
    "admin_url",
    "badge_of",
    "close_order",
    "close_reviews",
    "count_open_reviews",
    "database",
    "deliver_remote",
    "enqueue_remote",
    "find_payment",
    "find_refund",
    "find_review",
    "form_id",
    "locked_order",
    "method_label",
    "money",
    "now",
    "open_order",
    "open_review",
    "open_reviews",
    "open_to_all",
    "order_data",
    "order_state",
    "order_states",
    "outside_transactions",
    "pay_path",
    "pay_url",
    "payment_methods",
    "poll",
    "read_request",
    "receive_notification",
    "redelivered_payment",
    "refund",
    "refund_of_press",
    "refund_order",
    "remote_events",
    "resolve_review",
    "return_path",
    "say_refund",
    "set_order_data",
    "set_remote_data",
    "settle_refund",
    "start_payment",
    "start_url",
    "terminal_of",
    "timeline",
    "withdraw_refund",
    "without_atomic_requests",
]

MODULES: Final = {
    "checks": (
        "CheckSet",
        "Found",
    ),
    "fields": (
        "ExactField",
        "MoneyField",
        "OneDatabase",
        "now",
    ),
    "orders": (
        "close_order",
        "open_order",
        "order_data",
        "pay_path",
        "pay_url",
        "set_order_data",
        "start_url",
    ),
    "payments": (
        "MethodChoice",
        "StartOutcome",
        "StartedPayment",
        "payment_methods",
        "poll",
        "start_payment",
    ),
    "refunds": (
        "RefundNotPossible",
        "refund",
        "refund_order",
        "settle_refund",
        "withdraw_refund",
    ),
    "remote": (
        "RemoteState",
        "deliver_remote",
        "enqueue_remote",
        "remote_events",
        "set_remote_data",
    ),
    "reviews": (
        "MONEY_REASONS",
        "ActionNotPossible",
        "ActionResult",
        "OpenReview",
        "ReviewAction",
        "ReviewReason",
        "close_reviews",
        "count_open_reviews",
        "find_review",
        "open_review",
        "open_reviews",
        "resolve_review",
    ),
    "settings": ("SettingsLoader",),
    "staff": (
        "MAY_REFUND",
        "MAY_RESOLVE",
        "Line",
        "RefundForm",
        "admin_url",
        "badge_of",
        "form_id",
        "method_label",
        "refund_of_press",
        "say_refund",
        "timeline",
    ),
    "states": (
        "OrderState",
        "PaymentState",
        "RefundState",
        "find_payment",
        "find_refund",
        "locked_order",
        "order_state",
        "order_states",
        "redelivered_payment",
    ),
    "web": (
        "InsideTransaction",
        "MethodForm",
        "absolute_url",
        "acknowledge",
        "database",
        "open_to_all",
        "outside_transactions",
        "read_request",
        "receive_notification",
        "return_path",
        "terminal_of",
        "without_atomic_requests",
    ),
}
_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
