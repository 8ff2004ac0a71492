"""Everything that a shop plugin may use besides `tillgate` and `tillgate.hooks`: values and functions, and no models.

The names are resolved on first use, so a plugin's module can import this one without a Django project; the functions need one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tillgate.shop.orders import OrderState, close_order, open_order, order_state, pay_url, start_url
    from tillgate.shop.payments import MethodChoice, StartedPayment, payment_methods, start_payment
    from tillgate.shop.refunds import refund, refund_order
    from tillgate.shop.remote import enqueue_remote
    from tillgate.shop.reviews import OpenReview, open_review, resolve_review, reviews_of
    from tillgate.shop.settings import SettingsLoader

__all__ = [
    "MethodChoice",
    "OpenReview",
    "OrderState",
    "SettingsLoader",
    "StartedPayment",
    "close_order",
    "enqueue_remote",
    "open_order",
    "open_review",
    "order_state",
    "pay_url",
    "payment_methods",
    "refund",
    "refund_order",
    "resolve_review",
    "reviews_of",
    "start_payment",
    "start_url",
]

_MODULES: Final = {
    "orders": ("OrderState", "close_order", "open_order", "order_state", "pay_url", "start_url"),
    "payments": ("MethodChoice", "StartedPayment", "payment_methods", "start_payment"),
    "refunds": ("refund", "refund_order"),
    "remote": ("enqueue_remote",),
    "reviews": ("OpenReview", "open_review", "resolve_review", "reviews_of"),
    "settings": ("SettingsLoader",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
