"""Everything that a shop plugin may use besides `tillgate` and `tillgate.hooks`: values and
functions, and no models.

The names are resolved on first use, so a plugin's module can import this one without a Django
project; the functions need one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from tillgate import money as money

MODULES: Final = {
    "orders": (
        "close_order",
        "open_order",
        "order_data",
        "paid_order_keys",
        "pay_path",
        "pay_url",
        "set_order_data",
    ),
    "states": (
        "OrderState",
        "PaymentState",
        "RefundState",
        "find_payment",
        "find_refund",
        "last_change_at",
        "locked_order",
        "order_state",
        "order_states",
        "redelivered_payment",
    ),
    "payments": (
        "MethodChoice",
        "StartOutcome",
        "StartedPayment",
        "has_payments",
        "may_continue",
        "payment_methods",
        "poll",
        "start_payment",
        "wait_for_creation",
    ),
    "refunds": (
        "RefundNotPossible",
        "refund",
        "refund_order",
        "settle_refund",
        "was_withdrawn",
        "withdraw_refund",
    ),
    "reviews": (
        "MONEY_REASONS",
        "ActionResult",
        "OpenReview",
        "ReviewAction",
        "ReviewReason",
        "close_reviews",
        "count_open_reviews",
        "newest_reviews",
        "open_review",
        "open_reviews",
        "resolve_review",
    ),
    "remote": (
        "OutboxStatus",
        "RemoteState",
        "deliver_remote",
        "enqueue_remote",
        "remote_events",
        "set_remote_data",
    ),
    "staff": (
        "RefundForm",
        "admin_url",
        "badge_of",
        "just_refunded",
        "method_label",
        "money_text",
        "read_typed",
        "say_refund",
        "timeline",
    ),
    "personal": ("erase_order", "export_order"),
    "web": (
        "MethodForm",
        "absolute_url",
        "acknowledge",
        "database",
        "outside_transactions",
        "read_request",
        "receive_notification",
        "return_path",
        "terminal_of",
        "webhook_url",
        "without_atomic_requests",
    ),
    "accounts": ("check_account", "find_account"),
    "settings": (
        "SettingsLoader",
        "is_public_address",
        "is_web_address",
        "read_settings",
        "setting_names",
    ),
    "checks": ("CheckSet", "Found", "report_errors_as_warnings"),
    "fields": ("ExactField", "MoneyField", "OneDatabase", "now"),
    "http": ("DeadlineTransport", "keep_to"),
    "worker": ("run_worker",),
}
"""The public names of each module of the package, its `__all__`; type checkers find them in
`__init__.pyi`.
"""
_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}
__all__ = ["money", *_MODULE_OF]  # noqa: PLE0604  # the names are text


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
